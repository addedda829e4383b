"""What the reader sees while the job runs: a line for each event, a bar for each thing that takes time."""

from collections.abc import Callable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


class Screen:
    """Lines and bars; used as a context, in which the bars are live. Safe to use from many threads."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            SpinnerColumn(finished_text="[green]✓[/]"),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        )

    def __enter__(self) -> "Screen":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """Prints a line above the bars."""
        self._progress.console.print(text, highlight=False, markup=False)

    def bar(self, name: str, total: int) -> Callable[[int], None]:
        """Adds a bar; returns what moves it to a number of records."""
        bar = self._progress.add_task(name, total=total)

        def move(records: int) -> None:
            self._progress.update(bar, completed=records)

        return move
