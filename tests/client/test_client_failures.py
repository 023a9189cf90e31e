"""What the clients do when the server is busy, not ready, gone, or says no."""

from __future__ import annotations

import socket

import numpy as np
import pytest

import shoal
from client.wire_server import WireServer, answer, lose_connection, never, refuse, vector_of
from shoal.client.wire import read_error
from shoal.errors import ShoalError

SOON = 0.0


@pytest.mark.parametrize("shape", ["native", "openai", "bare"])
@pytest.mark.parametrize("kind", [shoal.Overloaded, shoal.NotReady])
async def test_retries_when_told_to_come_back(server: WireServer, connect, kind: type[ShoalError], shape: str):
    server.script.extend([refuse(kind("later", retry_after_s=SOON), shape)] * 7)
    result = await connect(max_retries=2).embed("x", "tiny")
    np.testing.assert_array_equal(result.vectors, [vector_of("x")])
    assert len(server.received) == 8
    assert len({headers["x-request-id"] for _, headers in server.received}) == 1


async def test_remaining_time_is_passed_on_with_each_try(server: WireServer, connect):
    server.script.extend([refuse(shoal.Overloaded("later", retry_after_s=SOON))] * 3)
    await connect(timeout_s=50).embed("x", "tiny")
    times = [float(headers["x-shoal-timeout"]) for _, headers in server.received]
    assert times == sorted(times, reverse=True)
    assert 40 < times[-1] < times[0] <= 50


async def test_a_wait_beyond_the_time_out_is_not_begun(server: WireServer, connect):
    server.always = refuse(shoal.NotReady("The model is loading.", retry_after_s=30.0, hint="Wait."))
    with pytest.raises(shoal.NotReady, match="loading") as caught:
        await connect(timeout_s=10).embed("x", "tiny")
    assert (caught.value.retry_after_s, caught.value.hint) == (30.0, "Wait.")
    assert len(server.received) == 1


async def test_no_retries_if_so_wished(server: WireServer, connect):
    server.always = refuse(shoal.Overloaded("later", retry_after_s=SOON))
    with pytest.raises(shoal.Overloaded):
        await connect(max_retries=0).embed("x", "tiny")
    assert len(server.received) == 1


async def test_lost_connections_are_tried_again(server: WireServer, connect):
    server.script.extend([lose_connection, lose_connection])
    result = await connect().embed(["a", "b"], "tiny")
    np.testing.assert_array_equal(result.vectors, [vector_of("a"), vector_of("b")])
    assert len(server.received) == 3


async def test_connections_that_stay_lost_are_reported(server: WireServer, connect):
    server.always = lose_connection
    with pytest.raises(shoal.NotReady, match=f"connection to {server.url} was lost"):
        await connect(max_retries=1).embed("x", "tiny")
    assert len(server.received) == 2


async def test_no_server(connect):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    client = connect(f"http://127.0.0.1:{port}", max_retries=1)
    with pytest.raises(shoal.NotReady, match=f"No server answers at http://127.0.0.1:{port}") as caught:
        await client.embed("x", "tiny")
    assert "shoal serve" in caught.value.hint
    health = await client.health()
    assert (health.is_alive, health.is_ready) == (False, False)
    assert "No server answers" in health.message


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://host", "http://host:port"])
async def test_a_url_that_is_none(connect, url: str):
    with pytest.raises(shoal.InvalidRequest, match="URL"):
        await connect(url).embed("x", "tiny")


async def test_time_out(server: WireServer, connect):
    server.always = never
    with pytest.raises(shoal.DeadlineExceeded, match="within"):
        await connect(timeout_s=0.5).embed("x", "tiny")
    assert len(server.received) == 1


@pytest.mark.parametrize("shape", ["native", "openai"])
@pytest.mark.parametrize(
    "error",
    [
        shoal.InvalidRequest("input[0] is bad.", param="input[0]"),
        shoal.ContextLengthExceeded("input[0] has 600 tokens; 512 are allowed.", param="input[0]"),
        shoal.UnsupportedOperation("cannot"),
        shoal.Unauthorized("who are you?"),
        shoal.UnknownModel("no model x", hint=None),
        shoal.TooLarge("too large"),
        shoal.UnsupportedMediaType("what is that?"),
        shoal.ModelRefused("config.json: unknown key"),
        shoal.InternalError("a fault"),
        shoal.DeadlineExceeded("too late"),
    ],
)
async def test_errors_are_the_servers_and_final(server: WireServer, connect, error: ShoalError, shape: str):
    server.always = refuse(error, shape)
    with pytest.raises(type(error)) as caught:
        await connect().embed("x", "tiny")
    assert type(caught.value) is type(error)
    assert (caught.value.message, caught.value.param) == (error.message, error.param)
    assert len(server.received) == 1


async def test_the_status_decides_where_the_body_says_nothing(server: WireServer, connect):
    server.always = refuse(shoal.TooLarge("x"), "bare")
    with pytest.raises(shoal.TooLarge, match="answered 413"):
        await connect().embed("x", "tiny")


async def test_health(server: WireServer, connect):
    client = connect()
    health = await client.health()
    assert (health.is_alive, health.is_ready, health.message) == (True, True, "")
    server.not_ready = shoal.NotReady("The model is loading.", retry_after_s=3.0)
    health = await client.health()
    assert (health.is_alive, health.is_ready) == (True, False)
    assert "loading" in health.message


async def test_what_follows_a_failure_is_not_sent(server: WireServer, connect):
    server.script.append(refuse(shoal.InvalidRequest("no")))
    server.always = answer(b"never read", "text/plain")
    with pytest.raises(shoal.InvalidRequest):
        await connect(batch_items=1, concurrency=1).embed([str(number) for number in range(50)], "tiny")
    assert len(server.received) == 1


@pytest.mark.parametrize(
    ("header", "lowest", "highest"),
    [
        ("3", 3, 3),
        ("0.25", 0.25, 0.25),
        ("Fri, 31 Dec 2060 23:59:59 GMT", 1e6, 1e10),
        ("Fri, 31 Dec 1999 23:59:59 GMT", 0, 0),
    ],
)
def test_retry_after_is_seconds_or_a_date(header: str, lowest: float, highest: float):
    import httpx

    response = httpx.Response(503, headers={"retry-after": header}, request=httpx.Request("GET", "http://x"))
    assert lowest <= read_error(response).retry_after_s <= highest


@pytest.mark.parametrize("header", ["", "soon", "-1", "nan"])
def test_retry_after_that_is_neither_is_none(header: str):
    import httpx

    response = httpx.Response(503, headers={"retry-after": header}, request=httpx.Request("GET", "http://x"))
    assert read_error(response).retry_after_s is None
