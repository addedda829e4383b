"""The report as tables for people."""

from rich.console import Console
from rich.table import Table

from walrus_bench.fio import NOT_FOUND, PARAMETERS
from walrus_bench.report import OURS, Report

WIDE_COLUMNS = 160


def show(report: Report, console: Console) -> None:
    """Prints limits, rows, and how far to trust them."""
    if report.limits:
        console.print(_limits(report))
    console.print(_rows(report, wide=console.width >= WIDE_COLUMNS))
    for note in report.notes:
        console.print(f"note: {note}")
    load = report.load
    console.print(
        f"during the samples others used {load['others_cores_median']} core (median), "
        f"{load['others_cores_max']} (most); {load['dropped']} samples were dropped and taken again"
    )
    if load["noisy"]:
        console.print(f"[bold yellow]{load['noisy']} of {load['samples']} samples stayed noisy: do not quote them[/]")
    if met := report.cases_met:
        missed = [case for case, is_met in met.items() if not is_met]
        console.print(
            f"{len(met) - len(missed)} of {len(met)} goals met" + (f"; not met: {', '.join(missed)}" if missed else "")
        )


def _limits(report: Report) -> Table:
    table = Table(title=f"Limits of this machine ({report.suite})", title_justify="left")
    for heading in ("limit", "unit"):
        table.add_column(heading)
    for heading in ("probe", "min..max", "fio", "probe/fio"):
        table.add_column(heading, justify="right")
    for row in report.limits:
        agreement = "" if row.probe_to_fio is None else f"{row.probe_to_fio:.2f}" + ("" if row.agrees else " !")
        fio = (
            figure(row.fio)
            if row.fio is not None
            else (NOT_FOUND if NOT_FOUND in report.notes and row.limit in PARAMETERS else "")
        )
        table.add_row(
            row.limit,
            row.unit,
            figure(row.value),
            f"{figure(row.minimum)}..{figure(row.maximum)}",
            fio,
            agreement,
        )
    return table


def _rows(report: Report, *, wide: bool) -> Table:
    counts_syncs = any("syncs_per_ack" in row.facts for row in report.rows)
    table = Table(title=f"Suite {report.suite}", title_justify="left")
    table.add_column("case", no_wrap=True)
    table.add_column("system", no_wrap=True)
    table.add_column("value", justify="right")
    table.add_column("unit")
    if wide:
        table.add_column("min..max", justify="right")
        table.add_column("p50/p99/p99.9 us", justify="right")
        if counts_syncs:
            table.add_column("syncs/ack", justify="right")
    table.add_column("limit", justify="right")
    table.add_column("ratio", justify="right")
    table.add_column("goal")
    table.add_column("met")
    for row in report.rows:
        quantiles = [row.facts.get(name) for name in ("p50_us", "p99_us", "p999_us")]
        syncs = row.facts.get("syncs_per_ack")
        spread = (
            f"{figure(row.minimum)}..{figure(row.maximum)}",
            " / ".join(figure(float(us)) for us in quantiles if us is not None),
            *(("" if syncs is None else figure(float(syncs)),) if counts_syncs else ()),
        )
        table.add_row(
            row.case,
            f"{row.system} {row.backend}",
            figure(row.value),
            row.unit,
            *(spread if wide else ()),
            "" if row.limit is None else figure(row.limit),
            "" if row.ratio is None else f"{row.ratio:.2f}",
            row.goal.removesuffix(f" {row.unit}"),
            ("[green]met[/]" if row.met else "[red]not met[/]") if row.system == OURS and row.goal else "",
        )
    return table


def figure(value: float) -> str:
    """Three digits that matter, thousands apart."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
