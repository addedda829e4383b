"""SIGKILL and SIGSTOP, again and again, under load: what was acknowledged is there, once, whoever is asked.

There is one order of all of it, and it agrees with real time.
"""

import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from history import Read, Write, check
from members import Cluster, Member
from waiting import wait_until

SECONDS = 20.0
UNDER_WAY_MAX = 256
SUPPORT = Path(__file__).parents[1] / "support"


class Process:
    """A member's process; what it answers is gathered by a thread."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.answers: list[tuple[str, str]] = []
        # When each answer was heard, by the name that it is about.
        self.heard_at: dict[str, tuple[float, list[str]]] = {}
        self._written = 0
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
                name, *more = rest.split() or [""]
                self.heard_at[name] = (time.monotonic(), [kind, *more])

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # killed in between: nothing was acknowledged

    def write(self, name: str) -> None:
        """Asks for it, unless so much is under way that a slow machine would only fall behind."""
        if self._written - len(self.heard_at) < UNDER_WAY_MAX:
            self._written += 1
            self.say(f"write {name}")

    def heard(self, kind: str) -> list[str]:
        return [rest for got, rest in list(self.answers) if got == kind]

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

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
        began = time.monotonic()
        next_kill = began + 1.0
        # A slow machine needs longer for something to be lost.
        while time.monotonic() < began + SECONDS or (
            not (kills >= 8 and len(acknowledged) > 200) and time.monotonic() < began + 6 * SECONDS
        ):
            for process in running:
                number += 1
                process.write(f"n{number}")
            if time.monotonic() >= next_kill:
                kills += 1
                together = 3 if chance.random() < 0.2 else 1  # now and then the power of all fails at once
                for victim in chance.sample(range(3), together):
                    running[victim].kill()
                    acknowledged += written(running[victim])
                    running[victim] = Process(running[victim].member)
                next_kill = time.monotonic() + chance.uniform(0.2, 1.2)
            time.sleep(0.002)  # the load's rate
        running[0].say("write last")
        wait_until("the last one is answered", lambda: "last" in running[0].heard_at)
        for process in running:
            acknowledged += written(process)
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


def written(process: Process) -> list[str]:
    return [rest.split()[0] for rest in process.heard("applied")]


class User:
    """Writes and looks in turn, one at a time, through one member; what became of each is its history."""

    def __init__(self, number: int, process: Process) -> None:
        self.number = number
        self.process = process
        self.history: list[Write | Read] = []
        self._count = 0
        # What, under which name, when.
        self._asked: tuple[str, str, float] | None = None

    def turn(self, *, only_look: bool = False) -> None:
        """Take down the answer if it is here, and ask for the next thing."""
        if self._asked is not None and self._asked[1] not in self.process.heard_at:
            return
        self.take_down()
        self._count += 1
        what, name = "look" if only_look or self._count % 3 == 0 else "write", f"u{self.number}.{self._count}"
        self._asked = (what, name, time.monotonic())
        self.process.say(f"{what} {name}")

    def take_down(self) -> None:
        """What was asked last: answered, or nobody knows."""
        if self._asked is None:
            return
        (what, name, start), self._asked = self._asked, None
        at, answer = self.process.heard_at.get(name, (math.inf, ["unknown"]))
        if answer[0] == "looked":
            self.history.append(Read(start, at, tuple(answer[1:])))
        elif what == "write":
            place = int(answer[1]) if answer[0] == "applied" else None
            self.history.append(Write(name, start, at if place else math.inf, place))

    def move_to(self, process: Process) -> None:
        self.take_down()
        self.process = process


def test_what_users_see_under_kills_and_freezes_is_linearizable(tmp_path: Path) -> None:
    """A frozen leader goes on believing that it leads when it wakes; nobody may learn anything stale from it."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    cluster = Cluster(tmp_path)
    for _ in range(3):
        cluster.add_voter()
    cluster.stop()
    running = [Process(member) for member in cluster.members]
    users = [User(number, running[number]) for number in range(3)]
    faults = 0
    try:
        began = time.monotonic()
        next_fault, frozen = began + 1.0, None
        # A slow machine needs longer for a history that says something.
        while time.monotonic() < began + SECONDS or (
            not (faults >= 5 and says_something(users)) and time.monotonic() < began + 6 * SECONDS
        ):
            for user in users:
                user.turn()
            if time.monotonic() >= next_fault:
                faults += 1
                if frozen is not None:
                    running[frozen].signal(signal.SIGCONT)
                    frozen = None
                    next_fault = time.monotonic() + chance.uniform(0.1, 1.5)
                    continue
                victim = chance.randrange(3)
                if chance.random() < 0.5:
                    frozen = victim
                    running[victim].signal(signal.SIGSTOP)
                    next_fault = time.monotonic() + chance.uniform(1.0, 4.0)
                else:
                    running[victim].kill()
                    running[victim] = Process(running[victim].member)
                    users[victim].move_to(running[victim])
                    next_fault = time.monotonic() + chance.uniform(0.3, 1.5)
            time.sleep(0.002)  # the load's rate
        if frozen is not None:
            running[frozen].signal(signal.SIGCONT)
        for user in users:
            user.take_down()
        # The last look sees everything that was acknowledged, through a member that took part in all of it.
        final = User(3, running[0])
        wait_until("the last look is answered", lambda: looked(final))
    finally:
        for process in running:
            process.signal(signal.SIGCONT)
            process.kill()
    history = [operation for user in [*users, final] for operation in user.history]
    assert check(history) is None
    assert faults >= 5
    assert says_something(users)


def says_something(users: list[User]) -> bool:
    history = [operation for user in users for operation in user.history]
    reads = sum(isinstance(operation, Read) for operation in history)
    return reads > 20 and len(history) - reads > 50


def looked(user: User) -> bool:
    """Looks again and again, for the member may be without a leader at first."""
    user.turn(only_look=True)
    return bool(user.history)


def holding(process: Process, acknowledged: list[str]) -> list[str] | None:
    """What the process holds, once all that was acknowledged is among it."""
    before = len(process.heard("read"))
    assert process.process.poll() is None, "it runs"
    process.say("read")
    answers = wait_until("it is read", lambda: process.heard("read")[before:])
    ledger = answers[0].split()
    return ledger if set(acknowledged) <= set(ledger) else None
