//! The network between the nodes of a test: each ordered pair of nodes has a relay of its own, which can stand still or
//! be cut. Whom a node finds behind the address of another is a matter of what metadata it is shown.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The state of the network between two nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// All arrives.
    Open,
    /// Connections stay and nothing arrives, as with a frozen host or dropped packets.
    Held,
    /// Connections end, and new ones do at once.
    Cut,
}

/// The relay of the connections that one node makes to another, for both directions.
struct Relay {
    address: SocketAddr,
    target: watch::Sender<SocketAddr>,
    link: watch::Sender<Link>,
    /// Bytes that went either way.
    carried: AtomicU64,
}

/// The relays between all nodes of a test.
pub(crate) struct Links {
    runtime: tokio::runtime::Runtime,
    relays: Mutex<HashMap<(u32, u32), Arc<Relay>>>,
}

impl Links {
    pub(crate) fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        Self { runtime: runtime.unwrap(), relays: Mutex::default() }
    }

    /// The address at which `from` finds `to`, which really listens at `target`.
    pub(crate) fn address(&self, from: u32, to: u32, target: &str) -> String {
        let target: SocketAddr = target.parse().unwrap();
        let mut relays = self.relays.lock();
        let relay = relays.entry((from, to)).or_insert_with(|| self.start(target));
        relay.target.send_replace(target);
        relay.address.to_string()
    }

    /// Changes what is between two nodes, whoever of them connects to the other.
    pub(crate) fn set(&self, one: u32, other: u32, link: Link) {
        let relays = self.relays.lock();
        for relay in [(one, other), (other, one)].iter().filter_map(|pair| relays.get(pair)) {
            relay.link.send_replace(link);
        }
    }

    /// How many bytes went between all nodes so far.
    pub(crate) fn carried(&self) -> u64 {
        self.relays.lock().values().map(|relay| relay.carried.load(Ordering::Relaxed)).sum()
    }

    fn start(&self, target: SocketAddr) -> Arc<Relay> {
        let listener = self.runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let relay = Arc::new(Relay {
            address: listener.local_addr().unwrap(),
            target: watch::Sender::new(target),
            link: watch::Sender::new(Link::Open),
            carried: AtomicU64::new(0),
        });
        self.runtime.spawn(serve(listener, relay.clone()));
        relay
    }
}

async fn serve(listener: TcpListener, relay: Arc<Relay>) {
    while let Ok((near, _)) = listener.accept().await {
        let relay = relay.clone();
        tokio::spawn(async move {
            let mut cut = relay.link.subscribe();
            tokio::select! {
                () = join(near, &relay) => {}
                _ = cut.wait_for(|link| *link == Link::Cut) => {}
            }
        });
    }
}

/// Relays one connection until one of its ends closes.
async fn join(near: TcpStream, relay: &Relay) {
    if relay.link.subscribe().wait_for(|link| *link == Link::Open).await.is_err() {
        return;
    }
    let target = *relay.target.borrow();
    let Ok(far) = TcpStream::connect(target).await else { return };
    let (near_reader, near_writer) = near.into_split();
    let (far_reader, far_writer) = far.into_split();
    tokio::select! {
        () = copy(near_reader, far_writer, relay) => {}
        () = copy(far_reader, near_writer, relay) => {}
    }
}

async fn copy(mut reader: OwnedReadHalf, mut writer: OwnedWriteHalf, relay: &Relay) {
    let mut link = relay.link.subscribe();
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = reader.read(&mut buffer).await {
        if link.wait_for(|link| *link == Link::Open).await.is_err()
            || writer.write_all(&buffer[..count]).await.is_err()
        {
            return;
        }
        relay.carried.fetch_add(count as u64, Ordering::Relaxed);
    }
}
