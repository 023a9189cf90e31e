"""The device side: pulls chunks, tokenises, batches, runs them in a runtime host, answers. Never speaks HTTP."""

from shoal.worker.worker import Worker

__all__ = ["Worker"]
