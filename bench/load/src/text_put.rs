//! One caller over the text protocol: a frame with `PUT`, its answer, then the next.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, ensure};
use walrus_bench_sample::{Payload, Sample, closed_loop};

use crate::Arguments;
use crate::log_service::{check_records, connect, create_topic};

const ANSWER_BYTES_MAX: usize = 1 << 20;
const FRAME_HEADER_BYTES: usize = 4;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

pub(crate) async fn measure(arguments: &Arguments) -> Result<Sample> {
    let address = arguments.text.context("text_put needs --text")?;
    let mut log = connect(arguments.grpc).await?;
    create_topic(&mut log, &arguments.topic).await?;

    let mut text = Text::connect(address)?;
    let mut records = Records::new(arguments.record_bytes);
    let mut put = 0;
    let latencies = closed_loop(arguments.duration(), |number| {
        put = number + 1;
        text.put(&arguments.topic, records.record(number))
    })?;

    check_records(&mut log, &arguments.topic, put, |number, value| records.is_record(number, value)).await?;
    Ok(Sample::new(latencies.quantile_us(500), "us")
        .with_latencies(&latencies)
        .with("puts_per_s", latencies.per_second())
        .with("records_checked", put))
}

/// Records of printable text, which is what the protocol carries: 16 hexadecimal digits, then six bits a letter.
struct Records {
    letters: Vec<u8>,
}

const NUMBER_LETTERS: usize = 16;

impl Records {
    fn new(record_bytes: usize) -> Self {
        let letters = Payload::new(record_bytes.max(NUMBER_LETTERS))
            .record(0)
            .iter()
            .map(|byte| ALPHABET[usize::from(byte % 64)])
            .collect();
        Self { letters }
    }

    fn record(&mut self, number: u64) -> &[u8] {
        self.letters[..NUMBER_LETTERS].copy_from_slice(&Self::stamp(number));
        &self.letters
    }

    fn is_record(&self, number: u64, bytes: &[u8]) -> bool {
        bytes.len() == self.letters.len()
            && bytes[..NUMBER_LETTERS] == Self::stamp(number)
            && bytes[NUMBER_LETTERS..] == self.letters[NUMBER_LETTERS..]
    }

    fn stamp(number: u64) -> [u8; NUMBER_LETTERS] {
        let mut digits = [0; NUMBER_LETTERS];
        for (place, digit) in digits.iter_mut().rev().enumerate() {
            let nibble = (number >> (4 * place)) & 0xF;
            *digit = b"0123456789abcdef"[usize::try_from(nibble).unwrap_or(0)];
        }
        digits
    }
}

/// A connection that has one request under way at a time, in memory that is reused.
struct Text {
    connection: TcpStream,
    frame: Vec<u8>,
    answer: Vec<u8>,
}

impl Text {
    fn connect(address: SocketAddr) -> Result<Self> {
        let connection =
            TcpStream::connect(address).with_context(|| format!("no text listener at {address}"))?;
        connection.set_nodelay(true)?;
        Ok(Self { connection, frame: Vec::new(), answer: Vec::new() })
    }

    /// Durable on return.
    fn put(&mut self, topic: &str, record: &[u8]) -> Result<()> {
        self.frame.clear();
        self.frame.extend_from_slice(&[0; FRAME_HEADER_BYTES]);
        self.frame.extend_from_slice(b"PUT ");
        self.frame.extend_from_slice(topic.as_bytes());
        self.frame.push(b' ');
        self.frame.extend_from_slice(record);
        let bytes = u32::try_from(self.frame.len() - FRAME_HEADER_BYTES)?;
        self.frame[..FRAME_HEADER_BYTES].copy_from_slice(&bytes.to_le_bytes());
        self.connection.write_all(&self.frame)?;

        let mut header = [0; FRAME_HEADER_BYTES];
        self.connection.read_exact(&mut header)?;
        let bytes = usize::try_from(u32::from_le_bytes(header))?;
        ensure!(bytes <= ANSWER_BYTES_MAX, "an answer of {bytes} bytes");
        self.answer.resize(bytes, 0);
        self.connection.read_exact(&mut self.answer)?;
        ensure!(self.answer == b"OK", "PUT was answered {:?}", String::from_utf8_lossy(&self.answer));
        Ok(())
    }
}
