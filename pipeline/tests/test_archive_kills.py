"""Archivers that are killed at any moment, in any order with everything else that happens to an archive."""

import fcntl
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from archiving import STARTED_S, offsets_in
from harness.waiting import wait_until
from pyspark.errors import PySparkException
from pyspark_walrus.binding import ArchiveRefusedError
from pyspark_walrus.folder import JAVA_LOCK

ARCHIVER = Path(__file__).parent / "support" / "archiver.py"


@pytest.fixture
def archiver(retold, tmp_path):
    """Starts a run of an archive, `a` if not told, in a process of its own; it and its Java end with the test."""
    started = []

    def _archiver(topic, folder="a"):
        command = [sys.executable, str(ARCHIVER), retold.address, topic, str(tmp_path / folder)]
        started.append(subprocess.Popen(command, start_new_session=True))
        return started[-1]

    yield _archiver
    for process in started:
        kill_with_java(process)


def kill_with_java(process):
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=60)


def wait_for_java(folder):
    with (folder / JAVA_LOCK).open("a") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)


@pytest.mark.timeout(4 * STARTED_S)
def test_an_archiver_that_is_killed_at_any_moment_is_followed_by_one_that_goes_on(
    topic, append, tmp_path, run, retold, archiver
):
    append(topic, start=0, end=1_000)
    folder = tmp_path / "a"
    for moment in ("_checkpoint/offsets/0", "_spark_metadata/1"):
        killed = archiver(topic)
        wait_until(f"it comes to {moment}", (folder / moment).exists, timeout_s=STARTED_S, every_s=0.002)
        kill_with_java(killed)
    reading = threading.Event()
    retold.before_next_read(reading.set)
    killed = archiver(topic)
    assert reading.wait(timeout=STARTED_S)
    killed.kill()  # the Java process below it goes on as long as it can
    killed.wait(timeout=60)
    wait_for_java(folder)
    assert not (folder / "_spark_metadata" / "10").exists()
    run(topic)
    assert offsets_in(folder) == list(range(1_000))


def kill_in_a_micro_batch(start, folder, moment):
    """Kills a run when another entry of the folder `moment` is there, unless it ended before."""
    there = len(list((folder / moment).glob("*")))
    process = start(folder.name)
    wait_until(
        f"it comes to {moment} again or ends",
        lambda: process.poll() is not None or len(list((folder / moment).glob("*"))) > there,
        timeout_s=STARTED_S,
        every_s=0.002,
    )
    kill_with_java(process)


@pytest.mark.timeout(8 * STARTED_S)
@pytest.mark.parametrize("life", [1, 2])
def test_any_order_of_runs_kills_failures_and_changes_stores_each_record_once_or_is_refused(
    life, client, topic, append, tmp_path, run, archiver, failing_at
):
    seed = random.SystemRandom().randrange(10**6)
    print("life", life, "seed", seed)  # shown where it fails
    choose = random.Random(seed)
    other = f"{topic}-b"
    client.create_topic(other)
    appended = {topic: 0, other: 0}
    run(topic)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    actions = ["archive", "archive", "archive the other", "fail", "delete", "swap", "copy"]
    for action in [choose.choice(actions), "kill", *choose.choices(actions, k=5)]:
        mine, copy = (tmp_path / name for name in choose.sample("ab", 2))
        print(action, mine.name)
        name = other if action == "archive the other" else topic
        append(name, start=appended[name], end=appended[name] + 100)
        appended[name] += 100
        if action == "delete":
            shutil.rmtree(mine / "_checkpoint", ignore_errors=True)
        elif action == "swap" and all((folder / "_checkpoint").exists() for folder in (mine, copy)):
            (mine / "_checkpoint").rename(tmp_path / "on-its-way")
            (copy / "_checkpoint").rename(mine / "_checkpoint")
            (tmp_path / "on-its-way").rename(copy / "_checkpoint")
        elif action == "copy":
            shutil.rmtree(copy)
            shutil.copytree(mine, copy)
        elif action == "kill":
            moment = choose.choice(["_checkpoint/offsets", "_spark_metadata", "_checkpoint/commits"])
            kill_in_a_micro_batch(partial(archiver, name), mine, moment)
        try:
            if action == "fail":
                with failing_at(choose.randrange(appended[name])):
                    run(name, mine.name, records_per_batch_max=choose.choice([60, 1000]))
            run(name, mine.name, records_per_batch_max=choose.choice([80, 1000]))
        except PySparkException as error:
            assert "on purpose" in str(error)  # noqa: PT017
        except ArchiveRefusedError as refused:
            print(refused)
        else:
            assert name == topic
            assert offsets_in(mine) == list(range(appended[topic]))
        for folder in (mine, copy):
            found = offsets_in(folder)
            assert found == list(range(len(found)))
