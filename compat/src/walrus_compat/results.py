"""What came of features and programs: of one run, and kept from run to run, so that the whole can be tried in parts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from walrus_compat import kinds
from walrus_compat.feature import Wrong


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
    def is_to_compare(self) -> bool:
        """Whether only Apache Kafka can say if it is as it should be, and was not asked."""
        return self.with_kafka is None and kinds.is_all_told(self.wrong)

    @property
    def is_fine(self) -> bool:
        """Whether nothing is known to be wrong."""
        return not self.wrong or self.is_as_kafka or self.is_to_compare

    @property
    def word(self) -> str:
        """A word for it in a table."""
        if self.is_lacking:
            return "-"
        if not self.wrong:
            return "yes"
        if self.is_to_compare:
            return "told, not compared"
        return "as Kafka" if self.is_as_kafka else "NO"

    def as_json(self) -> dict[str, Any]:
        """The content of a JSON object."""

        def listed(wrong: Sequence[Wrong]) -> list[list[str | None]]:
            return [[each.what, each.told] for each in wrong]

        with_kafka = None if self.with_kafka is None else listed(self.with_kafka)
        return {"wrong": listed(self.wrong), "with_kafka": with_kafka, "is_lacking": self.is_lacking}

    @classmethod
    def of_json(cls, content: Mapping[str, Any]) -> Self:
        """The reverse of `as_json`."""

        def wrongs(listed: Sequence[Sequence[Any]]) -> tuple[Wrong, ...]:
            return tuple(Wrong(*each) for each in listed)

        with_kafka = content["with_kafka"]
        return cls(
            wrongs(content["wrong"]), None if with_kafka is None else wrongs(with_kafka), bool(content["is_lacking"])
        )


@dataclass(slots=True)
class Results:
    """Outcomes by client and feature, and by program, each with the version with which it was tried."""

    versions: dict[str, str] = field(default_factory=dict)
    features: dict[tuple[str, str], Outcome] = field(default_factory=dict)
    programs: dict[str, Outcome] = field(default_factory=dict)

    def add(self, later: "Results") -> None:
        """Take in what came of a later run; of a client whose version is another one now, nothing older is kept."""
        changed = {client for client, version in later.versions.items() if self.versions.get(client) != version}
        kept = {key: outcome for key, outcome in self.features.items() if key[0] not in changed}
        self.features = kept | later.features
        self.versions |= later.versions
        self.programs |= later.programs

    @property
    def is_fine(self) -> bool:
        """Whether nothing is known to be wrong."""
        return all(outcome.is_fine for outcome in (*self.features.values(), *self.programs.values()))

    def missing(self, clients: Sequence[str], features: Sequence[str], programs: Sequence[str]) -> list[str]:
        """What a whole table lacks still, or has not compared."""
        wanted = [(client, feature) for feature in features for client in clients]
        tried = {key for key, outcome in self.features.items() if not outcome.is_to_compare}
        return [f"{feature} with {client}" for client, feature in wanted if (client, feature) not in tried] + [
            program for program in programs if program not in self.programs
        ]

    def save(self, path: Path) -> None:
        """Keep it in a file."""
        content = {
            "versions": self.versions,
            "features": [[*key, outcome.as_json()] for key, outcome in self.features.items()],
            "programs": {program: outcome.as_json() for program, outcome in self.programs.items()},
        }
        path.write_text(json.dumps(content, indent=1))

    @classmethod
    def load(cls, path: Path) -> Self:
        """What was kept in a file, or nothing."""
        if not path.exists():
            return cls()
        content = json.loads(path.read_text())
        features = {(client, feature): Outcome.of_json(found) for client, feature, found in content["features"]}
        programs = {program: Outcome.of_json(found) for program, found in content["programs"].items()}
        return cls(content["versions"], features, programs)
