//! The data plane as its host sees it: one object that starts everything, takes snapshots of the metadata, hands out
//! control events and stops everything. All calls are blocking ones for threads of the host; none needs a runtime.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::time::MissedTickBehavior;
use walrus_log::{Disk, OpenProgress, Store, SyncedWrites};
use walrus_metadata::{Metadata, Protocol};
use walrus_model::ReplicaRef;

use crate::broker::Broker;
use crate::bucket::Bucket;
use crate::client_listener::ClientListener;
use crate::cluster::{Cluster, pings};
use crate::copies::Copies;
use crate::copies::left::LeftLogs;
use crate::copies::table::CopyTable;
use crate::cursors;
use crate::edge::{Door, raise_descriptors};
use crate::ending::succession;
use crate::groups;
use crate::node::config::{Config, ConfigError, LiveConfig};
use crate::node::locks::Lock;
use crate::node::metrics::{LedPartition, Metrics};
use crate::node::patience;
use crate::node::secret::Secrets;
use crate::node::spans::Spans;
use crate::node::start_error::StartError;
use crate::node::tasks::Tasks;
use crate::partition::Partitions;
use crate::publication::Publication;
use crate::reading::Reading;
use crate::topics::Topics;
use crate::upkeep::hand_over::{self, HandOver};
use crate::upkeep::{catch_up, compaction, departure, lag, repair, retiring, space, spread};
use crate::{grpc, kafka, peer_server, text, upkeep};

/// A running data plane. Dropping it stops it.
pub struct DataPlane {
    addresses: BTreeMap<String, String>,
    monitor: Arc<tokio::sync::watch::Sender<Duration>>,
    broker: Broker,
    publication: Arc<Publication>,
    /// `None` once it was stopped.
    runtime: Lock<Option<Runtime>>,
}

impl DataPlane {
    /// Opens the store, binds the listeners, starts the threads.
    pub fn start(config: Config) -> Result<Self, StartError> {
        Self::start_told(config, &OpenProgress::default())
    }

    /// Starts as [`DataPlane::start`] does, and tells meanwhile how far the open of the store is.
    pub fn start_told(config: Config, progress: &OpenProgress) -> Result<Self, StartError> {
        let (directory, options) = (config.data_dir.join("log"), config.store_options()?);
        Self::start_with(config, || {
            let store = Store::open_told(&directory, options, progress)?;
            if store.is_read_only() {
                // A broker that can promise nothing helps nobody: it is started again when there is room.
                return Err(walrus_log::Error::NoSpace { path: directory.display().to_string() });
            }
            Ok(store)
        })
    }

    /// Starts as [`DataPlane::start`] does, with the store on another disk than the config's directory.
    pub fn start_on(disk: Arc<dyn Disk>, config: Config) -> Result<Self, StartError> {
        let options = config.store_options()?;
        Self::start_with(config, || Store::open_on(disk, options))
    }

    fn start_with(
        config: Config,
        open: impl FnOnce() -> walrus_log::Result<Store>,
    ) -> Result<Self, StartError> {
        let secrets = Secrets::open(config.secret_file.as_deref()).map_err(|problem| {
            ConfigError::new(&format!("secret_file {:?}: {problem}", config.secret_file.as_deref()))
        })?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(config.workers)
            .thread_name("walrus-data")
            .enable_all()
            .build()
            .map_err(|source| StartError::Runtime { source })?;
        // Sockets are bound first: a second program on this machine most often fails here, and then no store was touched.
        let bind = |listener, address: &str| runtime.block_on(bind(listener, address));
        let peer = bind("peer", &config.peer_address)?;
        let mut of_clients = Vec::new();
        for (protocol, address) in
            [(Protocol::Text, &config.text_address), (Protocol::Grpc, &config.grpc_address)]
        {
            if !config.listeners.iter().any(|options| options.key() == protocol.name()) {
                of_clients.push(ClientListener::of_default(protocol, bind(protocol.name(), address)?));
            }
        }
        for options in &config.listeners {
            let bound = bind(options.protocol.name(), &options.address)?;
            of_clients.push(ClientListener::of(options, bound)?);
        }
        raise_descriptors();
        let host = config.advertise_host.as_deref();
        let mut addresses = BTreeMap::from([("peer".to_owned(), advertised(&peer, host)?)]);
        for listener in &of_clients {
            let told = listener.advertise.clone();
            let address = told.map_or_else(|| advertised(&listener.bound, host), Ok)?;
            addresses.insert(listener.key.clone(), address);
        }

        let store = open()?;
        if store.has_lost_promises() && !config.is_only_node {
            return Err(StartError::LostPromises { disk: config.disk });
        }
        let left = LeftLogs::open(&config.data_dir, &config.store_options()?);
        let table =
            CopyTable::load(&config, store.clone()).map_err(|source| StartError::Unreadable { source })?;
        tracing::info!(backend = ?store.backend(), node = config.node_id, ?addresses, "data plane starts");
        let monitor = Arc::new(tokio::sync::watch::Sender::new(config.monitor_period()));
        let caps = config.caps();
        let spans = Spans::open(config.spans.as_ref(), config.node_id, &runtime)
            .map_err(|problem| ConfigError::new(&problem))?;
        let metrics = Arc::new(Metrics::new());
        metrics.note_recovery(store.report());
        metrics.note_backend(&store.backend());
        metrics.show_store(store.clone());
        let tasks = Tasks::new(runtime.handle().clone(), metrics.clone());
        let cluster = Arc::new(Cluster::new(config, secrets, metrics.clone(), tasks.clone()));
        let bucket = Arc::new(Bucket::new(store, cluster.node_id(), metrics.clone()));
        let copies = Arc::new(Copies::new(cluster.clone(), bucket, table, left));
        let partitions = Arc::new(Partitions::new(copies.clone()));
        let publication = Arc::new(Publication::new(partitions.clone()));
        let topics = Arc::new(Topics::new(Arc::new(Reading::new(partitions.clone()))));
        let broker = Broker::new(topics, Arc::new(spans));
        let traffic = Arc::new(text::traffic(&metrics));
        let kafka_traffic = Arc::new(kafka::traffic(&metrics));
        for listener in of_clients {
            let ClientListener { protocol, name, key, bound, principal, .. } = listener;
            let door = Door::new(protocol.name(), bound, caps, 1);
            let (broker, traffic) = (broker.clone(), traffic.clone());
            match protocol {
                Protocol::Text => {
                    tasks.spawn("text listener", text::serve(door, broker, principal, traffic));
                }
                Protocol::Grpc => tasks.spawn("grpc listener", grpc::serve(door, broker, principal, name)),
                Protocol::Kafka => {
                    let told = addresses[&key].clone();
                    let listener = kafka::Listener { name, told, principal };
                    tasks
                        .spawn("kafka listener", kafka::serve(door, broker, listener, kafka_traffic.clone()));
                }
            }
        }
        tasks.spawn("peer listener", peer_server::serve(Door::new("peer", peer, caps, 1), broker.clone()));
        tasks.spawn("leases", keep_leases(tasks.clone(), publication.clone()));
        tasks.spawn("monitor", watch_segments(partitions.clone(), monitor.subscribe()));
        tasks.spawn("liveness", pings::keep_asking(cluster.clone()));
        tasks.spawn("departure", departure::keep_watch(partitions.clone()));
        tasks.spawn("spread", spread::keep_even(partitions.clone()));
        tasks.spawn("compaction", compaction::keep_compacting(partitions.clone()));
        tasks.spawn("retirement", retiring::keep_clean(copies.clone()));
        tasks.spawn("space", space::keep_watch(copies.clone()));
        tasks.spawn("scrub", repair::scrub(copies.clone()));
        tasks.spawn("repair", repair::keep_whole(copies.clone()));
        tasks.spawn("catch-up", catch_up::keep_up(copies.clone()));
        tasks.spawn("succession", succession::keep_watch(copies.clone()));
        tasks.spawn("holes", upkeep::holes::keep_filling(copies.clone()));
        tasks.spawn("read marks", cursors::keep_told(broker.cursors().clone()));
        tasks.spawn("groups", groups::keep_time(broker.groups().clone()));
        tasks.spawn("group lags", groups::keep_measured(broker.groups().clone()));
        tasks.spawn("group marks", groups::keep_told(broker.groups().clone()));
        tasks.spawn("successors", upkeep::successors::keep_ready(copies.clone()));
        tasks.spawn("left logs", upkeep::left::keep_watch(copies.clone()));
        tasks.spawn("wholeness", upkeep::wholeness::keep_watch(copies));
        Ok(Self { addresses, monitor, broker, publication, runtime: Lock::new(Some(runtime)) })
    }

    /// `host:port` of each listener (`text`, `grpc`, `peer`; further ones by their names, `text/NAME`, `kafka/NAME`), as others
    /// reach it.
    #[must_use]
    pub fn addresses(&self) -> BTreeMap<String, String> {
        self.addresses.clone()
    }

    /// The ids of this node: of its cluster, the node, the disk and the process.
    #[must_use]
    pub fn identity(&self) -> Value {
        let config = self.broker.cluster().config();
        json!({
            "cluster_id": config.cluster_id,
            "node_id": config.node_id,
            "disk": config.disk,
            "process": config.process,
        })
    }

    /// A report of what the open of the store found: backend in use, why not another, how what is synced is written, why
    /// through the page cache, torn tails, fenced ranges.
    #[must_use]
    pub fn store_report(&self) -> Value {
        let store = self.broker.bucket().store();
        let backend = store.backend();
        let cached = match &backend.synced_writes {
            SyncedWrites::Direct => None,
            SyncedWrites::Cached { reason } => Some(reason),
        };
        json!({
            "backend": backend.name,
            "refused": backend.refused,
            "synced_writes": backend.synced_writes.name(),
            "cached": cached,
            "opened": store.report().to_json(),
        })
    }

    /// Takes a snapshot of the metadata; requests that wait for a change wake up.
    pub fn publish(&self, metadata: Arc<Metadata>) {
        self.publication.publish(&metadata);
    }

    /// Takes the status of Raft as Raft itself reports it, for `METRICS`.
    pub fn set_raft_status(&self, status: Value) {
        *self.broker.cluster().raft_status().lock() = status;
    }

    /// Pulls up to `max` control events, in order, as (id, JSON); waits up to `timeout` for the first. Empty at once
    /// when the data plane is stopped.
    #[must_use]
    pub fn poll_events(&self, max: usize, timeout: Duration) -> Vec<(u64, String)> {
        self.broker.cluster().control().poll(max, timeout)
    }

    /// Answers a control event. `Err` says what is wrong with the answer.
    pub fn complete(&self, event: u64, answer_json: &str) -> Result<(), String> {
        self.broker.cluster().control().complete(event, answer_json)
    }

    /// Changes the options that may change while it runs, given as a JSON object: `segment_entries_max`,
    /// `segment_bytes_max`, `segment_age_ms_max`, `segment_age_ms_min`, `monitor_check_ms`.
    pub fn configure(&self, json: &str) -> Result<(), ConfigError> {
        let live = LiveConfig::parse(json)?;
        self.broker
            .partitions()
            .leaders()
            .set_limits(live.limits(self.broker.partitions().leaders().limits()));
        if let Some(period) = live.monitor_period() {
            self.monitor.send_replace(period);
        }
        tracing::info!(limits = ?self.broker.partitions().leaders().limits(), monitor = ?*self.monitor.borrow(), "configured");
        Ok(())
    }

    /// How many unsealed segments this node stores without all that was acknowledged before the call, or without a leader that
    /// answers in time. Blocks for `patience` at most; `None` if the node stops.
    #[must_use]
    pub fn open_behind(&self, patience: Duration) -> Option<u64> {
        let (counted, answer) = std::sync::mpsc::sync_channel(1);
        let copies = self.broker.copies().clone();
        self.broker.cluster().tasks().spawn("lag", async move {
            let count = lag::count(&copies, patience).await;
            let _ = counted.send(count); // perhaps nobody waits any more
        });
        answer.recv().ok()
    }

    /// Tells the metadata that this process is about to stop, and rolls the segments that it leads to other nodes, which lead the
    /// next ones; whatever is appended meanwhile is acknowledged there. Blocks until nothing is left to do, or for `patience` at
    /// most; `None` if the node has stopped, and at once when it is stopped. The node leads nothing new from here on.
    #[must_use]
    pub fn hand_over(&self, patience: Duration) -> Option<HandOver> {
        let (ended, answer) = std::sync::mpsc::sync_channel(1);
        let partitions = self.broker.partitions().clone();
        self.broker.cluster().tasks().spawn("hand over", async move {
            let _ = ended.send(hand_over::run(&partitions, patience).await); // perhaps nobody waits any more
        });
        answer.recv().ok()
    }

    /// The remains on this disk of topics that the metadata do not name: a list of [`walrus_metadata::Remains`].
    #[must_use]
    pub fn remains(&self) -> Value {
        json!(self.broker.copies().remains())
    }

    /// How many copies on this disk, of open segments too, have lacked something, and got no further, for longer than
    /// [`Config::lacking_ms_max`].
    #[must_use]
    pub fn copies_not_whole(&self) -> u64 {
        u64::try_from(self.broker.cluster().metrics().copies_not_whole.get()).unwrap_or(0)
    }

    /// All metrics in Prometheus's text format.
    #[must_use]
    pub fn prometheus(&self) -> String {
        self.broker.cluster().metrics().show_budget(self.broker.cluster().budget());
        self.broker.cluster().metrics().encode()
    }

    /// The part that serves requests, for a host in Rust.
    #[must_use]
    pub fn broker(&self) -> &Broker {
        &self.broker
    }

    /// Runs a test's control: `revoke_leases`, `sync_leases`, `fail_reads`, `allow_reads`. Refused unless the config has
    /// `test_controls`.
    pub fn test_control(&self, control: &str) -> Result<(), ConfigError> {
        let bucket = self.broker.bucket();
        if !self.broker.cluster().config().test_controls {
            return Err(ConfigError::new("test controls are closed: start with test_controls"));
        }
        match control {
            "revoke_leases" => bucket.revoke_leases(),
            "sync_leases" => {
                bucket.restore_leases();
                self.publication.update_leases();
            }
            "fail_reads" => bucket.fail_reads(true),
            "allow_reads" => bucket.fail_reads(false),
            other => return Err(ConfigError::new(&format!("unknown test control {other:?}"))),
        }
        tracing::warn!(control, "test control");
        Ok(())
    }

    /// Stops taking requests, lets those in flight end for at most `grace`, syncs and closes the store. A second call
    /// does nothing.
    pub fn stop(&self, grace: Duration) {
        let Some(runtime) = self.runtime.lock().take() else { return };
        let in_time = runtime.block_on(self.broker.cluster().tasks().stop(grace));
        self.broker.cluster().control().close();
        self.broker.cluster().peers().close();
        self.broker.spans().close();
        runtime.shutdown_timeout(patience::RUNTIME_STOP);
        if let Err(error) = self.broker.bucket().store().close() {
            tracing::error!(%error, "the store did not close cleanly");
        }
        self.broker.copies().left().close();
        tracing::info!(in_time, "data plane stopped");
    }
}

impl Drop for DataPlane {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

async fn bind(listener: &'static str, address: &str) -> Result<TcpListener, StartError> {
    TcpListener::bind(address).await.map_err(|source| match source.kind() {
        io::ErrorKind::AddrInUse => StartError::AddressInUse { listener, address: address.to_owned() },
        _ => StartError::Listen { listener, address: address.to_owned(), source },
    })
}

fn advertised(listener: &TcpListener, host: Option<&str>) -> Result<String, StartError> {
    let bound = listener.local_addr().map_err(|source| StartError::Runtime { source })?;
    Ok(host.map_or_else(|| bound.to_string(), |host| format!("{host}:{}", bound.port())))
}

async fn keep_leases(tasks: Tasks, publication: Arc<Publication>) {
    let mut ticks = tokio::time::interval(patience::LEASES_LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while tasks.shutdown().run_until_cancelled(ticks.tick()).await.is_some() {
        publication.update_leases();
    }
}

/// Rolls segments that have become too old, or too large under limits that were changed, and shows what is led here.
async fn watch_segments(partitions: Arc<Partitions>, mut period: tokio::sync::watch::Receiver<Duration>) {
    let shutdown = partitions.copies().tasks().shutdown().clone();
    let mut were_put_off = false;
    loop {
        let period_now = *period.borrow_and_update();
        let pause = if were_put_off { period_now.min(patience::ROLLS_AGAIN) } else { period_now };
        tokio::select! {
            () = shutdown.cancelled() => return,
            changed = period.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(pause) => {}
        }
        show_partitions(&partitions);
        were_put_off = partitions.check_fullness();
    }
}

fn show_partitions(partitions: &Partitions) {
    let cluster = partitions.cluster();
    let routing = cluster.routing();
    let led = partitions.leaders().leaders().into_iter().filter_map(|leader| {
        let segment = &leader.descriptor;
        let topic = routing.topic(segment.topic)?.path.to_string();
        let is_silent = |replica: &&ReplicaRef| cluster.liveness().is_silent(replica.node.0);
        Some(LedPartition {
            topic,
            partition: segment.partition,
            epoch: segment.epoch.0,
            high_watermark: leader.high_watermark(),
            lags: leader.lags(),
            silent_replicas: segment.replicas.iter().filter(is_silent).count(),
        })
    });
    cluster.metrics().show_partitions(led.collect());
}
