"""Two checkouts on one machine."""

import os
import shutil
import subprocess
from pathlib import Path

TOOLS_ENV = Path(__file__).parents[2] / "tools" / "env"


def build_folder(checkout: Path, **given: str) -> str:
    """Where the commands of a checkout build."""
    (checkout / "tools").mkdir(parents=True, exist_ok=True)
    shutil.copy(TOOLS_ENV, checkout / "tools")
    kept = {name: value for name, value in os.environ.items() if name != "CARGO_TARGET_DIR"}
    return subprocess.run(
        ["bash", "-c", ". tools/env; printf %s $CARGO_TARGET_DIR"],
        cwd=checkout,
        env={**kept, **given},
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def test_no_checkout_takes_for_its_own_what_another_has_built(tmp_path: Path) -> None:
    here, there = tmp_path / "here" / "walrus", tmp_path / "there" / "walrus"
    assert build_folder(here) == build_folder(here)
    assert build_folder(here) != build_folder(there)


def test_a_build_folder_that_was_asked_for_is_taken(tmp_path: Path) -> None:
    asked = str(tmp_path / "builds")
    assert build_folder(tmp_path / "walrus", CARGO_TARGET_DIR=asked) == asked
