"""What is left of a run that failed."""

from argparse import Namespace
from pathlib import Path

from chaos.__main__ import _keep_logs


def test_the_logs_of_a_failed_run_are_where_the_next_run_leaves_them(tmp_path: Path) -> None:
    directory = tmp_path / "chaos"
    (directory / "node-1").mkdir(parents=True)
    (directory / "node-1.log").write_text("what node 1 said")
    chosen = Namespace(scenario="majority", seed=8)
    for _ in range(2):
        kept = _keep_logs(directory, chosen)
        assert not kept.is_relative_to(directory)
        assert [file.name for file in kept.iterdir()] == ["node-1.log"]
        assert (kept / "node-1.log").read_text() == "what node 1 said"
    assert _keep_logs(directory, Namespace(scenario=None, seed=8)) != kept
