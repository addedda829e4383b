//! What the network costs when it is only the loopback: two threads and one TCP connection.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use walrus_bench_sample::{Sample, closed_loop};

const MESSAGE_BYTES: usize = 64;
const CHUNK_BYTES: usize = 128 << 10;

/// One message there and back, one at a time.
pub(crate) fn round_trip(duration: Duration) -> Result<Sample> {
    let latencies = with_peer(
        |mut peer| {
            let mut message = [0; MESSAGE_BYTES];
            while peer.read_exact(&mut message).is_ok() && peer.write_all(&message).is_ok() {}
        },
        |mut connection| {
            let mut message = [7; MESSAGE_BYTES];
            closed_loop(duration, |_| {
                connection.write_all(&message)?;
                connection.read_exact(&mut message)?;
                Ok(())
            })
        },
    )?;
    Ok(Sample::new(latencies.quantile_us(500), "us").with_latencies(&latencies))
}

/// Bytes one way, as fast as they go.
pub(crate) fn stream(duration: Duration) -> Result<Sample> {
    let latencies = with_peer(
        |mut peer| {
            let mut chunk = vec![0; CHUNK_BYTES];
            while peer.read(&mut chunk).is_ok_and(|bytes| bytes > 0) {}
        },
        |mut connection| {
            let chunk = vec![7; CHUNK_BYTES];
            closed_loop(duration, |_| Ok(connection.write_all(&chunk)?))
        },
    )?;
    Ok(Sample::new(latencies.per_second() * CHUNK_BYTES as f64 / 1e6, "MB/s"))
}

/// Runs `client` against `server` on a thread of its own, over one connection. The server ends when the client drops
/// its side.
fn with_peer<T>(
    server: impl FnOnce(TcpStream) + Send,
    client: impl FnOnce(TcpStream) -> Result<T>,
) -> Result<T> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen on the loopback")?;
    let connection = TcpStream::connect(listener.local_addr()?)?;
    let (peer, _) = listener.accept()?;
    connection.set_nodelay(true)?;
    peer.set_nodelay(true)?;
    thread::scope(|scope| {
        scope.spawn(|| server(peer));
        client(connection)
    })
}
