//! The records of an uncompressed batch: `length attributes timestamp_delta offset_delta key value headers`, varints
//! but for the attributes (one byte, unused). Nothing is copied.

use super::codec;
use super::error::BatchError;
use super::header::BatchHeader;
use super::varint;

/// Size of the smallest record: six varints of one byte, and the attributes.
pub(super) const RECORD_BYTES_MIN: usize = 7;

/// One record, borrowed from its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Offset of the record in its log.
    pub offset: u64,
    /// Milliseconds since the epoch, by the producer's clock; by the broker's if the batch has log append time.
    pub timestamp_ms: i64,
    /// Key, if the record has one.
    pub key: Option<&'a [u8]>,
    /// Value; a record without one is a tombstone.
    pub value: Option<&'a [u8]>,
    /// Headers, in order.
    pub headers: Headers<'a>,
}

/// One header of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// Key of the header; several headers of a record may have the same.
    pub key: &'a str,
    /// Value of the header, if it has one.
    pub value: Option<&'a [u8]>,
}

/// The headers of a record: an iterator over bytes that were checked when the record was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers<'a> {
    left: u32,
    bytes: &'a [u8],
}

impl<'a> Headers<'a> {
    /// The headers of a record that has none.
    pub const EMPTY: Headers<'static> = Headers { left: 0, bytes: &[] };

    /// Checks all of `bytes`: `count key_length key value_length value …`.
    fn read(mut bytes: &'a [u8]) -> Result<Self, &'static str> {
        let count = varint::read_i32(&mut bytes).ok_or("number of headers is cut off")?;
        let left = u32::try_from(count).map_err(|_| "number of headers is negative")?;
        let headers = Self { left, bytes };
        for _ in 0..left {
            read_header(&mut bytes)?;
        }
        if bytes.is_empty() { Ok(headers) } else { Err("bytes are left behind the headers") }
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = Header<'a>;

    fn next(&mut self) -> Option<Header<'a>> {
        self.left = self.left.checked_sub(1)?;
        Some(read_header(&mut self.bytes).expect("headers were checked when their record was read"))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for Headers<'_> {}

/// Walks the records of a batch; ends behind the first error.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    base_offset: u64,
    base_timestamp: i64,
    /// Timestamp of all records, if the broker has set one in the place of the producer's.
    log_append_time: Option<i64>,
    last_offset_delta: u32,
    count: u32,
    /// Number of records read; `count` after an error, which ends the walk.
    index: u32,
    /// Least offset delta of the next record, since deltas rise from record to record.
    next_delta: u32,
    codec: u8,
}

impl BatchHeader {
    /// Walks the records in bytes that [`Batch::open`](super::Batch::open) has returned for the batch of this header.
    pub fn records_in<'a>(&self, opened: &'a [u8]) -> Records<'a> {
        Records::new(self, opened, 0)
    }
}

impl<'a> Records<'a> {
    /// Walks the records in `bytes`, which are compressed with `codec`; if that is not "none", the walk is an error.
    pub(super) fn new(header: &BatchHeader, bytes: &'a [u8], codec: u8) -> Self {
        Self {
            rest: bytes,
            base_offset: header.base_offset,
            base_timestamp: header.base_timestamp,
            log_append_time: header.is_log_append_time().then_some(header.max_timestamp),
            last_offset_delta: header.last_offset_delta,
            count: header.records_left(),
            index: 0,
            next_delta: 0,
            codec,
        }
    }

    /// Bytes that were not read yet.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn read(&mut self) -> Result<Record<'a>, BatchError> {
        if self.codec != 0 {
            return Err(BatchError::Compressed { codec: codec::name(self.codec) });
        }
        let index = self.index;
        let record = self.read_record().map_err(|reason| BatchError::InvalidRecord { index, reason })?;
        if index + 1 == self.count && !self.rest.is_empty() {
            return Err(BatchError::InvalidRecord { index, reason: "bytes are left behind the last record" });
        }
        Ok(record)
    }

    fn read_record(&mut self) -> Result<Record<'a>, &'static str> {
        let length = varint::read_i32(&mut self.rest).ok_or("length is cut off")?;
        let length = usize::try_from(length).map_err(|_| "length is negative")?;
        let (mut body, rest) = self.rest.split_at_checked(length).ok_or("length runs over the batch")?;
        self.rest = rest;
        let body = &mut body;
        body.split_off_first().ok_or("attributes are cut off")?;
        let timestamp_delta = varint::read_i64(body).ok_or("timestamp delta is cut off")?;
        let offset_delta = varint::read_i32(body).ok_or("offset delta is cut off")?;
        // The records behind this one need an offset each. If no record is missing, each has only one possible delta.
        let delta_max = self.last_offset_delta - (self.count - 1 - self.index);
        let offset_delta = u32::try_from(offset_delta)
            .ok()
            .filter(|delta| (self.next_delta..=delta_max).contains(delta))
            .ok_or("offset delta is not the record's place in its batch")?;
        self.next_delta = offset_delta + 1;
        Ok(Record {
            offset: self.base_offset + u64::from(offset_delta),
            timestamp_ms: self
                .log_append_time
                .unwrap_or_else(|| self.base_timestamp.wrapping_add(timestamp_delta)),
            key: read_bytes(body).ok_or("key is cut off")?,
            value: read_bytes(body).ok_or("value is cut off")?,
            headers: Headers::read(body)?,
        })
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, BatchError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.index == self.count {
            return None;
        }
        let record = self.read();
        self.index = if record.is_ok() { self.index + 1 } else { self.count };
        Some(record)
    }
}

/// A record of a batch that is being built. Offset and timestamp are deltas to those of the batch.
pub(super) struct NewRecord<'a> {
    pub(super) timestamp_delta: i64,
    pub(super) offset_delta: i32,
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: Option<&'a [u8]>,
    pub(super) headers: &'a [(&'a str, Option<&'a [u8]>)],
}

impl NewRecord<'_> {
    /// Value of the length field, which is the number of bytes behind it.
    pub(super) fn length(&self) -> usize {
        1 + varint::size(self.timestamp_delta)
            + varint::size(i64::from(self.offset_delta))
            + size_of_bytes(self.key)
            + size_of_bytes(self.value)
            + varint::size(self.headers.len() as i64)
            + self
                .headers
                .iter()
                .map(|(key, value)| size_of_bytes(Some(key.as_bytes())) + size_of_bytes(*value))
                .sum::<usize>()
    }

    /// Appends the record; `length` must be that of [`NewRecord::length`].
    pub(super) fn write(&self, out: &mut Vec<u8>, length: i32) {
        varint::write_i32(out, length);
        out.push(0);
        varint::write_i64(out, self.timestamp_delta);
        varint::write_i32(out, self.offset_delta);
        write_bytes(out, self.key);
        write_bytes(out, self.value);
        varint::write_i64(out, self.headers.len() as i64);
        for (key, value) in self.headers {
            write_bytes(out, Some(key.as_bytes()));
            write_bytes(out, *value);
        }
    }
}

#[inline]
fn read_header<'a>(bytes: &mut &'a [u8]) -> Result<Header<'a>, &'static str> {
    let key = read_bytes(bytes).flatten().ok_or("key of a header is missing or cut off")?;
    let key = str::from_utf8(key).map_err(|_| "key of a header is not UTF-8")?;
    let value = read_bytes(bytes).ok_or("value of a header is cut off")?;
    Ok(Header { key, value })
}

/// Takes a length and that many bytes off the front; a length of -1 stands for no bytes, which is `Some(None)`. `None` if
/// they are cut off, or the length is another negative number.
#[inline]
#[expect(clippy::option_option, reason = "absent in the format and absent in the bytes are two things")]
fn read_bytes<'a>(bytes: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let length = varint::read_i32(bytes)?;
    if length == -1 {
        return Some(None);
    }
    let (value, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
    *bytes = rest;
    Some(Some(value))
}

fn write_bytes(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => {
            varint::write_i64(out, bytes.len() as i64);
            out.extend_from_slice(bytes);
        }
        None => varint::write_i32(out, -1),
    }
}

fn size_of_bytes(bytes: Option<&[u8]>) -> usize {
    bytes.map_or(1, |bytes| varint::size(bytes.len() as i64) + bytes.len())
}
