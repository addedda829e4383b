"""The table of clients and features: for the terminal, and as `docs/compatibility.md`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table

from walrus_compat.features import Feature


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a feature with a client: nothing wrong, something that Kafka shows as well, or what is wrong."""

    wrong: tuple[str, ...] = ()
    as_kafka: str | None = None

    @property
    def is_fine(self) -> bool:
        """Whether it is as it should be."""
        return not self.wrong or self.as_kafka is not None

    @property
    def word(self) -> str:
        """A word for it in a table."""
        if not self.wrong:
            return "yes"
        return "as Kafka" if self.as_kafka else "NO"


Outcomes = Mapping[tuple[str, str], Outcome]  # by client and feature


def table(versions: Mapping[str, str], features: Sequence[Feature], outcomes: Outcomes) -> Table:
    """The table for the terminal."""
    shown = Table(title="Clients of Kafka", title_justify="left")
    shown.add_column("feature", no_wrap=True)
    for client, version in versions.items():
        shown.add_column(f"{client}\n{version}")
    for feature in features:
        row = [outcomes.get((client, feature.name)) for client in versions]
        shown.add_row(feature.name, *("" if found is None else found.word for found in row))
    return shown


def page(versions: Mapping[str, str], features: Sequence[Feature], outcomes: Outcomes) -> str:
    """The page of the documentation."""
    lines = [
        "# Clients of Kafka that are tried",
        "",
        "`make compat` runs these clients, unmodified and with their own defaults, against clusters of three real",
        "nodes, and writes this page; [how](../compat/README.md). What Kafka's protocol has here, and what is missing:",
        "[reference](reference/kafka.md).",
        "",
        "| feature | " + " | ".join(f"{client} {version}" for client, version in versions.items()) + " |",
        "| --- |" + " --- |" * len(versions),
    ]
    for feature in features:
        words = [
            outcomes[client, feature.name].word if (client, feature.name) in outcomes else "" for client in versions
        ]
        lines.append(f"| {feature.name} | " + " | ".join(words) + " |")
    lines += ["", *(f"- **{feature.name}**: {feature.what}" for feature in features), ""]
    notes = sorted(
        {(feature, client, found.as_kafka) for (client, feature), found in outcomes.items() if found.as_kafka}
    )
    if notes:
        lines += [
            'What is marked "as Kafka" is told to the application by the design of its client, whoever serves it:',
            "",
        ]
        lines += [f"- {feature}, {client}: {note}" for feature, client, note in notes] + [""]
    return "\n".join(lines)
