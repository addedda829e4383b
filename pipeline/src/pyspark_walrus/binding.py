"""What an archive's folder is bound to, and whether a run may go on in it.

Spark's file sink passes over the numbers of micro-batches that it knows already, whatever is in them; its checkpoint
knows how far it got in whatever it is asked to read. So a folder belongs to one topic and to one checkpoint, and a run
that brings another one is refused before it loses or doubles records.

Copies of an archive share its query, but no run that began since: each run gives itself a name and leaves it in both.
"""

import json
import re
import uuid
from dataclasses import asdict, dataclass, fields, replace
from typing import Final

from pyspark_walrus.folder import Folder
from pyspark_walrus.offsets import Offsets

FILE: Final = "_walrus.json"
VERSION: Final = 1
SINK_LOG: Final = "_spark_metadata"
# The file in which Spark keeps a query's id, in its checkpoint.
METADATA: Final = "metadata"
# The file beside it which names the run that works with the checkpoint, and the one whose folder it then found.
RUNS: Final = "walrus-runs.json"
# Behind the names of files that do not count: readers that look into every folder pass over them, too.
UNFINISHED: Final = ".unfinished"


class ArchiveRefusedError(Exception):
    """A run would lose or double records; the text says why, and what to do instead."""


@dataclass(frozen=True)
class Binding:
    """The topic, by cluster, name and uuid, Spark's id of the query whose checkpoint it is, and the newest run."""

    cluster: str
    topic: str
    topic_uuid: str
    query: str
    run: str

    def to_json(self) -> str:
        """The text of the file."""
        return json.dumps({**asdict(self), "v": VERSION}) + "\n"

    @classmethod
    def parse(cls, text: str) -> "Binding":
        """Reads back what `to_json` gave; raises ArchiveRefusedError for anything else."""
        try:
            read = json.loads(text)
            if read["v"] == VERSION:
                return cls(*(str(read[field.name]) for field in fields(cls)))
        except (ValueError, KeyError, TypeError):
            pass
        raise ArchiveRefusedError(
            f"{FILE} of the archive is damaged, or of a newer Walrus: restore it, or archive into a new folder"
        )


@dataclass(frozen=True)
class Found:
    """What lies in a folder and in its checkpoint before a run. Micro-batches are numbered from 0; -1: none."""

    binding: Binding | None
    query: str | None  # the checkpoint's
    runs: frozenset[str]  # which of the folder's runs the checkpoint goes on from
    archived: int  # newest micro-batch that the sink has finished
    planned: int  # newest of the checkpoint whose range is decided
    committed: int  # newest of the checkpoint that is done
    has_data: bool


def decide(found: Found, *, cluster: str, topic: str, topic_uuid: str) -> Binding:
    """The binding with which a run may begin, a new one in an empty folder; raises ArchiveRefusedError."""
    binding = found.binding
    if binding is None:
        if found.has_data or found.archived >= 0:
            raise ArchiveRefusedError(f"it holds Parquet files, but no {FILE}: archive into a new folder")
        if found.query is not None:
            raise ArchiveRefusedError("the checkpoint is another query's: give this archive one of its own")
        return Binding(cluster, topic, topic_uuid, query=str(uuid.uuid4()), run=str(uuid.uuid4()))
    if binding.topic != topic:
        raise ArchiveRefusedError(f"it is the archive of topic {binding.topic}: archive {topic} into another folder")
    if binding.cluster != cluster:
        raise ArchiveRefusedError(f"it is the archive of another cluster's topic {topic}: archive into a new folder")
    if binding.topic_uuid != topic_uuid:
        raise ArchiveRefusedError(
            f"it is the archive of an earlier topic {topic}, which was deleted and made again: "
            "archive into a new folder"
        )
    restore = "restore the checkpoint that belongs to it, or archive into a new folder"
    if found.query is None and (found.archived >= 0 or found.planned >= 0):
        raise ArchiveRefusedError(f"its checkpoint is missing: {restore}")
    if found.query not in (None, binding.query):
        raise ArchiveRefusedError(f"the checkpoint is another query's: {restore}")
    if found.archived > found.planned:
        raise ArchiveRefusedError(f"its checkpoint is older than the archive: {restore}")
    if found.committed > found.archived:
        raise ArchiveRefusedError(f"its checkpoint is ahead of the archive, as if another copy had gone on: {restore}")
    if found.query is not None and binding.run not in found.runs:
        raise ArchiveRefusedError(f"the checkpoint is that of another copy of it, or an old one: {restore}")
    return binding


def look(folder: Folder, checkpoint: Folder) -> Found:
    """What lies there; raises ArchiveRefusedError if that is damaged."""
    text, metadata, runs = folder.read(FILE), checkpoint.read(METADATA), checkpoint.read(RUNS)
    archived_files(folder)  # its number alone would not tell of a gap
    return Found(
        Binding.parse(text) if text is not None else None,
        _query(metadata) if metadata is not None else None,
        _runs(runs) if runs is not None else frozenset(),
        _newest(folder.names(SINK_LOG)),
        _newest(checkpoint.names("offsets")),
        _newest(checkpoint.names("commits")),
        bool(folder.data_files()),
    )


def bind(folder: Folder, checkpoint: Folder, binding: Binding) -> None:
    """Begins a run: names it in both, and in new ones writes down what belongs together. Durable on return.

    The checkpoint comes first: it names the run before as well, so a run that ends between the two changes nothing.
    """
    if folder.read(FILE) is None:
        folder.write(FILE, binding.to_json())
    run = str(uuid.uuid4())
    checkpoint.write(RUNS, json.dumps({"previous": binding.run, "current": run}) + "\n")
    if checkpoint.read(METADATA) is None:
        checkpoint.write(METADATA, json.dumps({"id": binding.query}))
    folder.write(FILE, replace(binding, run=run).to_json())


def archived_files(folder: Folder) -> list[str]:
    """The files of all finished micro-batches, relative to the folder, wherever that was when they were written.

    Raises ArchiveRefusedError where Spark's list of them has a gap or is damaged: files that count would be missing.
    """
    names = folder.names(SINK_LOG)
    compacts = [number for name in names if (number := _compact(name)) is not None]
    first = max(compacts, default=0)
    files: dict[str, None] = {}
    for number in range(first, _newest(names) + 1):
        name = f"{SINK_LOG}/{number}{'.compact' if number in compacts else ''}"
        for path in _listed(name, folder.read(name)):
            files[_relative(path)] = None
    return list(files)


def set_aside(folder: Folder) -> int:
    """Moves what no finished micro-batch lists out of the sight of readers; how many files there were."""
    strays = sorted(set(folder.data_files()) - set(archived_files(folder)))
    where = f"_unfinished/{uuid.uuid4()}" if strays else ""
    for name in strays:
        folder.move(name, f"{where}/{name}{UNFINISHED}")
    return len(strays)


def reached(checkpoint: Folder) -> Offsets | None:
    """The end of the newest micro-batch that the checkpoint has planned."""
    newest = _newest(checkpoint.names("offsets"))
    text = checkpoint.read(f"offsets/{newest}") if newest >= 0 else None
    return Offsets.from_json(json.loads(text.splitlines()[-1])) if text is not None else None


def _listed(name: str, text: str | None) -> list[str]:
    """The paths in a file of the sink's list: a line with its version, and one of JSON for each file."""
    version, *lines = (text or "").splitlines() or [""]
    try:
        if version == "v1":
            return [str(json.loads(line)["path"]) for line in lines]
    except (ValueError, KeyError, TypeError):
        pass
    problem = "is missing" if text is None else "is damaged"
    raise ArchiveRefusedError(
        f"{name}, a part of the list of files that count, {problem}: restore it, or archive into a new folder"
    )


def _relative(path: str) -> str:
    """A file lies in the folder of its month; what is in front of that was the archive's place."""
    return "/".join(path.rsplit("/", 2)[1:])


def _query(metadata: str) -> str:
    try:
        return str(json.loads(metadata)["id"])
    except (ValueError, KeyError, TypeError):
        return "unreadable"


def _runs(text: str) -> frozenset[str]:
    try:
        read = json.loads(text)
        return frozenset((str(read["previous"]), str(read["current"])))
    except (ValueError, KeyError, TypeError):
        return frozenset()


def _newest(names: list[str]) -> int:
    return max(_numbers(names), default=-1)


def _numbers(names: list[str]) -> set[int]:
    return {int(found[1]) for name in names if (found := re.fullmatch(r"([0-9]+)(?:\.compact)?", name))}


def _compact(name: str) -> int | None:
    number, _, rest = name.partition(".")
    return int(number) if rest == "compact" and number.isdecimal() else None
