"""The file of API keys: one JSON object a line, blank lines and lines that start with # between them.

It never holds a key, only the SHA-256 of it. A slow hash, as passwords need, would gain nothing: a key is 256 random
bits, which nobody can guess however fast each guess is, and it would cost each request milliseconds.

Writers take a lock and put a whole new file in the place of the old one, so that readers never see half of one. It must
not know requests.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import secrets
import tempfile
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import get_args

import msgspec

from shoal.errors import InvalidRequest
from shoal.types import Operation, Priority

__all__ = ["SCOPES", "Key", "add", "digest_of", "new_key", "read", "remove"]

SCOPES = ("operations", *get_args(Operation), "models", "metrics")
"""`operations` stands for all of them; `models` lists models; `metrics` reads /metrics."""

MAX_CLASSES = 16
"""Tenant classes are labels of metrics."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class Key(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a key allows. Numbers that are 0 set no limit.

    Attributes:
        id: names the key in lists and logs; the key itself holds it too.
        sha256: of the whole key, in hexadecimal.
        tenant: who shares the server with others; several keys may have one.
        tenant_class: the tenant's kind, a label of metrics.
        scopes: some of `SCOPES`.
        models: ids or patterns such as `BAAI/*`.
        priority: the most urgent one that its requests may have.
        tokens_per_minute: tokens that may be run, on average; a minute's worth may come at once.
        max_requests: requests under way at once.
        expires_at: Unix time in seconds.
    """

    id: str
    sha256: str
    tenant: str
    tenant_class: str = "standard"
    scopes: tuple[str, ...] = ("operations", "models")
    models: tuple[str, ...] = ("*",)
    priority: Priority = "interactive"
    tokens_per_minute: int = 0
    max_requests: int = 0
    created_at: int = 0
    expires_at: int = 0

    def allows(self, scope: str) -> bool:
        """Whether it has a scope, or `operations`, which holds all but `models` and `metrics`."""
        return scope in self.scopes or (scope not in ("models", "metrics") and "operations" in self.scopes)

    def allows_model(self, model: str) -> bool:
        """Whether it may use a model, by its id."""
        return "*" in self.models or any(fnmatchcase(model, pattern) for pattern in self.models)

    def has_expired(self, now: float) -> bool:
        return 0 < self.expires_at <= now


def digest_of(key: bytes) -> str:
    """What stands in the file for a key."""
    return hashlib.sha256(key).hexdigest()


def new_key() -> tuple[str, str]:
    """A new key and its id: `shoal_ID_` and 256 random bits; the first word lets scanners for leaked keys find it."""
    key_id = secrets.token_hex(4)
    return f"shoal_{key_id}_{secrets.token_urlsafe(32)}", key_id


_decode = msgspec.json.Decoder(Key).decode


def read(path: Path) -> dict[str, Key]:
    """The keys of a file, by digest.

    Raises:
        InvalidRequest: a line is wrong; names file, line and what is wrong.
        OSError: it cannot be read.
    """
    keys: dict[str, Key] = {}
    ids: set[str] = set()
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line.strip() or line.lstrip().startswith(b"#"):
            continue
        try:
            key = _decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise _wrong(path, number, str(error)) from None
        if problem := _problem_of(key):
            raise _wrong(path, number, problem)
        if key.sha256 in keys or key.id in ids:
            raise _wrong(path, number, f"the key {key.id} stands there twice")
        keys[key.sha256] = key
        ids.add(key.id)
    if len({key.tenant_class for key in keys.values()}) > MAX_CLASSES:
        raise InvalidRequest(f"{path} has more than {MAX_CLASSES} tenant classes.", param="tenant_class")
    return keys


def _problem_of(key: Key) -> str:
    for field in ("id", "tenant", "tenant_class"):
        if not _NAME.fullmatch(value := getattr(key, field)):
            return f"{field} is {value[:100]!r}; it must be 1 to 64 of A-Z a-z 0-9 _ . : -"
    if not _DIGEST.fullmatch(key.sha256):
        return "sha256 must be 64 hexadecimal digits"
    if unknown := set(key.scopes) - set(SCOPES):
        return f"scopes holds {min(unknown)[:100]!r}; allowed: {', '.join(SCOPES)}"
    for field in ("tokens_per_minute", "max_requests", "created_at", "expires_at"):
        if getattr(key, field) < 0:
            return f"{field} is {getattr(key, field)}; it must be at least 0"
    return ""


def _wrong(path: Path, number: int, what: str) -> InvalidRequest:
    return InvalidRequest(f"{path}, line {number}: {what}.", param="keys_file")


def add(path: Path, key: Key) -> None:
    """Write a key to a file, which is made if it is not there.

    Raises:
        InvalidRequest: the key or the file is wrong.
        OSError: it cannot be written.
    """
    if problem := _problem_of(key):
        raise InvalidRequest(f"{problem}.", param=problem.partition(" ")[0])
    with _changing(path) as lines:
        lines.append(msgspec.json.encode(key))


def remove(path: Path, key_id: str) -> Key:
    """Take a key out of a file; returns it.

    Raises:
        InvalidRequest: there is no such key, or the file is wrong.
        OSError: it cannot be written.
    """
    with _changing(path) as lines:
        for key in read(path).values():
            if key.id == key_id:
                lines[:] = [line for line in lines if key.sha256.encode() not in line]
                return key
        raise InvalidRequest(f"{path} has no key {key_id[:100]!r}.", param="id", hint="See `shoal keys list`.")


@contextlib.contextmanager
def _changing(path: Path) -> Iterator[list[bytes]]:
    """The lines of a file to change, written when all went well; one writer at a time."""
    path = path.resolve()
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        lines = []
        if path.exists():
            read(path)  # refuse to change what is not understood
            lines = path.read_bytes().splitlines()
        yield lines
        _replace(path, b"".join(line + b"\n" for line in lines))
    finally:
        os.close(directory)


def _replace(path: Path, text: bytes) -> None:
    # A temporary file is its owner's alone.
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
        try:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            if path.exists():
                os.fchmod(file.fileno(), path.stat().st_mode & 0o777)
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise
