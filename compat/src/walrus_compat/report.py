"""The table of clients and features: for the terminal, and as `docs/compatibility.md`."""

from collections.abc import Sequence

from rich.table import Table

from walrus_compat import apache, kinds
from walrus_compat.feature import Feature
from walrus_compat.program import Program
from walrus_compat.results import Results


def table(results: Results, features: Sequence[Feature]) -> Table:
    """The table for the terminal."""
    shown = Table(title="Clients of Kafka", title_justify="left")
    shown.add_column("feature", no_wrap=True)
    for client, version in results.versions.items():
        shown.add_column(f"{client}\n{version}")
    for feature in features:
        row = [results.features.get((client, feature.name)) for client in results.versions]
        shown.add_row(feature.name, *("" if found is None else found.word for found in row))
    return shown


def table_of_programs(results: Results, programs: Sequence[Program]) -> Table:
    """The table of programs for the terminal."""
    shown = Table("program", "version", "", title="Programs", title_justify="left")
    for program in programs:
        if program.name in results.programs:
            shown.add_row(program.name, program.version, results.programs[program.name].word)
    return shown


def page(results: Results, clients: Sequence[str], features: Sequence[Feature], programs: Sequence[Program]) -> str:
    """The page of the documentation, of results that lack nothing."""
    outcomes = results.features
    lines = [
        "# Clients of Kafka that are tried",
        "",
        "`make compat` runs these clients, unmodified and with their own defaults, against clusters of three real",
        "nodes, and writes this page; [how](../compat/README.md). What Kafka's protocol has here, and what is missing:",
        "[reference](reference/kafka.md).",
        "",
        "| feature | " + " | ".join(f"{client} {results.versions[client]}" for client in clients) + " |",
        "| --- |" + " --- |" * len(clients),
    ]
    for feature in features:
        words = [outcomes[client, feature.name].word for client in clients]
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
    words = [results.programs[program.name].word for program in programs]
    lines += [
        f"| {each.name} | {each.version} | {word} | {each.what} |" for each, word in zip(programs, words, strict=True)
    ]
    return "\n".join(lines) + "\n"
