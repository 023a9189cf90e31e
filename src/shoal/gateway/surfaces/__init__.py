"""The APIs that the gateway speaks, one file each: they translate to the native request and nothing else."""
