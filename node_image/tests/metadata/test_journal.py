"""The journal keeps what was synced, cuts only what a crash tore, and refuses everything else."""

from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from walrus_node.files import DataRefusedError
from walrus_node.metadata import journal as journal_module
from walrus_node.metadata.journal import Entry, Journal, Owner, read_owner

OWNER = Owner(uuid4(), uuid4())
COMMANDS = [b"\x00{}", b"\x01", b"\x00" + b"x" * 700, b"\x02abc"]


# Where the marks of the durable end lie.
MARKS = range(52, 76)


def create(directory: Path) -> Path:
    path = directory / "journal"
    Journal.create(path, OWNER, index=1, term=0)
    return path


def fill(path: Path, commands: list[bytes] = COMMANDS) -> list[Entry]:
    journal = Journal(path, OWNER)
    for command in commands:
        journal.append(Entry(command, journal.last.index + 1, 3), commit=journal.last.index)
    journal.sync()
    held = journal.entries(0)
    journal.close()
    return held


def reopen(path: Path) -> list[Entry]:
    journal = Journal(path, OWNER)
    try:
        return journal.entries(0)
    finally:
        journal.close()


def test_what_was_synced_is_read_back(tmp_path: Path) -> None:
    path = create(tmp_path)
    held = fill(path)
    assert reopen(path) == held
    assert held[1:] == [Entry(command, index, 3) for index, command in enumerate(COMMANDS, 2)]


def test_the_commit_known_at_the_last_write_comes_back(tmp_path: Path) -> None:
    path = create(tmp_path)
    fill(path)
    journal = Journal(path, OWNER)
    assert journal.commit_hint == 4
    journal.close()


def test_a_record_torn_at_any_byte_is_cut_and_nothing_before_it(tmp_path: Path) -> None:
    path = create(tmp_path)
    held = fill(path, COMMANDS[:-1])
    whole = path.stat().st_size
    journal = Journal(path, OWNER)
    journal.append(Entry(b"\x00last", journal.last.index + 1, 3), commit=0)
    journal.close()
    content = path.read_bytes()
    for size in range(whole, len(content)):
        path.write_bytes(content[:size])
        assert reopen(path) == held
        assert path.stat().st_size == whole


def test_a_file_cut_at_any_byte_is_refused_if_that_was_synced(tmp_path: Path) -> None:
    """Cut in half it was taken for torn: the member went on without entries that it had acknowledged."""
    path = create(tmp_path)
    fill(path)
    content = path.read_bytes()
    for size in range(len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(DataRefusedError, match=r"metadata journal|not a metadata journal"):
            reopen(path)


def test_a_zeroed_last_page_is_refused_if_it_was_synced(tmp_path: Path) -> None:
    path = create(tmp_path)
    fill(path, [b"\x00" + b"z" * 9_000])
    content = path.read_bytes()
    path.write_bytes(content[:8_192] + b"\0" * (len(content) - 8_192))
    with pytest.raises(DataRefusedError, match="was durable"):
        reopen(path)


def test_what_a_compaction_kept_is_durable(tmp_path: Path) -> None:
    path = create(tmp_path)
    fill(path)
    journal = Journal(path, OWNER)
    journal.compact(index=2, term=3)
    journal.close()
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataRefusedError, match="was durable"):
        reopen(path)


def test_one_damaged_mark_leaves_the_other(tmp_path: Path) -> None:
    path = create(tmp_path)
    fill(path)
    reopen(path)  # writes the other mark
    content = path.read_bytes()
    middle = MARKS.start + len(MARKS) // 2
    for one in (slice(MARKS.start, middle), slice(middle, MARKS.stop)):
        damaged = bytearray(content)
        damaged[one] = bytes(len(MARKS) // 2)
        path.write_bytes(damaged[: len(content) // 2])
        with pytest.raises(DataRefusedError, match="was durable"):
            reopen(path)
    path.write_bytes(content[: MARKS.start] + bytes(len(MARKS)) + content[MARKS.stop :])
    with pytest.raises(DataRefusedError, match="neither mark"):
        reopen(path)


def test_what_a_killed_process_left_unsynced_is_durable_once_it_was_read_back(tmp_path: Path) -> None:
    """The leader sends it again, it is found in its place, and is acknowledged without another write."""
    path = create(tmp_path)
    journal = Journal(path, OWNER)
    journal.append(Entry(b"\x00never synced", 2, 1), commit=0)
    journal.close()
    assert len(reopen(path)) == 2
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataRefusedError, match="was durable"):
        reopen(path)


def test_a_file_that_grew_without_its_data_is_cut(tmp_path: Path) -> None:
    path = create(tmp_path)
    held = fill(path)
    path.write_bytes(path.read_bytes() + b"\0" * 3_000)
    assert reopen(path) == held


def test_a_record_whose_end_did_not_arrive_is_cut(tmp_path: Path) -> None:
    path = create(tmp_path)
    held = fill(path)
    whole = path.stat().st_size
    journal = Journal(path, OWNER)
    journal.append(Entry(b"\x00" + b"y" * 5_000, journal.last.index + 1, 3), commit=0)
    journal.close()
    content = path.read_bytes()
    path.write_bytes(content[: whole + 1_000].ljust(len(content), b"\0"))
    assert reopen(path) == held


def test_every_damaged_byte_refuses_the_start(tmp_path: Path) -> None:
    """Or it is in one of the two marks, and costs nothing."""
    path = create(tmp_path)
    held = fill(path)
    content = path.read_bytes()
    for position in range(len(content)):
        for damage in (content[position] ^ 1, content[position] ^ 0x80, 0, 0xFF):
            if damage == content[position]:
                continue
            path.write_bytes(content[:position] + bytes([damage]) + content[position + 1 :])
            if MARKS.start <= position < MARKS.stop:
                assert reopen(path) == held
                continue
            with pytest.raises(DataRefusedError, match=r"metadata journal|not a metadata journal"):
                reopen(path)


def test_a_record_left_out_or_put_twice_refuses_the_start(tmp_path: Path) -> None:
    path = create(tmp_path)
    before = path.stat().st_size
    fill(path, [b"\x00same", b"\x00same", b"\x00same"])
    content = path.read_bytes()
    size = (len(content) - before) // 3
    for wrong in (content[:before] + content[before + size :], content[: before + size] + content[before:]):
        path.write_bytes(wrong)
        with pytest.raises(DataRefusedError, match="follows record"):
            reopen(path)


def test_another_disks_journal_is_refused(tmp_path: Path) -> None:
    path = create(tmp_path)
    with pytest.raises(DataRefusedError, match="put the data directories back"):
        Journal(path, Owner(OWNER.cluster_id, uuid4()))
    assert read_owner(path) == OWNER


def test_a_missing_journal_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataRefusedError, match="is missing"):
        Journal(tmp_path / "journal", OWNER)


def test_a_newer_format_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "FORMAT_VERSION", journal_module.FORMAT_VERSION + 1)
    path = create(tmp_path)
    monkeypatch.undo()
    with pytest.raises(DataRefusedError, match="start a newer walrus-node"):
        reopen(path)


def test_entries_that_were_cut_stay_away(tmp_path: Path) -> None:
    path = create(tmp_path)
    fill(path)
    journal = Journal(path, OWNER)
    journal.cut(3)
    journal.append(Entry(b"\x00other", 3, 4), commit=0)
    journal.sync()
    held = journal.entries(0)
    journal.close()
    assert [entry.command for entry in held[1:]] == [COMMANDS[0], b"\x00other"]
    assert reopen(path) == held


def test_compaction_keeps_what_follows_the_new_base(tmp_path: Path) -> None:
    path = create(tmp_path)
    fill(path)
    journal = Journal(path, OWNER)
    journal.compact(index=3, term=3)
    journal.append(Entry(b"\x00after", 6, 3), commit=5)
    journal.sync()
    held = journal.entries(0)
    journal.close()
    assert [entry.index for entry in held] == [3, 4, 5, 6]
    assert reopen(path) == held


def test_a_base_that_the_log_does_not_hold_drops_the_log(tmp_path: Path) -> None:
    path = create(tmp_path)
    fill(path)
    journal = Journal(path, OWNER)
    journal.compact(index=3, term=9)
    assert journal.entries(0) == [Entry(b"", 3, 9)]
    journal.close()


@pytest.mark.parametrize("crash_at", ["os.fdatasync", "rename_durably"])
def test_a_crash_in_the_middle_of_compaction_leaves_the_old_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash_at: str
) -> None:
    path = create(tmp_path)
    held = fill(path)
    journal = Journal(path, OWNER)

    def crash(*_: object) -> None:
        raise OSError("power is gone")

    monkeypatch.setattr(f"walrus_node.metadata.journal.{crash_at}", crash)
    with pytest.raises(OSError, match="power"):
        journal.compact(index=3, term=3)
    with pytest.raises(OSError, match="power"):
        journal.append(Entry(b"\x00", journal.last.index + 1, 3), commit=0)
    monkeypatch.undo()
    assert path.with_name("journal.new").exists()
    assert reopen(path) == held
    assert not path.with_name("journal.new").exists()


def test_after_a_failed_sync_the_journal_is_of_no_more_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second fsync after a failed one returns success although the data is lost (the fsync study, 2020)."""
    path = create(tmp_path)
    journal = Journal(path, OWNER)
    journal.append(Entry(b"\x00a", 2, 1), commit=0)

    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("os.fdatasync", fail)
    with pytest.raises(OSError, match="Input/output"):
        journal.sync()
    monkeypatch.undo()
    with pytest.raises(OSError, match="Input/output"):
        journal.sync()


class Step:
    """What a follower may do to its log."""

    append = st.tuples(st.just("append"), st.binary(max_size=40))
    cut = st.tuples(st.just("cut"), st.integers(0, 5))
    compact = st.tuples(st.just("compact"), st.integers(0, 5))
    reopen = st.tuples(st.just("reopen"), st.none())


@settings(deadline=None, max_examples=60)
@given(st.lists(st.one_of(Step.append, Step.cut, Step.compact, Step.reopen), max_size=30))
def test_it_behaves_like_a_list(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, object]]) -> None:
    path = create(tmp_path_factory.mktemp("journal"))
    journal = Journal(path, OWNER)
    model = [Entry(b"", 1, 0)]
    for kind, value in steps:
        if kind == "append":
            new = Entry(b"\x00" + bytes(value), model[-1].index + 1, 2)
            journal.append(new, commit=0)
            model.append(new)
        elif kind == "cut" and len(model) > 1:
            place = max(1, len(model) - 1 - int(value))
            journal.cut(model[place].index)
            del model[place:]
        elif kind == "compact":
            base = model[min(int(value), len(model) - 1)]
            journal.compact(index=base.index, term=base.term)
            model = [Entry(b"", base.index, base.term), *model[model.index(base) + 1 :]]
        elif kind == "reopen":
            journal.sync()
            journal.close()
            journal = Journal(path, OWNER)
        assert journal.entries(0) == model
    journal.sync()
    journal.close()
    assert reopen(path) == model
