"""The Raft log on disk: append-only records, each with a checksum and a sequence number.

An entry is durable when `sync` returned. Reading back, a record that a crash tore can only be the last one and is cut;
anything else that does not check out is damage, and damage refuses the start: a member that forgets acknowledged
entries would make the cluster lose them. A torn record is told from a lost end by the marks: after each sync one of
them says up to which record the file is durable, and a file that ends before has lost what was acknowledged.

A mark is not synced itself. It is true when it is written, so an older one that a power cut leaves is true too; and a
process that dies leaves the newest.

File: header, two marks that are written in turn, then records. Integers are little-endian.
header = magic 8s, version u32, zero u32, cluster 16s, disk 16s, CRC-32 of all before u32
mark   = sequence u64 of the last durable record, CRC-32 of it u32
record = body length u32, CRC-32 of body u32, sequence u64, kind u8, zero 3s, CRC-32 of all before u32, body
body   = BASE: index u64, term u64 | ENTRY: index u64, term u64, commit u64, command | CUT: index u64; then `_TRAILER`
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from walrus_node.files import DataRefusedError, rename_durably, sync_directory
from walrus_node.metadata.reserve import Reserve

FORMAT_VERSION = 2

_MAGIC = b"WALRUSMJ"
_HEADER = struct.Struct("<8sII16s16s")
_RECORD = struct.Struct("<IIQB3s")
_CRC = struct.Struct("<I")
_BASE_BODY = struct.Struct("<QQ")
_ENTRY_BODY = struct.Struct("<QQQ")
_CUT_BODY = struct.Struct("<Q")
_BASE, _ENTRY, _CUT = 1, 2, 3
_HEADER_BYTES = _HEADER.size + _CRC.size
_MARK = struct.Struct("<Q")
_MARK_BYTES = _MARK.size + _CRC.size
_RECORDS_AT = _HEADER_BYTES + 2 * _MARK_BYTES
_RECORD_BYTES = _RECORD.size + _CRC.size
# No record ends in zeros, so a run of them at the end of the file was never written: the file grew, the data did not
# arrive. One damaged byte cannot look like that.
_TRAILER = b"\xa5\x5a\xa5\x5a"
_ZEROS_OF_A_TORN_WRITE = b"\0" * 8


class Entry(NamedTuple):
    """One entry of the Raft log, in the order of fields that PySyncObj uses."""

    command: bytes
    index: int  # type: ignore[assignment] # hides tuple.index, which nobody wants here
    term: int


@dataclass(frozen=True)
class Owner:
    """Whose journal it is; another node's is refused."""

    cluster_id: UUID
    disk: UUID


class Journal:
    """The log from its base on: `base` stands for everything that the snapshot covers, and is no real entry."""

    def __init__(self, path: Path, owner: Owner, reserve: Reserve | None = None) -> None:
        """Open and check the journal; raises `DataRefusedError` if it is missing, damaged or not the owner's.

        *reserve* gives space where the disk has none.
        """
        self._spend: Callable[[Callable[[], None]], None] = reserve.spend if reserve else lambda write: write()
        self._path = path
        self._owner = owner
        self._failure: OSError | None = None
        self._unsynced = False
        self.torn_bytes = 0
        path.with_name(path.name + ".new").unlink(missing_ok=True)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise DataRefusedError(f"metadata journal {path} is missing; {_REMEDY}") from None
        replayed = _replay(content, path, owner)
        self._entries = replayed.entries
        self._sequence = replayed.sequence
        self._position = replayed.position
        self._commit_hint = replayed.commit
        self._marks = 0
        self._file = os.open(path, os.O_RDWR)
        if replayed.position < len(content):
            self.torn_bytes = len(content) - replayed.position
            os.ftruncate(self._file, replayed.position)
        # A process that was killed may have written what it never synced, and it is taken for held from now on.
        os.fdatasync(self._file)
        self._mark()

    @staticmethod
    def create(path: Path, owner: Owner, *, index: int, term: int) -> None:
        """Write an empty journal whose base is (index, term); durable on return."""
        with path.open("xb") as file:
            file.write(_encode_front(owner, 1) + _encode_base(1, index=index, term=term))
            file.flush()
            os.fsync(file.fileno())
        sync_directory(path.parent)

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, place: int) -> Entry:
        return self._entries[place]

    def entries(self, start: int, stop: int | None = None) -> list[Entry]:
        """Entries by place (not index), half-open."""
        return self._entries[start:stop]

    @property
    def base(self) -> Entry:
        """What the snapshot covers ends here."""
        return self._entries[0]

    @property
    def last(self) -> Entry:
        return self._entries[-1]

    @property
    def commit_hint(self) -> int:
        """An index that was known to be committed when the last entry was written: a lower bound of the truth."""
        return min(self._commit_hint, self.last.index)

    @property
    def size_bytes(self) -> int:
        return self._position

    @property
    def has_unsynced(self) -> bool:
        """Something was written since the last `sync`."""
        return self._unsynced

    def append(self, entry: Entry, *, commit: int) -> None:
        """Write an entry behind the last one. Durable only after `sync`."""
        assert entry.index == self.last.index + 1, "entries are dense"
        self._write(_ENTRY, _ENTRY_BODY.pack(entry.index, entry.term, commit) + entry.command)
        self._commit_hint = max(self._commit_hint, commit)
        self._entries.append(entry)

    def cut(self, index: int) -> None:
        """Drop the entries from *index* on. Durable only after `sync`."""
        assert index > self.base.index, "what a snapshot covers is never cut"
        self._write(_CUT, _CUT_BODY.pack(index))
        del self._entries[index - self.base.index :]

    def sync(self) -> None:
        """Make everything written durable. After a failure the journal refuses all further use: a second fsync lies."""
        if not self._unsynced:
            return
        self._check_usable()
        try:
            os.fdatasync(self._file)
            self._mark()
        except OSError as error:
            self._failure = error
            raise
        self._unsynced = False

    def compact(self, *, index: int, term: int) -> None:
        """Make (index, term) the base, keeping what follows if the log holds it, else nothing; durable on return.

        Where there is no space for it (`is_no_space`) the journal stays as it was, and of use.
        """
        self._check_usable()
        place = index - self.base.index
        holds = 0 <= place < len(self._entries) and self._entries[place].term == term
        kept = self._entries[place + 1 :] if holds else []
        sequence = self._sequence + 1
        pieces = [_encode_base(sequence, index=index, term=term)]
        commit = max(self._commit_hint, index)
        for entry in kept:
            sequence += 1
            body = _ENTRY_BODY.pack(entry.index, entry.term, commit) + entry.command
            pieces.append(_encode_record(sequence, _ENTRY, body))
        content = b"".join([_encode_front(self._owner, sequence), *pieces])
        scratch = self._path.with_name(self._path.name + ".new")
        file = os.open(scratch, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            self._spend(lambda: _write_all(file, content, 0))
        except OSError:
            os.close(file)
            scratch.unlink()
            raise
        try:
            os.fdatasync(file)
            rename_durably(scratch, self._path)
        except OSError as error:
            self._failure = error
            raise
        os.close(self._file)
        self._file = file
        self._entries = [Entry(b"", index, term), *kept]
        self._sequence = sequence
        self._position = len(content)
        self._commit_hint = commit
        self._unsynced = False

    def close(self) -> None:
        os.close(self._file)

    def _write(self, kind: int, body: bytes) -> None:
        self._check_usable()
        record = _encode_record(self._sequence + 1, kind, body)
        try:
            self._spend(lambda: _write_all(self._file, record, self._position))
        except OSError as error:
            self._failure = error
            raise
        self._sequence += 1
        self._position += len(record)
        self._unsynced = True

    def _mark(self) -> None:
        """Say that everything written so far is durable.

        A mark overwrites an older one, and still may need space: some file systems never write in place.
        """
        self._marks += 1
        mark, position = _encode_mark(self._sequence), _HEADER_BYTES + self._marks % 2 * _MARK_BYTES
        self._spend(lambda: _write_all(self._file, mark, position))

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise self._failure


def read_owner(path: Path) -> Owner:
    """Whose journal it is; raises `DataRefusedError` if its header does not tell."""
    try:
        with path.open("rb") as file:
            content = file.read(_HEADER_BYTES)
    except FileNotFoundError:
        raise DataRefusedError(f"metadata journal {path} is missing; {_REMEDY}") from None
    return _check_header(content, path)


_REMEDY = (
    "this node may have forgotten what it acknowledged: give it an empty data directory and let it join again "
    "(its record data under log/ is separate)"
)


class _Replayed(NamedTuple):
    entries: list[Entry]
    sequence: int
    position: int
    commit: int


def _encode_header(owner: Owner) -> bytes:
    header = _HEADER.pack(_MAGIC, FORMAT_VERSION, 0, owner.cluster_id.bytes, owner.disk.bytes)
    return header + _CRC.pack(zlib.crc32(header))


def _encode_mark(sequence: int) -> bytes:
    mark = _MARK.pack(sequence)
    return mark + _CRC.pack(zlib.crc32(mark))


def _encode_front(owner: Owner, sequence: int) -> bytes:
    """All in front of the records of a file that is durable up to record *sequence*."""
    return _encode_header(owner) + 2 * _encode_mark(sequence)


def _durable_sequence(content: bytes) -> int | None:
    """The highest mark; one that fails its checksum does not count. `None` if no mark is readable."""
    if len(content) < _RECORDS_AT:
        return None
    places = (_HEADER_BYTES, _HEADER_BYTES + _MARK_BYTES)
    marks = {place: _MARK.unpack_from(content, place)[0] for place in places}
    readable = (mark for place, mark in marks.items() if content.startswith(_encode_mark(mark), place))
    return max(readable, default=None)


def _check_header(content: bytes, path: Path) -> Owner:
    header = content[: _HEADER.size]
    if len(content) < _HEADER_BYTES or not header.startswith(_MAGIC):
        raise DataRefusedError(f"{path} is not a metadata journal, or its beginning is damaged; {_REMEDY}")
    if _CRC.unpack_from(content, _HEADER.size)[0] != zlib.crc32(header):
        raise DataRefusedError(
            f"metadata journal {path} is damaged at byte 0: its header's checksum differs; {_REMEDY}"
        )
    _, version, _, cluster, disk = _HEADER.unpack(header)
    if version > FORMAT_VERSION:
        raise DataRefusedError(
            f"metadata journal {path} has format {version}, newer than {FORMAT_VERSION}; start a newer walrus-node"
        )
    if version < FORMAT_VERSION:
        raise DataRefusedError(
            f"metadata journal {path} has format {version}, this version reads {FORMAT_VERSION}: "
            "give the node an empty data directory and let it join again"
        )
    return Owner(UUID(bytes=cluster), UUID(bytes=disk))


def _check_owner(found: Owner, expected: Owner, path: Path) -> None:
    if found != expected:
        raise DataRefusedError(
            f"metadata journal {path} is of disk {found.disk} in cluster {found.cluster_id}, not of this one "
            f"({expected.disk} in {expected.cluster_id}); put the data directories back in their places"
        )


def _encode_record(sequence: int, kind: int, body: bytes) -> bytes:
    body += _TRAILER
    head = _RECORD.pack(len(body), zlib.crc32(body), sequence, kind, b"\0\0\0")
    return head + _CRC.pack(zlib.crc32(head)) + body


def _encode_base(sequence: int, *, index: int, term: int) -> bytes:
    return _encode_record(sequence, _BASE, _BASE_BODY.pack(index, term))


def _replay(content: bytes, path: Path, owner: Owner) -> _Replayed:
    """Check every record and rebuild the entries; `position` is where the next record goes."""
    _check_owner(_check_header(content, path), owner, path)

    def damaged(position: int, what: str) -> DataRefusedError:
        return DataRefusedError(f"metadata journal {path} is damaged at byte {position}: {what}; {_REMEDY}")

    entries: list[Entry] = []
    commit = 0
    sequence: int | None = None
    position = _RECORDS_AT
    while position < len(content):
        body_start = position + _RECORD_BYTES
        head = content[position : position + _RECORD.size]
        if body_start > len(content) or not content[position:].strip(b"\0"):
            break  # torn: the head itself is not all there
        if _CRC.unpack_from(content, position + _RECORD.size)[0] != zlib.crc32(head):
            raise damaged(position, "a record's head fails its checksum")
        length, body_crc, got_sequence, kind, _ = _RECORD.unpack(head)
        if sequence is not None and got_sequence != sequence + 1:
            raise damaged(position, f"record {got_sequence} follows record {sequence}")
        end = body_start + length
        body = content[body_start:end]
        if end > len(content):
            break  # torn: the file ends inside the last record
        if zlib.crc32(body) != body_crc:
            if end == len(content) and body.endswith(_ZEROS_OF_A_TORN_WRITE):
                break
            raise damaged(position, f"record {got_sequence} fails its checksum")
        body = body.removesuffix(_TRAILER)
        if kind == _BASE and not entries:
            index, term = _BASE_BODY.unpack(body)
            entries.append(Entry(b"", index, term))
        elif kind == _ENTRY and entries:
            index, term, known_commit = _ENTRY_BODY.unpack_from(body)
            if index != entries[-1].index + 1:
                raise damaged(position, f"entry {index} follows entry {entries[-1].index}")
            entries.append(Entry(body[_ENTRY_BODY.size :], index, term))
            commit = max(commit, known_commit)
        elif kind == _CUT and entries:
            (index,) = _CUT_BODY.unpack(body)
            if not entries[0].index < index <= entries[-1].index:
                raise damaged(position, f"entry {index} is cut, but is not held")
            del entries[index - entries[0].index :]
        else:
            raise damaged(position, f"record {got_sequence} is of kind {kind}, which does not belong here")
        sequence = got_sequence
        position = end
    if sequence is None:
        raise damaged(position, "it has no base")
    durable = _durable_sequence(content)
    if durable is None:
        raise damaged(_HEADER_BYTES, "neither mark of its end can be read")
    if sequence < durable:
        raise damaged(position, f"it ends with record {sequence}, and record {durable} was durable")
    return _Replayed(entries, sequence, position, commit)


def _write_all(file: int, content: bytes, position: int) -> None:
    view = memoryview(content)
    while view:
        written = os.pwrite(file, view, position)
        view = view[written:]
        position += written
