"""Shoal: a fleet of small open models behind one URL.

The public names are imported when they are first used, so that `import shoal` alone costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.client import (
        AsyncClient,
        Client,
        EmbedResult,
        ExtractResult,
        Health,
        MultiVectorResult,
        RerankResult,
        ServedModel,
        SimilarityResult,
        SparseResult,
        TokenizeResult,
    )
    from shoal.errors import (
        ContextLengthExceeded,
        DeadlineExceeded,
        Forbidden,
        InternalError,
        InvalidRequest,
        MethodNotAllowed,
        ModelRefused,
        NotReady,
        Overloaded,
        QuotaExceeded,
        ShoalError,
        TooLarge,
        Unauthorized,
        UnknownModel,
        UnknownRoute,
        UnsupportedMediaType,
        UnsupportedOperation,
    )

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "Client",
    "ContextLengthExceeded",
    "DeadlineExceeded",
    "EmbedResult",
    "ExtractResult",
    "Forbidden",
    "Health",
    "InternalError",
    "InvalidRequest",
    "MethodNotAllowed",
    "ModelRefused",
    "MultiVectorResult",
    "NotReady",
    "Overloaded",
    "QuotaExceeded",
    "RerankResult",
    "ServedModel",
    "ShoalError",
    "SimilarityResult",
    "SparseResult",
    "TokenizeResult",
    "TooLarge",
    "Unauthorized",
    "UnknownModel",
    "UnknownRoute",
    "UnsupportedMediaType",
    "UnsupportedOperation",
    "__version__",
]

_OF_CLIENT = {
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
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "shoal.client" if name in _OF_CLIENT else "shoal.errors"
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
