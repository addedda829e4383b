"""How many brokers may be evicted: what the metadata leader can spare, and nothing where nobody can tell."""

from dataclasses import replace

import pytest
from brokers import BROKER
from examples import SMALLEST
from walrus_operator.objects import Key
from walrus_operator.observe.snapshot import Cluster, Replication, Snapshot
from walrus_operator.plan.budget import unavailable_max

FOLLOWER = replace(BROKER, role="Follower", spare_brokers=None)


def allowed(*brokers):
    cluster = Cluster(Key("shop", "orders"), "uid", 1, SMALLEST, {}, None, deleting=False)
    return unavailable_max(Snapshot(cluster, {}, brokers={str(at): broker for at, broker in enumerate(brokers)}))


@pytest.mark.parametrize("spare", [0, 1, 2])
def test_it_is_what_the_metadata_leader_can_spare(spare):
    assert allowed(FOLLOWER, replace(BROKER, spare_brokers=spare), None) == spare


@pytest.mark.parametrize("brokers", [(), (None, None), (FOLLOWER, FOLLOWER), (replace(BROKER, spare_brokers=None),)])
def test_it_is_nothing_where_nobody_can_tell(brokers):
    assert allowed(*brokers) == 0


def test_the_leader_of_the_latest_term_is_believed():
    assert allowed(replace(BROKER, term=3, spare_brokers=1), replace(BROKER, term=4, spare_brokers=0)) == 0


@pytest.mark.parametrize(
    ("replication", "allowed_at_no_spare"),
    [
        (Replication(1, 1), 1),
        (Replication(2, 2), 1),
        (Replication(3, 3), 1),
        (Replication(3, 2), 0),
        (Replication(4, 3), 0),
        (Replication(5, 3), 0),
    ],
)
def test_where_no_broker_can_ever_be_spared_one_at_a_time_may_go(replication, allowed_at_no_spare):
    assert allowed(replace(BROKER, replication=replication, spare_brokers=0)) == allowed_at_no_spare
