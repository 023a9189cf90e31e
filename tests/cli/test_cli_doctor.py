"""`shoal doctor`: facts of machines that we do not have, from their kernel files; and a whole run on this one."""

from __future__ import annotations

import importlib.metadata
import json
import re
import socket
from pathlib import Path

import pytest

from shoal.cli import doctor as doctor_command
from shoal.cli.machine import describe_machine, memory_limit_bytes, processor
from shoal.runtimes import survey as survey_module
from shoal.runtimes.registry import RUNTIMES
from shoal.runtimes.survey import Finding, survey

XEON = """\
processor\t: 0
model name\t: Intel(R) Xeon(R) Platinum 8488C
flags\t\t: fpu vme avx avx2 avx512f avx512_bf16 avx512_vnni amx_bf16 amx_tile amx_int8
processor\t: 1
model name\t: another
"""
GRAVITON = "processor\t: 0\nBogoMIPS\t: 2100.00\nFeatures\t: fp asimd sve bf16\n"


def write(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_processor_with_amx(tmp_path: Path):
    root = write(tmp_path, proc__cpuinfo=XEON)
    assert processor(root) == (
        "Intel(R) Xeon(R) Platinum 8488C",
        ["AVX2", "AVX-512", "AVX-512 VNNI", "AVX-512 BF16", "AMX", "AMX BF16", "AMX INT8"],
    )


def test_arm(tmp_path: Path):
    assert processor(write(tmp_path, proc__cpuinfo=GRAVITON))[1] == ["NEON", "SVE", "BF16"]


@pytest.mark.parametrize(
    ("name", "text", "limit"),
    [
        ("sys/fs/cgroup/memory.max", "2147483648\n", 2**31),
        ("sys/fs/cgroup/memory.max", "max\n", None),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n", 2**30),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n", None),
    ],
)
def test_memory_limit(tmp_path: Path, name: str, text: str, limit: int | None):
    assert memory_limit_bytes(write(tmp_path, **{name: text})) == limit


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        ({"sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        ({"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "50000", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, 0.5),
        ({"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, None),
        ({}, None),
    ],
)
def test_cores_limit(tmp_path: Path, files: dict[str, str], limit: float | None):
    assert describe_machine(write(tmp_path, **files))["cores allowed by cgroup"] == limit


def test_survey_tries_every_runtime():
    findings = {finding.name: finding for finding in survey()}
    assert findings.keys() == RUNTIMES.keys()
    assert findings["fake"].works
    assert findings["openvino"].works
    assert findings["openvino"].version
    assert findings["openvino"].devices[0].startswith("CPU: ")


def test_survey_of_a_runtime_that_breaks(monkeypatch: pytest.MonkeyPatch):
    """Its process knows nothing of a runtime that only this process's table holds."""
    monkeypatch.setitem(RUNTIMES, "imaginary", "no.such:Class")
    finding = {finding.name: finding for finding in survey()}["imaginary"]
    assert not finding.works
    assert "imaginary" in finding.problem


@pytest.mark.parametrize(
    ("file", "devices", "chosen"),
    [
        ("absent", ("cuda:0: NVIDIA H200", "cpu"), "openvino"),
        ("present", ("cuda:0: NVIDIA H200", "cpu"), "torch"),
        ("present", ("cpu",), "openvino"),  # torch is there, but a build without CUDA
        ("present", (), "openvino"),  # torch is not there
    ],
)
def test_torch_is_the_default_where_it_finds_a_gpu(
    file: str, devices: tuple[str, ...], chosen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "present").touch()
    monkeypatch.setattr(survey_module, "_GPU_FILES", (str(tmp_path / file),))
    monkeypatch.setattr(survey_module, "survey", lambda names: [Finding("torch", bool(devices), devices=devices)])
    assert survey_module.choose_runtime.__wrapped__("auto") == chosen
    assert survey_module.choose_runtime("openvino") == "openvino"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_a_whole_machine(run_shoal):
    done = run_shoal("doctor", "--port", free_port(), "--json")
    report = json.loads(done.stdout)
    checks = {check["name"]: check for check in report["checks"]}
    assert (done.exit_code, report["is_fine"]) == (0, True)
    assert report["machine"]["usable cores"] >= 1
    assert report["machine"]["memory"] > 2**28
    assert report["packages"]["numpy"] != "missing"
    for name in ("runtime openvino", "runtime fake", "broker", "demo model", "port", "extra parquet"):
        assert checks[name]["state"] == "good", checks[name]
    assert "nats-server: v2" in checks["broker"]["detail"]
    assert re.search(r"\.parquet, [\d,]+ MB: pyarrow", checks["extra parquet"]["detail"])


def test_what_an_extra_lacks_can_be_installed_by_name(monkeypatch: pytest.MonkeyPatch):
    wanted = ["click>=8", "numpy>=2; extra == 'arrays'", "no-such-package<3,>=2; extra == 'arrays'"]
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: wanted)
    (check,) = doctor_command._extras()
    assert (check.state, check.detail) == ("missing", "more, size not measured; without no-such-package")
    assert check.fix == "pip install 'no-such-package<3,>=2'"


def test_what_keeps_serve_from_working_is_marked(run_shoal):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        done = run_shoal("doctor", "--port", port)
    assert done.exit_code == 1
    assert "✗ port" in done.stdout
    assert f"127.0.0.1:{port} cannot be listened on: Address already in use" in done.stdout
    assert "`shoal serve` does not work here yet" in done.stdout
