"""docs/performance.md and its plots, made of nothing but benchmarks/results/*.json. scripts/docs writes them.

A section stands for a result file; where the file is missing, so is the section. Where Shoal loses is worked out from
the same numbers, so that nobody has to remember to say it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import crowd_page, peers_page, scaling_page
from benchmarks.sections import Section, number, table
from shoal.bench.plots import Axis, Bar, bar_chart

__all__ = ["pages"]

PLOTS = "docs/performance"
Result = dict[str, Any]


def pages(root: Path, head: str) -> dict[str, str]:
    """The page and its plots, by path from the root of the repository.

    Args:
        head: what follows the title.
    """
    texts: list[str] = []
    files: dict[str, str] = {}
    losses: list[str] = []
    known = {path.stem: path for path in sorted((root / "benchmarks" / "results").glob("*.json"))}
    for name, (title, make) in SECTIONS.items():
        if name in known:
            result = json.loads(known.pop(name).read_text())
            section = make(result)
            images = [f"![{file}](performance/{file})\n" for file in section.plots]
            texts.append("\n".join([f"## {title}\n", _origin(name, result), section.text, *images]))
            files |= {f"{PLOTS}/{file}": svg for file, svg in section.plots.items()}
            losses += section.losses
    if known:
        rows = [f"- [{name}](../benchmarks/results/{name}.json): {_origin(name, json.loads(path.read_text()))}"
                for name, path in known.items()]  # fmt: skip
        texts.append("## Further results\n\n" + "\n".join(rows))
    behind = [f"- {loss}" for loss in losses] or ["- Nowhere in these figures."]
    lost = "\n".join(["## Where Shoal loses\n", "Worked out from the figures below.\n", *behind]) + "\n"
    return {"docs/performance.md": "\n".join(["# Performance\n", head, INTRODUCTION, lost, *texts]), **files}


INTRODUCTION = """\
Every figure comes from one command, which is named, on a machine that is named; what is compared ran in turns in one
run. A closed loop sends a request after a reply, so its latency says less than it seems to; an open loop counts latency
from the time at which a request was meant to be sent. Measure your own: `shoal bench --help`.
"""


def _origin(name: str, result: Result) -> str:
    about = result.get("machine")
    if not isinstance(about, dict):
        return f"benchmarks/results/{name}.json\n"
    versions = ", ".join(f"{package} {version}" for package, version in about.get("versions", {}).items())
    units = ", ".join(about.get("instructions", ()))
    machine = f"{about.get('cores')} cores of {about.get('cpu')} ({units})"
    return f"`{about.get('command')}`, {about.get('date')}, commit {about.get('commit')}, {machine}; {versions}.\n"


def _beside(plot_file: str, result: Result) -> Section:
    rows, losses = [], []
    bars: dict[str, dict[str, Bar | float]] = {}
    for mix, one in result["mixes"].items():
        rates = one["texts_per_s"]
        bars[mix] = {"shoal": rates["shoal"], "sentence-transformers": rates["sentence-transformers"]}
        low, high = one["ratio_range"]
        share = f"{one['share_of_matrix_rate']:.0%} of {one['share_is_of']}"
        rows.append((mix, number(rates["shoal"]), number(rates["sentence-transformers"]),
                     f"{one['ratio']:.2f} ({low:.2f} to {high:.2f})", share, _nearness(one)))  # fmt: skip
        if one["ratio"] < 1:
            losses.append(
                f"sentence-transformers in process is faster on {mix}: Shoal reaches {one['ratio']:.2f} of it."
            )
    columns = (
        "mix",
        "Shoal texts/s",
        "sentence-transformers",
        "ratio (range)",
        "share of the matrix rate",
        "worst cosine or difference",
    )
    text = (
        "Shoal over HTTP, its client counted in; sentence-transformers in process, torch, float32. Medians of rounds.\n"
    )
    plot = bar_chart(bars, title="Texts a second, one list of texts", y=Axis("texts", "1/s"))
    return Section(f"{text}\n{table(columns, rows)}", {plot_file: plot}, losses)


def _nearness(one: Mapping[str, Any]) -> str:
    return f"{one['worst_cosine']:.6f}" if "worst_cosine" in one else f"{one['worst_difference']:.0e}"


def _latency(result: Result) -> Section:
    rows = [
        (
            name,
            *(number(result[key][field]) for field in ("p50_ms", "forward_ms", "overhead_ms", "requests_per_s_at_32")),
        )
        for key, name in (("memory", "one process"), ("nats", "broker, worker, gateway"))
        if key in result
    ]
    text = "A lone short text, one request at a time; forward is the device's part of it.\n"
    fake = result.get("nats_with_fake_device", {})
    cpu = ", ".join(
        f"{name} {fake[f'{name}_cpu_us_per_request']} µs" for name in ("gateway", "worker", "broker") if fake
    )
    after = f"\nCPU a request in a cluster with a device that takes no time: {cpu}.\n" if cpu else ""
    idle = f"Ready after {result.get('ready_s')} s; idle, {result.get('idle_cpu_percent')} % of a core.\n"
    wirings = table(("wiring", "p50 ms", "forward ms", "the rest ms", "requests/s at 32"), rows)
    return Section(f"{text}\n{wirings}{after}{idle}")


def _dispatch(result: Result) -> Section:
    parts, losses = [], []
    bars: dict[str, dict[str, Bar | float]] = {}
    for cell in result["cells"]:
        name = f"K = {cell['models']}, L = {cell['objective_over_a']:g} a"
        systems = cell["systems"]
        pull = systems["shoal"]["goodput"]
        rows = [
            (system, number(one["goodput"]), f"{pull / one['goodput']:.2f}" if one["goodput"] else "", *_shares(one))
            for system, one in systems.items()
        ]
        columns = ("dispatch", "requests/s within L", "pull / this", "devices busy", "batches full", "CPU used")
        parts.append(f"### {name}\n\n{_measured_by(cell, result)}" + table(columns, rows) + _screened(cell))
        bars[name] = {system: one["goodput"] for system, one in systems.items() if _is_shown(system)}
        others = {system: one["goodput"] for system, one in systems.items() if system != "shoal"}
        if others and pull < 0.98 * max(others.values()):
            best = max(others, key=lambda system: others[system])
            losses.append(
                f"Dispatch, {name}: {best} does {number(others[best])} requests/s within L, pull {number(pull)}."
            )
    text = (
        f"{result['workers']} workers with a fake device whose batches take {result['a_ms']:g} ms and "
        f"{result['c_us']:g} µs a token, {result['request_tokens']} tokens a request, Poisson. Goodput is the highest "
        "rate at which 99 % of requests are answered within L. K is the number of models, z: popular by Zipf's law. "
        "Where nearly all of the machine's CPU was used, the cores were measured and not the dispatch.\n"
    )
    plot = bar_chart(bars, title="Goodput by dispatch", y=Axis("requests within L", "1/s"))
    return Section("\n".join([text, *parts]), {"dispatch.svg": plot}, losses)


def _measured_by(cell: Result, result: Result) -> str:
    """Of a cell that another run than the last one measured: which."""
    if cell.get("command") in (None, result["machine"]["command"]):
        return ""
    return f"Measured by `{cell['command']}` at commit {cell['commit']}.\n\n"


def _screened(cell: Result) -> str:
    """Which shipped policies were left out of a cell, and why."""
    if "screening" not in cell:
        return ""
    rate, shares = cell["screening"]["rate"], cell["screening"]["share_within"]
    ordered = sorted(shares, key=lambda name: -shares[name])
    listed = ", ".join(f"{name} {shares[name]:.1%}" for name in ordered)
    return f"\nAnswered within L at {number(rate)} requests/s, by which the policies searched were chosen: {listed}.\n"


def _is_shown(system: str) -> bool:
    return system in ("shoal", "sglang-router power_of_two", "vllm-router round_robin", "plain bounded_hash")


def _shares(one: Result) -> tuple[str, ...]:
    keys = ("busy_share", "batch_fill", "cpu_share_of_machine")
    return tuple(f"{one['at_goodput'][key]:.0%}" if key in one["at_goodput"] else "" for key in keys)


def _scale(result: Result) -> Section:
    policies = list(result["rows"][0]["shares"])
    rows = [
        (f"{row['workers']:,}", f"{row['models']:,}", f"{row['objective_over_a']} a",
         *(f"{row['shares'][policy]:.0%}" for policy in policies))
        for row in result["rows"]
    ]  # fmt: skip
    text = (
        "By simulation, models popular by Zipf's law: goodput as a share of what all workers do if every batch is "
        "full. Pull here is ideal: a free worker takes a batch, and takes none before.\n"
    )
    plots = {}
    for objective in dict.fromkeys(row["objective_over_a"] for row in result["rows"]):
        bars = {
            f"{row['workers']:,} workers, {row['models']:,} models": {
                policy: 100 * share for policy, share in row["shares"].items()
            }
            for row in result["rows"]
            if row["objective_over_a"] == objective
        }
        title = f"Goodput within L = {objective} a, by simulation"
        plots[f"dispatch-scale-{objective}a.svg"] = bar_chart(bars, title=title, y=Axis("of all full batches", "%"))
    return Section(f"{text}\n{table(('workers', 'models', 'L', *policies), rows)}", plots)


def _scaling(result: Result) -> Section:
    parts, plots, losses = scaling_page.scaling(result)
    texts = [
        f"### {title}\n\n{meaning}\n\n" + table(columns, [[number(value) for value in row] for row in rows])
        for title, columns, rows, meaning in parts
    ]
    text = "Microseconds of CPU a request in each process, over a device that takes no time.\n"
    return Section("\n".join([text, *texts]), plots, losses)


def _crowd(make: Callable[[Result], crowd_page.Page]) -> Callable[[Result], Section]:
    def section(result: Result) -> Section:
        text, columns, rows, plots, losses = make(result)
        return Section(f"{text}\n{table(columns, rows)}", plots, losses)

    return section


SECTIONS: dict[str, tuple[str, Callable[[Result], Section]]] = {
    "peers": ("Beside other servers", peers_page.peers),
    "compare": ("Beside sentence-transformers in process", partial(_beside, "compare.svg")),
    "rerank": ("Reranking, beside CrossEncoder", partial(_beside, "rerank.svg")),
    "sparse": ("Sparse vectors, beside SparseEncoder", partial(_beside, "sparse.svg")),
    "latency": ("A lone request", _latency),
    "dispatch": ("The queue beside routers", _dispatch),
    "dispatch-scale": ("Dispatch at sizes that do not fit here", _scale),
    "overload": ("More than it can do", _crowd(crowd_page.overload)),
    "fairness": ("A tenant beside a flood", _crowd(crowd_page.fairness)),
    "scaling": ("What a request costs as things grow", _scaling),
}
