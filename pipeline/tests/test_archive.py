"""The archive of a topic, as a function and as a command."""

import json
import os
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime

import duckdb
import pytest
from archiving import STARTED_S, offsets_in
from harness.waiting import wait_until
from pyspark.errors import PySparkException
from pyspark_walrus import binding
from pyspark_walrus.archive import archive, check, read_archive
from pyspark_walrus.binding import ArchiveRefusedError
from pyspark_walrus.folder import LEASE, HadoopFolder, LocalFolder
from retold import made_again, trimmed
from walrus_client import OutRecord


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
    assert len(list((tmp_path / "a" / "_unfinished").rglob("*.parquet.unfinished"))) >= 1
    assert duckdb.sql(f"SELECT count(*) FROM '{tmp_path}/a/**/*.parquet'").fetchall() == [(1_000,)]


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


def test_a_checkpoint_of_another_copy_that_went_on_is_refused(topic, append, tmp_path, run):
    # Both copies number on from the same micro-batch: with the other's checkpoint one lost or doubled records, exit 0.
    append(topic, start=0, end=100)
    run(topic)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    for end, folder in ((150, "a"), (200, "b")):
        append(topic, start=end - 50, end=end)
        run(topic, folder)
    shutil.rmtree(tmp_path / "a" / "_checkpoint")
    shutil.copytree(tmp_path / "b" / "_checkpoint", tmp_path / "a" / "_checkpoint")
    with pytest.raises(ArchiveRefusedError, match="another copy of it, or an old one: restore the checkpoint"):
        run(topic)
    assert offsets_in(tmp_path / "a") == list(range(150))


def test_a_folder_may_have_any_name(spark, topic, append, tmp_path, monkeypatch, run):
    # Hadoop took "[1]*" for a pattern, and "b:" for the scheme of a URL.
    append(topic, start=0, end=100)
    monkeypatch.chdir(tmp_path)
    for folder in ("a [1]* {2}?", "./b:c/d"):
        run(topic, folder)
        assert read_archive(spark, folder).count() == 100
        assert offsets_in(tmp_path / folder) == list(range(100))


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


def test_a_run_at_a_url_is_refused_while_another_one_renews_its_lease(
    spark, cluster, topic, append, tmp_path, monkeypatch
):
    # It moved the files aside that the other one was writing.
    monkeypatch.setattr("pyspark_walrus.folder.local_path", {}.get)
    monkeypatch.setattr("pyspark_walrus.folder.RENEW_S", 0.01)
    append(topic, start=0, end=100)
    url, lease = f"file://{tmp_path}/a", tmp_path / "a" / LEASE
    with HadoopFolder(url, spark).locked():
        with pytest.raises(ArchiveRefusedError, match="another run archives into it"):
            archive(spark, bootstrap_servers=cluster.bootstrap, topic=topic, path=url)
        past = time.time() - 61
        os.utime(lease, (past, past))
        wait_until("the lease is renewed", lambda: lease.stat().st_mtime > past + 60)
    lease.write_text("of a run that was killed")
    os.utime(lease, (past, past))
    assert archive(spark, bootstrap_servers=cluster.bootstrap, topic=topic, path=url).records == 100
    assert not lease.exists()


def walrus(*arguments):
    command = [sys.executable, "-m", "walrus_client.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=STARTED_S)


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


def test_the_command_says_what_a_url_needs_that_spark_cannot_open(cluster, topic, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    done = walrus("archive", topic, "s3a://bucket/x", "--bootstrap", cluster.bootstrap)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    said = " ".join(done.stderr.split())
    assert "s3a://bucket/x: Spark cannot open it" in said
    assert "hadoop-aws" in said
    assert (tmp_path / f"walrus-archive-{topic}.log").exists()


def test_an_archive_goes_on_without_records_that_are_gone_if_that_is_accepted(topic, append, tmp_path, run, retold):
    append(topic, start=0, end=100)
    run(topic, servers=retold.address)
    append(topic, start=100, end=300)
    retold.tell(topic, trimmed(150))
    with pytest.raises(PySparkException, match=r"\[WALRUS_DATA_LOSS\] offsets 100 to 149 .*--accept-loss"):
        run(topic, servers=retold.address)
    run(topic, servers=retold.address, accept_loss=True)
    assert offsets_in(tmp_path / "a") == [*range(100), *range(150, 300)]


def test_micro_batches_of_an_archive_keep_to_the_number_of_bytes(client, topic, append, tmp_path, run):
    append(topic, start=0, end=400)
    (partition,) = client.segments(topic)
    done = run(topic, bytes_per_batch_max=sum(segment.bytes for segment in partition.segments) // 3)
    assert 3 <= done.batches <= 4
    assert offsets_in(tmp_path / "a") == list(range(400))


def test_the_command_says_what_is_wrong_in_one_line(cluster, tmp_path):
    done = walrus("archive", "no-such-topic", tmp_path / "a", "--bootstrap", cluster.bootstrap)
    assert done.returncode == 1
    assert "no-such-topic" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "a").exists()
