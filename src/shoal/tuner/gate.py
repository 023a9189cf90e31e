"""The fidelity gate: whether a configuration's vectors are still the model's own. Pure, NumPy only.

A configuration that fails is discarded, however fast it is.
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

__all__ = ["Bounds", "Fidelity", "bounds_of", "compare"]

Matrix = npt.NDArray[np.float32]

_NEIGHBOURS = 5


class Bounds(msgspec.Struct, frozen=True):
    """What is asked of a configuration.

    Attributes:
        cosine: least cosine to float32, of the worst text in a hundred.
        overlap: least share of each probe's five nearest neighbours that are its neighbours in float32 too, on average.
        metric_loss: most that a task's metric may fall, as a share of float32's.
    """

    cosine: float = 0.999
    overlap: float = 0.98
    metric_loss: float = 0.01


class Fidelity(msgspec.Struct, frozen=True):
    """How near vectors are to those of float32.

    Attributes:
        p1_cosine: of the worst text in a hundred.
        overlap: see `Bounds.overlap`.
        metric_loss: as a share; 0 where no task was given.
        problem: why the gate stays shut; empty if it opens.
    """

    p1_cosine: float
    overlap: float
    metric_loss: float = 0.0
    problem: str = ""

    @property
    def is_kept(self) -> bool:
        return not self.problem


def bounds_of(precision: str) -> Bounds:
    """What is asked of a number format: eight bits may be further off, but their ranking is watched all the same."""
    return Bounds(cosine=0.99, overlap=0.9) if precision.startswith("int8") else Bounds()


def compare(found: Matrix, reference: Matrix, bounds: Bounds, metrics: tuple[float, float] | None = None) -> Fidelity:
    """Judge vectors of a configuration.

    Args:
        found: float32 [num_texts, dimensions].
        reference: the same texts' vectors in float32.
        metrics: a task's metric with these vectors and with float32's, where there is a task.
    """
    if found.shape != reference.shape:
        return Fidelity(0.0, 0.0, problem=f"vectors are {list(found.shape)}, not {list(reference.shape)}")
    if not np.isfinite(found).all():
        return Fidelity(0.0, 0.0, problem="a vector is not finite")
    cosines = (_unit(found) * _unit(reference)).sum(axis=1)
    p1_cosine = float(np.percentile(cosines, 1))
    overlap = _overlap(found, reference)
    loss = 0.0 if metrics is None or metrics[1] == 0 else max(0.0, 1 - metrics[0] / metrics[1])
    problems = []
    if p1_cosine < bounds.cosine:
        problems.append(f"p1 cosine to float32 is {p1_cosine:.5f}, below {bounds.cosine}")
    if overlap < bounds.overlap:
        problems.append(f"{overlap:.1%} of nearest neighbours are float32's, below {bounds.overlap:.0%}")
    if loss > bounds.metric_loss:
        problems.append(f"the task's metric falls by {loss:.2%}, more than {bounds.metric_loss:.0%}")
    return Fidelity(p1_cosine, overlap, loss, "; ".join(problems))


def _unit(rows: Matrix) -> npt.NDArray[np.float64]:
    wide = rows.astype(np.float64)
    unit: npt.NDArray[np.float64] = wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12)
    return unit


def _overlap(found: Matrix, reference: Matrix) -> float:
    count = min(_NEIGHBOURS, len(found) - 1)
    if count < 1:
        return 1.0
    ours, theirs = _neighbours(found, count), _neighbours(reference, count)
    shared = [len(set(mine) & set(other)) for mine, other in zip(ours.tolist(), theirs.tolist(), strict=True)]
    return sum(shared) / (len(found) * count)


def _neighbours(rows: Matrix, count: int) -> npt.NDArray[np.intp]:
    unit = _unit(rows)
    similarities = unit @ unit.T
    np.fill_diagonal(similarities, -np.inf)
    nearest: npt.NDArray[np.intp] = np.argsort(-similarities, axis=1, kind="stable")[:, :count]
    return nearest
