"""The torch runtime on this machine's GPU: parity, tokens/s and p50 beside sentence-transformers, and beside the
device's own matrix rate. `scripts/gpu` runs it; see there.

Both sides get token ids, so no tokenizer's time is in any figure. A round times one after the other in alternating
order; figures are medians over rounds. The reference runs sorted by length, padded, in batches of 32
(sentence-transformers' default) and of 256, and is credited with the faster. MFU is the encoder's floating-point rate
over the rate of one large matrix product in the same number format in the same run.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
import transformers

from benchmarks import gpu_heads, gpu_models, machine
from benchmarks.gpu_models import Reference
from shoal.catalog.spec import ModelSpec
from shoal.runtimes.base import Features, RuntimeOptions
from shoal.runtimes.torch.options import choose_device, choose_dtype
from shoal.runtimes.torch.runtime import TorchRuntime
from shoal.runtimes.torch.session import TorchSession

__all__ = ["main"]


class Plan(msgspec.Struct, frozen=True):
    """How much is measured.

    Attributes:
        shapes: (name, hidden, layers, heads, intermediate) of each model.
        kinds: lengths of texts in tokens.
        batch_tokens: about how many tokens a timed batch has.
        rounds, repeats: timed batches, and timed single texts.
        matrix_size: rows and columns of the matrix product.
        vocabulary_size: of every model.
    """

    shapes: tuple[tuple[str, int, int, int, int], ...]
    kinds: tuple[str, ...]
    batch_tokens: int
    rounds: int
    repeats: int
    matrix_size: int
    vocabulary_size: int


FULL = Plan(
    shapes=(
        ("MiniLM-L6", 384, 6, 12, 1536),
        ("BERT-base", 768, 12, 12, 3072),
        ("BERT-large", 1024, 24, 16, 4096),
    ),
    kinds=("16", "128", "512", "8-512"),
    batch_tokens=65536,
    rounds=7,
    repeats=200,
    matrix_size=8192,
    vocabulary_size=30522,
)
DRY = Plan((("tiny", 32, 2, 4, 64),), ("8", "4-64"), 256, 2, 3, 256, 300)
BATCH_SIZES = (32, 256)
GRAPH_TOKENS = 512


def main(arguments: list[str] | None = None) -> int:
    """Measure, print tables, write JSON; 1 if a model's vectors are wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto", help="auto, cuda, cuda:N or cpu")
    parser.add_argument("--precision", default="auto", help="of the speed part: auto, bfloat16, float16, float32")
    parser.add_argument("--dry-run", action="store_true", help="tiny models and few rounds: does it run at all")
    parser.add_argument("--json", default="gpu.json", help="where the figures go")
    options = parser.parse_args(arguments)
    started = time.monotonic()
    device = choose_device(options.device)
    dtype = choose_dtype(options.precision, device)
    plan = DRY if options.dry_run else FULL
    report: dict[str, Any] = machine.describe() | _about(device, dtype, options.dry_run)
    print(json.dumps(report, indent=1))
    with tempfile.TemporaryDirectory() as scratch:
        report["parity"] = parity(Path(scratch), device)
        report["heads"] = gpu_heads.heads_parity(Path(scratch), _families()["bert"], device)
        report["matrix_tflops"] = matrix_tflops(plan.matrix_size, device, dtype)
        print(f"\nmatrix product in {report['precision']}: {report['matrix_tflops']:.1f} TFLOP/s\n")
        report["speed"] = [
            row for shape in plan.shapes for row in speed(Path(scratch), plan, shape, device, dtype, report)
        ]
    report["seconds"] = round(time.monotonic() - started, 1)
    Path(options.json).write_text(json.dumps(report, indent=1) + "\n")
    print(f"\n{report['seconds']} s, figures in {options.json}")
    return 0 if all(row["is_right"] for row in [*report["parity"], *report["heads"]]) else 1


def _about(device: torch.device, dtype: torch.dtype, is_dry: bool) -> dict[str, Any]:
    is_real = gpu_models.has_sentence_transformers()
    name = "sentence-transformers" if is_real else "transformers, padded (sentence-transformers is not installed)"
    return {
        "command": " ".join(["scripts/gpu", *sys.argv[1:]]),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU",
        "cuda": torch.version.cuda or "",
        "precision": str(dtype).removeprefix("torch."),
        "reference": f"{name} {importlib.metadata.version(name) if is_real else transformers.__version__}",
        "is_dry_run": is_dry,
    }


def parity(scratch: Path, device: torch.device) -> list[dict[str, Any]]:
    """Tiny models of several families, against transformers in float32, one text at a time."""
    print(f"\n{'model':<12} {'precision':<9} {'layout':<7} {'graphs':<6} {'worst cosine':>12}  right")
    rows = []
    for name, config in _families().items():
        spec = gpu_models.save_model(scratch / f"parity-{name}", config, is_scrambled=True)
        batch = gpu_models.features(np.array([1, 5, 5, 70, 33, 200, 2, 33, 16], np.int32), config.vocab_size)
        expected = gpu_models.plain_vectors(Path(spec.directory), batch, device, torch.float32)
        for case in _cases(device):
            row = {"model": name} | _judge(spec, batch, expected, device, case)
            print(
                f"{name:<12} {row['precision']:<9} {row['layout']:<7} {row['graph_tokens']!s:<6} "
                f"{row['cosine']:>12.7f}  {row['is_right']}"
            )
            rows.append(row)
    return rows


def _families() -> dict[str, Any]:
    """A config of each family that a packed forward could get wrong in a way of its own."""
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96}
    common = sizes | {"vocab_size": 300, "max_position_embeddings": 514}
    more: dict[str, dict[str, Any]] = {
        "bert": {},
        "xlm-roberta": {"pad_token_id": 1},
        "mpnet": {"pad_token_id": 1},
        "modernbert": {"local_attention": 32, "num_hidden_layers": 4, "pad_token_id": 0},
        "qwen3": {"num_key_value_heads": 2, "head_dim": 16, "pad_token_id": 0},
        "mistral": {"num_key_value_heads": 2, "head_dim": 16, "sliding_window": 20, "pad_token_id": 0},
    }
    specials = {"bos_token_id": None, "eos_token_id": None, "cls_token_id": None, "sep_token_id": None}
    return {
        name: transformers.AutoConfig.for_model(name, **(common | (specials if name == "modernbert" else {}) | changes))
        for name, changes in more.items()
    }


def _cases(device: torch.device) -> list[dict[str, Any]]:
    """What is tried of each model: float32 in both layouts, and on CUDA half precision, replayed or not."""
    cases: list[dict[str, Any]] = [{"precision": "float32", "layout": layout} for layout in ("auto", "padded")]
    if device.type == "cuda":
        cases += [{"precision": precision, "layout": "auto"} for precision in ("bfloat16", "float16")]
        cases += [{"precision": "bfloat16", "layout": "auto", "graph_tokens": GRAPH_TOKENS}]
    return cases


def _judge(
    spec: ModelSpec, batch: Features, expected: gpu_models.Floats, device: torch.device, case: dict[str, Any]
) -> dict[str, Any]:
    """One model in one case. Half precision may be as far off as twice what transformers itself is in it."""
    extra = {name: value for name, value in case.items() if name != "precision"} | {"device": str(device)}
    layout = _load(spec, case["precision"], extra | {"graph_tokens": 0}).facts.layout
    if layout == "padded":
        extra["graph_tokens"] = 0
    session = _load(spec, case["precision"], extra)
    together = session.run(batch)["dense"]
    alone = np.concatenate([session.run(text)["dense"] for text in _split(batch)])
    cosine = min(_worst_cosine(vectors, expected) for vectors in (together, alone))
    allowed = 1e-5
    if case["precision"] != "float32":
        dtype = {"bfloat16": torch.bfloat16, "float16": torch.float16}[case["precision"]]
        plain = gpu_models.plain_vectors(Path(spec.directory), batch, device, dtype)
        allowed = max(0.002, 2 * (1 - _worst_cosine(plain, expected)))
    return {
        "precision": case["precision"],
        "layout": layout,
        "graph_tokens": extra.get("graph_tokens", 0),
        "cosine": cosine,
        "allowed": 1 - allowed,
        "is_right": bool(cosine >= 1 - allowed),
    }


def _load(spec: ModelSpec, precision: str, extra: dict[str, Any]) -> TorchSession:
    return TorchRuntime().load(spec, RuntimeOptions(precision=precision, extra=extra))


def _split(batch: Features) -> list[Features]:
    texts = np.split(batch.token_ids, np.cumsum(batch.lengths)[:-1])
    return [Features(ids, np.array([len(ids)], np.int32), np.zeros(1, np.int32)) for ids in texts]


def _worst_cosine(vectors: gpu_models.Floats, expected: gpu_models.Floats) -> float:
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(expected, axis=1)
    return float(((vectors * expected).sum(1) / lengths).min())


def matrix_tflops(size: int, device: torch.device, dtype: torch.dtype) -> float:
    """TFLOP/s of a square matrix product."""
    left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))

    def multiply() -> None:
        torch.mm(left, right)
        _wait(device)

    multiply()
    return 2 * size**3 / statistics.median(_times(multiply, 10)) / 1e12


def speed(
    scratch: Path,
    plan: Plan,
    shape: tuple[str, int, int, int, int],
    device: torch.device,
    dtype: torch.dtype,
    about: dict[str, Any],
) -> list[dict[str, Any]]:
    """A row for each kind of length."""
    name, hidden, layers, heads, inner = shape
    config = transformers.BertConfig(
        vocab_size=plan.vocabulary_size,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=inner,
        max_position_embeddings=512,
    )
    spec = gpu_models.save_model(scratch / name, config, dtype)
    extra = {"device": str(device)}
    session = _load(spec, about["precision"], extra)
    is_graphed = device.type == "cuda" and session.facts.layout == "packed" and dtype is not torch.float32
    graphed = _load(spec, about["precision"], extra | {"graph_tokens": GRAPH_TOKENS}) if is_graphed else None
    reference = Reference(scratch / name, device, dtype)
    rows = []
    for kind in plan.kinds:
        row = {"model": name, "tokens": kind} | _throughput(session, reference, plan, kind)
        flops = machine.encoder_flops_per_token(spec.config, _mean_square_over_mean(kind, plan))
        row["mfu"] = row["shoal_tokens_per_s"] * flops / (about["matrix_tflops"] * 1e12)
        row |= _latency(session, graphed, reference, plan, kind)
        print(_line(row))
        rows.append(row)
    return rows


def _mean_square_over_mean(kind: str, plan: Plan) -> float:
    """Keys that a token sees on average."""
    lengths = gpu_models.random_lengths(kind, plan.batch_tokens).astype(np.float64)
    return float((lengths**2).sum() / lengths.sum())


def _throughput(session: TorchSession, reference: Reference, plan: Plan, kind: str) -> dict[str, Any]:
    batch = gpu_models.features(gpu_models.random_lengths(kind, plan.batch_tokens), plan.vocabulary_size)
    sides: dict[str, Callable[[], Any]] = {"shoal": lambda: session.run(batch)}
    for size in BATCH_SIZES:
        sides[f"reference_{size}"] = partial(reference.run, batch, size)
    medians = _interleaved(sides, plan.rounds)
    rates = {f"{side}_tokens_per_s": batch.num_tokens / median for side, median in medians.items()}
    best = max(rates[f"reference_{size}_tokens_per_s"] for size in BATCH_SIZES)
    return rates | {"ratio": rates["shoal_tokens_per_s"] / best, "batch_tokens": batch.num_tokens}


def _latency(
    session: TorchSession, graphed: TorchSession | None, reference: Reference, plan: Plan, kind: str
) -> dict[str, Any]:
    """Milliseconds of a single text of the kind's last length, median; `graph` is None where there are none."""
    length = np.array([int(kind.rpartition("-")[2])], np.int32)
    text = gpu_models.features(length, plan.vocabulary_size)
    sides: dict[str, Callable[[], Any]] = {
        "shoal": lambda: session.run(text),
        "reference": lambda: reference.run(text, 1),
    }
    if graphed is not None:
        sides["graph"] = lambda: graphed.run(text)
    medians = _interleaved(sides, plan.repeats)
    return {"graph_p50_ms": None} | {f"{side}_p50_ms": 1000 * median for side, median in medians.items()}


def _interleaved(sides: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median seconds of each side; the order turns around every round. Every side ends by waiting for its vectors."""
    times: dict[str, list[float]] = {side: [] for side in sides}
    for run in sides.values():
        run()
        run()
    for number in range(rounds):
        for side, run in list(sides.items())[:: 1 if number % 2 else -1]:
            times[side] += _times(run, 1)
    return {side: statistics.median(found) for side, found in times.items()}


def _times(run: Callable[[], Any], count: int) -> list[float]:
    found = []
    for _ in range(count):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return found


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _line(row: dict[str, Any]) -> str:
    graph = "-" if row["graph_p50_ms"] is None else f"{row['graph_p50_ms']:.2f}"
    best = max(row[f"reference_{size}_tokens_per_s"] for size in BATCH_SIZES)
    return (
        f"{row['model']:<10} {row['tokens']:>6} tokens: {row['shoal_tokens_per_s']:>11,.0f} tokens/s, "
        f"reference {best:>11,.0f}, ratio {row['ratio']:.2f}, MFU {row['mfu']:.0%}; one text p50 "
        f"{row['shoal_p50_ms']:.2f} ms, as a graph {graph} ms, reference {row['reference_p50_ms']:.2f} ms"
    )
