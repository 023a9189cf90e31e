"""Shoal: a fleet of small open models behind one URL.

The public names are imported when they are first used, so that `import shoal` alone costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.client import AsyncClient, Client, EmbedResult, Health
    from shoal.errors import (
        ContextLengthExceeded,
        DeadlineExceeded,
        InternalError,
        InvalidRequest,
        MethodNotAllowed,
        ModelRefused,
        NotReady,
        Overloaded,
        ShoalError,
        TooLarge,
        Unauthorized,
        UnknownModel,
        UnknownRoute,
        UnsupportedMediaType,
        UnsupportedOperation,
    )
    from shoal.types import ModelCard

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "Client",
    "ContextLengthExceeded",
    "DeadlineExceeded",
    "EmbedResult",
    "Health",
    "InternalError",
    "InvalidRequest",
    "MethodNotAllowed",
    "ModelCard",
    "ModelRefused",
    "NotReady",
    "Overloaded",
    "ShoalError",
    "TooLarge",
    "Unauthorized",
    "UnknownModel",
    "UnknownRoute",
    "UnsupportedMediaType",
    "UnsupportedOperation",
    "__version__",
]

_HOMES = dict.fromkeys(("AsyncClient", "Client", "EmbedResult", "Health"), "shoal.client") | {
    "ModelCard": "shoal.types"
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES.get(name, "shoal.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
