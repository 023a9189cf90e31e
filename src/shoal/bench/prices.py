"""What embedding costs: the price list of managed endpoints that ships in the package, and a machine by the hour."""

from __future__ import annotations

from importlib import resources

import msgspec
import yaml

__all__ = ["Price", "machine_usd_per_million", "price_of"]


class Price(msgspec.Struct, frozen=True):
    """US dollars for a million input tokens of a model, when that was seen, and where."""

    model: str
    usd: float
    seen: str
    source: str


def price_of(model: str) -> Price | None:
    """The listed price of a model, by its name without what stands before a slash; None if it is not listed."""
    text = resources.files("shoal.bench").joinpath("prices.yaml").read_text()
    rows = [msgspec.convert({**row, "seen": str(row["seen"])}, Price) for row in yaml.safe_load(text)["models"]]
    return next((price for price in rows if price.model == model.rpartition("/")[2]), None)


def machine_usd_per_million(usd_per_hour: float, per_s: float) -> float:
    """What a million tokens (or texts) cost on a machine that does `per_s` of them a second, all the time."""
    return usd_per_hour / 3600 / per_s * 1e6
