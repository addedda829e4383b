"""Writes what the charts and the reference take from elsewhere: `make charts`, and a test compares.

Helm reads nothing outside of a chart, so the chart of the operator has copies of the custom resource definitions and of
the table of rights, and dashboards that are made from tables of their panels. The values of the chart `walrus` are the
spec of a WalrusCluster: one schema is for both.
"""

import subprocess
import sys
from pathlib import Path

from dashboards import DASHBOARDS, rendered
from reference import page

ROOT = Path(__file__).parents[2]
CRDS = ROOT / "crds"
OPERATOR_FILES = ROOT / "charts/walrus-operator/files"


def generated() -> dict[Path, str]:
    """Every generated file with what belongs into it."""
    definitions = {path: path.read_text() for path in sorted(CRDS.glob("*.yaml"))}
    files = {OPERATOR_FILES / "crds" / path.name: text for path, text in definitions.items()}
    files[OPERATOR_FILES / "rbac.yaml"] = _operator("rbac")
    for dashboard in DASHBOARDS:
        files[OPERATOR_FILES / "dashboards" / f"{dashboard.name}.json"] = rendered(dashboard)
    files[ROOT / "charts/walrus/values.schema.json"] = _operator("values-schema")
    for path, text in definitions.items():
        name = path.stem.split("_")[-1].removesuffix("s")
        files[ROOT / "docs/reference" / f"{name}.md"] = page(text)
    return files


def _operator(command: str) -> str:
    """What `python -m walrus_operator COMMAND` prints."""
    program = [sys.executable, "-m", "walrus_operator", command]
    return subprocess.run(program, check=True, stdout=subprocess.PIPE, text=True, timeout=120).stdout  # noqa: S603


if __name__ == "__main__":
    for path, text in generated().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        sys.stdout.write(f"{path.relative_to(ROOT)}\n")
