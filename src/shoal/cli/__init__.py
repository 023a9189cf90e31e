"""The `shoal` command: parses, then calls functions that know nothing of argv or the environment."""
