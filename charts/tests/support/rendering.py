"""Helm without a cluster: lints charts, renders them, checks values against their schema.

Helm comes as a shared library with a Go runtime of its own, signal handlers included; it lives in a process of its own,
so that nothing of it is in the process of the tests.
"""

import importlib.util
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

CHARTS = Path(__file__).parents[2]
LIBRARY = "helm_python"

Values = dict[str, Any]
Manifest = dict[str, Any]


class ChartError(Exception):
    """Helm refused a chart or its values; the text is Helm's."""


@dataclass(frozen=True)
class Rendered:
    """What one `helm template` gave, by the path of the template."""

    files: dict[str, str]

    @property
    def notes(self) -> str:
        return "".join(text for path, text in self.files.items() if path.endswith("NOTES.txt"))

    @property
    def manifests(self) -> list[Manifest]:
        documents = (text for path, text in sorted(self.files.items()) if not path.endswith("NOTES.txt"))
        return [manifest for text in documents for manifest in yaml.safe_load_all(text) if manifest]

    def one(self, kind: str) -> Manifest:
        """The only manifest of this kind."""
        (found,) = [manifest for manifest in self.manifests if manifest["kind"] == kind]
        return found


def is_available() -> bool:
    """False where the wheel that carries Helm does not exist for the machine."""
    return importlib.util.find_spec(LIBRARY) is not None


class Helm:
    """The commands of Helm that need no cluster."""

    def __enter__(self) -> "Helm":
        self._process = ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn"))
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._process.shutdown()

    def values(self, settings: list[str]) -> Values:
        """The values that `--set` of each of these gives."""
        return self._process.submit(_values, settings).result()

    def lint(self, chart: str, values: Values) -> list[str]:
        """What `helm lint --strict` has to say, but for what is only recommended."""
        return self._process.submit(_lint, str(CHARTS / chart), values).result()

    def render(self, chart: str, values: Values, *, release: str, namespace: str) -> Rendered:
        """Renders a chart as `helm install` would, its values checked against its schema."""
        answer = self._process.submit(_render, str(CHARTS / chart), values, release, namespace).result()
        if isinstance(answer, str):
            raise ChartError(answer)
        return Rendered(answer)


def _values(settings: list[str]) -> Values:
    import helm_python

    return helm_python.parse_set_string(",".join(settings))


def _lint(chart: str, values: Values) -> list[str]:
    import helm_python

    warning = 2
    report = helm_python.lint(chart, values, strict=True)
    found = [message["error"] for message in report["messages"] if message["severity"] >= warning]
    return found + list(report["errors"])


def _render(chart: str, values: Values, release: str, namespace: str) -> dict[str, str] | str:
    import helm_python

    try:
        with helm_python.Chart.load(chart) as loaded:
            return loaded.render(values, name=release, namespace=namespace)
    except helm_python.HelmError as error:
        return str(error)
