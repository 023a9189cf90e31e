"""Shoal beside its peers: the demo model, the same texts, everything interleaved.

    python -m benchmarks.peers --json benchmarks/results/peers.json [--quick] [--minutes 9 --resume]

All servers are up at the same time; only one is loaded at any time, and they take turns in rounds. Of each is measured:

- a lone request of 16 tokens (closed loop, one connection), and texts of 28 tokens, one a request, at 32 connections;
- for each of three mixes (16 tokens, 128, 5 to 300 words) one text a request at 32 connections, and 64 texts a request
  at 2 connections (closed loops);
- for each mix one text a request as Poisson at half of Shoal's own closed-loop rate (open loop);
- fidelity: cosine to the vectors of sentence-transformers in float32, worst and mean of texts of all lengths;
- the machine's matrix rate, beside each load;
- of sentence-transformers besides, as a library without any server: `encode` of 64 texts.
A peer whose environment cannot be made, that does not start or is far too slow for a load is listed with the reason.

A load is written to the file when it is done. With --minutes no load is begun after that time; the same command with
--resume goes on where the last one stopped. --loads measures some again and keeps the others.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import environments, machine
from benchmarks.peers import embed_anything, fastembed, infinity, library, sentence_transformers, shoal_itself, vllm
from benchmarks.peers.base import Peer, Running, started, versions
from benchmarks.peers.loads import LOADS, MIXES, Cell, Measurement, gflop_per_text, measure, texts_of
from shoal.bench.asking import embed_all
from shoal.bench.measure import generator
from shoal.bench.summary import shown
from shoal.errors import ShoalError

PEERS: tuple[Peer, ...] = (
    *shoal_itself.PEERS, *sentence_transformers.PEERS, *infinity.PEERS, *fastembed.PEERS, *embed_anything.PEERS,
)  # fmt: skip
REFERENCE = "sentence-transformers"
FIDELITY_TEXTS = 12
IDLE_S = 3.0
Result = dict[str, Any]


def fidelity(running: list[Running], absent: dict[str, str]) -> dict[str, dict[str, float]]:
    """Cosines to the reference's vectors through HTTP. A peer that does not answer is left out from here on."""
    texts = [text for mix in MIXES for text in texts_of(mix, 11, FIDELITY_TEXTS)]
    vectors = {}
    for one in list(running):
        try:
            vectors[one.peer.name] = embed_all(one.target, texts, 8, 1).vectors
        except ShoalError as error:
            absent[one.peer.name] = str(error)
            running.remove(one)
            print(f"{one.peer.name} is left out: {error}", file=sys.stderr, flush=True)
    if REFERENCE not in vectors:
        return {}
    unit = {name: rows / np.linalg.norm(rows, axis=1, keepdims=True) for name, rows in vectors.items()}
    cosines = {name: np.sum(rows * unit[REFERENCE], axis=1) for name, rows in unit.items()}
    return {
        name: {"worst": round(float(values.min()), 6), "mean": round(float(values.mean()), 6)}
        for name, values in cosines.items()
    }


def idle_shares(running: Sequence[Running]) -> dict[str, float]:
    """CPU of a core that each server uses while nobody asks."""
    before = {one.peer.name: machine.process_cpu_s(one.pid) for one in running}
    time.sleep(IDLE_S)
    return {
        one.peer.name: round((machine.process_cpu_s(one.pid) - before[one.peer.name]) / IDLE_S, 3) for one in running
    }


def report(name: str, measured: Measurement) -> None:
    """A line a peer."""
    print(name, flush=True)
    for peer, figures in measured.rows.items():
        p50, p99 = (shown(figures["latency_ms"][key]) for key in ("p50", "p99"))
        rates = "   ".join(f"{figures[key]['median']:9.1f} {key[:-6]}/s" for key in ("requests_per_s", "items_per_s"))
        failed = f"   {figures['failed']} failed" if figures["failed"] else ""
        print(f"  {peer:32} {rates}   p50 {p50} ms   p99 {p99} ms{failed}", flush=True)
    for peer, reason in measured.left_out.items():
        print(f"  {peer:32} left out: {reason}", flush=True)


@contextlib.contextmanager
def all_started(peers: Sequence[Peer], root: Path, absent: dict[str, str]) -> Iterator[list[Running]]:
    """Those that start; why the others do not stands in `absent`."""
    with contextlib.ExitStack() as stack:
        running: list[Running] = []
        for peer in peers:
            try:
                running.append(stack.enter_context(started(peer, root)))
                print(f"{peer.name} answers after {running[-1].ready_s:.1f} s", file=sys.stderr, flush=True)
            except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
                absent[peer.name] = str(error)
                print(f"{peer.name} is left out: {error}", file=sys.stderr, flush=True)
        yield running


def about(running: list[Running], options: argparse.Namespace, absent: dict[str, str]) -> Result:
    """Everything of a result but its loads."""
    described: Result = {
        "machine": machine.describe(),
        "model": running[0].peer.model,
        "rounds": options.rounds,
        "stretch_s": options.seconds,
        "fidelity": fidelity(running, absent),
        "absent": absent,
        "idle_cpu_share": idle_shares(running),
        "loads": {},
        "left_out": {},
        "measured_at": {},
    }
    described["peers"] = {
        one.peer.name: {"note": one.peer.note, "ready_s": round(one.ready_s, 1),
                        "versions": versions(one.peer, options.environments)}
        for one in running
    }  # fmt: skip
    return described


def wanted_loads(options: argparse.Namespace, known: Result) -> list[Cell]:
    """Of all loads those that are asked for and, when resuming, not measured yet."""
    asked = [cell for cell in LOADS if not options.loads or any(part in cell.name for part in options.loads)]
    return [cell for cell in asked if not (options.resume and cell.name in known.get("loads", {}))]


def measure_all(cells: Sequence[Cell], running: Sequence[Running], result: Result, options: argparse.Namespace) -> bool:
    """Measure load by load, keep the file up to date; False if time ran out."""
    ends_at = time.monotonic() + options.minutes * 60
    with generator(1) as senders:
        for cell in cells:
            if time.monotonic() > ends_at:
                return False
            start = time.monotonic()
            measured = measure(cell, running, senders, options.rounds, options.seconds, result["loads"])
            report(f"{cell.name} ({time.monotonic() - start:.0f} s)", measured)
            for figures in measured.rows.values():
                del figures["distribution"]
            result["loads"][cell.name] = measured.rows
            result["left_out"][cell.name] = measured.left_out
            result["measured_at"][cell.name] = {
                "commit": machine.commit(), "matrix_rate_gflops": machine.matrix_rate_gflops(),
                "gflop_per_text": gflop_per_text(cell.mix),
            }  # fmt: skip
            write(options.json, result)
    return True


def write(path: Path | None, result: Result) -> None:
    """The file, if one is wanted, with loads in their own order."""
    if path:
        for key in ("loads", "left_out", "measured_at"):
            result[key] = {cell.name: result[key][cell.name] for cell in LOADS if cell.name in result[key]}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=2) + "\n")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=[peer.name for peer in PEERS], help="default: all")
    parser.add_argument("--loads", nargs="*", metavar="PART", help="only loads with this in their names")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of each stretch")
    parser.add_argument("--quick", action="store_true", help="one short round, no library")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no load after so long")
    parser.add_argument("--resume", action="store_true", help="keep the loads that the file has")
    parser.add_argument("--environments", type=Path, default=environments.ROOT)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 1, 1.0
    return options


def main() -> None:
    options = parsed()
    is_kept = options.json and options.json.exists() and (options.resume or options.loads)
    known: Result = json.loads(options.json.read_text()) if is_kept else {}
    cells = wanted_loads(options, known)
    chosen = [peer for peer in PEERS if not options.only or peer.name in options.only]
    is_done = True
    if cells:
        absent = dict(vllm.ABSENT)
        with all_started(chosen, options.environments, absent) as running:
            known = known or about(running, options, absent)
            is_done = measure_all(cells, running, known, options)
    if is_done and not (options.quick or options.only or "library_texts_per_s" in known):
        known["library_texts_per_s"] = library.rates(options.environments, options.rounds)
        write(options.json, known)
    shown_keys = [key for key in ("fidelity", "library_texts_per_s", "absent") if key in known]
    print(json.dumps({key: known[key] for key in shown_keys}, indent=2))
    if not is_done:
        print("Time is up: the same command with --resume measures the rest.", file=sys.stderr)


if __name__ == "__main__":
    main()
