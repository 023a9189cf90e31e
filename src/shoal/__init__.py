"""Shoal: a fleet of small open models behind one URL."""

__version__ = "0.1.0"
