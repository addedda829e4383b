//! Fetch: whole batches below the high watermark, from whichever node has them. One wait is for all partitions of a request: it ends
//! when there are as many bytes as the client wants at least, or when its time is over. A client that can be told of another
//! leader is sent there for what no copy on this node has for ever.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::{self, FuturesUnordered};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::fetch_request::FetchPartition;
use kafka_protocol::messages::{FetchRequest, FetchResponse};
use tokio::time::{Instant, timeout, timeout_at};

use super::answer::Outcome;
use super::context::Context;
use super::fetched::Fetched;
use super::frame::Header;
use super::leaders::{self, Place};
use super::{epochs, errors, fetch_answer};
use crate::cluster::routing::{is_open, segment_at};
use crate::cluster::segment::log_id;
use crate::edge::{Operation, Resource, is_allowed};
use crate::node::error::Error;
use crate::node::names::PartitionRef;
use crate::node::patience;
use crate::reading::reader::{ReadOptions, ReadPage};

/// First version whose answers have a place for the leader.
const TOLD_SINCE: i16 = 12;
/// Limit on the bytes of one answer, whatever was asked for (Kafka's `fetch.max.bytes` of brokers).
const BYTES_MAX: usize = 55 << 20;
/// Partitions of one request that are looked at together at first.
const LOOKS_MAX: usize = 4;

/// Answers a request. Whoever it says to be, it reads as a client: `replica_id` is not believed.
pub(super) async fn outcome(context: &Context, header: Header, request: FetchRequest) -> Outcome {
    if request.session_id != 0 {
        // No session was ever given, so the client takes this one from elsewhere.
        let code = ResponseError::FetchSessionIdNotFound.code();
        return Outcome::of(header, &FetchResponse::default().with_error_code(code));
    }
    let until = Instant::now() + wait_of(&request);
    let lists_aborted = request.isolation_level == 1;
    let bytes_max = size(request.max_bytes).min(BYTES_MAX);
    let bytes_min = size(request.min_bytes).min(bytes_max);
    let mut wanted: Vec<Wanted> = Vec::new();
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        wanted.extend(topic.partitions.iter().map(|asked| Wanted::new(context, &topic.topic, asked)));
        topics.push((topic.topic, topic.partitions.len()));
    }
    let may_tell = header.version >= TOLD_SINCE;
    let found = Vec::with_capacity(wanted.len());
    let mut fetch = Fetch { context, may_tell, bytes_max, bytes: 0, found };
    fetch.look(&mut wanted).await;
    if fetch.bytes < bytes_min && fetch.found.iter().all(|found| found.error.is_none()) {
        fetch.wait(&mut wanted, bytes_min, until).await;
    }
    let mut found = fetch.found.into_iter();
    let by_topic: Vec<_> =
        topics.into_iter().map(|(name, count)| (name, found.by_ref().take(count).collect())).collect();
    fetch_answer::encode(header, &by_topic, lists_aborted).into()
}

fn wait_of(request: &FetchRequest) -> Duration {
    Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0)).min(patience::LONG_POLL_MAX)
}

fn size(bytes: i32) -> usize {
    usize::try_from(bytes).unwrap_or(0)
}

/// A partition that a client wants records of.
struct Wanted {
    index: i32,
    place: Result<PartitionRef, ResponseError>,
    /// The offset at which to go on.
    offset: Result<u64, ResponseError>,
    bytes_max: usize,
    epoch: i32,
}

impl Wanted {
    fn new(context: &Context, topic: &str, asked: &FetchPartition) -> Self {
        let principal = &context.listener.principal;
        let place = match epochs::place(context, topic, asked.partition) {
            Ok(place) if is_allowed(principal, Operation::Read, Resource::Topic(&place.topic)) => Ok(place),
            Ok(_) => Err(ResponseError::TopicAuthorizationFailed),
            Err(error) => Err(errors::of_read(&error)),
        };
        Self {
            index: asked.partition,
            place,
            offset: u64::try_from(asked.fetch_offset).map_err(|_| ResponseError::OffsetOutOfRange),
            bytes_max: size(asked.partition_max_bytes),
            epoch: asked.current_leader_epoch,
        }
    }
}

/// What was read of a partition at one time.
type Read = Result<ReadPage, (ResponseError, Option<Error>)>;

struct Fetch<'a> {
    context: &'a Context,
    /// Whether the client can be told of another leader.
    may_tell: bool,
    /// Limit on the bytes of all partitions together.
    bytes_max: usize,
    /// Bytes that were found so far.
    bytes: usize,
    found: Vec<Fetched>,
}

impl Fetch<'_> {
    /// Looks what is there now, partition by partition in the order of the request.
    async fn look(&mut self, wanted: &mut [Wanted]) {
        let context = self.context;
        let (bytes_max, may_tell) = (self.bytes_max, self.may_tell);
        let looks = wanted.iter().map(|one| async move {
            epochs_checked(context, one).await?;
            if may_tell && belongs_elsewhere(context, one) {
                return Err((ResponseError::NotLeaderOrFollower, None));
            }
            let looked = read(context, one, bytes_max, Duration::ZERO);
            let nothing_yet = || Err((ResponseError::NotLeaderOrFollower, None));
            timeout(patience::FETCH_LOOK, looked).await.unwrap_or_else(|_| nothing_yet())
        });
        let looks: Vec<_> = looks.collect(); // futures, none of which runs yet
        let reads: Vec<Read> = stream::iter(looks).buffered(LOOKS_MAX).collect().await;
        for (one, read) in wanted.iter_mut().zip(reads) {
            self.found.push(Fetched::nothing(one.index));
            let place = self.found.len() - 1;
            self.take(place, one, read);
        }
    }

    /// Waits for records in all partitions at once, until there are enough or the time is over.
    async fn wait(&mut self, wanted: &mut [Wanted], bytes_min: usize, until: Instant) {
        let context = self.context;
        let waiting_read = |place: usize, one: &Wanted, bytes_max: usize| {
            let one = Wanted { place: one.place.clone(), ..*one };
            async move {
                let left = until.saturating_duration_since(Instant::now());
                (place, read(context, &one, bytes_max, left).await)
            }
        };
        let mut reads = FuturesUnordered::new();
        for (place, one) in wanted.iter().enumerate() {
            reads.push(waiting_read(place, one, self.bytes_max));
        }
        while let Ok(Some((place, read))) = timeout_at(until, reads.next()).await {
            let before = self.bytes;
            self.take(place, &mut wanted[place], read);
            if self.bytes >= bytes_min || self.found[place].error.is_some() {
                return;
            }
            if self.bytes > before {
                reads.push(waiting_read(place, &wanted[place], self.bytes_max - self.bytes));
            }
        }
    }

    /// Puts what was read into the answer, as far as it fits.
    fn take(&mut self, place: usize, one: &mut Wanted, read: Read) {
        let context = self.context;
        let found = &mut self.found[place];
        let page = match read {
            Ok(page) => page,
            Err((code, error)) => {
                if found.bytes > 0 {
                    return; // what was found before is worth an answer, and the error comes again
                }
                found.error = Some(code);
                if self.may_tell && comes_of_not_knowing(code) {
                    found.leader = one.place.as_ref().ok().and_then(|place| leaders::current(context, place));
                }
                if let Some(Error::OffsetOutOfRange { start, end, .. }) = error {
                    (found.log_start, found.high_watermark) = (start.cast_signed(), end.cast_signed());
                }
                return;
            }
        };
        let left = self.bytes_max.saturating_sub(self.bytes).min(one.bytes_max.saturating_sub(found.bytes));
        let before = found.bytes;
        let next = found.take(page.pieces, left, self.bytes == 0);
        self.bytes += found.bytes - before;
        if let Some(next) = next {
            one.offset = Ok(next);
        }
        let known = one.place.as_ref().ok().and_then(|place| {
            let routing = context.broker.cluster().routing();
            let (_, partition) = routing.partition(place).ok()?;
            Some(context.broker.reading().known_high_watermark(partition))
        });
        let reached = next.unwrap_or(0).max(page.high_watermark).max(known.unwrap_or(0));
        found.high_watermark = found.high_watermark.max(reached.cast_signed());
        found.log_start = page.log_start.cast_signed();
    }
}

/// Whether a client that asks for this learns something by being told who leads.
fn comes_of_not_knowing(code: ResponseError) -> bool {
    matches!(code, ResponseError::NotLeaderOrFollower | ResponseError::FencedLeaderEpoch)
}

/// Whether the client is to ask the leader, which is another node, for this offset: its segment may grow, or this node has no
/// whole copy of it.
fn belongs_elsewhere(context: &Context, one: &Wanted) -> bool {
    let (Ok(place), Ok(offset)) = (&one.place, one.offset) else { return false };
    let is_here = {
        let routing = context.broker.cluster().routing();
        let Ok((_, partition)) = routing.partition(place) else { return false };
        // What lies before the first segment is out of range, which any node can say.
        let Some(segment) = segment_at(partition, offset) else { return false };
        let bucket = context.broker.bucket();
        !is_open(segment) && bucket.log(log_id(&segment.descriptor)).is_some_and(|log| log.is_sealed())
    };
    !is_here && matches!(leaders::place_of(context, place), Place::At(_))
}

async fn epochs_checked(context: &Context, one: &Wanted) -> Result<(), (ResponseError, Option<Error>)> {
    let place = one.place.as_ref().map_err(|code| (*code, None))?;
    epochs::check(context, place, one.epoch).await.map_err(|code| (code, None))
}

/// Reads what there is at the offset of a partition, or waits for it.
async fn read(context: &Context, one: &Wanted, bytes_max: usize, wait: Duration) -> Read {
    let place = one.place.as_ref().map_err(|code| (*code, None))?;
    let offset = one.offset.map_err(|code| (code, None))?;
    let bytes_max = one.bytes_max.min(bytes_max).max(1); // at least one batch is read, however little is asked for
    let options = ReadOptions { bytes_max, wait, segment: None, unconfirmed: true };
    let page = context.broker.read(place, offset, options).await;
    page.map_err(|error| (errors::of_read(&error), Some(error)))
}
