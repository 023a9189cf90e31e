"""Classifying: logits to labels, those that the model has, or the caller's own judged as hypotheses (zero-shot)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from shoal.adapters.base import Finished, Labels, Prepared
from shoal.adapters.texts import Texts
from shoal.catalog.spec import Classifier
from shoal.errors import InternalError, InvalidRequest, UnsupportedOperation
from shoal.runtimes.base import Arrays
from shoal.types import ClassifyOptions

__all__ = ["Classifying"]

Matrix = npt.NDArray[np.float64]


class Classifying:
    """See `adapters.base.Adapter`. Functions and zero-shot are those of transformers' pipelines."""

    def __init__(self, texts: Texts, classifier: Classifier) -> None:
        self._texts = texts
        self._classifier = classifier

    def check(self, options: ClassifyOptions) -> None:
        if not options.labels:
            return
        if self._classifier.entailment < 0:
            has = ", ".join(self._classifier.labels)
            raise UnsupportedOperation(
                f"{self._texts.spec.id} has no label entailment to judge labels of your own by; it has: {has}.",
                param="labels",
            )
        if "{}" not in options.hypothesis_template:
            raise InvalidRequest(
                f"hypothesis_template is {options.hypothesis_template[:100]!r}; it must hold {{}} for the label.",
                param="hypothesis_template",
            )

    def prepare(self, items: Sequence[str | list[int]], options: ClassifyOptions, first_item: int) -> list[Prepared]:
        texts = enumerate(self._texts.encode(items, "", first_item), first_item)
        if not options.labels:
            return [
                self._texts.single(ids, number, truncate=options.truncate, side=options.truncation_side)
                for number, ids in texts
            ]
        hypotheses = [
            self._texts.encode_field(options.hypothesis_template.replace("{}", label), "labels")
            for label in options.labels
        ]
        for hypothesis in hypotheses:
            self._texts.require_room(hypothesis, "labels")
        return [
            msgspec.structs.replace(
                self._texts.pair(
                    ids, hypothesis, number, truncate=options.truncate, side=options.truncation_side, cuts_second=False
                ),
                continues=place > 0,
            )
            for number, ids in texts
            for place, hypothesis in enumerate(hypotheses)
        ]

    def finish(self, raw: Arrays, options: ClassifyOptions, runs: Sequence[Prepared]) -> tuple[Finished, ...]:
        logits = np.asarray(raw["logits"], np.float64)
        if not np.isfinite(logits).all():
            row = int(np.flatnonzero(~np.isfinite(logits).all(axis=1))[0])
            raise InternalError(f"The model's logits for row {row} are not finite.", param=f"row {row}")
        if options.labels:
            labels, scores = options.labels, self._judge(logits, options)
        else:
            labels = self._classifier.labels
            scores = logits if options.raw_scores else _FUNCTIONS[self._classifier.function](logits)
        return (Labels([_ranked(labels, row, options.top_k) for row in scores]),)

    def _judge(self, logits: Matrix, options: ClassifyOptions) -> Matrix:
        """Scores of the caller's labels: [num_items, num_labels] from [num_items * num_labels, the model's labels]."""
        entailment = self._classifier.entailment
        by_item = logits.reshape(-1, len(options.labels), logits.shape[1])
        if options.raw_scores:
            return np.asarray(by_item[:, :, entailment])
        if options.multi_label or len(options.labels) == 1:
            contradiction = 0 if entailment else -1  # where transformers takes it to be
            return np.asarray(_softmax(by_item[:, :, [contradiction, entailment]])[:, :, 1])
        return _softmax(by_item[:, :, entailment])


def _ranked(labels: Sequence[str], scores: Matrix, top_k: int | None) -> list[tuple[str, float]]:
    order = np.argsort(-scores, kind="stable")[:top_k]
    return [(labels[place], float(np.float32(scores[place]))) for place in order]


def _softmax(x: Matrix) -> Matrix:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def _sigmoid(x: Matrix) -> Matrix:
    return np.asarray(1 / (1 + np.exp(-x)))


def _identity(x: Matrix) -> Matrix:
    return x


_FUNCTIONS = {"softmax": _softmax, "sigmoid": _sigmoid, "identity": _identity}
