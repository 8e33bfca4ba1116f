"""Agent Meditation: layer documents -> commitments -> cycle report -> registry -> checkpoints -> status."""
