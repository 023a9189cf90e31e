"""Facts about models: from a name to files that are understood completely, or to an error that says why not.

`resolve` is the way in. Imports no inference library and no tokenizer; only `hub` may use the network.
"""

from shoal.catalog.entries import Entry, entries
from shoal.catalog.fake import fake_spec
from shoal.catalog.files import MissingFile
from shoal.catalog.names import near_names
from shoal.catalog.resolving import local_names, pull, resolve

__all__ = ["Entry", "MissingFile", "entries", "fake_spec", "local_names", "near_names", "pull", "resolve"]
