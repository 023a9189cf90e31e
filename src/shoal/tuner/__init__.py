"""Finds, proves and keeps the settings with which a model is served best on a machine."""
