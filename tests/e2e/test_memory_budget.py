"""`shoal serve` with less memory than its models take: it starts with what fits, and serves all of them."""

from __future__ import annotations

import httpx

from e2e.running import serving

MODELS = ("fake:one", "fake:two", "fake:three")


def test_it_starts_with_what_fits_and_serves_all_in_turn() -> None:
    options = ("--runtime", "fake", "--runtime-options", '{"bytes": 1000}', "--memory-budget", "2.5kB", "--pin", "two")
    with serving(*MODELS, *options) as (server, url):
        assert "no room for it now" in server.output
        for model in ("one", "two", "three", "one"):
            reply = httpx.post(f"{url}/v1/embeddings", json={"model": model, "input": "hello"}, timeout=60)
            assert reply.status_code == 200, reply.text
        page = httpx.get(f"{url}/metrics").text
        assert "shoal_model_evictions_total 2.0" in page
        assert "shoal_model_bytes 2000.0" in page
        assert "shoal_model_budget_bytes 2500.0" in page
        assert 'shoal_models{state="ready"} 2.0' in page
        assert "shoal_dead_letters_total 0.0" in page
        assert 'shoal_abandoned_chunks_total{stage="pull"} 0.0' in page
