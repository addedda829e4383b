"""The pod from which the tests on Kubernetes produce and check."""

import os
import subprocess
import sys
from pathlib import Path

from harness.kube.workbench import pod, sources


def test_the_program_of_the_pod_finds_all_that_it_imports_among_the_mounted_files(tmp_path: Path) -> None:
    data, mounted = sources()["data"], pod("walrus:1")["spec"]["volumes"][0]["configMap"]["items"]
    for item in mounted:
        file = tmp_path / item["path"]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(data[item["key"]])
    said = subprocess.run(
        [sys.executable, "-c", "import harness.kube.remote as remote; print(remote.__file__)"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    assert said == str(tmp_path / "harness" / "kube" / "remote.py")
