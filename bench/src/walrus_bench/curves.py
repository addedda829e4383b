"""Curves of the suite `scale`: how a figure grows with a size, as an exponent and as a picture."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from walrus_bench.report import Report
from walrus_bench.tables import figure

COLUMNS = 4


@dataclass(frozen=True)
class Curve:
    """What a case gave at each size."""

    case: str
    unit: str
    points: Sequence[tuple[int, float]]

    @property
    def exponent(self) -> float | None:
        """The exponent of the power of the size that lies closest to the points (least squares of logarithms)."""
        logs = [(math.log(size), math.log(value)) for size, value in self.points if value > 0]
        if len(logs) < 2:
            return None
        mean_x = sum(x for x, _ in logs) / len(logs)
        mean_y = sum(y for _, y in logs) / len(logs)
        spread = sum((x - mean_x) ** 2 for x, _ in logs)
        return sum((x - mean_x) * (y - mean_y) for x, y in logs) / spread if spread else None


def curves_of(report: Report) -> list[Curve]:
    """The curves of a report of the suite, in its order."""
    points: dict[str, list[tuple[int, float]]] = {}
    units: Mapping[str, str] = {row.case: row.unit for row in report.rows}
    for row in report.rows:
        points.setdefault(row.case, []).append((int(row.backend), row.value))
    return [Curve(case, units[case], sorted(found)) for case, found in points.items()]


def show(curves: Sequence[Curve], console: Console) -> None:
    """Prints each curve as a line: its figures by size, and its exponent."""
    table = Table(title="Growth", title_justify="left")
    for heading in ("figure", "unit", "by size", "exponent"):
        table.add_column(heading)
    for curve in curves:
        by_size = ", ".join(f"{size:,}: {figure(value)}" for size, value in curve.points)
        table.add_row(curve.case, curve.unit, by_size, _text(curve.exponent))
    console.print(table)


def draw(curves: Sequence[Curve], path: Path) -> None:
    """Writes a PNG to `path`: a panel for each curve, both axes logarithmic."""
    lines = -(-len(curves) // COLUMNS)
    picture = Figure(figsize=(4.0 * COLUMNS, 3.2 * lines))
    panels = picture.subplots(lines, COLUMNS, squeeze=False).flatten()
    for curve, axes in zip(curves, panels, strict=False):
        _panel(axes, curve)
    for unused in panels[len(curves) :]:
        unused.remove()
    picture.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=120)


def _panel(axes: Axes, curve: Curve) -> None:
    sizes, values = zip(*curve.points, strict=True)
    axes.plot(sizes, values, marker="o", color="#2a7f62")
    axes.set_xscale("log")
    if min(values) > 0:
        axes.set_yscale("log")
    axes.set_title(f"{curve.case}\n{curve.unit}, exponent {_text(curve.exponent)}", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(visible=True, which="major", alpha=0.3)


def _text(exponent: float | None) -> str:
    return "-" if exponent is None else f"{exponent:.2f}"
