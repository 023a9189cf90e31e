"""API keys: who may do what, and how much of it.

keyfile   the file: keys hashed at rest, written by `shoal keys`
keyring   the keys in force: found by their digest, read again when the file changes
quotas    what a key has left: tokens of this minute, requests at once
callers   one request's caller: known by its key, or anybody where there are no keys
"""

from shoal.gateway.keys.callers import ANYBODY, Access, Caller

__all__ = ["ANYBODY", "Access", "Caller"]
