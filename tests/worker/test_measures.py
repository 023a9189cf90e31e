"""A worker's metrics: all there at zero, and each moves by what it says."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from worker.station import SPEC, Station

AT_ZERO = (
    "shoal_batches",
    "shoal_batch_items",
    "shoal_batch_tokens",
    "shoal_batch_seconds",
    "shoal_batch_fill",
    "shoal_queue_age_seconds",
    "shoal_chunk_replies",
    "shoal_redelivered_chunks",
    "shoal_handed_back_chunks",
    "shoal_memory_errors",
    "shoal_host_restarts",
    "shoal_dead_letters",
    "shoal_model_evictions",
    "shoal_model_load_failures",
    "shoal_held_seconds",
    "shoal_waiting_items",
)


def samples(one: Station) -> dict[str, dict[tuple[str, ...], float]]:
    """Values by name of sample and values of its labels."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(one.worker.measures.metrics.page().decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


async def test_all_are_there_at_zero(station: Any) -> None:
    one = await station()
    families = {
        family.name: family for family in text_string_to_metric_families(one.worker.measures.metrics.page().decode())
    }
    for name in AT_ZERO:
        assert families[name].samples, name
        assert {sample.value for sample in families[name].samples} == {0.0}, name
    now = samples(one)
    assert {code for (code,) in now["shoal_chunk_replies_total"]} >= {"ok", "deadline_exceeded", "internal_error"}
    assert now["shoal_models"] == {("ready",): 1, ("loading",): 0, ("failed",): 0}
    model = one.worker.sidecar.models[SPEC.id]
    assert now["shoal_cost_a_seconds"][(SPEC.id,)] == model.cost.a_s
    assert now["shoal_cost_c_seconds"][(SPEC.id,)] == model.cost.c_s
    assert now["shoal_quantum_tokens"][(SPEC.id,)] == model.quantum_tokens > 0


async def test_batches_count(station: Any) -> None:
    one = await station()
    before = samples(one)["shoal_device_tokens"][()]  # the costs were measured
    reply = await one.ask(["two words", "and three words"], published_at=time.time() - 0.2, priority="bulk")
    assert (await one.ask(["late"], deadline=time.time() - 1)).error.code == "deadline_exceeded"
    now, model = samples(one), (SPEC.id,)
    assert now["shoal_batches_total"][model] == now["shoal_batch_seconds_count"][model] == 1
    assert now["shoal_batch_items_total"][model] == 2
    assert now["shoal_batch_tokens_total"][model] == sum(reply.num_tokens) == now["shoal_device_tokens"][()] - before
    assert now["shoal_batch_seconds_sum"][model] > 0
    assert now["shoal_batch_fill_bucket"][("1.0", SPEC.id)] == 1
    assert now["shoal_chunk_replies_total"][("ok",)] == now["shoal_chunk_replies_total"][("deadline_exceeded",)] == 1
    assert now["shoal_queue_age_seconds_count"] == {("interactive",): 0, ("default",): 1, ("bulk",): 1}
    assert 0.2 <= now["shoal_queue_age_seconds_sum"][("bulk",)] < 20


async def test_faults_count(station: Any) -> None:
    one = await station()
    assert (await one.ask(["fault:out_of_memory"])).error.code == "not_ready"
    assert samples(one)["shoal_memory_errors_total"][()] >= 1
    os.kill(one.worker.host_pid, signal.SIGKILL)
    assert (await one.ask(["after"])).error is None
    now = samples(one)
    assert now["shoal_host_restarts_total"][()] == 1
    assert now["shoal_batch_items_total"][(SPEC.id,)] == 1
