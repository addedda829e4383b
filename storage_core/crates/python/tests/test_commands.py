"""`walrus log` on stores of this machine."""

import json
from pathlib import Path

import pytest
import walrus_core
from typer.testing import CliRunner
from walrus_core.commands import app

SMALL = {"block_bytes": 64 << 10, "blocks_per_file": 4}


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, arguments)
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def store(tmp_path: Path) -> str:
    with walrus_core.Walrus.open(tmp_path, **SMALL) as walrus:
        walrus.append_many("orders", [b"x" * 1000] * 100)
    return str(tmp_path)


def test_a_store_is_shown_as_a_table_and_as_json(store: str) -> None:
    code, table, _ = run("inspect", store)
    assert code == 0
    assert "orders" in table
    assert "closed in order" in table
    code, text, _ = run("verify", store, "--output", "json")
    seen = json.loads(text)
    assert (code, seen["checked"]["batches"], seen["damaged"]) == (0, 1, False)
    assert (seen["logs"][0]["name"], seen["logs"][0]["end"]) == ("orders", 100)


def test_a_store_whose_journal_is_lost_is_repaired(store: str) -> None:
    for journal in Path(store).glob("journal-*"):
        journal.unlink()
    code, _, error = run("inspect", store)
    assert code == 1
    assert "it has no journal" in error
    code, table, _ = run("repair", store)
    assert code == 1, "promises are lost for good"
    assert "found by its blocks" in table
    assert run("repair", store)[0] == 0, "nothing is left to do"
    with walrus_core.Walrus.open(store) as walrus:
        assert walrus.offsets("orders") == range(100)


def test_a_store_that_is_open_is_left_alone(store: str) -> None:
    with walrus_core.Walrus.open(store):
        for command in ("inspect", "verify", "repair"):
            code, _, error = run(command, store)
            assert code == 1
            assert "in use" in error
