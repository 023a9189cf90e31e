"""Everything that can break, breaking, under open-loop load: nothing may be lost, and no vector may be wrong.

    python -m benchmarks.soak [--minutes 10] [--rate 40] [--json benchmarks/results/soak.json]

Real processes: a gateway, two workers with runtime hosts (the fake device), a broker. Requests arrive at random.
Meanwhile runtime hosts, workers and the broker are killed, a worker is stopped for five seconds, callers hang up, and
some requests are poison: inputs that crash the device, raise, run it out of memory, give NaN, or are no request at all.
Every request must get exactly one right reply or one typed error by its deadline.

refused: typed errors, by kind of request. An ordinary request may be turned away for overload, or because its time ran
out (429, 503, 504), and for nothing else. lost: no reply within its deadline and five seconds, a broken connection, or
an error that is none of these. wrong: a vector that is not the one that the same text had before anything broke.
Exits with 1 if anything is lost or wrong. `liveness` is how long /healthz took, asked twice a second throughout.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from benchmarks import machine, servers

MODEL = "soak"
DEVICE = {"a_s": 0.01, "c_s": 0.0002}
NUM_TEXTS = 200
DEADLINE_S = 20.0
GRACE_S = 5.0
POISON = {"crash": 1, "raise": 2, "out_of_memory": 4, "nan": 5}
"""Reserved token ids of the fake device."""

ORDINARY = ("one", "list", "hurry")

EVERY_S = {"kill a runtime host": 7.0, "kill a worker": 23.0, "stop a worker for 5 s": 31.0, "kill the broker": 41.0}
"""Mean time between faults of a kind."""


class Tally:
    """What became of the requests.

    Attributes:
        sent, lost, wrong: requests.
        answered: with 200 and right vectors.
        refused: by kind of request and error code.
        gone: callers who hung up.
        faults: done, by kind.
        memory: (seconds since the start, MiB of all processes).
        liveness_s: how long /healthz took.
    """

    def __init__(self) -> None:
        self.sent = self.answered = self.lost = self.wrong = self.gone = 0
        self.refused: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.memory: list[tuple[float, float]] = []
        self.losses: list[str] = []
        self.liveness_s: list[float] = []

    @property
    def memory_growth(self) -> float:
        """Share by which memory grew from the second tenth of the time to the last; medians, as processes restart."""
        end = self.memory[-1][0]
        second = [mib for at, mib in self.memory if 0.1 * end <= at < 0.3 * end]
        last = [mib for at, mib in self.memory if at >= 0.8 * end]
        return statistics.median(last) / statistics.median(second) - 1

    def summary(self) -> dict[str, Any]:
        return {
            "sent": self.sent,
            "answered": self.answered,
            "refused": dict(sorted(self.refused.items())),
            "callers gone": self.gone,
            "lost": self.lost,
            "wrong": self.wrong,
            "faults": dict(sorted(self.faults.items())),
            "memory growth": round(self.memory_growth, 4),
            "liveness ms": {
                "p50": round(statistics.median(self.liveness_s) * 1e3, 1),
                "p99": round(sorted(self.liveness_s)[int(0.99 * len(self.liveness_s))] * 1e3, 1),
                "longest": round(max(self.liveness_s) * 1e3, 1),
            },
        }


class Soak:
    """One run against a server."""

    def __init__(self, url: str, pid: int, minutes: float, rate: float, seed: int) -> None:
        self._url = url
        self._pid = pid
        self._duration_s = minutes * 60
        self._rate = rate
        self._random = random.Random(seed)  # noqa: S311
        self._texts = [f"text {i} " + "and so on " * (i % 40) for i in range(NUM_TEXTS)]
        self._right: list[list[float]] = []
        self.tally = Tally()

    async def run(self) -> Tally:
        """Take the right vectors, then send load and break things, then see that all is well again."""
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
        async with httpx.AsyncClient(base_url=self._url, timeout=DEADLINE_S + GRACE_S, limits=limits) as self._http:
            self._right = await self._embed(self._texts)
            started = time.monotonic()
            helpers = [asyncio.create_task(self._watch_memory(started)), asyncio.create_task(self._watch_life())]
            helpers += [asyncio.create_task(self._break(kind)) for kind in EVERY_S]
            await self._send_all(started)
            for task in helpers:
                task.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            self._wake_all()
            await self._is_well_again()
        return self.tally

    async def _send_all(self, started: float) -> None:
        open_requests: set[asyncio.Task[None]] = set()
        at = started
        while at < started + self._duration_s:
            at += self._random.expovariate(self._rate)
            await asyncio.sleep(at - time.monotonic())
            task = asyncio.create_task(self._one())
            open_requests.add(task)
            task.add_done_callback(open_requests.discard)
        await asyncio.gather(*open_requests)

    async def _one(self) -> None:
        """A request of a random kind."""
        self.tally.sent += 1
        kind = self._random.choices(
            ["one", "list", "hurry", "hang up", "poison", "nonsense"], [64, 20, 5, 5, 1, 5], k=1
        )[0]
        places = self._random.sample(range(NUM_TEXTS), 40 if kind == "list" else 1)
        body: Any = {"model": MODEL, "input": [self._texts[place] for place in places]}
        headers = {"x-shoal-timeout": str(DEADLINE_S)}
        if kind == "hurry":
            headers["x-shoal-timeout"] = "0.02"
        elif kind == "poison":
            name = self._random.choice(list(POISON))
            kind, body = name, {"model": MODEL, "input": [[POISON[name], 100]], "input_tokenizer": MODEL}
        elif kind == "nonsense":
            body = self._random.choice([{}, [], {"model": "none", "input": "x"}, {"model": MODEL, "input": [1, "x"]}])
        try:
            if kind == "hang up":
                await self._hang_up(body, headers)
            else:
                await self._judge(kind, places, await self._http.post("/v1/embeddings", json=body, headers=headers))
        except (httpx.HTTPError, OSError) as error:
            self._lose(f"{kind}: {error!r}")

    async def _judge(self, kind: str, places: list[int], reply: httpx.Response) -> None:
        if reply.status_code == 200:
            vectors = [row["embedding"] for row in reply.json()["data"]]
            is_right = kind in ORDINARY and vectors == [self._right[place] for place in places]
            self.tally.answered += is_right
            self.tally.wrong += not is_right
            return
        try:
            code = reply.json()["error"]["code"]
        except (ValueError, KeyError, TypeError):
            self._lose(f"{kind}: {reply.status_code} without a typed error: {reply.text[:200]}")
            return
        if kind in ORDINARY and reply.status_code not in (429, 503, 504):
            self._lose(f"{kind}: {reply.status_code} {reply.text[:300]}")
            return
        self.tally.refused[f"{kind}: {reply.status_code} {code}"] += 1

    async def _hang_up(self, body: Any, headers: dict[str, str]) -> None:
        try:
            async with asyncio.timeout(0.01):
                await self._http.post("/v1/embeddings", json=body, headers=headers)
        except TimeoutError:
            self.tally.gone += 1
        else:
            self.tally.answered += 1

    def _lose(self, why: str) -> None:
        self.tally.lost += 1
        self.tally.losses.append(why)

    async def _break(self, kind: str) -> None:
        actions: dict[str, Callable[[], Any]] = {
            "kill a runtime host": lambda: self._kill("shoal.runtimes.host"),
            "kill a worker": lambda: self._kill("cli.main worker"),
            "kill the broker": lambda: self._kill("nats-server"),
            "stop a worker for 5 s": self._freeze,
        }
        while True:
            await asyncio.sleep(
                self._random.uniform(0.5, 1.5) * EVERY_S[kind] * max(0.4, min(1.0, self._duration_s / 120))
            )
            done = actions[kind]()
            if asyncio.iscoroutine(done):
                done = await done
            self.tally.faults[kind] += bool(done)

    def _kill(self, what: str) -> bool:
        victims = [pid for pid, command in below(self._pid) if what in command]
        if victims:
            os.kill(self._random.choice(victims), signal.SIGKILL)
        return bool(victims)

    async def _freeze(self) -> bool:
        victims = [pid for pid, command in below(self._pid) if "cli.main worker" in command]
        if not victims:
            return False
        victim = self._random.choice(victims)
        try:
            os.kill(victim, signal.SIGSTOP)
            await asyncio.sleep(5)
            os.kill(victim, signal.SIGCONT)
        except ProcessLookupError:
            return False  # it was killed meanwhile
        return True

    def _wake_all(self) -> None:
        for pid, _ in below(self._pid):
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                continue

    async def _watch_memory(self, started: float) -> None:
        while True:
            total = sum(resident_mib(pid) for pid in [self._pid, *(pid for pid, _ in below(self._pid))])
            self.tally.memory.append((time.monotonic() - started, total))
            await asyncio.sleep(1)

    async def _watch_life(self) -> None:
        while True:
            started = time.monotonic()
            reply = await self._http.get("/healthz")
            self.tally.liveness_s.append(time.monotonic() - started)
            if reply.status_code != 200:
                self._lose(f"/healthz: {reply.status_code}")
            await asyncio.sleep(0.5)

    async def _is_well_again(self) -> None:
        """All texts once more, right, within a minute of the last fault."""
        ends_at = time.monotonic() + 60
        while True:
            try:
                found = await self._embed(self._texts)
                break
            except (httpx.HTTPError, RuntimeError) as error:
                if time.monotonic() > ends_at:
                    self._lose(f"not well again: {error!r}")
                    return
                await asyncio.sleep(0.2)
        self.tally.wrong += found != self._right

    async def _embed(self, texts: list[str]) -> list[list[float]]:
        reply = await self._http.post("/v1/embeddings", json={"model": MODEL, "input": texts})
        if reply.status_code != 200:
            raise RuntimeError(reply.text)
        return [row["embedding"] for row in reply.json()["data"]]


def below(pid: int) -> list[tuple[int, str]]:
    """Process ids and commands of all descendants."""
    found = []
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        for task in tasks:
            for child in (task / "children").read_text().split():
                command = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found += [(int(child), command), *below(int(child))]
    except (FileNotFoundError, ProcessLookupError):
        return found
    return found


def resident_mib(pid: int) -> float:
    """Resident memory of a process; 0 if it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def soak(minutes: float, rate: float, seed: int = 0) -> Tally:
    """Start the server, run, stop it."""
    port = servers.free_port()
    url = f"http://127.0.0.1:{port}"
    arguments = ["serve", f"fake:{MODEL}", "--runtime", "fake", "--runtime-options", json.dumps(DEVICE)]
    arguments += ["--workers", "2", "--port", str(port), "--lease-s", "5", "--log-level", "error"]
    with servers.shoal(*arguments) as process:
        servers.wait_until_ready(url, process)
        return asyncio.run(Soak(url, process.pid, minutes, rate, seed).run())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=40.0, help="requests a second")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    print(f"about {options.minutes:g} minutes", file=sys.stderr)
    tally = soak(options.minutes, options.rate, options.seed)
    summary = tally.summary()
    for name, value in summary.items():
        print(f"{name:>14}: {json.dumps(value)}")
    for loss in tally.losses[:20]:
        print(f"lost: {loss}")
    if options.json:
        result = {"machine": machine.describe(), "minutes": options.minutes, "rate": options.rate, **summary}
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    return 1 if tally.lost or tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
