"""Shoal beside its peers: the demo model, the same texts, everything interleaved.

    python -m benchmarks.peers [--quick] [--json benchmarks/results/peers.json]

All servers are up at the same time; only one is loaded at any time, and they take turns in rounds. Of each is measured:

- a lone request with a short text (closed loop, one connection);
- for each of three mixes (about 16 tokens, about 128, 5 to 300 words) one text a request at 32 connections, and 64
  texts a request at 4 connections (closed loops);
- for each mix one text a request as Poisson at half of Shoal's own closed-loop rate (open loop);
- fidelity: cosine to the vectors of sentence-transformers in float32, worst and mean of 96 texts of all lengths;
- of sentence-transformers besides, as a library without any server: `encode` of 64 texts.
A peer whose environment cannot be made, or that does not start, is listed with the reason.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import environments, machine
from benchmarks.interleaved import words
from benchmarks.peers import embed_anything, fastembed, infinity, sentence_transformers, shoal_itself, vllm
from benchmarks.peers.base import SERVING, Peer, Running, model_directory, started
from shoal.bench.asking import embed_all
from shoal.bench.measure import Generator, generator, interleave
from shoal.bench.plan import Arrivals, Load, Measured
from shoal.bench.summary import row, shown
from shoal.bench.texts import Mix, runs_of_words
from shoal.errors import ShoalError

PEERS: tuple[Peer, ...] = (
    *shoal_itself.PEERS, *sentence_transformers.PEERS, *infinity.PEERS, *fastembed.PEERS, *embed_anything.PEERS,
)  # fmt: skip
REFERENCE = "sentence-transformers"
MIXES = {"16 tokens": Mix(8, 12, ""), "128 tokens": Mix(84, 98, ""), "5-300 words": Mix(5, 300, "")}
"""In words of the corpus, of which 0.72 make a token."""
LONE = "lone request"
NUM_REQUESTS = {1: 1024, 64: 48}
FIDELITY_TEXTS = 32
IDLE_S = 3.0


def texts_of(mix: str, seed: int, num_texts: int) -> list[str]:
    return runs_of_words(MIXES[mix], num_texts, seed, words())


def requests(mix: str, items: int) -> list[list[str]]:
    texts = texts_of(mix, 7, NUM_REQUESTS[items] * items)
    return [texts[start : start + items] for start in range(0, len(texts), items)]


def measure(
    running: Sequence[Running], senders: Generator, options: argparse.Namespace
) -> dict[str, dict[str, dict[str, Any]]]:
    """{load: {peer: figures}}, loads in order."""
    results: dict[str, dict[str, dict[str, Any]]] = {}

    def run(name: str, mix: str, items: int, arrivals: Arrivals) -> dict[str, list[Measured]]:
        sent = requests(mix, items)
        loads = [Load(one.target, arrivals, sent, options.seconds, timeout_s=60.0, seed=3) for one in running]
        for load in loads:
            with contextlib.suppress(ShoalError):  # warms up the kernels of these lengths; failures show below
                embed_all(load.target, sent[0], items, 1)
        measured = interleave(senders, loads, options.rounds, lambda: None)
        results[name] = {peer: {**row(rounds), "mix": mix, "items": items, "load": arrivals.text}
                         for peer, rounds in measured.items()}  # fmt: skip
        report(name, results[name])
        return measured

    run(LONE, "16 tokens", 1, Arrivals("closed", concurrency=1))
    for mix in MIXES:
        single = run(f"{mix}, 1 text, closed 32", mix, 1, Arrivals("closed", concurrency=32))
        run(f"{mix}, 64 texts, closed 4", mix, 64, Arrivals("closed", concurrency=4))
        rate = Measured.sum(single["shoal"], is_parallel=False).requests_per_s / 2 if "shoal" in single else 20.0
        run(f"{mix}, 1 text, Poisson at half of Shoal's rate", mix, 1, Arrivals("poisson", rate=rate))
    return results


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


def library(root: Path, rounds: int) -> dict[str, dict[str, float]]:
    """Texts a second of sentence-transformers' own `encode`, by mix and back end, alone on the machine."""
    rates: dict[str, dict[str, float]] = {}
    for peer in sentence_transformers.PEERS:
        backend = peer.environment.removeprefix("st-")
        with contextlib.suppress(subprocess.CalledProcessError, OSError, ValueError):
            made = environments.environment(peer.environment, peer.steps, root)
            command = [str(made / "bin" / "python"), "-P", str(SERVING), backend, model_directory(), "--library"]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            rates[peer.name] = {}
            for mix in MIXES:
                times = [_encode_s(process, texts_of(mix, 7 + number, 64)) for number in range(rounds + 1)][1:]
                rates[peer.name][mix] = round(64 / float(np.median(times)), 1)
            process.communicate()
    return rates


def _encode_s(process: subprocess.Popen[str], texts: list[str]) -> float:
    assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018
    process.stdin.write(json.dumps({"texts": texts}) + "\n")
    process.stdin.flush()
    return float(json.loads(process.stdout.readline())["seconds"])


def idle_shares(running: Sequence[Running]) -> dict[str, float]:
    """CPU of a core that each server uses while nobody asks."""
    before = {one.peer.name: machine.process_cpu_s(one.pid) for one in running}
    time.sleep(IDLE_S)
    return {
        one.peer.name: round((machine.process_cpu_s(one.pid) - before[one.peer.name]) / IDLE_S, 3) for one in running
    }


def report(name: str, rows: dict[str, dict[str, Any]]) -> None:
    """A line a peer."""
    print(name, flush=True)
    for peer, figures in rows.items():
        p50, p99 = (shown(figures["latency_ms"][key]) for key in ("p50", "p99"))
        rates = "   ".join(f"{figures[key]['median']:9.1f} {key[:-6]}/s" for key in ("requests_per_s", "items_per_s"))
        failed = f"   {figures['failed']} failed" if figures["failed"] else ""
        print(f"  {peer:32} {rates}   p50 {p50} ms   p99 {p99} ms{failed}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=[peer.name for peer in PEERS], help="default: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0, help="length of each stretch")
    parser.add_argument("--quick", action="store_true", help="two short rounds")
    parser.add_argument("--environments", type=Path, default=environments.ROOT)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds = 2, 1.0
    chosen = [peer for peer in PEERS if not options.only or peer.name in options.only]
    minutes = len(chosen) * 10 * options.rounds * (options.seconds + 0.5) / 60 + 3
    print(
        f"about {minutes:.0f} minutes, and 10 to 30 more if environments have to be made", file=sys.stderr, flush=True
    )
    absent = dict(vllm.ABSENT)
    with contextlib.ExitStack() as stack, generator(1) as senders:
        running: list[Running] = []
        for peer in chosen:
            try:
                running.append(stack.enter_context(started(peer, options.environments)))
            except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
                absent[peer.name] = str(error)
                print(f"{peer.name} is left out: {error}", file=sys.stderr, flush=True)
        result: dict[str, Any] = {
            "machine": machine.describe(),
            "model": running[0].peer.model,
            "rounds": options.rounds,
            "stretch_s": options.seconds,
            "fidelity": fidelity(running, absent),
            "peers": {one.peer.name: {"note": one.peer.note, "ready_s": round(one.ready_s, 1),
                                      "packages": [step for steps in one.peer.steps for step in steps]}
                      for one in running},
            "absent": absent,
            "idle_cpu_share": idle_shares(running),
            "loads": measure(running, senders, options),
        }  # fmt: skip
    result["library_texts_per_s"] = library(options.environments, options.rounds) if not options.only else {}
    print(json.dumps({key: result[key] for key in ("fidelity", "library_texts_per_s", "absent")}, indent=2))
    if options.json:
        for figures in (figures for rows in result["loads"].values() for figures in rows.values()):
            del figures["distribution"]
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
