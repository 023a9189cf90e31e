"""Who sent a request: a key's holder, or anybody where there are no keys. It must not know routes or bodies."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from shoal.errors import Forbidden
from shoal.gateway.keys.keyfile import Key
from shoal.gateway.keys.keyring import Keyring
from shoal.gateway.keys.quotas import Quota, Quotas
from shoal.telemetry.metrics import Metrics
from shoal.types import Priority

__all__ = ["ANYBODY", "Access", "Caller"]


class Caller(Protocol):
    """Who asks, and what that allows.

    Attributes:
        tenant, key_id: "" for anybody.
        tenant_class: label of metrics; "" for anybody.
        priority: the most urgent one that its requests may have.
        counts_tokens: whether `charge` means anything.
    """

    @property
    def tenant(self) -> str: ...
    @property
    def key_id(self) -> str: ...
    @property
    def tenant_class(self) -> str: ...
    @property
    def priority(self) -> Priority: ...
    @property
    def counts_tokens(self) -> bool: ...

    def enter(self) -> None:
        """Begin a request; `leave` must follow if this succeeds.

        Raises:
            QuotaExceeded: too many are under way, or the tokens of this minute are used up.
        """
        ...

    def need(self, scope: str) -> None:
        """Raises:
        Forbidden: this is none of the caller's scopes.
        """
        ...

    def need_model(self, model: str) -> None:
        """Raises:
        Forbidden: this model is not for the caller.
        """
        ...

    def may_use(self, model: str) -> bool:
        """Whether a model is for the caller."""
        ...

    def charge(self, num_tokens: int) -> None:
        """Take an estimate off the quota.

        Raises:
            QuotaExceeded: there is less left.
        """
        ...

    def settle(self, num_tokens: int) -> None:
        """Put the true number in the place of what was charged."""
        ...

    def leave(self) -> None:
        """End the request."""
        ...


class _Anybody:
    tenant = key_id = tenant_class = ""
    priority: Priority = "interactive"
    counts_tokens = False

    def enter(self) -> None: ...
    def need(self, scope: str) -> None: ...
    def need_model(self, model: str) -> None: ...
    def charge(self, num_tokens: int) -> None: ...
    def settle(self, num_tokens: int) -> None: ...
    def leave(self) -> None: ...

    def may_use(self, model: str) -> bool:
        return True


ANYBODY: Caller = _Anybody()
"""The caller where there are no keys, and before a key was looked at."""


class _Holder:
    """The holder of a key."""

    __slots__ = ("_charged", "_key", "_quota")

    def __init__(self, key: Key, quota: Quota) -> None:
        self._key = key
        self._quota = quota
        self._charged = 0

    @property
    def tenant(self) -> str:
        return self._key.tenant

    @property
    def key_id(self) -> str:
        return self._key.id

    @property
    def tenant_class(self) -> str:
        return self._key.tenant_class

    @property
    def priority(self) -> Priority:
        return self._key.priority

    @property
    def counts_tokens(self) -> bool:
        return self._key.tokens_per_minute > 0

    def enter(self) -> None:
        self._quota.enter(self._key)

    def need(self, scope: str) -> None:
        if not self._key.allows(scope):
            raise Forbidden(f"The API key {self._key.id} does not allow {scope}.", hint=_allowed(self._key.scopes))

    def need_model(self, model: str) -> None:
        if not self._key.allows_model(model):
            hint = _allowed(self._key.models)
            raise Forbidden(f"The API key {self._key.id} does not allow {model}.", param="model", hint=hint)

    def may_use(self, model: str) -> bool:
        return self._key.allows_model(model)

    def charge(self, num_tokens: int) -> None:
        self._quota.charge(self._key, num_tokens)
        self._charged = num_tokens

    def settle(self, num_tokens: int) -> None:
        if self.counts_tokens:
            self._quota.correct(self._charged - num_tokens)
            self._charged = num_tokens

    def leave(self) -> None:
        self._quota.leave()


def _allowed(what: tuple[str, ...]) -> str:
    return f"It allows: {', '.join(what) or 'nothing'}."


class Access:
    """Finds the caller of each request.

    Attributes:
        classes: the tenant classes that there are.

    Args:
        keys_file: "" lets anybody in.
        metrics: gets the number of keys, and of files that could not be read.

    Raises:
        InvalidRequest: the file cannot be read, or a line of it is wrong.
    """

    def __init__(self, keys_file: str, metrics: Metrics) -> None:
        self.classes: tuple[str, ...] = ("",)
        self._quotas = Quotas(time.monotonic)
        failures = metrics.counter("shoal_key_file_failures", "Times that the file of keys could not be read.").child()
        metrics.gauge("shoal_keys", "API keys in force.", lambda: float(self.num_keys))
        self._keyring = Keyring(Path(keys_file), self._take, failures) if keys_file else None
        if self._keyring is not None:
            self._keyring.open()

    def identify(self, headers: Mapping[bytes, bytes]) -> Caller:
        """The caller of a request.

        Raises:
            Unauthorized: there are keys, and the request presents none that is right.
        """
        if self._keyring is None:
            return ANYBODY
        key = self._keyring.find(headers)
        return _Holder(key, self._quotas.of(key))

    def refresh(self) -> None:
        """Look whether the file has changed."""
        if self._keyring is not None:
            self._keyring.refresh()

    @property
    def num_keys(self) -> int:
        return len(self._keyring.keys) if self._keyring is not None else 0

    def _take(self, keys: list[Key]) -> None:
        self._quotas.forget_all_but(keys)
        self.classes = ("", *sorted({key.tenant_class for key in keys}))
