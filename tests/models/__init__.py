"""The registries as their specifications describe them, in plain Python that shares nothing with contracts or SDK."""
