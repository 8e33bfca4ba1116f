"""Memories as other programs know them: the models of the `memorywire` package, and Awareness-style cards."""
