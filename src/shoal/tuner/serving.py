"""A server under trial: `shoal serve` as a user would run it, with the settings of one configuration."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import httpx
import numpy as np
import numpy.typing as npt

from shoal.client import Client
from shoal.errors import ShoalError
from shoal.lifeline import tied
from shoal.settings import ModelSettings, WorkerSettings, environment, inherited_environment
from shoal.tuner.search import TrialFailed

__all__ = ["Serving"]

_START_S = 300.0
_STOP_S = 20.0
_ANSWER_S = 600.0
_LOCAL = {"all://127.0.0.1": None}


class Serving:
    """A server process that serves one model from `start` to `stop`.

    Attributes:
        url: where it listens, on loopback.
        model: its id, once it serves.
        kind: the API in which the bench asks it; see `bench.targets.KINDS`.

    Args:
        log: what it prints goes to the end of this file.
    """

    def __init__(self, model: str, worker: WorkerSettings, models: ModelSettings, log: Path) -> None:
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.kind = "shoal"
        self.model = model
        self._log = log
        # Settings travel as variables; a profile must not change what the trial says.
        variables = environment(worker, models) | {"SHOAL_PORT": str(port)}
        command = [sys.executable, "-m", "shoal.cli.main", "serve", model]
        with log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603  # our own command, no shell
                tied(command, signal.SIGTERM),
                env=_clean(inherited_environment()) | variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the tuner, which stops its servers in order
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def wait_ready(self) -> dict[str, Any]:
        """Wait until the model serves; what the server says of it: `loaded` of /v1/models, and its card.

        Raises:
            TrialFailed: it ended, the model did not load, or it took longer than five minutes.
        """
        ends_at = time.monotonic() + _START_S
        with httpx.Client(base_url=self.url, mounts=_LOCAL) as http:
            while time.monotonic() < ends_at:
                if self._process.poll() is not None:
                    raise TrialFailed(self._last_line())
                card = _first_model(http)
                if card["state"] == "failed":
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        self._process.wait(_STOP_S)  # it says why, and ends
                    raise TrialFailed(self._last_line())
                if card["state"] == "ready":
                    self.model = card["id"]
                    self.kind = "shoal" if "dense" in card["outputs"] else "shoal-sparse"
                    return card
                time.sleep(0.05)
        raise TrialFailed(f"it was not ready within {_START_S:g} s")

    def vectors(
        self, texts: Sequence[str], input_type: Literal["query", "document"] | None = None
    ) -> npt.NDArray[np.float32]:
        """float32 [len(texts), dimensions]; of a model that gives only sparse vectors [len(texts), vocabulary].

        Raises:
            TrialFailed: it does not answer with vectors.
        """
        try:
            with Client(self.url, timeout_s=_ANSWER_S) as client:
                model = client.models()[0]
                if "dense" in model.outputs:
                    return client.embed(texts, input_type=input_type).vectors
                sparse = client.embed(texts, outputs=["sparse"], input_type=input_type).sparse
        except ShoalError as error:
            raise TrialFailed(f"it does not embed: {error.message}") from error
        rows = np.zeros((len(texts), model.vocabulary_size), np.float32)
        for row, place in zip(rows, range(len(texts)), strict=True):
            indices, values = sparse[place]  # type: ignore[index]  # it was asked for
            row[indices] = values
        return rows

    def lengths(self, texts: list[str]) -> list[int]:
        """Tokens of each text, as the server counts them."""
        with Client(self.url) as client:
            return client.tokenize(texts).num_tokens

    def stop(self) -> None:
        """Stop it, by force after 20 s."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _last_line(self) -> str:
        lines = self._log.read_bytes()[-4000:].decode(errors="replace").strip().splitlines()
        telling = [line for line in lines if "error:" in line.lower()] or lines or ["it printed nothing"]
        return telling[-1][:500].removeprefix("error: ")


def _first_model(http: httpx.Client) -> dict[str, Any]:
    """What the server says of its model; a state of its own while it does not listen yet."""
    try:
        models: list[dict[str, Any]] = http.get("/v1/models").json()["data"]
    except (httpx.HTTPError, ValueError, KeyError):
        models = []
    return models[0] if models else {"state": "absent"}


def _clean(variables: dict[str, str]) -> dict[str, str]:
    """Without SHOAL_* settings, which would say otherwise than the trial."""
    return {name: value for name, value in variables.items() if not name.startswith("SHOAL_") or name == "SHOAL_STATE"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
