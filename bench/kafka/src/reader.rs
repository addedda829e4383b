//! Readers: the log is read as bytes, and of its batches only the headers are looked at.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, ensure};
use bytes::Buf as _;
use walrus_log::batch::BatchHeader;

use crate::Arguments;
use crate::connection::{Connection, put_header, put_text, skip_text};
use crate::topic;

const API: i16 = 1;
/// The last version without tagged fields.
const VERSION: i16 = 11;
/// What a client of Java waits for at most, and takes of all partitions.
const WAIT_MS: i32 = 500;
const BYTES_MAX: i32 = 50 << 20;

/// A reader of partition 0.
pub(crate) struct Reader {
    connection: Connection,
    topic: String,
    bytes_max: i32,
    request: Vec<u8>,
    pub(crate) next: i64,
}

impl Reader {
    pub(crate) fn connect(topic: &str, leader: SocketAddr, bytes_max: i32) -> Result<Self> {
        let connection = Connection::to(leader)?;
        Ok(Self { connection, topic: topic.to_owned(), bytes_max, request: Vec::new(), next: 0 })
    }

    /// Asks for what is there from `next` on, and returns it: whole batches, and a part of one behind them, perhaps.
    pub(crate) fn fetch(&mut self) -> Result<&[u8]> {
        let out = &mut self.request;
        out.clear();
        put_header(out, API, VERSION, self.connection.next_correlation());
        out.extend_from_slice(&(-1_i32).to_be_bytes()); // no replica
        out.extend_from_slice(&WAIT_MS.to_be_bytes());
        out.extend_from_slice(&1_i32.to_be_bytes()); // from so many bytes on it is answered
        out.extend_from_slice(&BYTES_MAX.to_be_bytes());
        out.push(0); // read_uncommitted
        out.extend_from_slice(&0_i32.to_be_bytes()); // no session
        out.extend_from_slice(&(-1_i32).to_be_bytes());
        out.extend_from_slice(&1_i32.to_be_bytes());
        put_text(out, &self.topic);
        out.extend_from_slice(&1_i32.to_be_bytes());
        out.extend_from_slice(&0_i32.to_be_bytes());
        out.extend_from_slice(&(-1_i32).to_be_bytes()); // no epoch
        out.extend_from_slice(&self.next.to_be_bytes());
        out.extend_from_slice(&(-1_i64).to_be_bytes()); // no replica's start of the log
        out.extend_from_slice(&self.bytes_max.to_be_bytes());
        out.extend_from_slice(&0_i32.to_be_bytes()); // nothing is forgotten
        put_text(out, ""); // no rack
        self.connection.send(&self.request, &[])?;
        records_of(self.connection.receive()?)
    }
}

/// The records of an answer of one partition.
fn records_of(mut answer: &[u8]) -> Result<&[u8]> {
    answer.try_get_i32()?; // correlation
    answer.try_get_i32()?; // throttled for
    topic::check(answer.try_get_i16()?, "a fetch failed")?;
    answer.try_get_i32()?; // session
    ensure!(answer.try_get_i32()? == 1, "an answer of one topic was expected");
    skip_text(&mut answer)?;
    ensure!(answer.try_get_i32()? == 1, "an answer of one partition was expected");
    answer.try_get_i32()?;
    topic::check(answer.try_get_i16()?, "a fetch failed")?;
    for _ in 0..3 {
        answer.try_get_i64()?; // high watermark, stable offset, start of the log
    }
    ensure!(answer.try_get_i32()? <= 0, "nobody made transactions");
    answer.try_get_i32()?; // preferred replica
    let length = usize::try_from(answer.try_get_i32()?)?;
    ensure!(answer.remaining() == length, "{} bytes for {length}", answer.remaining());
    Ok(answer)
}

/// The end of the last whole batch, whose header alone is looked at.
pub(crate) fn end_of(mut records: &[u8]) -> Result<Option<i64>> {
    let mut end = None;
    while let Ok(header) = BatchHeader::peek(records) {
        if header.size_bytes() > records.len() {
            break;
        }
        end = Some(i64::try_from(header.end_offset())?);
        records = &records[header.size_bytes()..];
    }
    Ok(end)
}

/// Reads at the end of the log until it is over; returns how many records were read.
pub(crate) fn tail(arguments: &Arguments, leader: SocketAddr, is_over: &AtomicBool) -> Result<i64> {
    let mut reader = Reader::connect(&arguments.topic, leader, arguments.fetch_bytes)?;
    while !is_over.load(Ordering::Relaxed) {
        let end = end_of(reader.fetch()?)?;
        reader.next = end.unwrap_or(reader.next);
    }
    Ok(reader.next)
}
