"""The encoder families: one row each. A new family is a row in one of these files and a graph in the runtimes.

A row says which keys of config.json matter, what they default to in transformers, which values are understood, and
which keys change nothing at inference; see `configs.Family`. It knows no graph and no tokenizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.catalog.configs import Family
from shoal.catalog.families import bert, decoders, relative, rotary
from shoal.catalog.files import refusal

__all__ = ["FAMILIES", "family_of"]

FAMILIES: tuple[Family, ...] = (*bert.FAMILIES, *rotary.FAMILIES, *relative.FAMILIES, *decoders.FAMILIES)


def family_of(file: str, config: Mapping[str, Any]) -> Family:
    """The row for a config.json.

    Raises:
        ModelRefused: its model_type has none.
    """
    model_type = config.get("model_type")
    for family in FAMILIES:
        if model_type in family.model_types:
            return family
    known = ", ".join(name for family in FAMILIES for name in family.model_types)
    raise refusal(file, "model_type", f"is {model_type!r}; known are {known}.")
