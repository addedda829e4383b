"""One life of a store in a process that forks at random moments: `python fork_life.py DIRECTORY SEED FACTS`.

Threads append, read by a cursor and look around while the main thread forks; at the end the store is closed, dropped,
or its process killed. Children end in every way that there is. What was acknowledged goes to the file FACTS, which
outlives a kill: `append TOPIC COUNT` and `read COUNT` when they returned, `lives PID` of a child that outlives all,
`wrong WHAT`.
"""

import contextlib
import gc
import multiprocessing
import os
import random
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import walrus_core

WAYS = ["return", "sys.exit", "raise", "os._exit", "leave with", "drop", "killed", "lives on"]
ENDS = ["close", "with", "exit", "kill"]


class Life:
    def __init__(self, directory: str, seed: int, facts: str) -> None:
        self.random = random.Random(seed)
        self.facts = os.open(facts, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        backend = self.random.choice(["mmap", "direct", "io_uring"])
        self.walrus = walrus_core.Walrus.open(directory, backend=backend, block_bytes=64 << 10, blocks_per_file=4)
        for topic in ("t0", "t1"):
            self.walrus.make_topic(topic)
        self.cursor = self.walrus.cursor("t0", "c")
        self.stop = threading.Event()
        self.stepped = threading.Semaphore(0)

    def note(self, fact: str) -> None:
        os.write(self.facts, fact.encode() + b"\n")

    def run(self) -> None:
        threads = [
            threading.Thread(target=self.work, args=(step,), daemon=True)
            for step in (self.append(0), self.append(1), self.read(), self.look())
        ]
        for thread in threads:
            thread.start()
        for _ in range(self.random.randint(2, 5)):
            self.wait_for_steps(self.random.randint(1, 40))
            self.fork(self.random.choice(WAYS))
        end = self.random.choice(ENDS)
        if end == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if end == "exit" or self.random.random() < 0.5:  # else the store is closed under those who use it
            self.stop.set()
        if end == "close":
            closing = threading.Thread(target=self.walrus.close)
            closing.start()
            self.fork(self.random.choice(WAYS))
            closing.join()
        elif end == "with":
            with self.walrus:
                pass
        self.stop.set()
        for thread in threads:
            thread.join()

    def work(self, step: Callable[[], None]) -> None:
        while not self.stop.is_set():
            try:
                step()
            except walrus_core.RejectedError as error:
                if error.reason != "Closed":
                    self.note(f"wrong the parent is refused: {error}")
                return
            self.stepped.release()

    def wait_for_steps(self, count: int) -> None:
        for _ in range(count):
            self.stepped.acquire()

    def append(self, topic: int) -> Callable[[], None]:
        count = 0

        def step() -> None:
            nonlocal count
            offset = self.walrus.append(f"t{topic}", b"%d" % count * 20)
            if offset != count:
                self.note(f"wrong entry {count} got offset {offset}")
            count += 1
            self.note(f"append {topic} {count}")

        return step

    def read(self) -> Callable[[], None]:
        count = 0

        def step() -> None:
            nonlocal count
            entry = self.cursor.read_next()
            if entry is not None:
                if entry != (count, b"%d" % count * 20):
                    self.note(f"wrong read {count} gave {entry}")
                count += 1
                self.note(f"read {count}")

        return step

    def look(self) -> Callable[[], None]:
        def step() -> None:
            self.walrus.topics()
            self.walrus.read_batch("t1", 1000, start_offset=self.walrus.offsets("t1").start)
            self.walrus.set_retention("t1", bytes=1 << 30)
            assert self.cursor.unread >= 0

        return step

    def fork(self, way: str) -> None:
        if way in ("return", "sys.exit", "raise") and self.random.random() < 0.5:
            process = multiprocessing.get_context("fork").Process(target=self.child, args=(way,))
            process.start()
            process.join()
            code = process.exitcode
        else:
            pid = os.fork()
            if pid == 0:
                self.child(way)
                os._exit(0)
            if way == "lives on":
                self.note(f"lives {pid}")
                return
            if way == "killed":
                os.kill(pid, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        expected = {"raise": [1], "killed": [0, -signal.SIGKILL]}.get(way, [0])
        if code not in expected:
            self.note(f"wrong a child that was to end by {way} ended with {code}")

    def child(self, way: str) -> None:
        if way == "lives on":
            threading.Event().wait()
        for call in (
            lambda: self.walrus.append("t0", b"child's"),
            lambda: self.walrus.append("t2", b"child's"),
            lambda: self.walrus.topics(),
            lambda: self.walrus.unread("t0"),
            lambda: self.cursor.read_next(),
            lambda: self.cursor.position,
            lambda: self.walrus.trim("t1", 1),
            lambda: self.walrus.close(),
        ):
            try:
                call()
                self.note("wrong a call of a child went through")
            except walrus_core.RejectedError as error:
                if error.reason not in ("Forked", "Closed"):
                    self.note(f"wrong a child was refused with {error}")
        match way:
            case "sys.exit":
                sys.exit(0)
            case "raise":
                sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - the process ends
                raise RuntimeError("a child's own")
            case "leave with":
                with self.walrus, contextlib.suppress(RuntimeError):
                    raise RuntimeError("a child's own")
            case "drop":
                del self.walrus, self.cursor
                gc.collect()


if __name__ == "__main__":
    Life(sys.argv[1], int(sys.argv[2]), sys.argv[3]).run()
