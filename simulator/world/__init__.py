"""The described world: models, policies, clusters, scenarios.  Frozen, validated, no physics."""
