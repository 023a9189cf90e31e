"""Every route with spoiled requests: no fault of the server, errors in its shape, and a good request works after."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given

from fuzz.effort import tries
from fuzz.spoiled import json_bodies, msgpack_bodies
from good_requests import GOOD, shape_of
from shoal.gateway.routes import Routes
from tiny_server import Tiny

NUM_EXAMPLES = 12

NATIVE = [route for route in GOOD if route.startswith("/v1/") and route != "/v1/embeddings"]
STATUSES = {200, 400, 404, 413, 415, 422}


@pytest.fixture(scope="module")
def http(tiny: Tiny) -> Any:
    with httpx.Client(base_url=tiny.url, timeout=30) as client:
        yield client


def test_every_route_is_here() -> None:
    """A new route is fuzzed too, or this fails."""
    routes = {surface.route for surface in Routes().surfaces}
    here = {
        f"/tei/{'/'.join(route.split('/')[3:])}".rstrip("/") if route.startswith("/tei") else route for route in GOOD
    }
    assert here >= routes


def check(http: httpx.Client, route: str, body: bytes, content_type: str) -> None:
    reply = http.post(route, content=body, headers={"content-type": content_type})
    assert reply.status_code in STATUSES, (reply.status_code, reply.text)
    if reply.status_code != 200:
        decode = msgspec.msgpack.decode if "msgpack" in reply.headers["content-type"] else msgspec.json.decode
        decode(reply.content, type=shape_of(route))
    after = http.post(route, json=GOOD[route])
    assert after.status_code == 200, after.text


@pytest.mark.parametrize("route", GOOD)
def test_json(http: httpx.Client, route: str) -> None:
    @tries(NUM_EXAMPLES)
    @given(body=json_bodies(GOOD[route]))
    def run(body: bytes) -> None:
        check(http, route, body, "application/json")

    run()


@pytest.mark.parametrize("route", NATIVE)
def test_messagepack(http: httpx.Client, route: str) -> None:
    @tries(NUM_EXAMPLES)
    @given(body=msgpack_bodies(GOOD[route]))
    def run(body: bytes) -> None:
        check(http, route, body, "application/msgpack")

    run()
