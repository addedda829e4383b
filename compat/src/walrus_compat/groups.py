"""Groups: members that join, leave and die, while records come and what was read is committed."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from walrus_compat import verdict
from walrus_compat.clients import Client
from walrus_compat.driver import Driver, DriverError, acked, problems
from walrus_compat.feature import LONG_S, SOON_S, Broken, await_so, check, check_told, sending
from walrus_compat.stage import Stage

PARTITIONS = 8
SESSION_MS = 6_000  # the least that Kafka takes
LONG_SESSION_MS = 60_000  # a member starts within it, on a busy machine too


@dataclass
class Group:
    """A group that reads a topic into which records come all the time; `members` are those that are at work."""

    stage: Stage
    client: Client
    topic: str
    writer: Driver
    stack: ExitStack
    name: str
    members: list[Driver] = field(default_factory=list)
    everyone: list[Driver] = field(default_factory=list)

    def join(self, count: int = 1, *, session_ms: int = SESSION_MS, instance: str = "", cooperative: int = 0) -> None:
        """Let so many members join, and wait until all of them share the partitions."""
        for _ in range(count):
            spec = {"group": self.name, "session_ms": session_ms, "instance": instance, "cooperative": cooperative}
            member = self.stack.enter_context(self.stage.drive(self.client, "member", self.topic, **spec))
            self.members.append(member)
            self.everyone.append(member)
        self.await_shared()

    def leave(self, count: int = 1) -> None:
        """Let the members that joined last leave, and wait until the others have what they had."""
        for _ in range(count):
            member = self.members.pop()
            member.stop()
            member.finish()
        self.await_shared()

    def await_shared(self) -> None:
        """Wait until each partition has one reader, each member has some, and all of it was told."""
        first, *others = self.members

        def is_shared(_events: object) -> bool:
            held = [held_by(member) for member in (first, *others)]
            return all(held) and sorted(partition for each in held for partition in each) == list(range(PARTITIONS))

        try:
            first.wait(f"the share of {len(self.members)} members", is_shared, LONG_S)
        except DriverError as error:
            told = [problem for member in self.everyone for problem in problems(member.events)]
            shares = [held_by(member) for member in self.members]
            raise Broken(
                f"{len(self.members)} members have {shares} after {LONG_S:g} s; they were told {told}"
            ) from error

    def check_all_is_read(self) -> None:
        """End the writer, and check that all was delivered, and that commits never went back."""
        self.writer.stop()
        sent = self.writer.finish(LONG_S)
        check_told("producer", sent)
        logs = {partition: self.stage.log(self.topic, partition) for partition in range(PARTITIONS)}
        ends = {partition: log[-1].offset + 1 for partition, log in logs.items() if log}
        stored = [verdict.number_of(record.value) for log in logs.values() for record in log]
        lost = verdict.of_producer(stored, acked(sent), is_idempotent=False)
        check(not lost, "; ".join(lost))
        await_so("all is committed", lambda: self.stage.committed(self.name, self.topic) == ends, SOON_S)
        for member in self.members:
            member.stop()
        for member in self.members:
            member.finish()
        told = [{**event, "member": number} for number, each in enumerate(self.everyone) for event in each.events]
        events = sorted(told, key=lambda event: event["at"])
        ended = len(self.everyone) - len(self.members)  # while records came
        wrong = verdict.of_group(events, ends, taken_max=ended if self.client.takes_along else 0)
        check(not wrong, "; ".join(wrong))
        check_told("group", events)
        kept = self.stage.committed(self.name, self.topic)
        check(kept == ends, f"the group has committed {kept} in the end, and the log ends at {ends}")


def held_by(member: Driver) -> list[int]:
    """The partitions that a member has now."""
    return next((event["assigned"] for event in reversed(member.events) if "assigned" in event), [])


def shares_told(member: Driver) -> int:
    """How often a member was told what it has."""
    return sum("assigned" in event for event in member.events)


@contextmanager
def group(stage: Stage, client: Client) -> Iterator[Group]:
    """A group without members, and a producer at work on its topic."""
    topic = stage.topic("group", partitions=PARTITIONS)
    with ExitStack() as stack:
        writer = stack.enter_context(stage.drive(client, "produce", topic, **sending(client, pace_ms=5)))
        yield Group(stage, client, topic, writer, stack, stage.name("group"))


def joining_and_leaving(stage: Stage, client: Client) -> None:
    """One to eight members join, leave and are killed."""
    with group(stage, client) as tried:
        for count in (1, 1, 2, 4):
            tried.join(count)
        tried.leave(2)
        tried.members.pop(0).die()  # the one that shares out, too: it joined first
        tried.await_shared()
        tried.leave(3)
        tried.check_all_is_read()


def static_members(stage: Stage, client: Client) -> None:
    """A member with a name is killed and comes again: it has its partitions at once, and the others keep theirs."""
    with group(stage, client) as tried:
        for number in range(3):
            tried.join(instance=f"member-{number}", session_ms=LONG_SESSION_MS)
        held, told = held_by(tried.members[-1]), [shares_told(member) for member in tried.members[:-1]]
        tried.members.pop().die()
        tried.join(instance="member-2", session_ms=LONG_SESSION_MS)
        check(held_by(tried.members[-1]) == held, f"it had {held}, and has {held_by(tried.members[-1])} now")
        again = [shares_told(member) for member in tried.members[:-1]]
        check(again == told, "the others had to share anew")
        tried.check_all_is_read()


def cooperative(stage: Stage, client: Client) -> None:
    """Members join one by one: those that are there keep what they keep, and read on meanwhile."""
    with group(stage, client) as tried:
        tried.join(cooperative=1)
        (first,) = tried.members
        begun = len(first.events)
        tried.join(2, cooperative=1)
        kept = set(held_by(first))
        shares = [set(event["assigned"]) for event in first.events[begun:] if "assigned" in event]
        check(all(kept <= share for share in shares), f"the first member keeps {kept}, and had {shares} meanwhile")
        tried.leave()
        tried.check_all_is_read()


def coordinator_killed(stage: Stage, client: Client) -> None:
    """The node that coordinates a group is killed: commits of all partitions go on, and none goes back."""
    with group(stage, client) as tried:
        tried.join(3)
        await_so(
            "commits of all partitions", lambda: len(stage.committed(tried.name, tried.topic)) == PARTITIONS, SOON_S
        )
        before = stage.committed(tried.name, tried.topic)
        killed = stage.coordinator(tried.name)
        stage.kill(killed)
        try:
            await_so("commits go on", lambda: have_grown(before, stage.committed(tried.name, tried.topic)))
        finally:
            stage.start(killed)
        tried.await_shared()
        tried.check_all_is_read()


def have_grown(before: dict[int, int], after: dict[int, int]) -> bool:
    """Whether the committed offsets of all partitions have."""
    return all(after.get(partition, 0) > offset for partition, offset in before.items())
