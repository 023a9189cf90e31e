"""Other software that serves the demo model, each in its own environment. `python -m benchmarks.peers` runs all."""
