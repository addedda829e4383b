//! Ports whose servers know no limits of their own: this accepts for them, reads the header of each connection in time, and
//! passes it on over a UNIX socket that nobody else can open.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::BytesMut;
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::runtime::Runtime;

use super::door::{Door, Entered, Place, raise_descriptors};
use super::guard::Guarded;
use crate::node::config::{ConfigError, Patience, connections_max};
use crate::node::locks::{FRONT, Lock};
use crate::node::patience;
use crate::node::start_error::StartError;
use crate::node::strangers::{Caps, Silence};

/// Longest header that is read before anything is passed on.
const HEADER_BYTES_MAX: usize = 16 << 10;
/// Bytes with which every HTTP/2 connection begins.
const HTTP2_PREFACE_BYTES: usize = 24;
/// Descriptors that a passed connection needs: the client's, and both ends of the UNIX socket.
const DESCRIPTORS_EACH: usize = 3;
/// Connections that are served where no place or no descriptor is left for them.
const SPARE_CONNECTIONS: usize = 2;

/// What connections of a port begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Protocol {
    /// HTTP/1.1: up to the empty line.
    Http1,
    /// HTTP/2: its preface.
    Http2,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Port {
    /// `host:port`; port 0 is chosen.
    address: String,
    /// Where the server listens.
    socket: PathBuf,
    protocol: Protocol,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    ports: BTreeMap<String, Port>,
    #[serde(default = "connections_max")]
    connections_max: usize,
    #[serde(default = "connections_max")]
    connections_per_address_max: usize,
    #[serde(default)]
    patience: Patience,
}

/// Accepts for other servers of this process. Dropping it closes its ports.
pub struct Front {
    addresses: BTreeMap<String, String>,
    /// Taken by the stop.
    runtime: Lock<Option<Runtime>>,
}

impl Front {
    /// Listens. The config is JSON: `ports`, by name `address`, `socket` and `protocol` (`http1`, `http2`); and, as of the data
    /// plane, `connections_max`, `connections_per_address_max`, `patience`.
    pub fn start(json: &str) -> Result<Self, StartError> {
        let config: Config =
            serde_json::from_str(json).map_err(|problem| ConfigError::new(&problem.to_string()))?;
        raise_descriptors();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("walrus-front")
            .enable_all()
            .build()
            .map_err(|source| StartError::Runtime { source })?;
        let caps =
            Caps { connections: config.connections_max, per_address: config.connections_per_address_max };
        let silence = config.patience.silence();
        let mut addresses = BTreeMap::new();
        for (name, Port { address, socket, protocol }) in config.ports {
            let listener = match protocol {
                Protocol::Http1 => "http",
                Protocol::Http2 => "admin",
            };
            let bound =
                runtime.block_on(TcpListener::bind(&address)).map_err(|source| match source.kind() {
                    io::ErrorKind::AddrInUse => {
                        StartError::AddressInUse { listener, address: address.clone() }
                    }
                    _ => StartError::Listen { listener, address: address.clone(), source },
                })?;
            let local = bound.local_addr().map_err(|source| StartError::Runtime { source })?;
            addresses.insert(name, local.to_string());
            let door = Door::new(listener, bound, caps, DESCRIPTORS_EACH);
            let spare = Arc::new(Spare::new(if protocol == Protocol::Http1 { SPARE_CONNECTIONS } else { 0 }));
            runtime.spawn(serve(door, Arc::new(Behind { socket, protocol, silence }), spare));
        }
        Ok(Self { addresses, runtime: Lock::new(Some(runtime)) })
    }

    /// `host:port` of each port.
    #[must_use]
    pub fn addresses(&self) -> BTreeMap<String, String> {
        self.addresses.clone()
    }

    /// Closes the ports and all their connections.
    pub fn stop(&self) {
        if let Some(runtime) = self.runtime.lock().take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Front {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The server behind a port.
struct Behind {
    socket: PathBuf,
    protocol: Protocol,
    silence: Silence,
}

async fn serve(door: Door, behind: Arc<Behind>, spare: Arc<Spare>) {
    loop {
        let lent = match door.try_enter().await {
            Ok(Entered::Admitted(stream, _, place)) => {
                tokio::spawn(pass(behind.clone(), stream, Some(place), None));
                continue;
            }
            Ok(Entered::Refused(stream, why)) => match spare.lend() {
                // Without a place, but not without an answer: whoever asks whether this node lives must be told.
                Some(lent) => {
                    tokio::spawn(pass(behind.clone(), stream, None, Some(lent)));
                    continue;
                }
                None => {
                    tracing::debug!(why, "no place for a connection");
                    continue;
                }
            },
            Err(problem) => {
                tracing::debug!(%problem, "cannot accept a connection");
                spare.lend()
            }
        };
        let Some(lent) = lent else {
            tokio::time::sleep(patience::FRONT_ACCEPT_RETRY).await;
            continue;
        };
        match door.try_enter().await {
            Ok(Entered::Admitted(stream, ..) | Entered::Refused(stream, _)) => {
                tokio::spawn(pass(behind.clone(), stream, None, Some(lent)));
            }
            Err(_) => tokio::time::sleep(patience::FRONT_ACCEPT_RETRY).await,
        }
    }
}

/// Serves one connection to its end. What was lent to it is given back then, soon.
async fn pass(behind: Arc<Behind>, stream: TcpStream, place: Option<Place>, lent: Option<Lent>) {
    let passing = pass_on(&behind, stream, place);
    let passed = match &lent {
        None => passing.await,
        Some(_) => match tokio::time::timeout(patience::SPARE_CONNECTION, passing).await {
            Ok(passed) => passed,
            Err(elapsed) => Err(elapsed.into()),
        },
    };
    if let Err(problem) = passed {
        tracing::debug!(socket = ?behind.socket, %problem, "a connection that was passed on ended");
    }
    drop(lent);
}

async fn pass_on(behind: &Behind, stream: TcpStream, place: Option<Place>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = stream;
    let header = read_header(&mut stream, behind).await?;
    let connecting = tokio::time::timeout(patience::FRONT_CONNECT, UnixStream::connect(&behind.socket));
    let mut server = connecting.await??;
    server.write_all(&header).await?;
    let idle = behind.silence.idle;
    let silence = Silence { first_byte: idle, header: idle, idle };
    let (mut from_client, mut to_client) = tokio::io::split(Guarded::new(stream, silence, 0, place));
    let (mut from_server, mut to_server) = server.split();
    let requests = async {
        tokio::io::copy(&mut from_client, &mut to_server).await?;
        to_server.shutdown().await?;
        std::future::pending::<io::Result<()>>().await // the answers decide when it is over
    };
    let answers = async {
        tokio::io::copy(&mut from_server, &mut to_client).await?;
        to_client.shutdown().await
    };
    tokio::select! {
        ended = answers => ended,
        failed = requests => failed,
    }
}

async fn read_header(stream: &mut TcpStream, behind: &Behind) -> io::Result<BytesMut> {
    let mut header = BytesMut::with_capacity(1 << 10);
    tokio::time::timeout(behind.silence.first_byte, stream.readable()).await??;
    let whole = async {
        while !is_decided(behind.protocol, &header) {
            if header.len() > HEADER_BYTES_MAX {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "its header is too long"));
            }
            if stream.read_buf(&mut header).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    };
    tokio::time::timeout(behind.silence.header, whole).await??;
    Ok(header)
}

/// The header is whole, or it is none: then the server behind says so, and its client learns what it speaks.
fn is_decided(protocol: Protocol, header: &[u8]) -> bool {
    let is_foreign = |byte: &u8| byte.is_ascii_control() && !b"\r\n\t".contains(byte);
    match protocol {
        Protocol::Http1 => header.iter().any(is_foreign) || header.windows(4).any(|end| end == b"\r\n\r\n"),
        Protocol::Http2 => header.len() >= HTTP2_PREFACE_BYTES,
    }
}

/// Descriptors that are kept for connections that come when there is no other.
struct Spare {
    connections: Lock<usize, FRONT>,
    kept: Lock<Vec<OwnedFd>>,
}

/// The descriptors of one connection, on loan.
struct Lent {
    spare: Arc<Spare>,
}

impl Spare {
    fn new(connections: usize) -> Self {
        let spare = Self { connections: Lock::new(connections), kept: Lock::default() };
        spare.refill(connections * DESCRIPTORS_EACH);
        spare
    }

    /// Gives descriptors of one connection free, if not all are on loan.
    fn lend(self: &Arc<Self>) -> Option<Lent> {
        let mut connections = self.connections.lock();
        let left = connections.checked_sub(1)?;
        self.refill(*connections * DESCRIPTORS_EACH); // somebody else may have been faster when they were given back
        let mut kept = self.kept.lock();
        let rest = kept.len().checked_sub(DESCRIPTORS_EACH)?;
        kept.truncate(rest);
        *connections = left;
        Some(Lent { spare: self.clone() })
    }

    /// Keeps so many descriptors, as far as there are any.
    fn refill(&self, count: usize) {
        let mut kept = self.kept.lock();
        let missing = count.saturating_sub(kept.len());
        let files = (0..missing).map_while(|_| File::open("/dev/null").ok());
        kept.extend(files.map(OwnedFd::from));
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut connections = self.spare.connections.lock();
        *connections += 1;
        self.spare.refill(*connections * DESCRIPTORS_EACH);
    }
}
