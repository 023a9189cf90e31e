"""What can be seen of running processes: one page for all of `shoal serve`, a worker's own in a cluster."""

from __future__ import annotations

import socket

import httpx
from prometheus_client.parser import text_string_to_metric_families

from e2e.running import serving

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


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_a_worker_has_its_own_page() -> None:
    port = free_port()
    with serving(*FAKE, "--workers", "1", "--worker-port", str(port)) as (_, url):
        embed(url)
        page = f"http://127.0.0.1:{port}"
        assert values(page)["shoal_batches_total"] == 1
        assert "shoal_batches_total" not in values(url)
        for path, status in (("/healthz", 200), ("/readyz", 200), ("/ready", 200), ("/v1/embeddings", 404)):
            assert httpx.get(page + path).status_code == status
