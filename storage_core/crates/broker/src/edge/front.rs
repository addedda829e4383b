//! The front of ports whose servers know no limits of their own: it accepts for them, reads the header of each connection in
//! time, and passes the connection on over a UNIX socket that nobody else can open.

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

use super::door::{Arrival, Door, Place, raise_descriptors};
use super::guard::GuardedStream;
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
/// Connections of a port that are served although no place or no descriptor is left for them.
const SPARE_CONNECTIONS: usize = 2;

/// What connections of a port begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Protocol {
    /// HTTP/1.1, whose header ends at the empty line.
    Http1,
    /// HTTP/2, whose connections begin with its preface.
    Http2,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Port {
    /// `host:port`; the system chooses a port for 0.
    address: String,
    /// UNIX socket on which the server listens.
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
    /// `None` once it was stopped.
    runtime: Lock<Option<Runtime>>,
}

impl Front {
    /// Listens. The config is JSON: `ports`, by name `address`, `socket` and `protocol` (`http1`, `http2`); and, with the meaning
    /// that they have in the data plane's, `connections_max`, `connections_per_address_max`, `patience`.
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
            runtime.spawn(serve(door, Arc::new(Backend { socket, protocol, silence }), spare));
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
struct Backend {
    socket: PathBuf,
    protocol: Protocol,
    silence: Silence,
}

async fn serve(door: Door, backend: Arc<Backend>, spare: Arc<Spare>) {
    loop {
        let loan = match door.try_enter().await {
            Ok(Arrival::Admitted(stream, _, place)) => {
                tokio::spawn(pass(backend.clone(), stream, Some(place), None));
                continue;
            }
            Ok(Arrival::Refused(stream, why)) => match spare.lend() {
                // It is served without a place: whoever asks whether this node lives must be told.
                Some(loan) => {
                    tokio::spawn(pass(backend.clone(), stream, None, Some(loan)));
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
        let Some(loan) = loan else {
            tokio::time::sleep(patience::FRONT_ACCEPT_RETRY).await;
            continue;
        };
        match door.try_enter().await {
            Ok(Arrival::Admitted(stream, ..) | Arrival::Refused(stream, _)) => {
                tokio::spawn(pass(backend.clone(), stream, None, Some(loan)));
            }
            Err(_) => tokio::time::sleep(patience::FRONT_ACCEPT_RETRY).await,
        }
    }
}

/// Serves one connection to its end. One that was lent spare descriptors is cut off soon, and gives them back.
async fn pass(backend: Arc<Backend>, stream: TcpStream, place: Option<Place>, loan: Option<Loan>) {
    let passing = pass_on(&backend, stream, place);
    let passed = match &loan {
        None => passing.await,
        Some(_) => match tokio::time::timeout(patience::SPARE_CONNECTION, passing).await {
            Ok(passed) => passed,
            Err(elapsed) => Err(elapsed.into()),
        },
    };
    if let Err(problem) = passed {
        tracing::debug!(socket = ?backend.socket, %problem, "a connection that was passed on ended");
    }
    drop(loan);
}

async fn pass_on(backend: &Backend, stream: TcpStream, place: Option<Place>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = stream;
    let header = read_header(&mut stream, backend).await?;
    let connecting = tokio::time::timeout(patience::FRONT_CONNECT, UnixStream::connect(&backend.socket));
    let mut server = connecting.await??;
    server.write_all(&header).await?;
    let idle = backend.silence.idle;
    let silence = Silence { first_byte: idle, header: idle, idle };
    let (mut from_client, mut to_client) = tokio::io::split(GuardedStream::new(stream, silence, 0, place));
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

async fn read_header(stream: &mut TcpStream, backend: &Backend) -> io::Result<BytesMut> {
    let mut header = BytesMut::with_capacity(1 << 10);
    tokio::time::timeout(backend.silence.first_byte, stream.readable()).await??;
    let whole = async {
        while !is_decided(backend.protocol, &header) {
            if header.len() > HEADER_BYTES_MAX {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "its header is too long"));
            }
            if stream.read_buf(&mut header).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    };
    tokio::time::timeout(backend.silence.header, whole).await??;
    Ok(header)
}

/// Whether enough has come in to pass it on: a whole header, or bytes that are none, of which the server behind tells the client.
fn is_decided(protocol: Protocol, header: &[u8]) -> bool {
    let is_foreign = |byte: &u8| byte.is_ascii_control() && !b"\r\n\t".contains(byte);
    match protocol {
        Protocol::Http1 => header.iter().any(is_foreign) || header.windows(4).any(|end| end == b"\r\n\r\n"),
        Protocol::Http2 => header.len() >= HTTP2_PREFACE_BYTES,
    }
}

/// Descriptors that are kept for connections that come when no other is left.
struct Spare {
    connections: Lock<usize, FRONT>,
    kept: Lock<Vec<OwnedFd>>,
}

/// The descriptors of one connection, on loan.
struct Loan {
    spare: Arc<Spare>,
}

impl Spare {
    fn new(connections: usize) -> Self {
        let spare = Self { connections: Lock::new(connections), kept: Lock::default() };
        spare.refill(connections * DESCRIPTORS_EACH);
        spare
    }

    /// Frees the descriptors of one connection; `None` if all are on loan.
    fn lend(self: &Arc<Self>) -> Option<Loan> {
        let mut connections = self.connections.lock();
        let left = connections.checked_sub(1)?;
        self.refill(*connections * DESCRIPTORS_EACH); // somebody else may have been faster when they were given back
        let mut kept = self.kept.lock();
        let rest = kept.len().checked_sub(DESCRIPTORS_EACH)?;
        kept.truncate(rest);
        *connections = left;
        Some(Loan { spare: self.clone() })
    }

    /// Opens descriptors until `count` are kept, or the system has no more.
    fn refill(&self, count: usize) {
        let mut kept = self.kept.lock();
        let missing = count.saturating_sub(kept.len());
        let files = (0..missing).map_while(|_| File::open("/dev/null").ok());
        kept.extend(files.map(OwnedFd::from));
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        let mut connections = self.spare.connections.lock();
        *connections += 1;
        self.spare.refill(*connections * DESCRIPTORS_EACH);
    }
}
