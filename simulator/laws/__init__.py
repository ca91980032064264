"""Laws: what things cost.  Pure functions of the world, without a clock."""
