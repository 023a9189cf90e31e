"""Two servers side by side on the user's own texts: latency, throughput, cost, and how far they agree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from shoal.bench.asking import Answers, embed_all
from shoal.bench.measure import Generator, interleave
from shoal.bench.neighbours import Collection, ndcg, overlap, top_k
from shoal.bench.plan import Arrivals, Load
from shoal.bench.plots import Axis, Bar, Series, bar_chart, cdf_chart
from shoal.bench.prices import machine_usd_per_million, price_of
from shoal.bench.report import Page, Table
from shoal.bench.summary import row, shown, warnings_of
from shoal.bench.targets import KINDS, Target
from shoal.errors import InvalidRequest

__all__ = ["Effort", "Side", "check_kinds", "compare", "comparison_page"]

NEIGHBOURS = 10
NDCG_AT = 10


class Side(msgspec.Struct, frozen=True):
    """One of the two, and what it costs.

    Attributes:
        usd_per_hour: of the machine that it runs on, if that is what is paid for.
        usd_per_million_tokens: if tokens are; without either, the price list is asked for the model.
    """

    target: Target
    usd_per_hour: float | None = None
    usd_per_million_tokens: float | None = None


class Effort(msgspec.Struct, frozen=True):
    """How much is asked of each side."""

    duration_s: float = 5.0
    rounds: int = 3
    batch_items: int = 32
    concurrency: int = 4


def check_kinds(targets: Sequence[Target]) -> None:
    """
    Raises:
        InvalidRequest: one is asked in an API that gives no dense vectors; names those that do.
    """
    able = [kind for kind in KINDS if KINDS[kind].operation == "embed" and kind != "shoal-sparse"]
    for target in targets:
        if target.kind not in able:
            raise InvalidRequest(
                f"{target.name} is asked as {target.kind}, which gives no dense vectors to compare.",
                hint=f"These do: {', '.join(able)}. `shoal bench run` measures the others.",
            )


def compare(
    generator: Generator,
    sides: Sequence[Side],
    texts: Sequence[str],
    effort: Effort,
    collection: Collection | None,
    on_step: Callable[[], None],
) -> dict[str, Any]:
    """Figures of both sides under their names, and of both together.

    Latency is that of lone requests with one text, throughput that of `concurrency` connections with `batch_items`
    texts each; both take turns in rounds. Then each side embeds all texts once, and the collection if there is one.

    Raises:
        ShoalError: a side does not answer as it should.
    """
    singles = [[text] for text in texts]
    batches = [list(texts[start : start + effort.batch_items]) for start in range(0, len(texts), effort.batch_items)]

    def loads(requests: list[list[str]], concurrency: int) -> list[Load]:
        arrivals = Arrivals("closed", concurrency=concurrency)
        return [Load(side.target, arrivals, requests, effort.duration_s, timeout_s=120.0) for side in sides]

    lone = interleave(generator, loads(singles, 1), effort.rounds, on_step)
    full = interleave(generator, loads(batches, effort.concurrency), effort.rounds, on_step)
    vectors: dict[str, Answers] = {}
    results: dict[str, Any] = {}
    for side in sides:
        name = side.target.name
        vectors[name] = embed_all(side.target, texts, effort.batch_items, effort.concurrency)
        on_step()
        tokens_per_text = vectors[name].num_tokens / len(texts)
        throughput = row(full[name])
        results[name] = {
            "target": msgspec.to_builtins(msgspec.structs.replace(side.target, api_key="")),
            "lone": row(lone[name]),
            "throughput": throughput,
            "dimensions": vectors[name].vectors.shape[1],
            "tokens_per_text": round(tokens_per_text, 2),
            "cost": _cost(side, throughput["items_per_s"]["median"], tokens_per_text),
            **({"ndcg_at_10": _ndcg(side.target, collection, effort)} if collection is not None else {}),
        }
        on_step()
    first, second = (answers.vectors for answers in vectors.values())
    k = min(NEIGHBOURS, len(texts) - 1)
    shared = overlap(top_k(first, first, k, is_self=True), top_k(second, second, k, is_self=True))
    return {"sides": results, "texts": len(texts), "neighbours": k, "shared_neighbours": round(shared, 4)}


def _cost(side: Side, texts_per_s: float, tokens_per_text: float) -> dict[str, Any]:
    """US dollars per million texts like these and per million tokens, and what that rests on; empty if unknown."""
    if side.usd_per_hour is not None and texts_per_s:
        per_text = machine_usd_per_million(side.usd_per_hour, texts_per_s)
        per_token = per_text / tokens_per_text if tokens_per_text else None
        return _priced(per_text, per_token, f"machine at {side.usd_per_hour:g} $/h, always busy")
    listed = price_of(side.target.model)
    usd, basis = side.usd_per_million_tokens, "as given"
    if usd is None and listed is not None:
        usd, basis = listed.usd, f"{listed.source}, seen {listed.seen}"
    if usd is None:
        return {}
    return _priced(usd * tokens_per_text if tokens_per_text else None, usd, basis)


def _priced(per_texts: float | None, per_tokens: float | None, basis: str) -> dict[str, Any]:
    rounded = [None if usd is None else round(usd, 6) for usd in (per_texts, per_tokens)]
    return {"usd_per_million_texts": rounded[0], "usd_per_million_tokens": rounded[1], "basis": basis}


def _ndcg(target: Target, collection: Collection, effort: Effort) -> float:
    documents = embed_all(target, collection.documents, effort.batch_items, effort.concurrency, "document").vectors
    queries = embed_all(target, collection.queries, effort.batch_items, effort.concurrency, "query").vectors
    return round(ndcg(top_k(queries, documents, NDCG_AT), collection.gains), 4)


def comparison_page(result: dict[str, Any], facts: Sequence[tuple[str, str]]) -> Page:
    """The report."""
    sides: dict[str, dict[str, Any]] = result["sides"]
    latency = Table(
        "A lone request with one text",
        ("server", "p50 ms", "p90", "p99", "p99.9"),
        [(name, *(shown(side["lone"]["latency_ms"][key]) for key in ("p50", "p90", "p99", "p99.9")))
         for name, side in sides.items()],
    )  # fmt: skip
    throughput = Table(
        "Many texts, and what they cost",
        ("server", "texts/s", "tokens/s", "tokens a text", "$ per million tokens", "$ per million texts"),
        [(name, *_rates(side)) for name, side in sides.items()],
        note="; ".join(f"{name}: {side['cost']['basis']}" for name, side in sides.items() if side["cost"])
        or "No price is known: give --machine-price or --price.",
    )
    agreement = Table(
        "Agreement",
        ("server", "dimensions", f"neighbours shared (of {result['neighbours']})", "nDCG@10"),
        [
            (
                name,
                str(side["dimensions"]),
                f"{result['shared_neighbours']:.1%}",
                shown(side.get("ndcg_at_10"), "not asked"),
            )
            for name, side in sides.items()
        ],
        note="Shared: of each text's nearest neighbours among the others, those that both servers name.",
    )
    plots = [
        cdf_chart(
            [Series(name, [tuple(point) for point in side["lone"]["distribution"]]) for name, side in sides.items()],
            title="Latency of a lone request",
            x=Axis("latency", "ms", is_log=True),
        ),
        bar_chart(
            {"texts/s": {name: _bar(side["throughput"]["items_per_s"]) for name, side in sides.items()}},
            title="Throughput, medians and ranges of rounds",
            y=Axis("texts", "1/s"),
        ),
    ]
    return Page("Comparison", facts, _warnings(sides), [latency, throughput, agreement], plots)


def _rates(side: dict[str, Any]) -> tuple[str, ...]:
    full, cost = side["throughput"], side["cost"]
    tokens = full["tokens_per_s"]["median"]
    return (
        shown(full["items_per_s"]["median"]),
        shown(tokens or None, "not told"),
        shown(side["tokens_per_text"] or None, "not told"),
        shown(cost.get("usd_per_million_tokens"), "unknown"),
        shown(cost.get("usd_per_million_texts"), "unknown"),
    )


def _warnings(sides: dict[str, dict[str, Any]]) -> list[str]:
    parts = ("lone", "throughput")
    return [line for name, side in sides.items() for part in parts for line in warnings_of(name, side[part])]


def _bar(spread: dict[str, float]) -> Bar:
    return Bar(spread["median"], spread["least"], spread["most"])
