"""SIGKILL, again and again, under load: what was acknowledged is there, once, whoever is asked."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from members import Cluster, Member
from waiting import wait_until

SECONDS = 20.0
SUPPORT = Path(__file__).parents[1] / "support"


class Process:
    """A member's process; what it answers is gathered by a thread."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.answers: list[tuple[str, str]] = []
        arguments = [member.directory, member.owner.cluster_id, member.disk, member.port]
        self.process = subprocess.Popen(
            [sys.executable, SUPPORT / "member_process.py", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": f"{SUPPORT}:{os.environ.get('PYTHONPATH', '')}"},
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):
                kind, _, rest = line.strip().partition(" ")
                self.answers.append((kind, rest))

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # killed in between: nothing was acknowledged

    def heard(self, kind: str) -> list[str]:
        return [rest for got, rest in list(self.answers) if got == kind]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def test_no_acknowledged_command_is_lost_or_repeated(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    cluster = Cluster(tmp_path)
    for _ in range(3):
        cluster.add_voter()
    cluster.stop()
    running = [Process(member) for member in cluster.members]
    acknowledged: list[str] = []
    number, kills = 0, 0
    try:
        deadline = time.monotonic() + SECONDS
        next_kill = time.monotonic() + 1.0
        while time.monotonic() < deadline:
            for process in running:
                number += 1
                process.say(f"write n{number}")
            if time.monotonic() >= next_kill:
                kills += 1
                together = 3 if chance.random() < 0.2 else 1  # now and then the power of all fails at once
                for victim in chance.sample(range(3), together):
                    running[victim].kill()
                    acknowledged += running[victim].heard("applied")
                    running[victim] = Process(running[victim].member)
                next_kill = time.monotonic() + chance.uniform(0.2, 1.2)
            time.sleep(0.002)  # the load's rate
        running[0].say("write last")
        wait_until("the last one is answered", lambda: {"last"} & {name for _, name in running[0].answers})
        for process in running:
            acknowledged += process.heard("applied")
        # A member may lag: it holds everything in the end, or what is missing is lost.
        ledgers = [
            wait_until("nothing is lost", lambda process=process: holding(process, acknowledged)) for process in running
        ]
    finally:
        for process in running:
            process.kill()
    assert kills >= 8
    assert len(acknowledged) > 200
    for ledger in ledgers:
        assert len(set(ledger)) == len(ledger), "nothing twice"
    shortest = min(map(len, ledgers))
    assert ledgers[0][:shortest] == ledgers[1][:shortest] == ledgers[2][:shortest], "one order"


def holding(process: Process, acknowledged: list[str]) -> list[str] | None:
    """What the process holds, once all that was acknowledged is among it."""
    before = len(process.heard("read"))
    process.say("read")
    answers = wait_until("it is read", lambda: process.heard("read")[before:])
    ledger = answers[0].split()
    return ledger if set(acknowledged) <= set(ledger) else None
