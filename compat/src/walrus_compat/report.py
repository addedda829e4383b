"""The table of clients and features: for the terminal, and as `docs/compatibility.md`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table

from walrus_compat import apache, kinds
from walrus_compat.feature import Feature, Wrong
from walrus_compat.program import Program


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a feature with a client: what was wrong, and what was with Apache Kafka, if that was tried.

    `is_lacking` says that the client does not have the feature.
    """

    wrong: tuple[Wrong, ...] = ()
    with_kafka: tuple[Wrong, ...] | None = None
    is_lacking: bool = False

    @property
    def is_as_kafka(self) -> bool:
        """Whether the application was told what it is told with Apache Kafka, and nothing else was wrong."""
        return self.with_kafka is not None and kinds.is_as_kafka(self.wrong, self.with_kafka)

    @property
    def is_fine(self) -> bool:
        """Whether it is as it should be."""
        return not self.wrong or self.is_as_kafka

    @property
    def word(self) -> str:
        """A word for it in a table."""
        if self.is_lacking:
            return "-"
        if not self.wrong:
            return "yes"
        return "as Kafka" if self.is_as_kafka else "NO"


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


def table_of_programs(found: Mapping[Program, Outcome]) -> Table:
    """The table of programs for the terminal."""
    shown = Table("program", "version", "", title="Programs", title_justify="left")
    for program, outcome in found.items():
        shown.add_row(program.name, program.version, outcome.word)
    return shown


def page(
    versions: Mapping[str, str], features: Sequence[Feature], outcomes: Outcomes, programs: Mapping[Program, Outcome]
) -> str:
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
    lines += ["", "`-`: the client does not have it.", ""]
    lines += [*(f"- **{feature.name}**: {feature.what}" for feature in features), ""]
    told = [
        f"- {feature}, {client}: {', '.join(kinds.kinds(found.wrong))}"
        for (client, feature), found in sorted(outcomes.items(), key=lambda item: item[0][::-1])
        if found.is_as_kafka
    ]
    if told:
        lines += [
            'With what is marked "as Kafka" the application is told of an error, and of the same one when the same is',
            f"tried, in the same run, with three brokers of Apache Kafka {apache.VERSION}:",
            "",
            *told,
            "",
        ]
    lines += ["## Programs", "", "| program | version | | what it does |", "| --- | --- | --- | --- |"]
    lines += [f"| {each.name} | {each.version} | {found.word} | {each.what} |" for each, found in programs.items()]
    return "\n".join(lines) + "\n"
