"""What a framework's host does in one step, recorded as a program without a clock."""
