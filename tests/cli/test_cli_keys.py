"""`shoal keys`: what it writes, what it shows, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from shoal.gateway.keys import keyfile

Run = Callable[..., Result]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.jsonl"


def test_create_list_revoke(run_shoal: Run, path: Path) -> None:
    limits = ("--tokens-per-minute", 500, "--max-requests", 3, "--priority", "bulk", "--expires", "12h")
    scopes = ("--scope", "embed", "--scope", "metrics", "--model", "BAAI/*", "--class", "gold")
    done = run_shoal("keys", "create", "--keys-file", path, "--tenant", "a-team", *limits, *scopes)
    assert done.exit_code == 0, done.output
    key = done.stdout.strip()
    (record,) = keyfile.read(path).values()
    assert record.sha256 == keyfile.digest_of(key.encode())
    assert (record.tenant, record.tenant_class, record.scopes) == ("a-team", "gold", ("embed", "metrics"))
    assert (record.models, record.priority) == (("BAAI/*",), "bulk")
    assert (record.tokens_per_minute, record.max_requests) == (500, 3)
    assert record.expires_at - record.created_at == 12 * 3600
    listed = run_shoal("keys", "list", "--keys-file", path)
    assert all(word in listed.stdout for word in (record.id, "a-team", "gold", "BAAI/*", "500"))
    (row,) = json.loads(run_shoal("keys", "list", "--keys-file", path, "--json").stdout)
    assert (row["id"], row["scopes"]) == (record.id, ["embed", "metrics"])
    assert record.sha256 not in json.dumps(row)
    assert run_shoal("keys", "revoke", record.id, "--keys-file", path).exit_code == 0
    assert keyfile.read(path) == {}
    assert run_shoal("keys", "revoke", record.id, "--keys-file", path).exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--tenant", "two words"), 1, "tenant"),
        (("--tenant", "t", "--scope", "everything"), 1, "operations"),
        (("--tenant", "t", "--expires", "3 years"), 2, "90d"),
        (("--tenant", "t", "--priority", "highest"), 2, "interactive"),
        (("--tenant", "t", "--tokens-per-minute", "-1"), 2, "x>=0"),
        ((), 2, "--tenant"),
    ],
)
def test_what_is_wrong_writes_nothing(
    run_shoal: Run, path: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    done = run_shoal("keys", "create", "--keys-file", path, *arguments)
    assert done.exit_code == code
    assert words in done.output
    assert not path.exists()


def test_a_broken_file_is_not_touched(run_shoal: Run, path: Path) -> None:
    path.write_text("half a li")
    done = run_shoal("keys", "create", "--keys-file", path, "--tenant", "t")
    assert done.exit_code == 1
    assert "line 1" in done.output
    assert path.read_text() == "half a li"


def test_the_file_must_be_named(run_shoal: Run) -> None:
    done = run_shoal("keys", "list")
    assert done.exit_code == 2
    assert "SHOAL_KEYS_FILE" in done.output
