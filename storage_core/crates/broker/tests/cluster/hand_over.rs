//! A node that stops hands over what it leads first, and keeps nobody waiting where it cannot.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;
use walrus_broker::{DataPlane, HandOver, NewTopic, PartitionRef, Staying};
use walrus_metadata::{Metadata, NodeState, SegmentState};
use walrus_model::{NodeId, Replication};

use crate::client::{named, put, read_values};
use crate::harness::{Cluster, PATIENCE, wait_until};
use crate::load::Load;

const REPLICATED: Replication = Replication { factor: 3, write_quorum: 2 };
/// Idle segments wait so long for those in use.
const IDLE_WAITS: Duration = Duration::from_secs(1);
/// A node that cannot hand over ends within this: far less than the time that it is given.
const SOON: Duration = Duration::from_secs(3);

fn create(cluster: &Cluster, name: &str, partitions: u32, config: &[(&str, &str)]) {
    let config: BTreeMap<String, String> =
        config.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let topic = named(name);
    cluster.block_on(cluster.broker(1).create_topic(&topic, NewTopic { partitions, config })).unwrap();
}

/// The numbers of partitions by the nodes that lead their open segments.
fn led(metadata: &Metadata) -> BTreeMap<u32, usize> {
    let partitions = metadata.topics.values().flat_map(|topic| &topic.partitions);
    let open = partitions.filter_map(|partition| partition.segments.last());
    let mut led = BTreeMap::new();
    open.filter(|last| last.state == SegmentState::Open)
        .for_each(|last| *led.entry(last.descriptor.leader.node.0).or_default() += 1);
    led
}

/// A line of a node's metrics: a counter and its value.
fn counted(plane: &DataPlane, name: &str) -> u64 {
    let text = plane.prometheus();
    let lines = text.lines().filter_map(|line| line.strip_prefix(name)?.split_once(' '));
    lines.map(|(_, value)| value.parse::<u64>().unwrap()).sum()
}

fn failovers(cluster: &Cluster) -> u64 {
    cluster.ids().map(|id| counted(&cluster.plane(id), "walrus_failovers_total")).sum()
}

#[test]
fn others_lead_what_a_node_led_that_stops_while_every_append_is_acknowledged_once_and_in_order() {
    let mut cluster = Cluster::start_replicated(3, json!({}), REPLICATED);
    create(&cluster, "sticky", 9, &[("walrus.leaders", "sticky")]);
    create(&cluster, "rotating", 1, &[("walrus.segment.entries", "20")]);
    let (sticky, rotating) =
        (PartitionRef::parse("sticky", 0).unwrap(), PartitionRef::parse("rotating", 0).unwrap());
    let victim = cluster.broker(1).leadership(&sticky).unwrap().node;
    let loads = [Load::start(&cluster, &sticky, 3), Load::start(&cluster, &rotating, 3)];
    loads.iter().for_each(|load| load.wait_for_more(50));

    let ends = AtomicBool::new(false);
    let (plane, broker) = (cluster.plane(victim), cluster.broker(victim));
    let came = thread::scope(|scope| {
        // Clients of the node that stops: none of their appends fails until it has handed over, and closes.
        let clients = [(&cluster, &broker, "own-sticky"), (&cluster, &broker, "own-rotating")];
        let clients = clients.map(|(cluster, broker, name)| {
            let topic = PartitionRef::parse(name, 0).unwrap();
            let config: &[(&str, &str)] = match name {
                "own-sticky" => &[("walrus.leaders", "sticky")],
                _ => &[("walrus.segment.entries", "10")],
            };
            create(cluster, name, 1, config);
            let ends = &ends;
            scope.spawn(move || {
                let mut count: u64 = 0;
                while !ends.load(Ordering::Relaxed) {
                    let ack = cluster.block_on(put(broker, &topic, &count.to_string())).unwrap();
                    assert_eq!(ack.base_offset, count);
                    count += 1;
                }
                (topic, count)
            })
        });
        let came = plane.hand_over(PATIENCE);
        ends.store(true, Ordering::Relaxed);
        for client in clients {
            let (topic, count) = client.join().unwrap();
            let values = cluster.block_on(read_values(&broker, &topic, 0, usize::try_from(count).unwrap()));
            let expected: Vec<_> = (0..count).map(|number| (number, number.to_string())).collect();
            assert_eq!(values, expected);
        }
        came
    });
    let HandOver { handed_over, staying, why } = came.unwrap();
    assert_eq!((staying, why), (0, None));
    assert!(handed_over >= 3, "{handed_over} of nine partitions");
    wait_until("it counts these rolls", PATIENCE, || {
        counted(&plane, "walrus_rolls_total{reason=\"stopping\"}") >= 3
    });
    assert_eq!(cluster.metadata().nodes[&NodeId(victim)].state, NodeState::Stopping);

    // What rolls from here on is not given to it either, though it is alive.
    loads.iter().for_each(|load| load.wait_for_more(100));
    assert_eq!(led(&cluster.metadata()).get(&victim), None);
    cluster.stop(victim);
    loads.iter().for_each(|load| load.wait_for_more(100));
    assert_eq!(failovers(&cluster), 0);
    cluster.restart(victim);
    assert_eq!(cluster.metadata().nodes[&NodeId(victim)].state, NodeState::Up);
    wait_until("it leads again", PATIENCE, || led(&cluster.metadata()).contains_key(&victim));
    loads.into_iter().for_each(|load| load.finish(&cluster, cluster.ids()));
    assert_eq!(failovers(&cluster), 0);
}

#[test]
fn partitions_in_use_are_handed_over_before_idle_ones() {
    let cluster = Cluster::start_replicated(3, json!({}), REPLICATED);
    create(&cluster, "idle", 240, &[("walrus.leaders", "sticky")]);
    create(&cluster, "used", 3, &[("walrus.leaders", "sticky")]);
    let used = |partition| PartitionRef::parse("used", partition).unwrap();
    for partition in 0..3 {
        cluster.block_on(put(&cluster.broker(1), &used(partition), "once")).unwrap();
    }
    let victim = cluster.broker(1).leadership(&used(0)).unwrap().node;
    // What is led by the node that stops, of each topic, as another node sees it from time to time.
    let plane = cluster.plane(victim);
    let seen = || {
        let metadata = cluster.metadata();
        ["idle", "used"].map(|name| {
            let topic = metadata.topics.values().find(|topic| topic.name.ends_with(name)).unwrap();
            let last = topic.partitions.iter().filter_map(|partition| partition.segments.last());
            last.filter(|last| last.descriptor.leader.node.0 == victim).count()
        })
    };
    let [idle, _] = seen();
    assert!(idle > 64, "{idle} idle partitions are more than are handed over at the same time");
    let looks = thread::scope(|scope| {
        let began = Instant::now();
        let stopping = scope.spawn(move || plane.hand_over(PATIENCE).unwrap());
        let mut looks = vec![];
        while !stopping.is_finished() {
            let look = seen();
            if began.elapsed() < IDLE_WAITS {
                looks.push(look);
            }
        }
        assert_eq!(stopping.join().unwrap().staying, 0);
        looks
    });
    let wrong = looks.iter().find(|[idle_left, used_left]| *idle_left < idle && *used_left > 0);
    assert_eq!(wrong, None, "of {idle} idle ones and one in use are led");
    assert_eq!(seen(), [0, 0]);
}

#[test]
fn nodes_that_all_stop_at_once_do_not_wait_for_each_other_and_lose_nothing() {
    let mut cluster = Cluster::start_replicated(3, json!({}), REPLICATED);
    create(&cluster, "t", 6, &[("walrus.leaders", "sticky")]);
    let topics: Vec<PartitionRef> =
        (0..6).map(|partition| PartitionRef::parse("t", partition).unwrap()).collect();
    for topic in &topics {
        cluster.block_on(put(&cluster.broker(1), topic, "kept")).unwrap();
    }
    let began = Instant::now();
    thread::scope(|scope| {
        let stopping = cluster.ids().map(|id| cluster.plane(id));
        let stopping: Vec<_> =
            stopping.map(|plane| scope.spawn(move || plane.hand_over(PATIENCE).unwrap())).collect();
        for stopped in stopping {
            let came = stopped.join().unwrap();
            assert!(came.staying == 0 || came.why == Some(Staying::NobodyElse), "{came:?}");
        }
    });
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    cluster.ids().for_each(|id| cluster.stop(id));
    cluster.ids().for_each(|id| cluster.restart(id));
    for topic in &topics {
        let again = || cluster.block_on(put(&cluster.broker(2), topic, "goes on")).is_ok();
        wait_until("appends go on", PATIENCE, again);
        let values = cluster.block_on(read_values(&cluster.broker(3), topic, 0, 2));
        assert_eq!(values[0], (0, "kept".to_owned()));
    }
}

#[test]
fn where_nobody_else_can_lead_a_node_stops_at_once() {
    let alone = Cluster::start(1, json!({}));
    create(&alone, "t", 2, &[]);
    let began = Instant::now();
    let came = alone.plane(1).hand_over(PATIENCE).unwrap();
    assert_eq!(came, HandOver { handed_over: 0, staying: 2, why: Some(Staying::NobodyElse) });
    assert_eq!(alone.metadata().nodes[&NodeId(1)].state, NodeState::Up, "nobody has to know");

    let all = Replication { factor: 3, write_quorum: 3 };
    let cluster = Cluster::start_replicated(3, json!({}), all);
    create(&cluster, "t", 3, &[]);
    let came = cluster.plane(1).hand_over(PATIENCE).unwrap();
    let none = HandOver { handed_over: 0, staying: 1, why: Some(Staying::NobodyElse) };
    assert_eq!(came, none, "two of three are no quorum");
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
}

#[test]
fn without_the_metadata_a_node_leads_on_until_its_time_is_up_or_it_is_told_to_stop_at_once() {
    let cluster = Cluster::start_replicated(3, json!({}), REPLICATED);
    create(&cluster, "t", 1, &[("walrus.leaders", "sticky")]);
    let topic = PartitionRef::parse("t", 0).unwrap();
    let leader = cluster.broker(1).leadership(&topic).unwrap().node;
    cluster.block_on(put(&cluster.broker(leader), &topic, "before")).unwrap();
    cluster.set_metadata_away(true);
    let came = cluster.plane(leader).hand_over(Duration::from_millis(300)).unwrap();
    assert_eq!(came, HandOver { handed_over: 0, staying: 1, why: Some(Staying::Late) });
    cluster.block_on(put(&cluster.broker(leader), &topic, "led on")).unwrap();

    let plane = cluster.plane(leader);
    thread::scope(|scope| {
        let handing_over = scope.spawn(|| plane.hand_over(PATIENCE));
        wait_until("it asks in vain", PATIENCE, || cluster.was_refused(leader, "set_node_state"));
        let began = Instant::now();
        plane.stop(Duration::from_secs(1));
        let came = handing_over.join().unwrap();
        assert!(came.is_none_or(|came| came.why == Some(Staying::Hurried)), "{came:?}");
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    });
}
