//! The door of a listener accepts its connections: with a cap on all of them, one on those from one address, and one on the
//! descriptors of the process, the rest of which disks, metadata and health need.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpStream};

use crate::node::locks::Lock;
use crate::node::patience;
use crate::node::strangers::Caps;

/// Connections may take one in so many of the process's descriptors.
const DESCRIPTORS_PART: u64 = 2;

/// A listener that accepts connections as long as its caps leave room.
pub(crate) struct Door {
    name: &'static str,
    listener: TcpListener,
    places: Arc<Places>,
}

struct Places {
    caps: Caps,
    /// Descriptors that each connection costs the process.
    descriptors_each: usize,
    by_address: Lock<HashMap<IpAddr, usize>>,
    taken: AtomicUsize,
}

/// Descriptors that all connections of this process cost.
static DESCRIPTORS: AtomicUsize = AtomicUsize::new(0);

/// What became of a connection that came in.
pub(crate) enum Arrival {
    /// It was admitted, and has a place until that is dropped.
    Admitted(TcpStream, SocketAddr, Place),
    /// There is no place for it, and the text says why: its client may be told.
    Refused(TcpStream, String),
}

/// A place for one of a listener's connections; given back when dropped.
pub(crate) struct Place {
    places: Arc<Places>,
    address: IpAddr,
}

impl Door {
    /// A door at which each connection costs the process `descriptors_each` descriptors, its own included.
    pub(crate) fn new(
        name: &'static str,
        listener: TcpListener,
        caps: Caps,
        descriptors_each: usize,
    ) -> Self {
        let places =
            Places { caps, descriptors_each, by_address: Lock::default(), taken: AtomicUsize::new(0) };
        Self { name, listener, places: Arc::new(places) }
    }

    /// Waits for the next connection, also where the system has no descriptor left. Dropping the future loses nothing.
    pub(crate) async fn enter(&self) -> Arrival {
        loop {
            match self.try_enter().await {
                Ok(entered) => return entered,
                Err(problem) => {
                    tracing::warn!(listener = self.name, %problem, "cannot accept a connection");
                    tokio::time::sleep(patience::ACCEPT_RETRY).await;
                }
            }
        }
    }

    /// Waits for the next connection, and fails where the system does.
    pub(crate) async fn try_enter(&self) -> io::Result<Arrival> {
        let (stream, from) = self.listener.accept().await?;
        Ok(match self.places.take(from.ip()) {
            Ok(place) => Arrival::Admitted(stream, from, place),
            Err(why) => {
                tracing::debug!(listener = self.name, %from, why, "a connection is refused");
                Arrival::Refused(stream, why)
            }
        })
    }

    /// How many connections have a place.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        self.places.taken.load(Ordering::Relaxed)
    }
}

impl Places {
    fn take(self: &Arc<Self>, address: IpAddr) -> Result<Place, String> {
        let Caps { connections, per_address } = self.caps;
        let descriptors = descriptors_for_connections();
        let mut by_address = self.by_address.lock();
        let of_address = by_address.entry(address).or_default();
        let refusal = if self.taken.load(Ordering::Relaxed) >= connections {
            Some(format!("too many connections: {connections} are open"))
        } else if *of_address >= per_address {
            Some(format!("too many connections: {per_address} are open from your address"))
        } else if DESCRIPTORS.load(Ordering::Relaxed) + self.descriptors_each > descriptors {
            Some(format!("too many connections: they may take {descriptors} descriptors of the process"))
        } else {
            None
        };
        if let Some(refusal) = refusal {
            if *of_address == 0 {
                by_address.remove(&address);
            }
            return Err(refusal);
        }
        *of_address += 1;
        self.taken.fetch_add(1, Ordering::Relaxed);
        DESCRIPTORS.fetch_add(self.descriptors_each, Ordering::Relaxed);
        Ok(Place { places: self.clone(), address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut by_address = self.places.by_address.lock();
        if let Some(of_address) = by_address.get_mut(&self.address) {
            *of_address -= 1;
            if *of_address == 0 {
                by_address.remove(&self.address);
            }
        }
        self.places.taken.fetch_sub(1, Ordering::Relaxed);
        DESCRIPTORS.fetch_sub(self.places.descriptors_each, Ordering::Relaxed);
    }
}

/// Limit on the descriptors that connections take: the rest is for disks, metadata and health.
fn descriptors_for_connections() -> usize {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit / DESCRIPTORS_PART).unwrap_or(usize::MAX)
}

/// Lets this process open as many files and connections as it may at most.
pub(crate) fn raise_descriptors() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && let Err(problem) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    {
        tracing::debug!(%problem, "the limit of open files stays as it is");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn door(connections: usize, per_address: usize) -> (Door, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (Door::new("test", listener, Caps { connections, per_address }, 1), address)
    }

    async fn connect(door: &Door, address: SocketAddr) -> (TcpStream, Arrival) {
        let (near, far) = tokio::join!(TcpStream::connect(address), door.enter());
        (near.unwrap(), far)
    }

    #[tokio::test]
    async fn one_connection_more_than_the_cap_is_refused_until_another_ends() {
        for (connections, per_address) in [(2, 9), (9, 2)] {
            let (door, address) = door(connections, per_address).await;
            let first = connect(&door, address).await;
            let _second = connect(&door, address).await;
            let (_near, refused) = connect(&door, address).await;
            assert!(matches!(refused, Arrival::Refused(_, why) if why.contains("2 are open")));
            drop(first);
            assert!(matches!(connect(&door, address).await.1, Arrival::Admitted(..)));
            assert_eq!(door.taken(), 1, "those above were dropped by now");
        }
    }

    #[tokio::test]
    async fn a_connection_that_costs_more_descriptors_takes_more_of_what_all_may_take() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        raise_descriptors(); // other tests may do so at any moment
        let more_than_half = descriptors_for_connections() / 2 + 1;
        let door = Door::new("test", listener, Caps { connections: 9, per_address: 9 }, more_than_half);
        let first = connect(&door, address).await;
        assert!(matches!(first.1, Arrival::Admitted(..)));
        let (_near, refused) = connect(&door, address).await;
        assert!(matches!(refused, Arrival::Refused(_, why) if why.contains("descriptors")));
        drop(first);
        assert!(matches!(connect(&door, address).await.1, Arrival::Admitted(..)));
    }

    #[tokio::test]
    async fn addresses_have_places_of_their_own() {
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let door = Door::new("test", listener, Caps { connections: 9, per_address: 1 }, 1);
        let mut open = Vec::new();
        for (from, is_admitted) in [("127.0.0.1", true), ("127.0.0.1", false), ("127.0.0.2", true)] {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind(SocketAddr::new(from.parse().unwrap(), 0)).unwrap();
            let to = SocketAddr::new([127, 0, 0, 1].into(), port);
            let (near, far) = tokio::join!(socket.connect(to), door.enter());
            assert_eq!(matches!(far, Arrival::Admitted(..)), is_admitted, "{from}");
            open.push((near.unwrap(), far));
        }
    }
}
