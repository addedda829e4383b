//! A session serves one connection: one request at a time, in order, until a side closes it.
//!
//! A client cannot hold memory or a task without paying for it: a frame that has begun must go on at a minimum rate,
//! an answer must be taken at one, and memory grows only with bytes that have arrived.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::answer::Answer;
use super::arrivals::Arrivals;
use super::codec::{self, BadFrame};
use super::command::Command;
use super::execution::execute;
use super::traffic::Traffic;
use crate::broker::Broker;
use crate::cursors::Consumer;
use crate::edge::{Pace, Principal};
use crate::node::budget::{Held, Purpose};
use crate::node::error::Error;
use crate::node::patience;

/// Bytes that are asked of the socket at a time, and about what a connection keeps.
const READ_BYTES: usize = 8 * 1024;
/// Bytes read and thrown away after a last answer, so that the close does not become a reset that eats it.
const FAREWELL_BYTES_MAX: usize = 1 << 20;

/// Serves the connection of a principal to its end.
pub(super) async fn run(
    stream: TcpStream,
    broker: Broker,
    principal: &Principal,
    traffic: &Traffic,
    pace: Pace,
) {
    let consumer = broker.consumer();
    let _ = stream.set_nodelay(true); // only a delay is lost
    let input = BytesMut::new();
    let held = broker.cluster().share(Purpose::Appends).hold(0);
    let mut session = Session {
        stream,
        held,
        has_asked: false,
        broker,
        principal,
        traffic,
        pace,
        input,
        closed: false,
        arrivals: Arrivals::default(),
        consumer,
    };
    let end = session.serve().await;
    session.finish(end).await;
}

struct Session<'a> {
    stream: TcpStream,
    broker: Broker,
    principal: &'a Principal,
    traffic: &'a Traffic,
    pace: Pace,
    /// Bytes that arrived and are not consumed.
    input: BytesMut,
    /// Counts the bytes that arrived and are not answered.
    held: Held,
    /// Whether any request has come.
    has_asked: bool,
    /// Whether the client has closed its side: it sends nothing more.
    closed: bool,
    arrivals: Arrivals,
    consumer: Consumer,
}

/// Why a connection ends.
enum End {
    /// The client closed it between two requests.
    Closed,
    /// The client closed it inside a frame.
    CutOff {
        got: usize,
    },
    /// The client is gone, or did not take an answer.
    Broken(io::Error),
    BadFrame(BadFrame),
    /// There was no memory for its frame.
    Full(Error),
    /// A frame came too slowly.
    Slow,
    /// No request came for long.
    Idle,
    /// The node stops.
    Stopping,
}

impl Session<'_> {
    async fn serve(&mut self) -> End {
        loop {
            let (frame, answers_seen) = match self.next_frame().await {
                Ok(frame) => frame,
                Err(end) => return end,
            };
            let text = match codec::text(&frame) {
                Ok(text) => text,
                Err(bad) => return End::BadFrame(bad),
            };
            self.consumer.confirm(answers_seen);
            let command = Command::parse(text);
            self.traffic.count(command.as_ref().ok());
            let answer = match command {
                Ok(command) => self.answer(command).await,
                Err(bad) => Answer::error(bad),
            };
            if let Err(problem) = self.send(answer).await {
                return End::Broken(problem);
            }
            drop(frame);
            self.held.set(self.input.len());
        }
    }

    /// The next frame, and how many answers had been sent when it began to arrive.
    async fn next_frame(&mut self) -> Result<(Bytes, u64), End> {
        let bytes_max = self.broker.cluster().config().frame_bytes_max;
        let began = Instant::now();
        loop {
            if let Some(frame) = codec::decode(&mut self.input, bytes_max).map_err(End::BadFrame)? {
                let answers_seen = self.arrivals.consume(codec::LENGTH_BYTES + frame.len());
                self.has_asked = true;
                return Ok((frame, answers_seen));
            }
            if self.closed {
                let got = self.input.len();
                return Err(if got == 0 { End::Closed } else { End::CutOff { got } });
            }
            if self.input.is_empty() {
                self.input = BytesMut::new(); // a waiting connection keeps no buffer
                let stop = self.broker.cluster().tasks().shutdown();
                let idle = if self.has_asked { self.pace.idle } else { self.pace.first_byte };
                tokio::select! {
                    readable = self.stream.readable() => readable.map_err(End::Broken)?,
                    () = sleep_until(began + idle) => return Err(End::Idle),
                    () = stop.cancelled() => return Err(End::Stopping),
                }
                self.receive().map_err(End::Broken)?;
                continue;
            }
            self.rest_of_frame(bytes_max).await?;
        }
    }

    /// Receives until the frame that has begun is whole.
    async fn rest_of_frame(&mut self, bytes_max: u32) -> Result<(), End> {
        let began = Instant::now();
        while !self.closed {
            let length = codec::announced_length(&self.input, bytes_max).map_err(End::BadFrame)?;
            if length.is_some_and(|length| self.input.len() >= codec::LENGTH_BYTES + length) {
                break;
            }
            let deadline = began + length.map_or(self.pace.header, Pace::transfer);
            self.broker
                .cluster()
                .share(Purpose::Appends)
                .room(patience::ANSWER_MEMORY)
                .await
                .map_err(End::Full)?;
            let readable = timeout_at(deadline, self.stream.readable()).await.map_err(|_| End::Slow)?;
            readable.and_then(|()| self.receive()).map_err(End::Broken)?;
        }
        Ok(())
    }

    /// Takes what the socket has, without waiting.
    fn receive(&mut self) -> io::Result<()> {
        self.input.reserve(READ_BYTES);
        match self.stream.try_read_buf(&mut self.input) {
            Ok(0) => self.closed = true,
            Ok(bytes) => {
                self.arrivals.receive(bytes);
                self.held.set(self.held.bytes() + bytes);
            }
            Err(problem) if problem.kind() == io::ErrorKind::WouldBlock => {}
            Err(problem) => return Err(problem),
        }
        Ok(())
    }

    /// Sends an answer, which counts against the budget until it is written.
    async fn send(&mut self, answer: Answer) -> io::Result<()> {
        if matches!(answer, Answer::Payload(_)) && !self.closed && self.input.len() < READ_BYTES {
            self.receive()?; // requests that are here already say nothing about this answer
        }
        let mut frame = BytesMut::new();
        answer.encode(&mut frame);
        drop(answer); // a small one may be part of a large page
        let _held = self.broker.cluster().share(Purpose::Reads).hold(frame.len());
        let limit = Pace::transfer(frame.len());
        timeout(limit, self.stream.write_all(&frame)).await.map_err(|_| io::ErrorKind::TimedOut)??;
        self.arrivals.answer();
        Ok(())
    }

    async fn answer(&mut self, command: Command<'_>) -> Answer {
        let number = self.arrivals.next_answer();
        if command.is_read()
            && let Err(full) = self.broker.cluster().share(Purpose::Reads).room(patience::ANSWER_MEMORY).await
        {
            return Answer::error(full);
        }
        execute(&self.broker, self.principal, &mut self.consumer, number, command)
            .await
            .unwrap_or_else(Answer::error)
    }

    /// Says goodbye, closes, and tells the cursors' owners what the client has received.
    async fn finish(mut self, end: End) {
        let mut received = false;
        if matches!(end, End::BadFrame(_) | End::CutOff { .. } | End::Slow) {
            self.traffic.bad_frames.inc();
        }
        match end {
            End::Closed => received = !self.consumer.holds_any() || self.is_acknowledged().await,
            End::BadFrame(bad) => self.part(Answer::error(bad)).await,
            End::Full(full) => self.part(Answer::error(full)).await,
            End::CutOff { got } => self.part(Answer::error(format!("frame cut off after {got} bytes"))).await,
            End::Slow => self.part(Answer::error("frame came too slowly")).await,
            End::Broken(problem) => tracing::debug!(%problem, "text connection broke"),
            End::Idle | End::Stopping => {}
        }
        let Self { stream, consumer, .. } = self;
        drop(stream);
        consumer.close(received).await;
    }

    /// Sends a last answer and closes in a way that lets it arrive: a close with unread bytes would reset the
    /// connection, and the reset would overtake the answer.
    async fn part(&mut self, answer: Answer) {
        if self.send(answer).await.is_err() || self.stream.shutdown().await.is_err() {
            return;
        }
        let deadline = Instant::now() + patience::FAREWELL;
        let mut left = FAREWELL_BYTES_MAX;
        let mut ignored = [0; 1024];
        while left > 0 && !self.closed {
            match timeout_at(deadline, self.stream.readable()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return,
            }
            match self.stream.try_read(&mut ignored) {
                Ok(0) => return,
                Ok(bytes) => left = left.saturating_sub(bytes),
                Err(problem) if problem.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }

    /// Whether the client's host took all answers, now that the client has closed: it acknowledged our close, which
    /// comes behind them. A client that was gone before an answer came resets the connection instead.
    async fn is_acknowledged(&mut self) -> bool {
        if self.stream.shutdown().await.is_err() {
            return false;
        }
        let deadline = Instant::now() + patience::LAST_ANSWER_ACKNOWLEDGED;
        let mut pause = Duration::from_micros(50);
        loop {
            // A socket that both sides have closed has no peer any more; one that was reset has an error, too.
            let is_closed = self.stream.peer_addr().is_err();
            if !matches!(self.stream.take_error(), Ok(None)) {
                return false;
            }
            if is_closed || Instant::now() >= deadline {
                return is_closed;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }
}
