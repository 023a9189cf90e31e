"""Shoal's queue against routers, on fake devices that all are the same. `python -m benchmarks.dispatch`."""
