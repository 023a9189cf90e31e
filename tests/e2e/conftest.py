"""One server for most end-to-end tests: the demo model and a small fleet of tiny ones, over the queue in memory."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
import pytest

from e2e.running import MODEL, Running, serving
from tiny_heads import TinyHead, save_name_finder
from tiny_models import TinyModel
from tiny_multivector import TinyMultiVector

TINY = {
    "tiny-mean": TinyModel("bert", pooling="mean"),
    "tiny-cls": TinyModel("roberta", pooling="cls"),
    "tiny-last": TinyModel("distilbert", pooling="lasttoken", normalize=False),
    "tiny-dense": TinyModel("mpnet", pooling="mean", dense=((48, "Tanh"), (16, "Identity"))),
    "tiny-prompts": TinyModel(
        "xlm-roberta", prompts=(("query", "query: "), ("document", "passage: ")), include_prompt=False
    ),
    "tiny-matryoshka": TinyModel("bert", pooling="mean", seed=3),
}

HEADS = {
    "tiny-cross": TinyHead("roberta", "cross"),
    "tiny-two": TinyHead("bert", "cross", num_labels=2),
    "tiny-identity": TinyHead("distilbert", "cross", activation="Identity"),
    "tiny-classes": TinyHead("distilbert", num_labels=3, labels=("bad", "fair", "good")),
    "tiny-nli": TinyHead("mpnet", num_labels=3, labels=("contradiction", "neutral", "entailment")),
    "tiny-sparse": TinyHead("bert", "sparse"),
    "tiny-judge": TinyHead("qwen3", "judge", max_length=160, config=(("num_key_value_heads", 2), ("head_dim", 16))),
}


@dataclasses.dataclass(frozen=True)
class Fleet:
    """A running server, and the directory of each model that it serves."""

    url: str
    server: Running
    directories: dict[str, Path]

    def embed(self, model: str, texts: list[str] | str, **fields: object) -> npt.NDArray[np.float32]:
        """Vectors through /v1/embeddings, with the order and index of the reply checked."""
        reply = self.post(model, texts, **fields)
        assert reply.status_code == 200, reply.text
        data = reply.json()["data"]
        assert [row["index"] for row in data] == list(range(len(data)))
        return np.array([row["embedding"] for row in data], dtype=np.float32)

    def ask(self, route: str, model: str, **fields: object) -> dict[str, Any]:
        """The reply of a native route."""
        reply = httpx.post(self.url + route, json={"model": model, **fields}, timeout=60)
        assert reply.status_code == 200, reply.text
        body: dict[str, Any] = reply.json()
        return body

    def post(self, model: str, texts: object, route: str = "/v1/embeddings", **fields: object) -> httpx.Response:
        return httpx.post(self.url + route, json={"model": model, "input": texts, **fields}, timeout=60)


@pytest.fixture(scope="session")
def fleet(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_model: Callable[[TinyModel], Path],
    tiny_head: Callable[[TinyHead], Path],
    tiny_multivector: Callable[[TinyMultiVector], Path],
    tiny_m3: Path,
    demo_directory: Path,
) -> Iterator[Fleet]:
    root = tmp_path_factory.mktemp("models")
    directories = {MODEL: demo_directory}
    for name, recipe in TINY.items():
        directories[name] = root / name
        shutil.copytree(tiny_model(recipe), root / name)
    (directories["tiny-matryoshka"] / "shoal.yaml").write_text("matryoshka_dimensions: [8, 16, 32]\n")
    for name, head in HEADS.items():
        directories[name] = root / name
        shutil.copytree(tiny_head(head), root / name)
    directories["tiny-names"] = save_name_finder(root / "tiny-names")
    for name, directory in (("tiny-colbert", tiny_multivector(TinyMultiVector())), ("tiny-m3", tiny_m3)):
        directories[name] = root / name
        shutil.copytree(directory, root / name)
    directories["tiny-states"] = root / "tiny-states"
    shutil.copytree(tiny_model(TINY["tiny-prompts"]), root / "tiny-states")
    (root / "tiny-states" / "shoal.yaml").write_text("token_states: true\n")
    with serving(MODEL, "--models-directory", str(root)) as (server, url):
        yield Fleet(url, server, directories)


def cosines(left: npt.NDArray[np.float32], right: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Cosine of each pair of rows, in float64."""
    left, right = left.astype(np.float64), right.astype(np.float64)
    lengths = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    return np.asarray(np.sum(left * right, axis=1) / lengths)
