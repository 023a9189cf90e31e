"""What can be seen of running processes: one page for all of `shoal serve`, a worker's own in a cluster."""

from __future__ import annotations

import json
import os
import re
import socket
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

from e2e.running import children_of, name_of, serving

FAKE = ("fake:device", "--runtime", "fake")


def values(url: str) -> dict[str, float]:
    """Sums over all labels, by name of sample."""
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(httpx.get(f"{url}/metrics", timeout=20).text):
        for sample in family.samples:
            sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
    return sums


def embed(url: str) -> None:
    reply = httpx.post(f"{url}/v1/embeddings", json={"model": "device", "input": ["a", "b"]}, timeout=20)
    assert reply.status_code == 200, reply.text


def test_one_page_for_gateway_and_worker() -> None:
    with serving(*FAKE) as (_, url):
        embed(url)
        now = values(url)
        assert now["shoal_requests_total"] == now["shoal_batches_total"] == now["shoal_workers"] == 1
        assert now["shoal_items_total"] == now["shoal_batch_items_total"] == 2
        assert now["shoal_tokens_total"] == now["shoal_batch_tokens_total"]
        page = httpx.get(f"{url}/metrics").text
    described = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    assert set(re.findall(r"^# TYPE (shoal_\w+)", page, re.MULTILINE)) == set(re.findall(r"shoal_\w+", described))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def port_of(pid: int) -> int:
    """The port that a process listens on."""
    inodes = {os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()}
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
            return int(fields[1].split(":")[1], 16)
    raise AssertionError(f"{pid} listens nowhere")


def test_a_worker_has_its_own_page_and_the_broker_asks_for_a_token() -> None:
    """Other users of the machine reach the broker's port, too."""
    port = free_port()
    with serving(*FAKE, "--workers", "1", "--worker-port", str(port)) as (server, url):
        embed(url)
        page = f"http://127.0.0.1:{port}"
        assert values(page)["shoal_batches_total"] == 1
        assert "shoal_batches_total" not in values(url)
        for path, status in (("/healthz", 200), ("/readyz", 200), ("/ready", 200), ("/v1/embeddings", 404)):
            assert httpx.get(page + path).status_code == status
        (broker,) = [pid for pid in children_of(server.process.pid) if name_of(pid) == "nats-server"]
        with socket.create_connection(("127.0.0.1", port_of(broker)), 20) as stranger:
            assert b'"auth_required":true' in stranger.recv(4096)


SENTINEL = "kittiwake"
"""A word that stands in every text sent, and in no line of any log."""


def bodies() -> list[tuple[str, dict[str, object]]]:
    """Requests that go well, are refused and hit every fault that a worker knows; all hold the sentinel."""
    faults = [f"fault:{name} {SENTINEL}" for name in ("raise", "out_of_memory", "nan", "crash")]
    odd: list[object] = [5, None, {SENTINEL: SENTINEL}, [SENTINEL, 5], [[SENTINEL]], [], "\ud800 " + SENTINEL]
    plain = [("/v1/embed", {"model": "device", "input": [SENTINEL, text]}) for text in ("x", *faults)]
    refused = [("/v1/embed", {"model": "device", "input": what, "prompt": SENTINEL}) for what in odd]
    others: list[tuple[str, dict[str, object]]] = [
        ("/v1/embeddings", {"model": "device", "input": SENTINEL, "encoding_format": SENTINEL}),
        ("/v1/embeddings", {"model": "device", "input": SENTINEL, "prompt_name": SENTINEL}),
        ("/v1/embeddings", {"model": SENTINEL, "input": SENTINEL}),
        ("/v1/rerank", {"model": "device", "query": SENTINEL, "documents": [SENTINEL, "fault:raise " + SENTINEL]}),
        ("/v1/classify", {"model": "device", "input": SENTINEL, "labels": [SENTINEL, SENTINEL]}),
        ("/tei/device/embed", {"inputs": [SENTINEL]}),
        ("/v2/embed", {"model": "device", "texts": [SENTINEL], "input_type": SENTINEL}),
    ]
    return [*plain, *refused, *others]


def test_no_log_line_holds_a_text() -> None:
    """At any level, whatever goes wrong; and each line is JSON, with the request's id where it is about one."""
    logs = ("--log-level", "debug", "--log-format", "json", "--access-log")
    with serving(*FAKE, *logs) as (server, url):
        statuses = []
        for number, (route, body) in enumerate(bodies()):
            text = json.dumps(body)
            headers = {"content-type": "application/json", "x-request-id": f"request-{number}"}
            statuses.append(httpx.post(url + route, content=text, headers=headers, timeout=60).status_code)
        raw = {"content-type": "application/json"}
        for content in (f'{{"model":"device","input":"{SENTINEL}', f"[{SENTINEL}]", "[" * 50_000 + SENTINEL):
            assert httpx.post(f"{url}/v1/embed", content=content, headers=raw).status_code == 400
        assert httpx.get(f"{url}/{SENTINEL}?q={SENTINEL}").status_code == 404
        assert {200, 400, 404, 500, 503} <= set(statuses)
        assert server.stop() == 0
    lines = [json.loads(line) for line in server.lines if line.startswith("{")]
    others = [line for line in server.lines if line.strip() and not line.startswith("{")]
    assert SENTINEL not in server.output
    assert {"time", "level", "logger", "message"} <= set.intersection(*(set(line) for line in lines))
    told = {line["request_id"]: line for line in lines if line["logger"] == "shoal.access"}
    assert {f"request-{number}" for number in range(len(statuses))} <= told.keys()
    assert [told[f"request-{number}"]["status"] for number in range(len(statuses))] == statuses
    assert not [line for line in others if "Traceback" in line]
