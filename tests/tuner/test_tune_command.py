"""`shoal tune` and `shoal research` whole, on the fake device, and a language model that proposes."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from e2e.running import children_of, running
from shoal.catalog.profiles import Profile
from shoal.cli.root import cli
from shoal.errors import ShoalError
from shoal.runtimes.knobs import Knob
from shoal.tuner.ledger import Entry
from shoal.tuner.proposers import LLM
from shoal.tuner.space import Space

SLOW = '{"a_s":0.003,"c_s":0.0002}'


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, catch_exceptions=False)


def entries(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()[1:]]


def tuning(directory: Path) -> list[str]:
    """A short search on the fake device, whose speed is a knob here: fifty times faster is seen on any machine."""
    command = ["tune", "fake:toy", "--runtime", "fake", "--runtime-options", SLOW, "--knob", "c_s=0.000004"]
    command += ["--mix", "medium", "--objective", "latency", "--rate", "8", "--minutes", "0.1", "--seconds", "0.4"]
    return [*command, "--directory", str(directory / "toy"), "--profiles", str(directory / "profiles")]


def killed_in_a_trial(command: list[str], ledger: Path) -> bytes:
    """kill -9 the whole command once a trial is finished and the next is under way; what was finished by then."""
    with running(*command, SHOAL_STATE=str(ledger.parent)) as dying:
        while not ledger.exists() or not entries(ledger):
            with contextlib.suppress(subprocess.TimeoutExpired):
                dying.process.wait(0.05)
            assert dying.process.poll() is None, dying.output
        below = [os.pidfd_open(pid) for pid in children_of(dying.process.pid)]
        dying.stop(signal.SIGKILL)
    for process in below:
        assert select.select([process], [], [], 60)[0], "a process of the search lives on"
        os.close(process)
    content = ledger.read_bytes()
    return content[: content.rfind(b"\n") + 1]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_tuning_outlives_kill_9_finds_the_faster_device_and_resumes_for_nothing(tmp_path: Path) -> None:
    command, file = tuning(tmp_path), tmp_path / "toy" / "ledger.jsonl"
    finished = killed_in_a_trial(command, file)
    result = run(*command)
    assert result.exit_code == 0, result.output
    assert "Going on" in result.output
    before = file.read_bytes()
    assert before.startswith(finished)
    ledger = entries(file)
    assert [one["configuration"] for one in ledger if one["stage"] == "fit"] == [{}, {"c_s": 0.000004}]
    predicted = [one["figures"]["predicted"] for one in ledger if one["stage"] == "fit"]
    assert predicted[1] > 2 * predicted[0], "a device fifty times faster was not seen to be faster"
    (verdict,) = [one for one in ledger if one["stage"] == "verdict"]
    assert verdict["figures"]["ratio"] > 1
    (written,) = (tmp_path / "profiles").glob("*.json")
    profile = msgspec.json.decode(written.read_bytes(), type=Profile)
    proven = {"c_s": 0.000004} if verdict["status"] == "keep" else {}  # a busy machine proves nothing
    assert profile.settings == proven
    assert "<svg" in (tmp_path / "toy" / "report.html").read_text()
    again = run(*command)
    assert again.exit_code == 0, again.output
    assert file.read_bytes() == before


@pytest.mark.slow
def test_research_goes_on_after_a_model_that_fails(tmp_path: Path) -> None:
    common = ["--runtime", "fake", "--knob", "c_s=0.001", "--objective", "latency", "--rate", "20"]
    common += ["--minutes", "0.05", "--seconds", "0.3"]
    places = ["--directory", str(tmp_path), "--profiles", str(tmp_path / "profiles")]
    result = run("research", "/no/such/model", "fake:toy", *common, *places)
    assert result.exit_code == 1
    assert "/no/such/model" in result.output
    assert [one["status"] for one in entries(tmp_path / "fake-toy" / "ledger.jsonl")][:2] == ["measured", "measured"]
    assert len(list((tmp_path / "profiles").glob("*.json"))) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--knob", "speed"), "There is no knob 'speed'"),
        (("--proposer", "llm"), "give --proposer-url"),
        (("--minutes", "0"), "Invalid value for '--minutes'"),
        (("--knob", "c_s=abc"), "Invalid value for '--knob': c_s is 'abc'; it must be a number."),
        (("--beside", "a_s=0.1,c_s=0.1"), "Invalid value for '--beside': 'a_s=0.1,c_s=0.1' has a comma in its value"),
        (("--beside", "runtime=nope"), "runtime is 'nope'; it must be one of auto, openvino"),
    ],
)
def test_wrong_arguments_are_named(arguments: tuple[str, ...], words: str) -> None:
    result = run("tune", "fake:toy", "--runtime", "fake", *arguments)
    assert result.exit_code == (1 if "--proposer" in arguments else 2)
    assert words in result.output


class Proposing(BaseHTTPRequestHandler):
    """An OpenAI-compatible server whose model says what the test wants."""

    answer = ""
    asked: dict[str, Any] = {}

    def do_POST(self) -> None:
        type(self).asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        body = json.dumps({"choices": [{"message": {"content": self.answer}}]}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        return


@pytest.fixture
def proposing() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Proposing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


SPACE = Space((Knob("threads", (1, 2), "Threads."),))
KNOWN = [Entry("fit", {}, "measured", figures={"predicted": 10.0})]


def test_a_language_model_proposes_and_only_what_is_in_the_space_counts(proposing: str) -> None:
    Proposing.answer = 'Try these:\n```json\n[{"threads": 1}, {"threads": 64}, {"rm": "-rf /"}, {}]\n```'
    assert LLM(proposing, "m").propose(SPACE, KNOWN) == [{"threads": 1}]
    told = json.loads(Proposing.asked["messages"][1]["content"])
    assert told["ledger"][0]["figures"] == {"predicted": 10.0}
    assert told["knobs"][0]["values"] == [1, 2]


def test_a_language_model_that_rambles_is_an_error(proposing: str) -> None:
    Proposing.answer = "I would rather not."
    with pytest.raises(ShoalError, match="no JSON array"):
        LLM(proposing, "m").propose(SPACE, KNOWN)


def test_a_proposer_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ShoalError, match="does not answer"):
        LLM("http://127.0.0.1:9", "m").propose(SPACE, KNOWN)
