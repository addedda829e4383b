"""The report as one picture: a panel per case, a bar per system and backend, goal and limit as lines."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from walrus_bench.goals import GOALS, Better
from walrus_bench.report import Report, Row
from walrus_bench.tables import figure

COLUMNS_MAX = 4
MET, NOT_MET, NO_GOAL, LIMIT = "#2a7f62", "#c0504d", "#4f6d8f", "#555555"


def draw(report: Report, path: Path) -> None:
    """Writes a PNG to `path`."""
    cases = list(dict.fromkeys(row.case for row in report.rows))
    columns = min(len(cases), COLUMNS_MAX)
    lines = -(-len(cases) // columns)
    picture = Figure(figsize=(4.2 * columns, 4.0 * lines))
    panels = picture.subplots(lines, columns, squeeze=False).flatten()
    for case, axes in zip(cases, panels, strict=False):
        _panel(axes, [row for row in report.rows if row.case == case])
    for unused in panels[len(cases) :]:
        unused.remove()
    quick = " (quick: not to be quoted)" if report.quick else ""
    picture.suptitle(f"Walrus, suite {report.suite}{quick}", x=0.01, ha="left")
    picture.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=120)


def _panel(axes: Axes, rows: list[Row]) -> None:
    case, limit = rows[0].case, rows[0].limit
    goal = GOALS[case]
    labels = [f"{row.system}\n{row.backend}".strip() for row in rows]
    spread = [[row.value - row.minimum for row in rows], [row.maximum - row.value for row in rows]]
    bars = axes.bar(
        labels,
        [row.value for row in rows],
        yerr=spread,
        color=[(MET if row.met else NOT_MET) if row.goal else NO_GOAL for row in rows],
        width=0.6,
        capsize=4,
    )
    axes.bar_label(bars, labels=[figure(row.value) for row in rows], label_type="center", color="white")
    if (bound := goal.bound_as_value(limit)) is not None:
        axes.axhline(bound, color="black", linestyle="--", linewidth=1, label=f"goal: {goal}")
    if limit is not None:
        axes.axhline(limit, color=LIMIT, linestyle=":", linewidth=1.2, label=f"limit ({goal.limit}): {figure(limit)}")
    better = "higher is better" if goal.better is Better.HIGHER else "lower is better"
    axes.set_title(f"{case}\n{goal.unit}, {better}", fontsize=10)
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.18), frameon=False)
