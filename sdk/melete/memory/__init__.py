"""Agent Memory State: operation -> commitment -> delta -> signature -> registry -> event -> verified history."""
