"""The Python client: `AsyncClient`, and `Client` generated from it.

It knows the wire (`shoal.types`) and HTTP, and nothing of models, runtimes or queues.
"""

from shoal.client._async import AsyncClient
from shoal.client._sync import Client
from shoal.client.entities import ExtractResult
from shoal.client.result import EmbedResult, Health, MultiVectorResult, RerankResult, ServedModel, SparseResult
from shoal.client.similarity import SimilarityResult
from shoal.client.tokens import TokenizeResult

__all__ = [
    "AsyncClient",
    "Client",
    "EmbedResult",
    "ExtractResult",
    "Health",
    "MultiVectorResult",
    "RerankResult",
    "ServedModel",
    "SimilarityResult",
    "SparseResult",
    "TokenizeResult",
]
