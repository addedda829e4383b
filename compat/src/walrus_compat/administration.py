"""What clients do to topics and groups, and clusters with many topics."""

from walrus_compat.clients import Client
from walrus_compat.driver import problems
from walrus_compat.feature import SOON_S, Broken, await_so, check, check_told, consumed, produced
from walrus_compat.groups import SESSION_MS
from walrus_compat.stage import Stage

DELETE_GROUP = "delete group"
# What each step finds, in order. The topic has ten records in partition 0 before, and the group has read them.
STEPS = (
    ("create", None),
    ("partitions", 2),
    ("create partitions", None),
    ("partitions", 4),
    ("config", "86400000"),
    ("alter config", None),
    ("config", "172800000"),
    ("list", True),
    ("delete records", 5),
    ("groups", True),
    ("group", "empty"),
    ("offset", 10),
    (DELETE_GROUP, None),
    ("groups", False),
    ("delete", None),
)
MANY = 10_000


def admin(stage: Stage, client: Client) -> None:
    """An admin makes, describes, changes and deletes topics, records and groups."""
    topic, group = stage.topic("admin"), stage.name("group")
    produced(stage, client, topic, count=10)
    with stage.drive(client, "member", topic, group=group, session_ms=SESSION_MS) as member:
        await_so("a commit", lambda: stage.has_group(group) and stage.committed(group, topic) == {0: 10}, SOON_S)
        member.stop()
        member.finish()
    # Clients tell once that they leave, and tell it whom they take for the coordinator. If another broker took over
    # since they last heard of it, they are members until their session ends, as with Apache Kafka.
    await_so("the member is gone", lambda: not stage.has_members(group), SOON_S)
    with stage.drive(client, "admin", topic, group=group) as driver:
        events = driver.finish()
    found = [(event["step"], event["found"]) for event in events if "step" in event]
    skipped = {(DELETE_GROUP, None), ("groups", False)} if DELETE_GROUP in client.lacks else set()
    expected = [step for step in STEPS if step not in skipped]
    if problems(events):
        check_told(f"admin, after {found[-1:]},", events)
    for step, wanted in zip(found, expected, strict=False):
        check(step == wanted, f"it found {step}, not {wanted}")
    check(len(found) == len(expected), f"it came to {found[-1:]}")
    check(stage.starts_at(topic) == 5, f"the topic begins at {stage.starts_at(topic)}")


def many_topics(stage: Stage, client: Client) -> None:
    """All of ten thousand topics are listed, and one of them is written and read."""
    names = stage.many("many", MANY)
    with stage.drive(client, "topics", "") as driver:
        events = driver.finish(SOON_S)
    check_told("client", events)
    (count,) = (event["topics"] for event in events if "topics" in event)
    if count < MANY:
        raise Broken(f"it lists {count} topics")
    topic = names[sum(map(ord, client.name)) % MANY]
    before = len(stage.log(topic))
    produced(stage, client, topic, count=10)
    found = [record["read"] for record in consumed(stage, client, topic, f"offset:{before}", 10)]
    check(found == list(range(before, before + 10)), f"it read {found}")
