"""Each mistake that once broke clusters, put back, is found by the test that tells its story."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from walrus_operator.act import executor
from walrus_operator.act.departing import Departing
from walrus_operator.act.executor import Executor
from walrus_operator.act.lost import LostVolumes
from walrus_operator.desired import build, placing, statefulset
from walrus_operator.desired.names import FINALIZER, ROLL
from walrus_operator.kube.api import KubeError
from walrus_operator.objects import CLAIM, POD, Ref
from walrus_operator.observe import observer
from walrus_operator.observe.machines import Volume
from walrus_operator.observe.snapshot import Snapshot
from walrus_operator.plan import (
    auto_growth,
    deletion,
    departing,
    draining,
    finalizing,
    planner,
    pools,
    replacing,
    resizing,
    stranded,
    topics,
)
from walrus_operator.plan.actions import FinalizeLevel, RemoveClaim
from walrus_operator.plan.departing import Next
from walrus_operator.runtime import lease
from walrus_operator.runtime.lease import Lease
from walrus_operator.runtime.resync import Resync
from walrus_operator.status.writing import Writing

Put = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Mistake:
    """Something that is wrong, how to make it so, and who finds it."""

    name: str
    put: Put
    found_by: str
    """`module.function`."""
    arguments: tuple[str, ...] = ()
    """With which it is called."""


def instead(place: object, name: str, wrong: object) -> Put:
    """This is there instead of what is right."""
    return lambda monkeypatch: monkeypatch.setattr(place, name, wrong)


def both(*puts: Put) -> Put:
    def put(monkeypatch):
        for one in puts:
            one(monkeypatch)

    return put


async def _delete(self, action, snapshot):
    await self._kube.delete(Ref(POD.name, snapshot.cluster.key.namespace, action.pod), action.uid)


def _accept_everything(spec, image, snapshot):
    return pools.plan_pools(spec, image, snapshot)[0], ()


def _claims_go(cluster):
    return cluster.spec.get("deletionPolicy") == "Delete" or FINALIZER in cluster.finalizers


def _end(self, error):
    raise error


def _at_once(self, uid, stored, wanted, now):
    return None if stored == wanted else 0.0


def _held_up(action, refused, names):
    return bool(refused)


def _any_departure(pool, snapshot, pools):
    return next((departure.disk for departure in snapshot.departures().values()), "")


def _claims_of_all(snapshot, pools):
    namespace, names = snapshot.cluster.key.namespace, snapshot.cluster.names
    return [
        RemoveClaim(Ref(CLAIM.name, namespace, names.claim(pod)), departure.claim)
        for pod, departure in snapshot.departures().items()
    ]


async def _remake_with_pods(self, action):
    await self._apply(action.noted)
    await self._kube.delete(action.ref, action.uid)


async def _remake_unnoted(self, action):
    await self._kube.delete(action.ref, action.uid, orphan=True)


def _claims_follow_their_set(monkeypatch):
    """As Kubernetes does where a StatefulSet says so."""
    made = build.stateful_set

    def stateful_set(*arguments):
        wanted = made(*arguments)
        wanted["spec"]["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] = "Delete"
        return wanted

    monkeypatch.setattr(build, "stateful_set", stateful_set)


async def _nothing_stays_small(*_):
    return {}


def _enlarge_once_all_serve(owner, snapshot, pools):
    return resizing.enlarge(owner, snapshot, pools) if all(pod.ready for pod in snapshot.pods.values()) else Next()


async def _unasked(*_):
    pass


def _ordered(snapshot, _):
    return {ROLL: snapshot.cluster.roll}


def _disk_by_name(pod, snapshot):
    return next((member.disk for member in snapshot.members() if member.name == pod.name), "")


REACHED_FROM = Volume.reached_from


def _reached_from_ready(self, machines):
    return [one for one in REACHED_FROM(self, machines) if one.ready]


def _level_of_the_newest(spec, snapshot, outdated):
    leading = snapshot.leader()
    known = max((member.level_known for member in leading[1].members), default=0) if leading is not None else 0
    return (FinalizeLevel(known),) if known > snapshot.level() else ()


def _whatever_brokers_become(spec, snapshot, outdated):
    return finalizing.finalize(spec, snapshot, ())


def _goes_by_name(topic, rivals, look, shared):
    seen = look.seen.get(topic.uid)
    release = topics.HoldTopic(held=False)
    gone = seen is None or seen.found is None
    return topics.TopicPlan(topic, (release,) if gone else (topics.RemoveTopic(seen.found.id, ""), release), seen=seen)


def _held_always(topic, spec, *, has_the_name):
    return () if topic.held else (topics.HoldTopic(held=True),)


def _younger_first(plan_one):
    return lambda topic, rivals, look, shared: plan_one(topic, rivals[::-1], look, shared)


TOPIC_MISTAKES = [
    Mistake(
        "a topic is deleted by its name",
        instead(topics, "_plan_deletion", _goes_by_name),
        "test_topics.test_in_doubt_the_topic_stays",
        ("another",),
    ),
    Mistake(
        "a topic goes that another resource has taken over",
        instead(topics, "_plan_deletion", _goes_by_name),
        "test_topics.test_in_doubt_the_topic_stays",
        ("taken over",),
    ),
    Mistake(
        "a topic that is only observed is changed",
        instead(topics, "ManagementPolicy", SimpleNamespace(OBSERVE_ONLY=None)),
        "test_topics.test_a_topic_that_is_only_observed_is_told_of_and_never_changed",
    ),
    Mistake(
        "the younger of two has the topic",
        instead(topics, "_plan", _younger_first(topics._plan)),
        "test_topics.test_of_two_that_ask_for_one_topic_the_older_has_it_and_the_other_says_so",
    ),
    Mistake(
        "topics of a paused cluster are changed",
        instead(topics, "is_paused", lambda _: False),
        "test_topics.test_topics_of_a_paused_cluster_are_told_of_and_nothing_else",
    ),
    Mistake(
        "a deletion is held that takes no topic along",
        instead(topics, "_hold", _held_always),
        "test_topics.test_with_retain_the_topic_stays_and_there_is_no_finalizer",
    ),
    Mistake(
        "a deletion is not held, and the topic stays",
        instead(topics, "_hold", lambda *_, **__: ()),
        "test_topics.test_with_delete_the_topic_goes_first",
    ),
    Mistake(
        "what somebody changed stays so",
        instead(topics, "_changes", lambda *_: ()),
        "test_topics.test_what_somebody_changed_is_put_right_and_told",
    ),
    Mistake(
        "a topic of no cluster holds up its own deletion",
        instead(topics, "closed", lambda _: topics.TopicWait(topics.TopicGate.BROKERS_UNAVAILABLE, "")),
        "test_topics.test_a_deletion_does_not_wait_for_a_cluster_that_is_gone",
        ("gone",),
    ),
]

MISTAKES = [
    *TOPIC_MISTAKES,
    Mistake(
        "the level rises while a broker of the release before is a member",
        instead(planner, "finalize", _level_of_the_newest),
        "test_upgrading.test_the_level_rises_once_the_last_broker_runs_the_release",
    ),
    Mistake(
        "the level rises though brokers are to go back",
        instead(planner, "finalize", _whatever_brokers_become),
        "test_upgrading.test_whoever_goes_back_and_lets_the_operator_finalize_goes_back_first",
    ),
    Mistake(
        "brokers are made of a release that is older than the level",
        instead(planner, "refused_release", lambda *_: None),
        "test_upgrading.test_there_is_a_way_back_until_the_level_is_final_and_none_afterwards",
    ),
    Mistake(
        "the level in use is forgotten while no broker tells it",
        instead(Snapshot, "level", lambda self: max((b.level for b in self.brokers.values() if b), default=0)),
        "test_upgrading.test_brokers_that_are_away_are_remembered_at_their_level",
    ),
    Mistake(
        "an image that the others do not understand gets them all",
        instead(planner, "misfit", lambda *_: None),
        "test_upgrading.test_an_image_that_the_others_do_not_understand_gets_no_second_broker_and_goes_back",
    ),
    Mistake(
        "a StatefulSet is made anew without its pods",
        instead(Executor, "_remake", _remake_with_pods),
        "test_resizing.test_claims_grow_and_no_pod_restarts",
    ),
    Mistake(
        "claims go with the StatefulSet that is made anew",
        both(instead(Executor, "_remake", _remake_with_pods), _claims_follow_their_set),
        "test_resizing.test_every_claim_is_grown_whatever_the_deletion_policy_says",
    ),
    Mistake(
        "a StatefulSet that is made anew is forgotten meanwhile",
        instead(Executor, "_remake", _remake_unnoted),
        "test_resizing.test_what_only_the_set_knew_is_there_again",
    ),
    Mistake(
        "nobody asks whether claims can grow before the first one is told",
        instead(observer, "stay_small", _nothing_stays_small),
        "test_resizing.test_a_class_that_cannot_is_refused_and_nothing_is_begun",
    ),
    Mistake(
        "claims grow again before their file systems have followed",
        instead(auto_growth, "_is_settled", lambda *_: True),
        "test_auto_growth.test_a_step_waits_until_file_systems_have_followed_the_one_before",
    ),
    Mistake(
        "how claims grow is an input of pods",
        instead(statefulset, "_storage", statefulset._plain),
        "test_auto_growth.test_claims_that_grew_by_themselves_stay_as_they_are_without_it",
    ),
    Mistake(
        "growth waits for brokers that do not serve",
        instead(planner, "enlarge", _enlarge_once_all_serve),
        "test_resizing.test_a_full_broker_that_does_not_serve_holds_up_no_claim",
    ),
    Mistake(
        "a pod goes before its disk has left the cluster",
        both(instead(planner, "gone", _any_departure), instead(Departing, "check_out", _unasked)),
        "test_shrinking.test_five_brokers_become_three_and_their_claims_stay",
    ),
    Mistake(
        "a claim goes before its disk has left the cluster",
        instead(planner, "left_behind", _claims_of_all),
        "test_shrinking.test_a_claim_goes_with_its_broker_where_the_policy_says_so",
    ),
    Mistake(
        "a broker is known by the name of its pod",
        both(instead(departing, "is_of", lambda *_: True), instead(Departing, "check", _unasked)),
        "test_shrinking.test_another_disk_under_the_same_name_is_not_taken_for_the_one_that_was_drained",
    ),
    Mistake(
        "an order to hand over is never taken back",
        instead(departing, "_stays", lambda *_: False),
        "test_orders.test_a_broker_hands_over_what_it_has_and_stays_until_the_order_is_taken_back",
    ),
    Mistake(
        "a broker that was told to hand over is given segments again at once",
        instead(departing, "_stays", lambda pod, snapshot, pools: not departing.leaves(pod, pools, snapshot)),
        "test_orders.test_a_broker_hands_over_what_it_has_and_stays_until_the_order_is_taken_back",
    ),
    Mistake(
        "nobody asks whether the others can take what a broker hands over",
        instead(draining, "_refused", lambda *_: None),
        "test_orders.test_an_order_that_leaves_too_few_brokers_for_the_copies_is_refused",
    ),
    Mistake(
        "an emptied broker that is away is nobody's loss",
        instead(planner, "_not_serving", lambda *_, **__: None),
        "test_orders.test_no_other_broker_restarts_while_the_emptied_one_is_away",
    ),
    Mistake(
        "a roll that was ordered begins before its template bears the order",
        both(instead(planner, "_unseen", lambda *_: None), instead(Snapshot, "restart_asked", _ordered)),
        "test_orders.test_an_order_to_roll_that_is_taken_back_leaves_those_alone_that_have_not_restarted",
    ),
    Mistake(
        "two disks are given up at once",
        instead(replacing, "_refused", lambda *_: None),
        "test_replacing.test_never_two_at_once",
    ),
    Mistake(
        "whether a disk is back is not asked again",
        instead(Departing, "check_silent", _unasked),
        "test_replacing.test_a_disk_that_comes_back_in_the_last_moment_is_not_given_up",
    ),
    Mistake(
        "a claim whose disk is given up stays, and with it the pod",
        instead(replacing, "_clear", lambda *_: Next()),
        "test_replacing.test_the_broker_of_a_lost_node_comes_up_on_another_one",
    ),
    Mistake(
        "brokers of two lost nodes are replaced at once",
        instead(replacing, "_missing", lambda *_: ""),
        "test_losing.test_brokers_of_two_lost_nodes_are_never_replaced_at_once",
    ),
    Mistake(
        "a node that does not answer is taken for one that is gone",
        instead(Volume, "reached_from", _reached_from_ready),
        "test_losing.test_a_node_that_does_not_answer_may_come_back",
    ),
    Mistake(
        "a zone that is away is taken for a node",
        instead(Volume, "lost_zone", lambda *_: ""),
        "test_losing.test_a_zone_without_nodes_comes_back",
    ),
    Mistake(
        "a lost disk is known by the name of its pod",
        instead(stranded, "_disk", _disk_by_name),
        "test_losing.test_a_disk_is_known_by_its_uuid_and_not_by_the_name_of_its_pod",
    ),
    Mistake(
        "whether a node is back is not asked again",
        instead(LostVolumes, "check", _unasked),
        "test_losing.test_a_node_that_comes_back_in_the_last_moment_is_not_given_up",
    ),
    Mistake(
        "nobody asks whether the others can do without a lost disk",
        instead(Departing, "check_spared", _unasked),
        "test_losing.test_a_disk_that_the_others_cannot_do_without_is_not_given_up",
    ),
    Mistake(
        "a broker on a folder comes up wherever there is room",
        instead(executor, "placed", lambda pod, *_: placing.placed(pod, "", ())),
        "test_placing.test_brokers_return_to_their_nodes_in_a_roll_though_there_is_room_elsewhere",
    ),
    Mistake(
        "a new broker takes the node of one that is away",
        instead(executor, "placed", lambda pod, node, _: placing.placed(pod, node, ())),
        "test_placing.test_a_new_broker_takes_no_node_with_the_data_of_another",
    ),
    Mistake(
        "a claim goes before its lost disk has left the cluster",
        both(instead(replacing, "is_member", lambda *_: False), instead(Departing, "give_up", _unasked)),
        "test_losing.test_a_paused_cluster_is_only_told_of",
    ),
    Mistake(
        "a drain asks no window",
        instead(planner, "held", lambda *_: None),
        "test_shrinking.test_a_drain_waits_for_its_window_and_one_that_has_begun_does_not",
    ),
    Mistake(
        "nobody asks whether the brokers that stay are enough",
        instead(pools, "too_few", lambda *_: None),
        "test_shrinking.test_fewer_brokers_than_a_topic_has_copies_are_refused_with_the_number_that_would_do",
    ),
    Mistake(
        "a release that never gets ready has no way back",
        instead(planner, "roll_broken", lambda *_: ()),
        "test_ways_back.test_a_release_whose_brokers_never_get_ready_is_taken_back",
    ),
    Mistake(
        "a broker that never came is taken for a member",
        instead(Snapshot, "joined", lambda *_: True),
        "test_ways_back.test_no_roll_and_no_setting_waits_for_a_broker_that_never_came",
    ),
    Mistake(
        "whoever scales a StatefulSet is believed",
        instead(pools, "_asked", lambda _, found, __: int(found["spec"]["replicas"]) or 1),
        "test_ways_back.test_a_set_that_someone_scaled_down_comes_back_all_together",
    ),
    Mistake(
        "defaults of a new input change the hash of every pod",
        instead(statefulset, "_default", lambda _: object()),
        "test_releases.test_the_pods_of_former_releases_are_as_they_shall_be",
    ),
    Mistake(
        "a roll deletes pods, whatever the budget says",
        instead(Executor, "_roll", _delete),
        "test_evictions.test_a_drain_and_a_roll_at_the_same_moment_take_one_broker",
    ),
    Mistake(
        "claims are known by their names",
        instead(executor, "is_labelled", lambda *_: True),
        "test_ownership.test_a_cluster_never_mounts_the_disks_of_another_one_whose_names_are_the_same",
    ),
    Mistake(
        "a finalizer outweighs the spec that is deleted",
        instead(deletion, "claims_go", _claims_go),
        "test_deletion.test_delete_that_became_retain_a_moment_before_the_deletion_keeps_the_claims",
    ),
    Mistake(
        "a refused spec is done as far as it can be",
        instead(planner, "plan_pools", _accept_everything),
        "test_accepted.test_fewer_brokers_and_fewer_copies_at_once_are_refused_whole",
    ),
    Mistake(
        "a size cannot go back to what the claims have",
        instead(pools, "volume_size", lambda *_: None),
        "test_accepted.test_a_size_may_follow_claims_that_someone_made_larger",
    ),
    Mistake(
        "one refused object stops the rest",
        both(instead(executor, "held_up", _held_up), instead(planner, "held_up", _held_up)),
        "test_refusals.test_a_node_port_that_is_taken_holds_up_that_service_and_nothing_else",
    ),
    Mistake(
        "one forbidden namespace stops all",
        instead(Resync, "_close", _end),
        "test_operating.test_a_namespace_whose_role_is_taken_away_and_given_back_is_listened_to_again",
    ),
    Mistake(
        "a status is written whenever a figure has moved",
        instead(Writing, "due_s", _at_once),
        "test_operating.test_figures_that_move_with_traffic_are_written_once_a_minute",
    ),
    Mistake(
        "a restart that kubectl asks for is none",
        instead(Snapshot, "restart_asked", lambda *_: {}),
        "test_holding.test_a_restart_that_kubectl_asks_for_is_a_roll_and_nobody_fights_over_it",
    ),
    Mistake(
        "a roll asks no window and no disk",
        instead(planner, "held", lambda *_: None),
        "test_holding.test_a_roll_waits_for_its_window_and_says_when_that_opens",
    ),
    Mistake(
        "brokers that hibernate are forgotten",
        instead(pools, "_hibernated", lambda _: 0),
        "test_hibernation.test_brokers_that_someone_added_by_hand_and_that_joined_come_back_too",
    ),
    Mistake(
        "a setting is forgotten before brokers have taken it back",
        instead(planner, "remembered", lambda spec, _: frozenset(spec.config.dynamic)),
        "test_config.test_a_setting_is_taken_back_by_the_next_operator_where_one_died_once_the_spec_was_accepted",
    ),
    Mistake(
        "writes do not ask whether the lease is held",
        instead(Lease, "check", lambda _: None),
        "test_runtime.test_an_operator_that_cannot_renew_stops_writing",
    ),
    Mistake(
        "a write may take longer than the lease outlasts it",
        instead(lease, "_MARGIN_S", 3.0),
        "test_official.test_a_write_is_given_up_before_another_operator_may_begin",
    ),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_mistake_that_is_put_back_is_found(mistake, monkeypatch):
    module, _, function = mistake.found_by.partition(".")
    story = getattr(importlib.import_module(module), function)
    mistake.put(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception, KubeError)):
        story(*mistake.arguments)
