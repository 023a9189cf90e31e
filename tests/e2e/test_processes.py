"""Whole processes: broker and workers, crashes, shutdown, small budgets, memory."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest

from e2e.conftest import Fleet, cosines
from e2e.running import MODEL, assert_alive, children_of, running, runtime_hosts, serving


def test_broker_and_two_workers_give_the_same_vectors(fleet: Fleet) -> None:
    texts = [f"text number {i} " + "and so on " * (i % 50) for i in range(150)]
    with serving(MODEL, "--workers", "2") as (server, url):
        reply = httpx.post(f"{url}/v1/embeddings", json={"model": MODEL, "input": texts}, timeout=60)
        assert reply.status_code == 200, reply.text
        vectors = np.array([row["embedding"] for row in reply.json()["data"]], np.float32)
        assert cosines(vectors, fleet.embed(MODEL, texts)).min() > 0.9999
        assert len(runtime_hosts(server.process.pid)) == 2
        below = children_of(server.process.pid)
        assert server.stop() == 0
        assert not [pid for pid in below if Path(f"/proc/{pid}").exists()]


def test_killing_the_runtime_host_under_load_loses_nothing(fleet: Fleet) -> None:
    texts = [f"request {i} " + "with some words " * (i % 20) for i in range(300)]
    expected = fleet.embed(MODEL, texts)
    with (
        serving(MODEL) as (server, url),
        httpx.Client(timeout=60) as client,
        ThreadPoolExecutor(16) as pool,
    ):

        def ask(i: int) -> list[float]:
            if i in (60, 150):
                os.kill(runtime_hosts(server.process.pid)[0], signal.SIGKILL)
            reply = client.post(f"{url}/v1/embeddings", json={"model": MODEL, "input": texts[i]})
            assert reply.status_code == 200, reply.text
            return reply.json()["data"][0]["embedding"]

        vectors = np.array(list(pool.map(ask, range(len(texts)))), np.float32)
        assert cosines(vectors, expected).min() > 0.9999
        assert_alive(url, MODEL)


@pytest.mark.parametrize("arguments", [(), ("--workers", "2")], ids=["memory", "nats"])
def test_nothing_outlives_a_killed_server(arguments: tuple[str, ...]) -> None:
    with serving("fake:tiny", "--runtime", "fake", "--drain-s", "2", *arguments) as (server, _):
        below = [os.pidfd_open(pid) for pid in children_of(server.process.pid)]
        assert len(below) == (5 if arguments else 1)
        server.process.kill()
        for process in below:
            assert select.select([process], [], [], 30)[0], server.output
            os.close(process)
        assert "Traceback" not in server.output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_cleanly(number: signal.Signals) -> None:
    with serving(MODEL) as (server, url):
        assert_alive(url, MODEL)
        below = children_of(server.process.pid)
        assert below
        assert server.stop(number) in (0, 130)
        assert "Traceback" not in server.output
        assert not [pid for pid in below if Path(f"/proc/{pid}").exists()]


STAGES = ["click", "shoal.settings", "numpy", "starlette", "shoal.launch", "listens on", "openvino", "Ready after"]


@pytest.mark.parametrize("stage", STAGES)
def test_ctrl_c_while_starting_is_quiet(stage: str) -> None:
    """The terminal sends SIGINT to the whole process group. Modules are named on stderr as they are imported."""
    with running("serve", MODEL, "--port", "0", PYTHONPROFILEIMPORTTIME="1", is_own_group=True) as server:
        server.wait_for_line(stage if " " in stage else rf"\| +{stage}$")
        os.killpg(server.process.pid, signal.SIGINT)
        assert server.process.wait(30) in (0, 130)
    assert "Traceback" not in server.output
    assert "KeyboardInterrupt" not in server.output
    assert "host died" not in server.output


def test_open_requests_are_answered_at_shutdown() -> None:
    with serving(MODEL, "--graceful-s", "60") as (server, url), ThreadPoolExecutor(1) as pool:
        asked = pool.submit(
            httpx.post, f"{url}/v1/embed", json={"model": MODEL, "input": ["words " * 200] * 64}, timeout=60
        )
        while "shoal_chunks_in_flight 0.0" in httpx.get(f"{url}/metrics").text:
            assert not asked.done()
        assert server.stop(limit_s=70) == 0
        assert asked.result().status_code == 200


def test_a_budget_smaller_than_a_text() -> None:
    """C21 (b): the text leaves alone, nothing behind it is stuck."""
    with serving(MODEL, "--max-batch-tokens", "64") as (_, url):
        for text in ("word " * 400, "short"):
            reply = httpx.post(f"{url}/v1/embeddings", json={"model": MODEL, "input": [text, "x"]}, timeout=10)
            assert reply.status_code == 200
        assert_alive(url, MODEL)


def test_start_from_a_directory_without_network(fleet: Fleet, tmp_path: Path) -> None:
    """C17: no connection leaves the machine, not even an attempt."""
    blocker = tmp_path / "sitecustomize.py"
    blocker.write_text(
        "import socket\n"
        "real = socket.socket.connect\n"
        "def connect(self, address):\n"
        "    if self.family != socket.AF_UNIX and address[0] not in ('127.0.0.1', '::1', 'localhost'):\n"
        "        print('CONNECT', address, file=__import__('sys').stderr, flush=True)\n"
        "        raise OSError('blocked')\n"
        "    return real(self, address)\n"
        "socket.socket.connect = connect\n"
    )
    with serving(str(fleet.directories["tiny-mean"]), PYTHONPATH=str(tmp_path), HF_HUB_OFFLINE="0") as (server, url):
        assert httpx.get(f"{url}/readyz").status_code == 200
        assert "CONNECT" not in server.output


@pytest.mark.parametrize("missing", ["tokenizer.json", "config.json", "model.safetensors", "1_Pooling/config.json"])
def test_a_missing_file_is_named(fleet: Fleet, tmp_path: Path, missing: str) -> None:
    """C17, C3: no start with a part of the model gone."""
    directory = tmp_path / "model"
    subprocess.run(["cp", "-rL", str(fleet.directories["tiny-mean"]), str(directory)], check=True)
    (directory / missing).unlink()
    with running("serve", str(directory), "--port", "0") as server:
        assert server.process.wait(20) == 1
    assert missing.rpartition("/")[2] in server.output
    assert "Traceback" not in server.output


def test_an_unknown_pooling_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    """C1: names file and key."""
    directory = tmp_path / "model"
    subprocess.run(["cp", "-rL", str(fleet.directories["tiny-mean"]), str(directory)], check=True)
    config = directory / "1_Pooling" / "config.json"
    config.write_text(config.read_text().replace('"mean"', '"something-new"'))
    assert "something-new" in config.read_text()
    with running("serve", str(directory), "--port", "0") as server:
        assert server.process.wait(20) == 1
    assert "1_Pooling/config.json" in server.output
    assert "pooling_mode" in server.output


def test_a_remote_code_model_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    directory = tmp_path / "model"
    subprocess.run(["cp", "-rL", str(fleet.directories["tiny-mean"]), str(directory)], check=True)
    config = directory / "config.json"
    config.write_text(config.read_text().replace("{", '{"auto_map": {"AutoModel": "evil.Model"},', 1))
    with running("serve", str(directory), "--port", "0") as server:
        assert server.process.wait(20) == 1
    assert "auto_map" in server.output


def test_a_taken_port_is_said_plainly(fleet: Fleet) -> None:
    port = fleet.url.rpartition(":")[2]
    with running("serve", MODEL, "--port", port) as server:
        assert server.process.wait(20) == 1
    assert port in server.output
    assert "--port" in server.output
    assert "Traceback" not in server.output


def rss_bytes(pid: int) -> int:
    pids = [pid, *children_of(pid)]
    return sum(int(Path(f"/proc/{one}/statm").read_text().split()[1]) for one in pids) * os.sysconf("SC_PAGE_SIZE")


def test_memory_reaches_a_plateau(fleet: Fleet) -> None:
    """C12, shortened: random lengths and batch sizes; once most shapes have been met, memory grows by less than 5 %."""
    chooser = random.Random(12)
    with serving(str(fleet.directories["tiny-mean"])) as (server, url), httpx.Client(timeout=60) as client:
        model = httpx.get(f"{url}/v1/models").json()["data"][0]["id"]
        after_warm_up = 0
        for i in range(3000):
            if i == 1000:
                for _ in range(20):
                    body = {"model": model, "input": ["word " * 200] * 32}
                    assert client.post(f"{url}/v1/embeddings", json=body).status_code == 200
                after_warm_up = rss_bytes(server.process.pid)
            texts = ["word " * chooser.randint(1, 128) for _ in range(chooser.randint(1, 8))]
            body = {"model": model, "input": texts, "encoding_format": "base64"}
            assert client.post(f"{url}/v1/embeddings", json=body).status_code == 200
        assert rss_bytes(server.process.pid) < 1.05 * after_warm_up


def test_a_non_loopback_address_needs_a_word() -> None:
    with running("serve", MODEL, "--host", "0.0.0.0", "--port", "0") as server:
        assert server.process.wait(20) in (1, 2)
    assert "--allow-open" in server.output


def test_the_command_runs_as_a_python_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "shoal.cli.main", "version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip()


def test_a_model_that_cannot_be_loaded_ends_the_start(fleet: Fleet, tmp_path: Path) -> None:
    """Understood by its configuration, yet not what its weights hold."""
    directory = tmp_path / "model"
    subprocess.run(["cp", "-rL", str(fleet.directories["tiny-mean"]), str(directory)], check=True)
    weights = directory / "model.safetensors"
    weights.write_bytes(
        weights.read_bytes().replace(b"encoder.layer.1.output.dense.weight", b"encoder.layer.1.output.dense.wEight")
    )
    with running("serve", str(directory), "--port", "0") as server:
        assert server.process.wait(20) == 1
    assert "encoder.layer.1.output.dense.weight" in server.output
    assert "Traceback" not in server.output
