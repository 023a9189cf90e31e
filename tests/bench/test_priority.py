"""The generator's own priority: raised from the usual one, left alone where somebody chose another."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

_SEND = """
import os, sys
from shoal.bench.generator import send_load
from shoal.bench.plan import Arrivals, Load
from shoal.bench.targets import Target
os.setpriority(os.PRIO_PROCESS, 0, int(sys.argv[1]))
send_load(Load(Target("t", "tei", "http://127.0.0.1:9"), Arrivals("trace", trace=(0.0,)), [["a"]], 0.1))
print(os.getpriority(os.PRIO_PROCESS, 0))
"""


@pytest.mark.parametrize("niceness", [5, 19])
def test_a_priority_that_was_chosen_stays(niceness: int) -> None:
    assert sent_at(niceness) == max(niceness, os.getpriority(os.PRIO_PROCESS, 0))


def sent_at(niceness: int) -> int:
    """The niceness that a process which had this one ends up with."""
    chosen = max(niceness, os.getpriority(os.PRIO_PROCESS, 0))
    done = subprocess.run([sys.executable, "-c", _SEND, str(chosen)], capture_output=True, text=True, check=True)
    return int(done.stdout)
