"""The archive of a topic, as a function and as a command."""

import json
import subprocess
import sys
from datetime import UTC, datetime

import pytest
from pyspark.errors import PySparkException
from pyspark_walrus import archive as archive_module
from pyspark_walrus.archive import archive, read_archive
from walrus_client import OutRecord


def test_two_runs_archive_everything_once_by_month(spark, cluster, client, topic, tmp_path):
    january, march = (int(datetime(2024, month, 31, 23, 59, tzinfo=UTC).timestamp() * 1000) for month in (1, 3))
    rows = [OutRecord(b"v", key=b"k", timestamp_ms=january), OutRecord(None, timestamp_ms=january + 60_000)]
    client.append(topic, rows)
    progress = []
    first = archive(
        spark, bootstrap_servers=cluster.bootstrap, topic=topic, path=tmp_path / "a", on_progress=progress.append
    )
    client.append(topic, [OutRecord(b"w", timestamp_ms=march)])
    second = archive(spark, bootstrap_servers=cluster.bootstrap, topic=topic, path=tmp_path / "a")
    assert (first.records, second.records, progress[-1]) == (2, 1, 2)
    months = sorted(path.name for path in (tmp_path / "a").glob("month=*"))
    assert months == ["month=2024-01", "month=2024-02", "month=2024-03"]
    found = read_archive(spark, tmp_path / "a").orderBy("offset").collect()
    assert [(row.topic, row.partition, row.offset, row.key, row.value, row.month) for row in found] == [
        (topic, 0, 0, b"k", b"v", "2024-01"),
        (topic, 0, 1, None, None, "2024-02"),
        (topic, 0, 2, None, b"w", "2024-03"),
    ]
    assert [int(row.timestamp.timestamp() * 1000) for row in found] == [january, january + 60_000, march]


def test_a_run_that_failed_leaves_nothing_that_counts_twice(spark, cluster, topic, append, tmp_path, monkeypatch):
    append(topic, start=0, end=1_000)
    with monkeypatch.context() as broken:
        # Fails in the tasks of the second micro-batch, when some of its files may be written already.
        broken.setattr(archive_module, "MONTH", f"if(offset = 350, raise_error('on purpose'), {archive_module.MONTH})")
        with pytest.raises(PySparkException, match="on purpose"):
            archive(
                spark,
                bootstrap_servers=cluster.bootstrap,
                topic=topic,
                path=tmp_path / "a",
                records_per_batch_max=300,
            )
    assert read_archive(spark, tmp_path / "a").count() == 300
    run = archive(
        spark, bootstrap_servers=cluster.bootstrap, topic=topic, path=tmp_path / "a", records_per_batch_max=300
    )
    assert run.records == 700
    offsets = [row.offset for row in read_archive(spark, tmp_path / "a").select("offset").collect()]
    assert sorted(offsets) == list(range(1_000))


def walrus(*arguments):
    command = [sys.executable, "-m", "walrus_client.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_the_command_archives_and_says_how_much(cluster, topic, append, tmp_path):
    append(topic, start=0, end=250)
    done = walrus("archive", topic, tmp_path / "a", "--bootstrap", cluster.bootstrap, "--output", "json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["topic"], said["records"]) == (topic, 250)
    assert list((tmp_path / "a").glob("month=2023-11/*.parquet"))


def test_the_command_says_what_is_wrong_in_one_line(cluster, tmp_path):
    done = walrus("archive", "no-such-topic", tmp_path / "a", "--bootstrap", cluster.bootstrap)
    assert done.returncode == 1
    assert "no-such-topic" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "a").exists()
