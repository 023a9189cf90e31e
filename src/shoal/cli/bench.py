"""`shoal bench`: load on one or more servers, and what it shows; `shoal bench compare` puts two side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from shoal.cli.options import Command, NewFile, Number, settings
from shoal.settings import ClientSettings

__all__ = ["bench"]


class _Bench(click.Group):
    """A group whose command `run` need not be named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_Bench)
def bench() -> None:
    """Measure servers: latency and throughput under a load that you choose.

    \b
    shoal bench                                             short texts, closed loop, the server on this machine
    shoal bench --rate 200 --text my.txt --html report.html
    shoal bench --find-rate --p99-ms 50 ours=shoal+http://127.0.0.1:8080 theirs=tei+http://127.0.0.1:3000
    shoal bench compare http://127.0.0.1:8080 openai+https://api.openai.com/v1#text-embedding-3-small --text my.txt
    """


def _common(function: Any) -> Any:
    options = (
        click.option("--text", type=click.Path(exists=True, dir_okay=False, path_type=Path),
                     help="Texts to send, one a line; a .jsonl holds objects with text; .gz is unpacked."),
        click.option("--model", default="", help="Model of targets that name none."),
        click.option("--key", "keys", multiple=True, metavar="NAME=VARIABLE",
                     help="Variable that holds the API key of the target NAME."),
        click.option("--json", "json_file", type=NewFile(), help="Write figures here."),
        click.option("--html", "html_file", type=NewFile(), help="Write a report with plots here."),
        click.option("--processes", type=click.IntRange(1, 256), default=1, show_default=True,
                     help="Processes of the generator."),
        click.option("--quiet", "-q", is_flag=True, help="No progress bar."),
    )  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


@bench.command(cls=Command)
@click.argument("targets", nargs=-1)
@click.option(
    "--rate",
    type=Number(0, min_open=True),
    help="Open loop: requests a second, at random (Poisson). With --find-rate: the first one that is tried.",
)
@click.option("--burst", type=click.IntRange(1), default=1, show_default=True,
              help="Open loop: requests that come at the same moment; the mean rate stays.")  # fmt: skip
@click.option("--trace", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Open loop: replay these times in seconds, one a line.")  # fmt: skip
@click.option("--speed", type=Number(0, min_open=True), default=1.0, show_default=True,
              help="Replay a trace so many times faster.")  # fmt: skip
@click.option("--concurrency", type=click.IntRange(1), default=16, show_default=True,
              help="Closed loop, if neither --rate nor --trace is given: connections.")  # fmt: skip
@click.option("--find-rate", is_flag=True, help="Find the highest Poisson rate at which --p99-ms holds.")
@click.option("--p99-ms", type=Number(0, min_open=True), default=50.0, show_default=True,
              help="With --find-rate: the limit.")  # fmt: skip
@click.option("--mix", type=click.Choice(["lines", "short", "medium", "mixed"]),
              help="Lines of --text as they are, or runs of its words: 10 to 14, 90 to 126, 5 to 300. Without --text, "
              "of common English words.  [default: lines with --text, else short]")  # fmt: skip
@click.option("--items", type=click.IntRange(1, 100_000), default=1, show_default=True,
              help="Texts in a request; for reranking, documents.")  # fmt: skip
@click.option("--duration-s", type=Number(0, min_open=True), default=5.0, show_default=True,
              help="Length of each stretch of load.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True,
              help="Stretches for each target; targets take turns.")  # fmt: skip
@click.option("--warm-up-s", type=Number(0), default=1.0, show_default=True,
              help="Load on each target before anything counts.")  # fmt: skip
@click.option("--timeout-s", type=Number(0, min_open=True), default=30.0, show_default=True,
              help="After this a request has failed.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Of texts and arrivals.")
@_common
@settings(server=ClientSettings)
def run(
    targets: tuple[str, ...],
    text: Path | None,
    mix: str | None,
    items: int,
    find_rate: bool,
    p99_ms: float,
    duration_s: float,
    rounds: int,
    warm_up_s: float,
    timeout_s: float,
    processes: int,
    seed: int,
    model: str,
    keys: tuple[str, ...],
    json_file: Path | None,
    html_file: Path | None,
    quiet: bool,
    server: ClientSettings,
    **when: Any,
) -> int:
    """Load TARGETS, each [NAME=][KIND+]URL[#MODEL]; without any, Shoal at --url. This is what `shoal bench` does.

    KIND is the API: shoal, shoal-json, openai (if none is named), openai-base64, voyage, tei, cohere; to rank
    documents shoal-rerank, rerank (Jina's and others' /v1/rerank), cohere-rerank, tei-rerank. URL is what that API's
    client takes.

    With --rate or --trace requests are sent when they are meant to be, and latency counts from then (open loop). Ends
    with 1 if nothing was answered, or if the generator could not keep up, as its figures then are about itself; with
    130 after Ctrl-C, which shows what was finished. The generator raises its own priority where that is allowed, but
    leaves one that you chose (`nice`) as it is.

    \b
    shoal bench run --concurrency 32 --items 64 --mix medium
    shoal bench run --rate 100 tei+http://127.0.0.1:3000 shoal+http://127.0.0.1:8080
    shoal bench run --key theirs=VOYAGE_API_KEY theirs=voyage+https://api.voyageai.com/v1#voyage-3.5
    """
    from shoal.bench.asking import check
    from shoal.bench.limits import check_arrivals, most_connections
    from shoal.bench.measure import generator
    from shoal.bench.plan import Load
    from shoal.cli import benching
    from shoal.cli.bench_loads import find, in_rounds

    arrivals = benching.arrivals(**when)
    check_arrivals(arrivals, duration_s, processes)
    found = benching.targets(targets, keys, model, server)
    # To rank, a query goes with the documents.
    requests = {is_ranked: benching.requests(text, mix, items + is_ranked, seed)
                for is_ranked in {benching.is_ranked(target) for target in found}}  # fmt: skip
    if find_rate and arrivals.kind not in ("closed", "poisson"):
        raise click.UsageError("--find-rate tries Poisson rates: it goes with neither --trace nor --burst.")
    for target in found:
        check(target, requests[benching.is_ranked(target)][0])
    connections = min(1024, most_connections())
    loads = [
        Load(target, arrivals, requests[benching.is_ranked(target)], duration_s, timeout_s, seed, connections)
        for target in found
    ]
    facts = [
        ("requests", benching.described(text, mix, items)),
        ("targets", "; ".join(benching.described_target(one) for one in found)),
    ]
    with benching.interruptible(), generator(processes) as senders:
        if find_rate:
            rates, page = find(senders, loads, p99_ms, facts, is_shown=not quiet)
        else:
            rates, page = in_rounds(senders, loads, rounds, warm_up_s, facts, is_shown=not quiet)
    result = {"facts": dict(page.facts), "arrivals": arrivals.text, "warnings": page.warnings, "targets": rates}
    benching.publish(page, result, json_file, html_file)
    return benching.exit_code(page)


_price = Number(0, min_open=True)


@bench.command(cls=Command)
@click.argument("ours")
@click.argument("theirs")
@click.option("--machine-price", type=_price, help="US dollars an hour of the machine that OURS runs on.")
@click.option("--price", type=_price,
              help="Of THEIRS, US dollars per million tokens.  [default: as the package lists it]")  # fmt: skip
@click.option("--their-machine-price", type=_price, help="US dollars an hour, if THEIRS runs on a machine too.")
@click.option("--queries", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="With --qrels: queries to the texts of --text (BEIR's queries.jsonl).")  # fmt: skip
@click.option("--qrels", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="What is relevant to each query (BEIR's test.tsv: query-id, corpus-id, score).")  # fmt: skip
@click.option("--max-texts", type=click.IntRange(2), default=1000, show_default=True,
              help="Texts used for speed and neighbours; with --qrels all are embedded besides.")  # fmt: skip
@click.option("--batch-items", type=click.IntRange(1), default=32, show_default=True, help="Texts in a request.")
@click.option("--concurrency", type=click.IntRange(1), default=4, show_default=True, help="Requests at once.")
@click.option("--duration-s", type=Number(0, min_open=True), default=5.0, show_default=True,
              help="Length of each stretch of load.")  # fmt: skip
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True,
              help="Stretches for each server and load; servers take turns.")  # fmt: skip
@_common
def compare(
    ours: str,
    theirs: str,
    text: Path | None,
    model: str,
    keys: tuple[str, ...],
    machine_price: float | None,
    price: float | None,
    their_machine_price: float | None,
    queries: Path | None,
    qrels: Path | None,
    max_texts: int,
    processes: int,
    json_file: Path | None,
    html_file: Path | None,
    quiet: bool,
    **effort: Any,
) -> int:
    """Put OURS beside THEIRS, a server of your own or a managed endpoint, on your own texts.

    Shows the latency of lone requests, throughput, cost, and how far both agree on which texts are alike; with
    --queries and --qrels how well each finds what is relevant. THEIRS is sent the texts: mind what they are, and what
    it charges.

    \b
    shoal bench compare http://127.0.0.1:8080 theirs=openai+https://api.openai.com/v1#text-embedding-3-small \\
        --key theirs=OPENAI_API_KEY --machine-price 0.10 --text my.txt --html report.html
    """
    from shoal.bench.asking import check
    from shoal.bench.compare import Effort, Side, check_kinds, comparison_page
    from shoal.bench.compare import compare as measure
    from shoal.bench.limits import check_concurrency
    from shoal.bench.measure import generator
    from shoal.cli import benching

    if text is None:
        raise click.UsageError("Name your texts with --text.")
    texts, collection = benching.texts_and_collection(text, queries, qrels, max_texts)
    targets = benching.targets((ours, theirs), keys, model, ClientSettings())
    check_kinds(targets)
    sides = [Side(targets[0], machine_price), Side(targets[1], their_machine_price, price)]
    for side in sides:
        check(side.target, texts[:2])
    given = Effort(**effort)
    check_concurrency(given.concurrency, processes)
    seconds = 4 * given.rounds * given.duration_s
    with (
        benching.interruptible(),
        generator(processes) as senders,
        benching.progress(4 * given.rounds + 4, f"{seconds:.0f} s and more", is_shown=not quiet) as advance,
    ):
        result = measure(senders, sides, texts, given, collection, advance)
    facts = [
        ("texts", f"{len(texts)} of {text}"),
        ("servers", "; ".join(benching.described_target(target) for target in targets)),
        (
            "load",
            f"closed loop: lone requests; then {given.concurrency} connections with {given.batch_items} texts each",
        ),
        ("rounds", f"{given.rounds} of {given.duration_s:g} s each, servers taking turns"),
    ]
    page = comparison_page(result, facts)
    if collection is not None and collection.num_unknown:
        said = f"{collection.num_unknown:,} judgements in {qrels} name a query or document that is not there: left out."
        page = page._replace(warnings=[*page.warnings, said])
    benching.publish(page, {"facts": dict(facts), **result}, json_file, html_file)
    return benching.exit_code(page)
