"""Whether a run may go on in an archive's folder, from what lies there."""

import fcntl
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark_walrus.binding import (
    FILE,
    ArchiveRefusedError,
    Binding,
    Found,
    archived_files,
    bind,
    decide,
    look,
    set_aside,
)
from pyspark_walrus.folder import JAVA_LOCK, LOCK, InUseError, LocalFolder, local_path, open_folder

MINE = Binding("c-1", "orders", "u-1", "q-1", "r-1")
RUNS = frozenset(("r-0", "r-1"))
EMPTY = Found(None, None, frozenset(), -1, -1, -1, has_data=False)


def decided(found, topic="orders", uuid="u-1", cluster="c-1"):
    return decide(found, cluster=cluster, topic=topic, topic_uuid=uuid)


def going_on(**changed):
    usual = {"archived": 7, "planned": 8, "committed": 7, "has_data": True}
    return Found(**{"binding": MINE, "query": "q-1", "runs": RUNS, **usual, **changed})


def test_an_empty_folder_is_bound_to_the_topic_and_to_a_query_of_its_own():
    first, second = (decided(EMPTY) for _ in range(2))
    assert (first.topic, first.topic_uuid) == ("orders", "u-1")
    assert first.query != second.query
    assert Binding.parse(first.to_json()) == first


def test_a_run_goes_on_in_its_folder():
    assert decided(going_on()) == MINE
    assert decided(going_on(archived=8)) == MINE  # the driver died between sink and checkpoint
    assert decided(going_on(runs=frozenset(("r-1", "r-2")))) == MINE  # it died before the folder named its run
    assert decided(going_on(query=None, runs=frozenset(), archived=-1, planned=-1, committed=-1)) == MINE


def test_a_topic_of_another_cluster_is_refused():
    with pytest.raises(ArchiveRefusedError, match="another cluster's topic orders: archive into a new folder"):
        decided(going_on(), cluster="c-2")


@pytest.mark.parametrize(
    ("found", "topic", "uuid", "why"),
    [
        (going_on(), "bills", "u-2", "archive of topic orders: archive bills into another folder"),
        (going_on(), "orders", "u-9", "an earlier topic orders, which was deleted and made again"),
        (going_on(query=None, planned=-1, committed=-1), "orders", "u-1", "checkpoint is missing"),
        (going_on(query="q-2"), "orders", "u-1", "checkpoint is another query's"),
        (going_on(planned=6, committed=6), "orders", "u-1", "checkpoint is older than the archive"),
        (going_on(archived=3), "orders", "u-1", "checkpoint is ahead of the archive"),
        (going_on(runs=frozenset(("r-0", "r-2"))), "orders", "u-1", "that of another copy of it, or an old one"),
        (going_on(runs=frozenset()), "orders", "u-1", "that of another copy of it, or an old one"),
        (Found(None, "q-2", RUNS, -1, 3, 3, has_data=False), "orders", "u-1", "checkpoint is another query's"),
        (Found(None, None, RUNS, -1, -1, -1, has_data=True), "orders", "u-1", "no _walrus.json"),
        (Found(None, "q-1", RUNS, 3, 3, 3, has_data=True), "orders", "u-1", "no _walrus.json"),
    ],
)
def test_a_run_that_would_lose_or_double_records_is_refused_with_what_to_do(found, topic, uuid, why):
    with pytest.raises(ArchiveRefusedError, match=why) as refused:
        decided(found, topic, uuid)
    assert "\n" not in str(refused.value)
    remedies = ("archive into a new folder", "archive bills into another folder", "give this archive one of its own")
    assert str(refused.value).endswith(remedies)


numbers = st.integers(-1, 5)


@given(numbers, numbers, numbers, st.sampled_from([None, "q-1", "q-2"]), st.booleans(), st.sampled_from(["u-1", "u-2"]))
def test_only_a_checkpoint_that_fits_the_archive_is_gone_on_with(archived, planned, committed, query, bound, uuid):
    found = Found(MINE if bound else None, query, RUNS, archived, planned, committed, has_data=archived >= 0)
    try:
        binding = decided(found, uuid=uuid)
    except ArchiveRefusedError:
        return
    # Whatever the sink has, this very checkpoint has planned; whatever that has committed, the sink has.
    assert committed <= archived <= planned or (not bound and archived < 0)
    assert query in (None, binding.query)
    assert binding.topic_uuid == uuid


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"v": 2}', '{"v": 1, "topic": "orders"}', "no JSON"])
def test_a_damaged_binding_is_not_taken_for_none(text):
    with pytest.raises(ArchiveRefusedError, match=FILE):
        Binding.parse(text)


def test_what_is_bound_is_found_again_by_the_run_that_was_last(tmp_path):
    folder, state = LocalFolder(tmp_path / "a"), LocalFolder(tmp_path / "state")
    assert look(folder, state) == EMPTY
    runs = [MINE.run]
    for _ in range(3):
        bind(folder, state, look(folder, state).binding or MINE)
        found = look(folder, state)
        assert found.binding is not None
        assert replace(found.binding, run=MINE.run) == MINE
        assert found.runs == {runs[-1], found.binding.run}
        assert found.binding.run not in runs
        runs.append(found.binding.run)
        assert decided(found) == found.binding


def sink_log(folder, name, *paths):
    lines = ["v1", *(json.dumps({"path": f"file:///elsewhere/{path}", "action": "add"}) for path in paths)]
    folder.write(f"_spark_metadata/{name}", "\n".join(lines))


def test_the_files_that_count_are_those_that_the_sink_lists_wherever_the_archive_lies(tmp_path):
    folder = LocalFolder(tmp_path)
    sink_log(folder, "8", "month=2024-01/old")
    sink_log(folder, "9.compact", "month=2024-01/old", "month=2024-02/a")
    sink_log(folder, "10", "month=2024-02/b")
    sink_log(folder, "11")
    assert archived_files(folder) == ["month=2024-01/old", "month=2024-02/a", "month=2024-02/b"]


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("1", None, "is missing"),
        ("0", None, "is missing"),
        ("2", "", "is damaged"),
        ("2", 'v1\n{"path": "file:///x/mon', "is damaged"),
        ("2", "v1\n[]", "is damaged"),
        ("1", "v9\n", "is damaged"),
    ],
)
def test_a_list_with_a_gap_or_a_torn_file_is_refused_before_anything_is_moved(tmp_path, name, text, problem):
    # Files that it names were moved aside as if they did not count.
    folder = LocalFolder(tmp_path)
    for number in range(4):
        folder.write(f"month=2024-01/{number}.parquet", "")
        sink_log(folder, str(number), f"month=2024-01/{number}.parquet")
    assert set_aside(folder) == 0
    if text is None:
        (tmp_path / "_spark_metadata" / name).unlink()
    else:
        folder.write(f"_spark_metadata/{name}", text)
    for act in (set_aside, archived_files, lambda found: look(found, LocalFolder(tmp_path / "_checkpoint"))):
        with pytest.raises(ArchiveRefusedError, match=f"_spark_metadata/{name}.* {problem}: restore it") as refused:
            act(folder)
        assert "\n" not in str(refused.value)
    assert len(folder.data_files()) == 4


def test_what_no_finished_batch_lists_is_moved_out_of_sight_and_kept(tmp_path):
    folder = LocalFolder(tmp_path)
    for name in ("month=2024-01/a.parquet", "month=2024-01/stray.parquet", "month=2024-02/stray.parquet"):
        folder.write(name, name)
    sink_log(folder, "0", "month=2024-01/a.parquet")
    assert set_aside(folder) == 2
    # Readers that are told `**/*.parquet` look into every folder.
    assert [path.name for path in tmp_path.rglob("*.parquet")] == ["a.parquet"]
    moved = [path for path in (tmp_path / "_unfinished").rglob("*") if path.is_file()]
    assert sorted(path.read_text() for path in moved) == ["month=2024-01/stray.parquet", "month=2024-02/stray.parquet"]
    assert set_aside(folder) == 0


def test_a_folder_in_use_is_said_to_be(tmp_path):
    with LocalFolder(tmp_path).locked(), pytest.raises(InUseError), LocalFolder(tmp_path).locked():
        pass
    with LocalFolder(tmp_path).locked():
        pass


def test_a_folder_that_a_run_let_go_is_free_while_a_program_that_is_being_started_has_the_descriptor(tmp_path):
    """Until a child has started its program it has copies of all descriptors, and a lock lives as long as the last."""
    with LocalFolder(tmp_path).locked():
        lock = str(tmp_path / LOCK)
        descriptors = [fd for fd in list(Path("/proc/self/fd").iterdir()) if os.path.realpath(fd) == lock]
        copies = [os.dup(int(fd.name)) for fd in descriptors]
    assert len(copies) == 1
    with LocalFolder(tmp_path).locked():
        os.close(copies[0])


def test_a_folder_is_in_use_as_long_as_the_java_of_a_killed_run_lives(tmp_path, spark):
    # Python's lock went with Python, and Java was still finishing its micro-batch.
    lives = "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.lockf(f, fcntl.LOCK_EX); print(); sys.stdin.read()"
    command = [sys.executable, "-c", lives, str(tmp_path / JAVA_LOCK)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as java:
        assert java.stdout is not None
        java.stdout.readline()
        for folder in (LocalFolder(tmp_path), LocalFolder(tmp_path, spark)):
            with pytest.raises(InUseError), folder.locked():
                pass
        java.communicate()
    with LocalFolder(tmp_path, spark).locked(), (tmp_path / JAVA_LOCK).open("a") as file, pytest.raises(OSError):
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with LocalFolder(tmp_path).locked():
        pass


@pytest.mark.parametrize("url", ["s3a://bucket/archive", "hdfs://host:9000/archive", "gs://bucket"])
def test_a_url_stays_what_it_is(url):
    assert local_path(url) is None
    assert open_folder(url) is None


@pytest.mark.parametrize("path", ["archive", "/srv/archive", "./a:b/c", "file:///srv/an%20archive"])
def test_a_path_is_local(path):
    folder = open_folder(path)
    assert folder is not None
    assert folder.url.startswith("/")  # Hadoop takes "a:b" in front of a slash for the scheme of a URL
    assert str(local_path("file:///srv/an%20archive")) == "/srv/an archive"
