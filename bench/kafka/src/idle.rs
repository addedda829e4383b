//! Connections that ask for nothing once they are there.

use std::fs;

use anyhow::{Context, Result};
use kafka_protocol::messages::ApiVersionsRequest;
use walrus_bench_sample::Sample;

use crate::Arguments;
use crate::connection::Connection;
use crate::topic::check;

/// Opens all connections, each of which shakes hands, and looks what the broker's memory grew by.
pub(crate) fn measure(arguments: &Arguments) -> Result<Sample> {
    let (_, pid) = *arguments.pids.first().context("idle needs --pids")?;
    let before = memory_kib(pid)?;
    let mut connections = Vec::with_capacity(arguments.clients);
    for _ in 0..arguments.clients {
        let mut connection = Connection::to(arguments.bootstrap[0])?;
        check(connection.ask(0, &ApiVersionsRequest::default())?.error_code, "no handshake")?;
        connections.push(connection);
    }
    let grown = memory_kib(pid)? - before;
    #[expect(clippy::cast_precision_loss, reason = "connections are few")]
    let each = grown / connections.len() as f64;
    Ok(Sample::new(each, "KiB").with("connections", connections.len()))
}

/// Resident memory of a process, in KiB.
fn memory_kib(pid: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
