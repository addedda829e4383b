//! A session serves one connection. Appends are begun in the order of their frames and many at a time; whatever else is asked is
//! answered alone. Answers leave in the order of the requests.
//!
//! A client cannot hold memory or a task without paying for it: a frame that has begun must go on at a minimum rate, an answer
//! must be taken at one, and memory grows only with bytes that have arrived.

use std::future::pending;
use std::io;
use std::net::{IpAddr, SocketAddr};

use bytes::BytesMut;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

use super::answer::{Answer, Outcome};
use super::clients::Present;
use super::context::Context;
use super::dispatch;
use super::frame::{self, BadFrame};
use super::request::{self, Request};
use super::telling::Telling;
use super::traffic::Meter;
use super::window::{Asked, Outbox, Window};
use crate::edge::Pace;
use crate::node::budget::{Held, Purpose};
use crate::node::error::{Error, Result};
use crate::node::patience;

/// Bytes that are asked of the socket at a time, and about what a connection keeps that waits for more.
const READ_BYTES: usize = 8 << 10;
/// Memory that is taken at a time for a frame whose length is known; it is counted as it is filled.
const FRAME_STEP_BYTES: usize = 1 << 20;

/// First version of ApiVersions in which clients say what software they are.
const SOFTWARE_SINCE: i16 = 3;

/// A request of many small parts takes so many times its bytes once it is decoded. An append is nearly all records, which stay
/// where they are.
const DECODED_RATIO: usize = 8;

/// Serves a connection to its end.
pub(super) async fn run(stream: TcpStream, from: SocketAddr, context: &Context, pace: Pace) {
    let _ = stream.set_nodelay(true); // only a delay is lost
    let held = context.broker.cluster().share(Purpose::Appends).hold(0);
    let input = Input { bytes: BytesMut::new(), held, is_closed: false, began: None };
    let telling = Telling::default();
    let mut session = Session {
        stream,
        from: from.ip(),
        context,
        telling: &telling,
        pace,
        input,
        window: Window::new(),
        outbox: Outbox::default(),
        next: None,
        meter: None,
        client: None,
        has_asked: false,
        last_sign: Instant::now(),
        write_by: None,
    };
    match session.serve().await {
        End::Closed | End::Idle | End::Stopping => {}
        End::Broken(problem) => tracing::debug!(%from, %problem, "Kafka connection broke"),
        End::Slow => tracing::debug!(%from, "Kafka connection is too slow"),
        End::Full(error) => tracing::warn!(%from, %error, "no memory for a Kafka request"),
        End::Refused(why) => tracing::info!(%from, why, "Kafka connection is closed"),
        End::BadFrame(problem) => {
            context.traffic.connections.bad_frames.inc();
            tracing::info!(%from, %problem, "Kafka connection is closed");
        }
    }
}

/// Bytes that arrived and belong to no request yet.
struct Input {
    bytes: BytesMut,
    /// Counts them.
    held: Held,
    /// Whether the client has closed its side: it sends nothing more.
    is_closed: bool,
    /// When the frame began that is not whole yet, or this node went on with it.
    began: Option<Instant>,
}

struct Session<'a> {
    stream: TcpStream,
    /// Where the client is.
    from: IpAddr,
    context: &'a Context,
    telling: &'a Telling,
    pace: Pace,
    input: Input,
    window: Window<'a>,
    outbox: Outbox,
    /// A request that waits for the window.
    next: Option<Next>,
    /// Counts the requests of the API that was used last.
    meter: Option<Meter>,
    /// Counts the connection among those of its client's software, once that is known.
    client: Option<Present<'a>>,
    /// Whether any request has come.
    has_asked: bool,
    /// When something last came or was answered.
    last_sign: Instant,
    /// The client must have taken what waits for the socket by then.
    write_by: Option<Instant>,
}

/// A request that waits for the window.
struct Next {
    header: frame::Header,
    /// `None` if it is not served.
    request: Option<Request>,
    /// Length of its frame.
    bytes: usize,
    /// When it was whole.
    at: Instant,
}

/// Why a connection ends.
enum End {
    /// The client closed it.
    Closed,
    /// The client is gone.
    Broken(io::Error),
    BadFrame(BadFrame),
    /// There was no memory for its frame.
    Full(Error),
    /// A frame came too slowly, or an answer was taken too slowly.
    Slow,
    /// No request came for long.
    Idle,
    /// The node stops.
    Stopping,
    /// What was asked has no answer that could say what is wrong.
    Refused(String),
}

/// What happens next on a connection.
enum Event {
    Written(io::Result<()>),
    Answered(Asked, Outcome),
    Readable(Result<io::Result<()>>),
    Late,
    Stopping,
}

impl Session<'_> {
    async fn serve(&mut self) -> End {
        let stop = self.context.broker.cluster().tasks().shutdown().clone();
        let mut is_stopping = false;
        loop {
            if !is_stopping && let Err(end) = self.begin_requests() {
                return end;
            }
            let wants_more = !is_stopping && !self.input.is_closed && self.next.is_none();
            if !wants_more && self.next.is_none() && self.window.is_empty() && self.outbox.is_empty() {
                return if is_stopping { End::Stopping } else { self.closed() };
            }
            if self.input.is_closed && self.window.is_waiting_for_records() {
                return self.closed(); // nobody is there to take them
            }
            let deadline = self.deadline(wants_more);
            // What comes behind a request that waits is looked at a little, for the end of the connection may be behind it.
            let reads =
                wants_more || (!is_stopping && !self.input.is_closed && self.input.bytes.len() < READ_BYTES);
            let share = self.context.broker.cluster().share(Purpose::Appends);
            let has_begun = !self.input.bytes.is_empty();
            let stream = &self.stream;
            // What is in flight goes on while a frame waits for memory, and so gives its own back.
            let readable = async {
                if has_begun && wants_more {
                    share.room(patience::ANSWER_MEMORY).await?;
                }
                Ok(stream.readable().await)
            };
            let event = tokio::select! {
                biased;
                written = self.outbox.write(stream), if !self.outbox.is_empty() => Event::Written(written),
                Some((asked, outcome)) = self.window.next() => Event::Answered(asked, outcome),
                readable = readable, if reads => Event::Readable(readable),
                () = stop.cancelled(), if !is_stopping => Event::Stopping,
                () = late(deadline) => Event::Late,
            };
            match event {
                Event::Written(written) => {
                    if let Err(problem) = written {
                        return End::Broken(problem);
                    }
                    self.last_sign = Instant::now();
                    self.write_by = self.write_by.filter(|_| !self.outbox.is_empty());
                }
                Event::Answered(asked, outcome) => {
                    self.meter(asked.header).observe(asked.at.elapsed());
                    match outcome {
                        Outcome::Answered(answer) => self.send(answer),
                        Outcome::Silent => self.last_sign = Instant::now(),
                        Outcome::Closed { why } => return End::Refused(why),
                    }
                }
                Event::Readable(Err(error)) => return End::Full(error),
                Event::Readable(Ok(readable)) => {
                    if let Err(problem) = readable.and_then(|()| self.receive()) {
                        return End::Broken(problem);
                    }
                }
                Event::Late => {
                    return if has_begun || !self.outbox.is_empty() { End::Slow } else { End::Idle };
                }
                Event::Stopping => is_stopping = true,
            }
        }
    }

    /// Begins the requests that are here and for which there is room.
    fn begin_requests(&mut self) -> Result<(), End> {
        loop {
            if self.next.is_none() {
                let Some(frame) = frame::decode(&mut self.input.bytes).map_err(End::BadFrame)? else {
                    return Ok(());
                };
                self.has_asked = true;
                self.input.began = None;
                let bytes = frame.len();
                let (header, request) = request::decode(frame).map_err(End::BadFrame)?;
                self.meter(header).count();
                self.notice_client(header, request.as_ref());
                self.next = Some(Next { header, request, bytes, at: Instant::now() });
            }
            let is_append = matches!(&self.next, Some(Next { request: Some(Request::Produce(_)), .. }));
            if !self.window.has_room(is_append) {
                return Ok(());
            }
            let Some(Next { header, request, bytes, at }) = self.next.take() else { return Ok(()) };
            let memory = if is_append { bytes } else { bytes.saturating_mul(DECODED_RATIO) };
            let held = self.context.broker.cluster().share(Purpose::Appends).hold(memory);
            self.input.held.set(self.input.bytes.len());
            let answering = dispatch::begin(self.context, self.telling, self.from, header, request);
            self.window.begin(answering, Asked { header, at, held }, is_append);
        }
    }

    /// What counts the requests of an API.
    fn meter(&mut self, header: frame::Header) -> &Meter {
        let traffic = &self.context.traffic;
        let known = self.meter.take().filter(|meter| meter.is_of(header));
        self.meter.insert(known.unwrap_or_else(|| traffic.meter(header)))
    }

    /// Counts the connection among those of its client's software, if the client says what that is.
    fn notice_client(&mut self, header: frame::Header, request: Option<&Request>) {
        if let Some(Request::ApiVersions(asked)) = request
            && header.version >= SOFTWARE_SINCE
        {
            self.client = None; // else it would be counted twice for a moment
            let clients = &self.context.traffic.clients;
            self.client = Some(clients.enter(&asked.client_software_name, &asked.client_software_version));
        }
    }

    /// Takes what the socket has, without waiting.
    fn receive(&mut self) -> io::Result<()> {
        let input = &mut self.input;
        let missing = match frame::announced_length(&input.bytes) {
            Ok(Some(length)) => (frame::LENGTH_BYTES + length).saturating_sub(input.bytes.len()),
            _ => 0,
        };
        input.bytes.reserve(missing.clamp(READ_BYTES, FRAME_STEP_BYTES));
        match self.stream.try_read_buf(&mut input.bytes) {
            Ok(0) => input.is_closed = true,
            Ok(_) => {
                self.last_sign = Instant::now();
                input.held.set(input.bytes.len());
                input.began.get_or_insert(self.last_sign);
            }
            Err(problem) if problem.kind() == io::ErrorKind::WouldBlock => {}
            Err(problem) => return Err(problem),
        }
        if input.bytes.is_empty() {
            input.bytes = BytesMut::new(); // a waiting connection keeps no buffer
        }
        Ok(())
    }

    /// Puts an answer behind those that wait for the socket, and gives the client the more time to take them.
    fn send(&mut self, answer: Answer) {
        self.last_sign = Instant::now();
        let before = self.outbox.bytes();
        self.outbox.push(answer);
        let time = Pace::transfer(self.outbox.bytes() - before);
        self.write_by = Some(self.write_by.unwrap_or(self.last_sign) + time);
    }

    /// Until when something must happen; `None` while this node has something to do.
    fn deadline(&mut self, wants_more: bool) -> Option<Instant> {
        if self.write_by.is_some() {
            return self.write_by;
        }
        if !wants_more {
            self.input.began = None; // the client is not to blame for a frame that this node does not read
            return None;
        }
        if !self.input.bytes.is_empty() {
            let began = *self.input.began.get_or_insert_with(Instant::now);
            let length = frame::announced_length(&self.input.bytes).ok().flatten();
            return Some(began + length.map_or(self.pace.header, Pace::transfer));
        }
        let silence = if self.has_asked { self.pace.idle } else { self.pace.first_byte };
        self.window.is_empty().then(|| self.last_sign + silence)
    }

    /// The end of a connection whose client has closed its side.
    fn closed(&self) -> End {
        if self.input.bytes.is_empty() {
            End::Closed
        } else {
            End::Broken(io::ErrorKind::UnexpectedEof.into())
        }
    }
}

async fn late(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => pending().await,
    }
}
