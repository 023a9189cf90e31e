"""C36 with real processes: the commands that make keys, a server on all addresses, the official client, a browser."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest

from e2e.running import running, serving

FAKE = ("fake:device", "--runtime", "fake")
ORIGIN = "https://app.example"


def shoal(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "shoal.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **variables})


@pytest.fixture(scope="module")
def keys_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys") / "keys.jsonl"


@pytest.fixture(scope="module")
def key(keys_file: Path) -> str:
    return shoal("keys", "create", "--keys-file", str(keys_file), "--tenant", "a-team").stdout.strip()


@pytest.fixture(scope="module")
def url(keys_file: Path, key: str) -> Iterator[str]:
    arguments = ("--host", "0.0.0.0", "--keys-file", str(keys_file), "--cors-origins", ORIGIN)
    with serving(*FAKE, *arguments) as (_, url):
        yield url.replace("0.0.0.0", "127.0.0.1")


def embed(url: str, headers: dict[str, str]) -> httpx.Response:
    return httpx.post(f"{url}/v1/embeddings", json={"model": "device", "input": "x"}, headers=headers, timeout=20)


def test_what_is_open(url: str, key: str) -> None:
    for path, status in (("/healthz", 200), ("/readyz", 200), ("/docs", 200), ("/metrics", 401), ("/v1/models", 401)):
        assert httpx.get(url + path).status_code == status, path
    for value, status in (
        (None, 401),
        ("Bearer wrong", 401),
        (f"Bearer {key}", 200),
        (f"bearer {key}", 200),
        (f"Basic {key}", 401),
    ):
        reply = embed(url, {} if value is None else {"authorization": value})
        assert reply.status_code == status, value
        if status == 401:
            assert reply.headers["www-authenticate"].startswith("Bearer")
            assert reply.json()["error"]["code"] == "unauthorized"


def test_the_official_client(url: str, key: str) -> None:
    with openai.OpenAI(base_url=f"{url}/v1", api_key=key) as client:
        assert client.embeddings.create(model="device", input="x").usage.prompt_tokens > 0
    with openai.OpenAI(base_url=f"{url}/v1", api_key="sk-wrong") as client, pytest.raises(openai.AuthenticationError):
        client.embeddings.create(model="device", input="x")


def test_a_browser(url: str) -> None:
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "authorization, content-type"}
    allowed = httpx.options(f"{url}/v1/embeddings", headers={"origin": ORIGIN, **asked})
    assert allowed.headers["access-control-allow-origin"] == ORIGIN
    assert {"authorization", "content-type"} <= set(allowed.headers["access-control-allow-headers"].split(", "))
    foreign = httpx.options(f"{url}/v1/embeddings", headers={"origin": "https://evil.example", **asked})
    assert not [name for name in foreign.headers if name.startswith("access-control")]


def test_our_own_command_presents_its_key(url: str, key: str) -> None:
    listed = shoal("models", "list", "--url", url, SHOAL_API_KEY=key)
    assert "device" in listed.stdout
    refused = subprocess.run(
        [sys.executable, "-m", "shoal.cli.main", "models", "list", "--url", url],
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 1
    assert "API key" in refused.stderr


def test_a_key_that_is_revoked_is_refused_soon(url: str, keys_file: Path) -> None:
    made = shoal("keys", "create", "--keys-file", str(keys_file), "--tenant", "guest").stdout.strip()
    until(url, made, 200)
    key_id = made.split("_")[1]
    assert key_id in shoal("keys", "list", "--keys-file", str(keys_file)).stdout
    assert made not in shoal("keys", "list", "--keys-file", str(keys_file), "--json").stdout
    shoal("keys", "revoke", key_id, "--keys-file", str(keys_file))
    until(url, made, 401)


def until(url: str, key: str, status: int) -> None:
    """Ask until the file was read again."""
    end = time.monotonic() + 20
    while embed(url, {"authorization": f"Bearer {key}"}).status_code != status:
        assert time.monotonic() < end


def test_a_file_that_is_not_there_or_wrong_ends_the_start(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text("\n{}\n")
    for path, words in ((tmp_path / "none.jsonl", "shoal keys create"), (wrong, "line 2")):
        with running("serve", *FAKE, "--port", "0", "--keys-file", str(path)) as server:
            assert server.process.wait(30) == 1
        assert words in server.output
        assert "Traceback" not in server.output
