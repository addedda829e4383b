"""The archive of a topic, as a function and as a command."""

import json
import random
import shutil
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from datetime import UTC, datetime

import pyarrow.dataset
import pytest
from pyspark.errors import PySparkException
from pyspark_walrus import archive as archive_module
from pyspark_walrus import binding
from pyspark_walrus.archive import archive, check, read_archive
from pyspark_walrus.binding import ArchiveRefusedError
from pyspark_walrus.folder import HadoopFolder, LocalFolder
from retold import made_again
from walrus_client import OutRecord


@pytest.fixture
def run(spark, cluster, tmp_path):
    """Archives a topic into a folder below tmp_path."""

    def _run(topic, folder="a", *, servers=None, **more):
        return archive(
            spark, bootstrap_servers=servers or cluster.bootstrap, topic=topic, path=tmp_path / folder, **more
        )

    return _run


@pytest.fixture
def failing_at(monkeypatch):
    """A context in which tasks fail at an offset, when some files of the micro-batch may be written already."""

    @contextmanager
    def _failing_at(offset):
        with monkeypatch.context() as broken:
            broken.setattr(archive_module, "MONTH", f"if(offset = {offset}, raise_error('on purpose'), {MONTH})")
            yield

    return _failing_at


MONTH = archive_module.MONTH


def offsets_in(folder):
    """What a reader of Parquet that knows nothing of Spark finds."""
    found = pyarrow.dataset.dataset(folder, format="parquet", partitioning="hive")
    return sorted(found.to_table(columns=["offset"])["offset"].to_pylist()) if found.files else []


def test_two_runs_archive_everything_once_by_month(spark, client, topic, tmp_path, run):
    january, march = (int(datetime(2024, month, 31, 23, 59, tzinfo=UTC).timestamp() * 1000) for month in (1, 3))
    headers = [("h", b"1"), ("nothing", None)]
    rows = [OutRecord(b"v", key=b"k", timestamp_ms=january, headers=headers)]
    client.append(topic, [*rows, OutRecord(None, timestamp_ms=january + 60_000)])
    progress = []
    first = run(topic, on_progress=lambda records, total: progress.append((records, total)))
    client.append(topic, [OutRecord(b"w", timestamp_ms=march)])
    second = run(topic)
    assert (first.records, second.records, progress[-1]) == (2, 1, (2, 2))
    months = sorted(path.name for path in (tmp_path / "a").glob("month=*"))
    assert months == ["month=2024-01", "month=2024-02", "month=2024-03"]
    found = read_archive(spark, tmp_path / "a").orderBy("offset").collect()
    assert [(row.topic, row.partition, row.offset, row.key, row.value, row.month) for row in found] == [
        (topic, 0, 0, b"k", b"v", "2024-01"),
        (topic, 0, 1, None, None, "2024-02"),
        (topic, 0, 2, None, b"w", "2024-03"),
    ]
    assert [int(row.timestamp.timestamp() * 1000) for row in found] == [january, january + 60_000, march]
    assert [row.timestampType for row in found] == [0, 0, 0]
    assert [[(h.key, h.value and bytes(h.value)) for h in row.headers or []] for row in found] == [headers, [], []]


def test_files_that_failed_tasks_left_count_for_nobody_and_the_next_run_goes_on(
    spark, topic, append, tmp_path, run, failing_at
):
    append(topic, start=0, end=1_000)
    with failing_at(350), pytest.raises(PySparkException, match="on purpose"):
        run(topic, records_per_batch_max=300)
    assert read_archive(spark, tmp_path / "a").count() == 300
    assert offsets_in(tmp_path / "a") == list(range(300))
    # A driver that was killed leaves them: they are moved aside when the next run begins, and are never read by ours.
    (whole,) = (tmp_path / "a").glob("month=*/*.parquet")
    shutil.copy(whole, whole.with_name("part-left-by-a-killed-task.parquet"))
    assert len(offsets_in(tmp_path / "a")) == 600
    assert read_archive(spark, tmp_path / "a").count() == 300
    assert run(topic, records_per_batch_max=300).records == 700
    assert offsets_in(tmp_path / "a") == list(range(1_000))
    offsets = [row.offset for row in read_archive(spark, tmp_path / "a").select("offset").collect()]
    assert sorted(offsets) == list(range(1_000))
    assert len(list((tmp_path / "a" / "_unfinished").rglob("*.parquet"))) >= 1


def test_an_archive_can_be_copied_and_both_go_on(spark, topic, append, tmp_path, run):
    append(topic, start=0, end=100)
    run(topic)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    append(topic, start=100, end=150)
    assert run(topic, "b").records == 50
    shutil.rmtree(tmp_path / "a")
    shutil.move(tmp_path / "b", tmp_path / "c")
    assert sorted(r.offset for r in read_archive(spark, tmp_path / "c").select("offset").collect()) == list(range(150))
    assert offsets_in(tmp_path / "c") == list(range(150))


def test_another_topic_is_refused(client, topic, append, tmp_path, run):
    # archive a, archive b, archive a: the third run stored all of a again.
    other = f"{topic}-b"
    client.create_topic(other)
    append(topic, start=0, end=100)
    append(other, start=0, end=60)
    run(topic)
    with pytest.raises(ArchiveRefusedError, match=f"archive of topic {topic}: archive {other} into another folder"):
        run(other)
    assert run(topic).records == 0
    assert offsets_in(tmp_path / "a") == list(range(100))


def test_a_topic_that_was_made_again_is_refused(topic, append, tmp_path, run, retold):
    append(topic, start=0, end=100)
    run(topic, servers=retold.address)
    retold.tell(topic, made_again)
    with pytest.raises(ArchiveRefusedError, match="made again"):
        run(topic, servers=retold.address)


def test_a_lost_a_foreign_and_an_old_checkpoint_are_refused(topic, append, tmp_path, run, cluster):
    # With a new checkpoint Spark numbers micro-batches from 0; its sink passed over the numbers that it knew.
    append(topic, start=0, end=100)
    run(topic)
    checkpoint = tmp_path / "a" / "_checkpoint"
    old = shutil.copytree(checkpoint, tmp_path / "old")
    append(topic, start=100, end=160)
    run(topic)
    run(topic, "other")
    wrong = {"is missing": None, "another query's": tmp_path / "other" / "_checkpoint", "older than": old}
    for why, state in wrong.items():
        kept = shutil.move(checkpoint, tmp_path / "kept")
        if state is not None:
            shutil.copytree(state, checkpoint)
        with pytest.raises(ArchiveRefusedError, match=why):
            run(topic)
        with pytest.raises(ArchiveRefusedError, match=why):
            check(bootstrap_servers=cluster.bootstrap, topic=topic, path=tmp_path / "a")
        shutil.rmtree(checkpoint, ignore_errors=True)
        shutil.move(kept, checkpoint)
    assert run(topic).records == 0
    assert offsets_in(tmp_path / "a") == list(range(160))


def test_a_second_archiver_is_refused(topic, append, tmp_path, run):
    append(topic, start=0, end=10)
    with LocalFolder(tmp_path / "a").locked(), pytest.raises(ArchiveRefusedError, match="another run archives into it"):
        run(topic)
    assert run(topic).records == 10


@pytest.mark.parametrize("seed", [random.SystemRandom().randrange(10**6)])
def test_any_order_of_runs_kills_and_changes_stores_each_record_once_or_is_refused(
    seed, client, topic, append, tmp_path, run, failing_at
):
    print("seed", seed)  # shown where it fails
    choose = random.Random(seed)
    other = f"{topic}-b"
    client.create_topic(other)
    folder, kept, appended = tmp_path / "a", tmp_path / "kept", {topic: 0, other: 0}
    owner = None
    for _ in range(6):
        action = choose.choice(["archive", "archive", "archive the other", "kill", "delete", "swap", "copy"])
        print(action)
        name = other if action == "archive the other" else topic
        append(name, start=appended[name], end=appended[name] + 100)
        appended[name] += 100
        if action == "delete":
            shutil.rmtree(folder / "_checkpoint", ignore_errors=True)
        elif action == "swap":
            shutil.rmtree(folder / "_checkpoint", ignore_errors=True)
            if (kept / "_checkpoint").exists():
                shutil.copytree(kept / "_checkpoint", folder / "_checkpoint")
        elif action == "copy" and folder.exists():
            shutil.rmtree(kept, ignore_errors=True)
            shutil.move(folder, kept)
            shutil.copytree(kept, folder)
        try:
            if action == "kill":
                with failing_at(choose.randrange(appended[name])):
                    run(name, records_per_batch_max=choose.choice([30, 1000]))
            run(name, records_per_batch_max=choose.choice([40, 1000]))
        except PySparkException as error:
            assert "on purpose" in str(error)  # noqa: PT017
        except ArchiveRefusedError as refused:
            print(refused)
        else:
            owner = owner or name
            assert offsets_in(folder) == list(range(appended[name]))
            assert owner == name
        found = Counter(offsets_in(folder)) if folder.exists() else Counter()
        assert all(count == 1 for count in found.values())
        assert sorted(found) == list(range(len(found)))


def test_a_url_is_written_to_through_sparks_file_systems(spark, cluster, topic, append, tmp_path, monkeypatch):
    # "s3a://b" became "s3a:/b". What Hadoop reaches by a URL is played by the local disk.
    monkeypatch.setattr("pyspark_walrus.folder.local_path", {}.get)
    append(topic, start=0, end=100)
    url = f"file://{tmp_path}/by-url"
    for _ in range(2):
        archive(spark, bootstrap_servers=cluster.bootstrap, topic=topic, path=url)
    folder = HadoopFolder(url, spark)
    assert binding.set_aside(folder) == 0
    (name,) = folder.data_files()
    folder.move(name, f"{name.removesuffix('.parquet')}-again.parquet")
    assert binding.set_aside(folder) == 1
    assert folder.data_files() == []
    assert read_archive(spark, f"file://{tmp_path}/nowhere").count() == 0
    shutil.rmtree(tmp_path / "by-url" / "_checkpoint")
    with pytest.raises(ArchiveRefusedError, match=url):
        archive(spark, bootstrap_servers=cluster.bootstrap, topic=topic, path=url)


def walrus(*arguments):
    command = [sys.executable, "-m", "walrus_client.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_the_command_archives_and_says_how_much_and_what_it_refuses(cluster, client, topic, append, tmp_path):
    append(topic, start=0, end=250)
    done = walrus("archive", topic, tmp_path / "a", "--bootstrap", cluster.bootstrap, "--output", "json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["topic"], said["records"]) == (topic, 250)
    assert list((tmp_path / "a").glob("month=2023-11/*.parquet"))
    other = f"{topic}-b"
    client.create_topic(other)
    refused = walrus("archive", other, tmp_path / "a", "--bootstrap", cluster.bootstrap)
    assert refused.returncode == 1
    assert f"{tmp_path}/a: it is the archive of topic {topic}" in refused.stderr
    assert "starting Spark" not in refused.stderr


def test_the_command_says_what_is_wrong_in_one_line(cluster, tmp_path):
    done = walrus("archive", "no-such-topic", tmp_path / "a", "--bootstrap", cluster.bootstrap)
    assert done.returncode == 1
    assert "no-such-topic" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "a").exists()
