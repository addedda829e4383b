"""Topics of the brokers of a `SimKube`: compared, made, changed and deleted as the Admin API does it."""

from __future__ import annotations

from itertools import count

from walrus_operator.observe.brokers import BrokerError, TopicMoved, TopicRefused
from walrus_operator.observe.topics import Compared, Difference, FoundTopic

NUMBERS = ("retention.ms", "retention.bytes", "segment.ms", "segment.bytes", "walrus.segment.entries")
SETTINGS = (*NUMBERS, "cleanup.policy", "walrus.replication.factor")


class RefusalError(Exception):
    """A setting that no topic can have."""


class SimTopics:
    """What there is, by cluster, organisation and name."""

    def __init__(self, kube):
        self.kube = kube
        self.topics = {}  # (cluster, org, name) -> facts
        self.orgs = {"default"}
        self.full = False  # nobody may have more topics
        self.bytes = 0  # in the sealed segments of each
        self._ids = count(1)
        self._versions = count(1)

    def found(self, name, org="default", cluster="cluster-1"):
        return self.topics.get((cluster, org, name))

    def make(self, name, org="default", partitions=1, config=None, cluster="cluster-1"):
        """What a client of Kafka does."""
        made = {
            "id": f"topic-{next(self._ids)}",
            "partitions": partitions,
            "config": stored(config or {}),
            "version": 0,
        }
        self.topics[cluster, org, name] = made
        return made

    def change(self, name, **config):
        """What somebody else does, beside Kubernetes."""
        topic = self.found(name)
        topic["config"] = stored({**topic["config"], **config})
        topic["version"] = next(self._versions)

    def drop(self, name, org="default", cluster="cluster-1"):
        del self.topics[cluster, org, name]


class SimTopicCalls:
    """The calls about topics; mixed into the brokers."""

    async def compare_topics(self, host, wanted):
        ref, identity = self._find(host)
        self._needs_leader(ref, identity)
        self.kube.calls["compare", "topics"] += 1
        return [self._compared(identity["cluster"], topic) for topic in wanted]

    def _compared(self, cluster, wanted):
        found = self.kube.topics.topics.get((cluster, *wanted.path))
        try:
            config = stored(wanted.config)
        except RefusalError as refused:
            return Compared(str(refused), self._told(found, []) if found else None)
        if found is None:
            return Compared("", None)
        names = sorted({*config, *found["config"]})
        differing = [name for name in names if config.get(name) != found["config"].get(name)]
        differences = [Difference(name, config.get(name), found["config"].get(name)) for name in differing]
        return Compared("", self._told(found, differences))

    def _told(self, found, differences):
        factor = int(found["config"].get("walrus.replication.factor", 3))
        leads = sorted(self.kube.pods())
        return FoundTopic(
            id=found["id"],
            partitions=found["partitions"],
            version=found["version"],
            factor=factor,
            differences=tuple(differences),
            settings=tuple(
                (name, found["config"].get(name, "-1"), "topic" if name in found["config"] else "built_in")
                for name in NUMBERS
            ),
            leaders={leads[0]: found["partitions"]} if leads else {},
            sealed_bytes=self.kube.topics.bytes,
        )

    async def make_topic(self, host, wanted, secrets):
        cluster = self._changed_by(host, secrets)
        with self.kube._write("make", "topic"):
            topics = self.kube.topics
            if wanted.org not in topics.orgs:
                raise TopicRefused(f'there is no organisation "{wanted.org}": an administrator must make it first')
            if (cluster, *wanted.path) in topics.topics:
                return
            if topics.full:
                raise TopicRefused(
                    "organisation default would have 2 topics, its limit is 1: delete topics, or raise it"
                )
            topics.make(wanted.name, wanted.org, wanted.partitions, wanted.config, cluster)

    async def set_topic_config(self, host, topic, entries, unset, expect_version, secrets):
        found = self._topic(self._changed_by(host, secrets), topic)
        with self.kube._write("set", "topic"):
            if found["version"] != expect_version:
                raise TopicMoved(f"at {found['version']}, not {expect_version}")
            left = {name: value for name, value in found["config"].items() if name not in unset}
            found["config"] = stored({**left, **entries})
            found["version"] = next(self.kube.topics._versions)

    async def set_topic_partitions(self, host, topic, partitions, secrets):
        found = self._topic(self._changed_by(host, secrets), topic)
        with self.kube._write("extend", "topic"):
            if partitions < found["partitions"]:
                raise TopicRefused("partitions are never taken away")
            found["partitions"] = partitions

    async def remove_topic(self, host, topic, secrets):
        cluster = self._changed_by(host, secrets)
        with self.kube._write("remove", "topic"):
            all_ = self.kube.topics.topics
            for key in [key for key, found in all_.items() if key[0] == cluster and found["id"] == topic]:
                del all_[key]

    def _changed_by(self, host, secrets):
        ref, identity = self._find(host)
        self._permits(ref, secrets)
        self._needs_leader(ref, identity)
        if not identity["cluster"]:
            raise BrokerError("in no cluster")
        return identity["cluster"]

    def _topic(self, cluster, topic):
        of_id = [one for key, one in self.kube.topics.topics.items() if key[0] == cluster and one["id"] == topic]
        if not of_id:
            raise TopicMoved(f"no topic {topic}")
        return of_id[0]


def stored(config):
    """Settings as brokers store them: checked, and in one spelling."""
    made = {}
    for name, value in config.items():
        if name not in SETTINGS:
            raise RefusalError(f"topic setting {name}: there is no such setting; the nearest name is retention.ms")
        if name in NUMBERS and not value.strip().lstrip("-").isdigit():
            raise RefusalError(
                f"topic setting {name}: it takes whole numbers from -1 to 9223372036854775807, not {value!r}"
            )
        made[name] = ",".join(sorted(value.lower().split(","))) if name == "cleanup.policy" else value.strip()
    return made
