"""Processes: puts gateway, worker, queue and broker together, and runs them until a signal comes.

Functions here take settings, never argv or the environment, block, and return an exit code.
"""

from shoal.launch.processes import run_broker, run_gateway, run_worker
from shoal.launch.serve import serve

__all__ = ["run_broker", "run_gateway", "run_worker", "serve"]
