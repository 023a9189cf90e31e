"""Devices and inference libraries. `base` says what a runtime is, `registry` which there are."""
