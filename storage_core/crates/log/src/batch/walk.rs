//! A walk over the records of a batch in little memory: of a compressed one no more is opened at a time than a reader of its codec
//! holds. It looks at what a broker must know of each record and keeps none of them.

use std::io::{self, BufRead};
use std::ops::RangeInclusive;

use super::codec::{self, OPENED_BYTES_MAX};
use super::error::BatchError;
use super::record::Record;
use super::view::Batch;

/// The timestamp of a record that has none.
const NO_TIMESTAMP: i64 = -1;

/// What a walk has seen of all records of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordsSeen {
    /// Greatest timestamp of the records, as the header of their batch should have it; -1 is that of a record without one.
    pub max_timestamp: i64,
    /// The timestamps of the records, from the lowest to the greatest, of those that have one. `None` if no record has one.
    pub timestamps: Option<RangeInclusive<i64>>,
    /// Place in the batch of the first record without a key.
    pub first_without_key: Option<u32>,
}

impl RecordsSeen {
    const NONE: Self = Self { max_timestamp: i64::MIN, timestamps: None, first_without_key: None };

    fn note(&mut self, index: u32, timestamp: i64, has_key: bool) {
        self.max_timestamp = self.max_timestamp.max(timestamp);
        if timestamp != NO_TIMESTAMP {
            self.timestamps = Some(self.timestamps.take().map_or(timestamp..=timestamp, |span| {
                timestamp.min(*span.start())..=timestamp.max(*span.end())
            }));
        }
        if !has_key && self.first_without_key.is_none() {
            self.first_without_key = Some(index);
        }
    }
}

impl Batch<'_> {
    /// Walks every record, compressed or not, and so proves that whoever opens the batch finds as many as its header says, each
    /// whole and at its place.
    ///
    /// Errors: `InvalidRecord` with the place of the first record that breaks the format; `Unopened` if the records are no
    /// stream of their codec; `OpenedTooLarge` if they exceed [`OPENED_BYTES_MAX`].
    pub fn walk_records(&self) -> Result<RecordsSeen, BatchError> {
        let mut seen = RecordsSeen::NONE;
        self.walk(&mut |index, timestamp, has_key| seen.note(index, timestamp, has_key))?;
        Ok(seen)
    }

    /// Places in the batch of the first records whose timestamps lie outside of a range, `most` at most. Records without one lie
    /// in every range. Errors as [`Batch::walk_records`].
    pub fn records_outside(&self, range: &RangeInclusive<i64>, most: usize) -> Result<Vec<u32>, BatchError> {
        let mut found = Vec::new();
        self.walk(&mut |index, timestamp, _| {
            if timestamp != NO_TIMESTAMP && !range.contains(&timestamp) && found.len() < most {
                found.push(index);
            }
        })?;
        Ok(found)
    }

    /// Shows each record: its place, its timestamp, and whether it has a key.
    fn walk(&self, show: &mut impl FnMut(u32, i64, bool)) -> Result<(), BatchError> {
        if !self.is_compressed() {
            for (index, record) in (0..).zip(self.records()) {
                let Record { timestamp_ms, key, .. } = record?;
                show(index, timestamp_ms, key.is_some());
            }
            return Ok(());
        }
        let codec = self.header().codec();
        let mut stream = Stream { bytes: codec::reader(codec, self.record_bytes())?, left: OPENED_BYTES_MAX };
        self.walk_stream(&mut stream, show).map_err(|(index, trouble)| match trouble {
            Trouble::Rule(reason) => BatchError::InvalidRecord { index, reason },
            Trouble::TooLarge => codec::too_large(codec),
            Trouble::Codec(problem) => codec::trouble(codec, &problem),
        })
    }

    fn walk_stream(
        &self,
        stream: &mut Stream<'_>,
        show: &mut impl FnMut(u32, i64, bool),
    ) -> Result<(), (u32, Trouble)> {
        let header = self.header();
        let count = header.records_left();
        let mut next_delta = 0;
        for index in 0..count {
            // The records behind this one need an offset each.
            let delta_max = header.last_offset_delta - (count - 1 - index);
            let record = stream.record().map_err(|trouble| (index, trouble))?;
            let delta = u32::try_from(record.offset_delta).ok();
            let delta = delta.filter(|delta| (next_delta..=delta_max).contains(delta));
            let misplaced = Trouble::Rule("offset delta is not the record's place in its batch");
            next_delta = delta.ok_or((index, misplaced))? + 1;
            let timestamp = header.base_timestamp.wrapping_add(record.timestamp_delta);
            let timestamp = if header.is_log_append_time() { header.max_timestamp } else { timestamp };
            show(index, timestamp, record.has_key);
        }
        let last = count.saturating_sub(1);
        let is_over = stream.bytes.fill_buf().map_err(|problem| (last, Trouble::Codec(problem)))?.is_empty();
        let more = Trouble::Rule("bytes are left behind the last record");
        if is_over { Ok(()) } else { Err((last, more)) }
    }
}

/// What is wrong with a stream of records.
enum Trouble {
    Rule(&'static str),
    TooLarge,
    Codec(io::Error),
}

/// What the walk looks at of a record.
struct Look {
    timestamp_delta: i64,
    offset_delta: i32,
    has_key: bool,
}

/// Opened records as they come out of their codec.
struct Stream<'a> {
    bytes: Box<dyn BufRead + 'a>,
    /// Bytes that may still come.
    left: usize,
}

/// A record of a stream, of which `left` bytes were not read yet.
struct Body<'s, 'a> {
    stream: &'s mut Stream<'a>,
    left: usize,
}

impl Stream<'_> {
    fn record(&mut self) -> Result<Look, Trouble> {
        // The length itself has at most five bytes.
        let length = Body { stream: self, left: 5 }.number("length is cut off")?;
        let length = i32::try_from(length).map_err(|_| Trouble::Rule("length is cut off"))?;
        let left = usize::try_from(length).map_err(|_| Trouble::Rule("length is negative"))?;
        if left > self.left {
            return Err(Trouble::TooLarge);
        }
        let mut body = Body { stream: self, left };
        body.byte("attributes are cut off")?;
        let timestamp_delta = body.number("timestamp delta is cut off")?;
        let offset_delta = body.short_number("offset delta is cut off")?;
        let has_key = body.skip_bytes("key is cut off")?;
        body.skip_bytes("value is cut off")?;
        let headers = body.short_number("number of headers is cut off")?;
        let headers = u32::try_from(headers).map_err(|_| Trouble::Rule("number of headers is negative"))?;
        for _ in 0..headers {
            body.header_key()?;
            body.skip_bytes("value of a header is cut off")?;
        }
        if body.left > 0 {
            return Err(Trouble::Rule("bytes are left behind the headers"));
        }
        Ok(Look { timestamp_delta, offset_delta, has_key })
    }
}

impl Body<'_, '_> {
    /// Takes the next bytes of the record, at most `most` of them and at least one, and shows them.
    fn take<T>(
        &mut self,
        most: usize,
        cut_off: &'static str,
        look: impl FnOnce(&[u8]) -> T,
    ) -> Result<(usize, T), Trouble> {
        if self.left == 0 {
            return Err(Trouble::Rule(cut_off));
        }
        if self.stream.left == 0 {
            return Err(Trouble::TooLarge);
        }
        let ready = self.stream.bytes.fill_buf().map_err(Trouble::Codec)?;
        let taken = ready.len().min(most).min(self.left).min(self.stream.left);
        if taken == 0 {
            return Err(Trouble::Rule(cut_off));
        }
        let looked = look(&ready[..taken]);
        self.stream.bytes.consume(taken);
        self.left -= taken;
        self.stream.left -= taken;
        Ok((taken, looked))
    }

    fn byte(&mut self, cut_off: &'static str) -> Result<u8, Trouble> {
        self.take(1, cut_off, |bytes| bytes[0]).map(|(_, byte)| byte)
    }

    fn number(&mut self, cut_off: &'static str) -> Result<i64, Trouble> {
        let mut value = 0_u64;
        for index in 0..10 {
            let byte = self.byte(cut_off)?;
            let bits = u64::from(byte & 0x7f);
            if index == 9 && bits > 1 {
                break; // only one bit is left for the tenth byte
            }
            value |= bits << (7 * index);
            if byte & 0x80 == 0 {
                return Ok((value >> 1).cast_signed() ^ -((value & 1).cast_signed()));
            }
        }
        Err(Trouble::Rule(cut_off))
    }

    fn short_number(&mut self, cut_off: &'static str) -> Result<i32, Trouble> {
        i32::try_from(self.number(cut_off)?).map_err(|_| Trouble::Rule(cut_off))
    }

    /// Passes over a length and that many bytes; says whether there are any, which a length of -1 denies.
    fn skip_bytes(&mut self, cut_off: &'static str) -> Result<bool, Trouble> {
        let length = self.short_number(cut_off)?;
        if length == -1 {
            return Ok(false);
        }
        let mut left = usize::try_from(length).map_err(|_| Trouble::Rule(cut_off))?;
        while left > 0 {
            left -= self.take(left, cut_off, |_| ())?.0;
        }
        Ok(true)
    }

    /// Passes over the key of a header, which is text. A character may be cut in two by what is ready at a time.
    fn header_key(&mut self) -> Result<(), Trouble> {
        const CUT_OFF: &str = "key of a header is missing or cut off";
        const NO_TEXT: Trouble = Trouble::Rule("key of a header is not UTF-8");
        let length = self.short_number(CUT_OFF)?;
        let mut left = usize::try_from(length).map_err(|_| Trouble::Rule(CUT_OFF))?;
        let mut begun: ([u8; 4], usize) = ([0; 4], 0);
        while left > 0 {
            let (taken, is_text) = self.take(left, CUT_OFF, |bytes| is_text(&mut begun, bytes))?;
            left -= taken;
            if !is_text {
                return Err(NO_TEXT);
            }
        }
        if begun.1 == 0 { Ok(()) } else { Err(NO_TEXT) }
    }
}

/// Whether bytes go on with text. `begun` has the first bytes of a character that was cut in two, and how many.
fn is_text(begun: &mut ([u8; 4], usize), mut bytes: &[u8]) -> bool {
    while begun.1 > 0
        && let Some((next, rest)) = bytes.split_first()
    {
        let (character, length) = begun;
        if *length == character.len() {
            return false;
        }
        character[*length] = *next;
        *length += 1;
        bytes = rest;
        match str::from_utf8(&character[..*length]) {
            Ok(_) => *length = 0,
            Err(problem) if problem.error_len().is_some() => return false,
            Err(_) => {}
        }
    }
    let Err(problem) = str::from_utf8(bytes) else { return true };
    let cut = &bytes[problem.valid_up_to()..];
    if problem.error_len().is_some() {
        return false;
    }
    begun.0[..cut.len()].copy_from_slice(cut);
    begun.1 = cut.len();
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::builder::BatchBuilder;
    use super::super::header::HEADER_BYTES;
    use super::*;

    type Content = (Option<Vec<u8>>, Option<Vec<u8>>, i64, Vec<(String, Option<Vec<u8>>)>);

    fn build(records: &[Content]) -> Vec<u8> {
        let mut builder = BatchBuilder::new();
        for (key, value, timestamp, headers) in records {
            let headers: Vec<_> =
                headers.iter().map(|(key, value)| (key.as_str(), value.as_deref())).collect();
            builder.push(key.as_deref(), value.as_deref(), *timestamp, &headers);
        }
        let mut bytes = Vec::new();
        builder.build(&mut bytes).unwrap();
        bytes
    }

    fn compressed(bytes: &[u8], codec: u8) -> Vec<u8> {
        Batch::parse(bytes).unwrap().0.compressed(codec).unwrap()
    }

    fn walk(bytes: &[u8]) -> Result<RecordsSeen, BatchError> {
        Batch::parse(bytes).unwrap().0.walk_records()
    }

    fn content() -> impl Strategy<Value = Content> {
        let bytes = || proptest::option::of(proptest::collection::vec(any::<u8>(), 0..300));
        let headers = proptest::collection::vec(("[a-zäß€𝄞]{0,40}", bytes()), 0..4);
        (bytes(), bytes(), prop_oneof![Just(-1), 0..i64::MAX], headers)
    }

    #[test]
    fn records_outside_of_a_range_of_time_are_found_compressed_or_not() {
        let times = [5, 9, -1, 10, 4, 100];
        let bytes = build(&times.map(|time| (None, None, time, Vec::new())));
        for bytes in [bytes.clone(), compressed(&bytes, 1)] {
            let (batch, _) = Batch::parse(&bytes).unwrap();
            assert_eq!(
                batch.records_outside(&(5..=9), 10).unwrap(),
                [3, 4, 5],
                "one without a time is never outside"
            );
            assert_eq!(batch.records_outside(&(5..=9), 2).unwrap(), [3, 4]);
        }
    }

    /// Clients that write one block of snappy for all records could make a broker hold 22 times what they sent.
    #[test]
    fn a_block_of_snappy_is_opened_up_to_a_limit_of_its_own() {
        let sent = |bytes: usize| compressed(&build(&[(None, Some(vec![0; bytes]), 1, Vec::new())]), 2);
        assert!(walk(&sent(codec::SNAPPY_BLOCK_BYTES_MAX - 100)).is_ok());
        let bytes_max = codec::SNAPPY_BLOCK_BYTES_MAX as u64;
        let too_large = BatchError::OpenedTooLarge { codec: "snappy", bytes_max };
        assert_eq!(walk(&sent(codec::SNAPPY_BLOCK_BYTES_MAX)), Err(too_large));
    }

    proptest! {
        #[test]
        fn a_walk_sees_the_same_in_a_compressed_batch_as_in_the_opened_one(
            records in proptest::collection::vec(content(), 1..40),
            codec in 1u8..=4,
        ) {
            let bytes = build(&records);
            let seen = walk(&bytes).unwrap();
            prop_assert_eq!(Some(seen.max_timestamp), records.iter().map(|record| record.2).max());
            let keyless = records.iter().position(|record| record.0.is_none());
            prop_assert_eq!(seen.first_without_key.map(|place| place as usize), keyless);
            prop_assert_eq!(walk(&compressed(&bytes, codec)).unwrap(), seen);
        }

        #[test]
        fn a_walk_refuses_in_a_compressed_batch_what_it_refuses_in_the_opened_one(
            records in proptest::collection::vec(content(), 1..8),
            place: prop::sample::Index,
            byte: u8,
            codec in 1u8..=4,
        ) {
            let mut bytes = build(&records);
            let place = HEADER_BYTES + place.index(bytes.len() - HEADER_BYTES);
            bytes[place] = byte;
            super::super::header::update_header(&mut bytes, u32::try_from(records.len()).unwrap()).unwrap();
            let (open, closed) = (walk(&bytes), walk(&compressed(&bytes, codec)));
            prop_assert_eq!(open.is_ok(), closed.is_ok(), "{:?} {:?}", open, closed);
        }
    }

    #[test]
    fn a_batch_that_opens_to_more_than_the_limit_is_refused() {
        let zeros = vec![0; OPENED_BYTES_MAX];
        let bytes = build(&[(None, Some(zeros), 1, Vec::new())]);
        let bomb = {
            let (batch, _) = Batch::parse(&bytes).unwrap();
            let mut bomb = bytes[..HEADER_BYTES].to_vec();
            bomb.extend(codec::compress(4, &batch.open().unwrap()).unwrap());
            super::super::header::set_codec(&mut bomb, 4);
            super::super::header::update_header(&mut bomb, 1).unwrap();
            bomb
        };
        drop(bytes);
        assert!(bomb.len() < 1 << 20);
        assert!(matches!(walk(&bomb), Err(BatchError::OpenedTooLarge { .. })));
    }
}
