"""Draws the archive: when flights were late in 2013, and which broker led which part of the stream."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flights.lake import Lake
from flights.proof import Delays

MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
INK: Final = "#22303c"
FAINT: Final = "#8b98a5"
NODE_COLOURS: Final = ("#2a6f97", "#e09f3e", "#6a994e", "#9e2a2b", "#6d597a")
BAR: Final = "#577590"
DELAY_MINUTES_MAX: Final = 60


@dataclass(frozen=True)
class Strip:
    """A segment as drawn: its offsets and who led it."""

    start: int
    end: int
    node: str


def draw(lake: Lake, strips: Sequence[Strip], *, killed_at: int, path: Path) -> None:
    """Writes the picture; *killed_at* is the offset at which a broker was killed."""
    mpl.use("Agg")
    style = {
        "font.family": "DejaVu Sans",
        "font.size": 9,
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": FAINT,
        "xtick.color": INK,
        "ytick.color": INK,
        "axes.titlesize": 10.5,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with mpl.rc_context(style):  # type: ignore[arg-type]
        figure = Figure(figsize=(12, 9), dpi=130, facecolor="white")
        grid = figure.add_gridspec(
            3,
            2,
            height_ratios=(3.2, 3, 0.55),
            left=0.065,
            right=0.975,
            top=0.88,
            bottom=0.075,
            hspace=0.52,
            wspace=0.16,
        )
        flights = sum(group.flights for group in lake.by_month.values())
        figure.text(0.065, 0.955, f"{flights:,} flights that left New York in 2013", fontsize=17, fontweight="bold")
        figure.text(
            0.065,
            0.925,
            "Streamed through three Walrus brokers, archived by Spark, drawn from the Parquet archive",
            fontsize=10.5,
            color=FAINT,
        )
        _delays_by_day_and_hour(figure, figure.add_subplot(grid[0, :]), lake.by_day_and_hour)
        _by_month(figure.add_subplot(grid[1, 0]), lake.by_month)
        _by_carrier(figure.add_subplot(grid[1, 1]), lake.by_carrier)
        _segments(figure.add_subplot(grid[2, :]), strips, killed_at)
        figure.savefig(path)


def _delays_by_day_and_hour(figure: Figure, axes: Axes, table: pd.DataFrame) -> None:
    days = pd.to_datetime(table["day"]).dt.dayofyear.to_numpy() - 1
    hours = table["hour"].to_numpy()
    first, last = int(hours[table["flights"] > 30].min()), int(hours.max())
    cells = np.full((24, 365), np.nan)
    cells[hours, days] = table["delay_minutes"].to_numpy(dtype=float)
    picture = axes.imshow(
        np.clip(cells[first : last + 1], 0, DELAY_MINUTES_MAX),
        aspect="auto",
        origin="lower",
        cmap="magma_r",
        vmin=0,
        vmax=DELAY_MINUTES_MAX,
        extent=(0, 365, first - 0.5, last + 0.5),
        interpolation="nearest",
    )
    starts = [pd.Timestamp(2013, month, 1).dayofyear - 1 for month in range(1, 13)]
    axes.set_xticks(starts, MONTHS, ha="left")
    axes.set_yticks(range(6, last + 1, 3), [f"{hour:02}:00" for hour in range(6, last + 1, 3)])
    axes.set_ylabel("scheduled departure")
    axes.set_title(
        "Mean departure delay by day and hour: delays pile up through the day, in summer and before holidays"
    )
    axes.spines[:].set_visible(False)
    bar = figure.colorbar(picture, ax=axes, pad=0.012, aspect=18, ticks=(0, 20, 40, 60))
    bar.ax.set_yticklabels(["0", "20", "40", "60+ min"])
    bar.outline.set_visible(False)


def _by_month(axes: Axes, groups: Mapping[str, Delays]) -> None:
    delays = [groups[str(month)].mean_minutes or 0 for month in range(1, 13)]
    bars = axes.bar(MONTHS, delays, color=BAR, width=0.72)
    axes.bar_label(
        bars,
        [f"{groups[str(month)].flights / 1000:.1f}k" for month in range(1, 13)],
        padding=2,
        fontsize=7.5,
        color=FAINT,
    )
    axes.set_ylabel("minutes")
    axes.set_title("Mean departure delay by month (above: flights)")
    axes.margins(y=0.1)
    axes.grid(axis="y", color="#e6eaee", zorder=0)
    axes.set_axisbelow(True)


def _by_carrier(axes: Axes, groups: Mapping[str, Delays]) -> None:
    ordered = sorted(groups.items(), key=lambda item: item[1].mean_minutes or 0)
    bars = axes.barh([name for name, _ in ordered], [group.mean_minutes or 0 for _, group in ordered], color=BAR)
    axes.bar_label(bars, [f"{group.flights:,}" for _, group in ordered], padding=3, fontsize=7.5, color=FAINT)
    axes.set_xlabel("minutes")
    axes.set_title("Mean departure delay by carrier (beside: flights)")
    axes.margins(x=0.1)
    axes.tick_params(axis="y", labelsize=8, length=0)
    axes.grid(axis="x", color="#e6eaee", zorder=0)
    axes.set_axisbelow(True)


def _segments(axes: Axes, strips: Sequence[Strip], killed_at: int) -> None:
    nodes = sorted({strip.node for strip in strips})
    colour_of = {node: NODE_COLOURS[place % len(NODE_COLOURS)] for place, node in enumerate(nodes)}
    for node in nodes:
        axes.barh(0, 0, color=colour_of[node], label=node)
    for strip in strips:
        axes.barh(
            0,
            strip.end - strip.start,
            left=strip.start,
            color=colour_of[strip.node],
            edgecolor="white",
            linewidth=1.5,
            height=0.9,
        )
    axes.plot(
        killed_at,
        0,
        marker="X",
        linestyle="none",
        markersize=11,
        color="#c1121f",
        markeredgecolor="white",
        label="killed here",
    )
    end = strips[-1].end if strips else 0
    axes.set_xlim(0, end)
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    axes.set_xticks(range(0, end, 50_000), [f"{offset:,}" for offset in range(0, end, 50_000)])
    axes.set_title("Segments of the stream by offset, coloured by the broker that led them")
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1.02), ncols=len(nodes) + 1, frameon=False, fontsize=8.5)
