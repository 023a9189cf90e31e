"""Models that a worker could serve: what may be said about each now, and how to get its spec when it is wanted."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Protocol, runtime_checkable

import msgspec

from shoal.catalog.spec import ModelSpec
from shoal.types import ModelCard

__all__ = ["Loader", "Resolve", "Source", "as_source", "resolve_spec"]

Resolve = Callable[[], ModelSpec | Awaitable[ModelSpec]]


@runtime_checkable
class Loader(Protocol):
    """A callable that finds a model's spec when it is wanted, and knows its card before."""

    card: ModelCard

    def __call__(self) -> ModelSpec | Awaitable[ModelSpec]: ...


class Source(msgspec.Struct, frozen=True):
    """A model that could be loaded: what may be said about it now, and how to get its spec."""

    card: ModelCard
    resolve: Resolve


async def as_source(given: ModelSpec | Loader | Resolve) -> Source:
    """A spec is its own source; a callable without a card is resolved now."""
    if isinstance(given, Loader):
        return Source(given.card, given)
    spec = given if isinstance(given, ModelSpec) else await resolve_spec(given)
    return Source(spec.card, lambda: spec)


async def resolve_spec(resolve: Resolve) -> ModelSpec:
    """The spec, read in a thread where that blocks."""
    spec = resolve() if inspect.iscoroutinefunction(resolve) else await asyncio.to_thread(resolve)
    return spec if isinstance(spec, ModelSpec) else await spec
