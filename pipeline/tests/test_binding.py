"""Whether a run may go on in an archive's folder, from what lies there."""

import json

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
from pyspark_walrus.folder import InUseError, LocalFolder, local_path, open_folder

MINE = Binding("c-1", "orders", "u-1", "q-1")
EMPTY = Found(None, None, -1, -1, -1, has_data=False)


def decided(found, topic="orders", uuid="u-1", cluster="c-1"):
    return decide(found, cluster=cluster, topic=topic, topic_uuid=uuid)


def going_on(**changed):
    usual = {"binding": MINE, "query": "q-1", "archived": 7, "planned": 8, "committed": 7, "has_data": True}
    return Found(**{**usual, **changed})


def test_an_empty_folder_is_bound_to_the_topic_and_to_a_query_of_its_own():
    first, second = (decided(EMPTY) for _ in range(2))
    assert (first.topic, first.topic_uuid) == ("orders", "u-1")
    assert first.query != second.query
    assert Binding.parse(first.to_json()) == first


def test_a_run_goes_on_in_its_folder():
    assert decided(going_on()) == MINE
    assert decided(going_on(archived=8)) == MINE  # the driver died between sink and checkpoint
    assert decided(going_on(query=None, archived=-1, planned=-1, committed=-1)) == MINE  # before the first


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
        (Found(None, "q-2", -1, 3, 3, has_data=False), "orders", "u-1", "checkpoint is another query's"),
        (Found(None, None, -1, -1, -1, has_data=True), "orders", "u-1", "no _walrus.json"),
        (Found(None, "q-1", 3, 3, 3, has_data=True), "orders", "u-1", "no _walrus.json"),
    ],
)
def test_a_run_that_would_lose_or_double_records_is_refused_with_what_to_do(found, topic, uuid, why):
    with pytest.raises(ArchiveRefusedError, match=why) as refused:
        decided(found, topic, uuid)
    assert "\n" not in str(refused.value)
    assert (
        "folder" in str(refused.value)
        or "checkpoint of its own" in str(refused.value)
        or "of its own" in str(refused.value)
    )


numbers = st.integers(-1, 5)


@given(numbers, numbers, numbers, st.sampled_from([None, "q-1", "q-2"]), st.booleans(), st.sampled_from(["u-1", "u-2"]))
def test_only_a_checkpoint_that_fits_the_archive_is_gone_on_with(archived, planned, committed, query, bound, uuid):
    found = Found(MINE if bound else None, query, archived, planned, committed, has_data=archived >= 0)
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


def test_what_is_bound_is_found_again(tmp_path):
    folder, state = LocalFolder(tmp_path / "a"), LocalFolder(tmp_path / "state")
    assert look(folder, state) == EMPTY
    bind(folder, state, MINE)
    assert look(folder, state) == Found(MINE, "q-1", -1, -1, -1, has_data=False)
    bind(folder, state, Binding("c-1", "bills", "u-2", "q-2"))  # never replaced
    assert look(folder, state).binding == MINE


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


def test_what_no_finished_batch_lists_is_moved_out_of_sight_and_kept(tmp_path):
    folder = LocalFolder(tmp_path)
    for name in ("month=2024-01/a.parquet", "month=2024-01/stray.parquet", "month=2024-02/stray.parquet"):
        folder.write(name, name)
    sink_log(folder, "0", "month=2024-01/a.parquet")
    assert set_aside(folder) == 2
    assert folder.data_files() == ["month=2024-01/a.parquet"]
    assert sorted(path.read_text() for path in (tmp_path / "_unfinished").rglob("*.parquet")) == [
        "month=2024-01/stray.parquet",
        "month=2024-02/stray.parquet",
    ]
    assert set_aside(folder) == 0


def test_a_folder_in_use_is_said_to_be(tmp_path):
    with LocalFolder(tmp_path).locked(), pytest.raises(InUseError), LocalFolder(tmp_path).locked():
        pass
    with LocalFolder(tmp_path).locked():
        pass


@pytest.mark.parametrize("url", ["s3a://bucket/archive", "hdfs://host:9000/archive", "gs://bucket"])
def test_a_url_stays_what_it_is(url):
    assert local_path(url) is None
    assert open_folder(url) is None


@pytest.mark.parametrize("path", ["archive", "/srv/archive", "./a:b/c", "file:///srv/an%20archive"])
def test_a_path_is_local(path):
    assert local_path(path) is not None
    assert str(local_path("file:///srv/an%20archive")) == "/srv/an archive"
