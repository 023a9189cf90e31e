"""How far what is served is from the reference, family by family: the test's verdict, and a row of docs/parity.md.

    parity.check("bert", "sparse", "openvino", expected, together, alone)

`together` is all texts in one mixed batch, `alone` each in a batch of its own. `pytest tests/families
tests/torch_runtime --record-parity` writes the worst seen of each row into parity.json, from which scripts/docs makes
the page; rows that the run did not touch stay as they are.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["FILE", "LEAST_COSINE", "MOST_DIFFERENCE", "Parity", "Row", "load_rows"]

FILE = Path(__file__).parent / "families" / "parity.json"

LEAST_COSINE = 0.999999
MOST_DIFFERENCE = 1e-4
"""Of a number from the reference's; where the reference's largest is above 1, in parts of it."""

_VECTORS = ("dense", "multivector")
"""Outputs of which the cosine counts besides."""


@dataclasses.dataclass
class Row:
    """What was seen of a family's output in a runtime, in float32.

    Attributes:
        family: config.json's model_type.
        output: dense, sparse, multivector, rerank, classify, ...
        runtime, reference: libraries, with their versions.
        checks: how many comparisons, of one tiny model each.
        difference: the worst, as `MOST_DIFFERENCE` counts it.
        cosine_distance: the worst 1 - cosine of vectors, None of other outputs.
    """

    family: str
    output: str
    runtime: str
    reference: str
    checks: int
    difference: float
    cosine_distance: float | None


class Parity:
    """Judges, and keeps the worst of each row for the end of the session."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str, str], Row] = {}

    def check(
        self,
        family: str,
        output: str,
        runtime: str,
        expected: npt.NDArray[Any],
        *served: npt.NDArray[Any],
        reference: str = "sentence-transformers",
    ) -> None:
        """Hold what was served, together and alone, against what the reference gives for each text alone.

        Args:
            expected: numbers; of vectors a row each, all tokens' rows one after another for `multivector`.
            served: as `expected`, once for each way in which it was served.
            reference: distribution whose numbers `expected` are.
        """
        assert served, "nothing was served"
        scale = max(1.0, float(np.abs(expected).max()))
        for numbers in served:
            assert numbers.shape == expected.shape
            assert np.isfinite(numbers).all()
        difference = max(float(np.abs(numbers - expected).max()) for numbers in served) / scale
        distance = max(_cosine_distance(one, expected) for one in served) if output in _VECTORS else None
        self._note(family, output, runtime, reference, difference, distance)
        print(f"{family} {output} {runtime}: worst difference {difference:.1e}, 1 - cosine {distance or 0:.1e}")
        assert difference <= MOST_DIFFERENCE
        assert distance is None or distance <= 1 - LEAST_COSINE

    def _note(
        self, family: str, output: str, runtime: str, reference: str, difference: float, distance: float | None
    ) -> None:
        libraries = (_versioned(runtime), _versioned(reference))
        row = self.rows.setdefault((family, output, runtime), Row(family, output, *libraries, 0, 0.0, distance))
        row.checks += 1
        row.difference = max(row.difference, difference)
        if distance is not None and row.cosine_distance is not None:
            row.cosine_distance = max(row.cosine_distance, distance)

    def save(self) -> None:
        """Put the rows of this session in the place of those of the file."""
        rows = {_key(row): row for row in load_rows()} | {_key(row): row for row in self.rows.values()}
        listed = [_rounded(dataclasses.asdict(rows[key])) for key in sorted(rows)]
        FILE.write_text("[\n" + ",\n".join(f"  {json.dumps(row)}" for row in listed) + "\n]\n")


def load_rows() -> list[Row]:
    """Rows of the file."""
    return [Row(**row) for row in json.loads(FILE.read_text())] if FILE.exists() else []


def _key(row: Row) -> tuple[str, str, str]:
    return row.family, row.output, row.runtime.partition(" ")[0]


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {name: float(f"{value:.1e}") if isinstance(value, float) else value for name, value in row.items()}


def _versioned(distribution: str) -> str:
    return f"{distribution} {importlib.metadata.version(distribution).partition('+')[0]}"


def _cosine_distance(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> float:
    left64, right64 = left.astype(np.float64), right.astype(np.float64)
    lengths = np.linalg.norm(left64, axis=-1) * np.linalg.norm(right64, axis=-1)
    return float((1 - np.sum(left64 * right64, axis=-1) / lengths).max())
