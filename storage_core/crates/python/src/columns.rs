//! Stored batches as columns in Arrow's layout, for Spark. No Python in here.
//!
//! Each key and value is copied once; per record nothing is allocated.

use std::collections::VecDeque;

use walrus_log::batch::{Batch, BatchError, Record, Records};

use crate::spare;

/// The selection of records that are wanted of the batches.
#[derive(Clone, Copy)]
pub(crate) struct Selection {
    /// First offset wanted.
    pub(crate) start: u64,
    /// First offset not wanted.
    pub(crate) end: u64,
    /// Bytes of keys, values and headers after which no further record is taken; the first always is. At most
    /// `i32::MAX`, so that Arrow's 32-bit offsets reach everything.
    pub(crate) bytes_max: usize,
    /// Whether headers are wanted.
    pub(crate) headers: bool,
}

/// Records as columns; all have the same number of rows.
pub(crate) struct Columns {
    /// Offsets of the records.
    pub(crate) offset: Vec<i64>,
    /// Microseconds since the epoch; what 64 bits cannot say is the nearest that they can.
    pub(crate) timestamp_us: Vec<i64>,
    /// Kafka's `timestampType`: 0 set by the producer, 1 by the broker.
    pub(crate) timestamp_type: Vec<i32>,
    /// Keys.
    pub(crate) key: BinaryColumn,
    /// Values.
    pub(crate) value: BinaryColumn,
    /// Headers, if wanted.
    pub(crate) headers: Option<HeadersColumn>,
    /// Place in the input of the first batch that is not used up.
    pub(crate) position: usize,
    /// Offset from which to go on: below it every wanted record of the input is in the columns.
    pub(crate) next_offset: u64,
}

/// Arrow `binary`: row i is `data[offsets[i]..offsets[i + 1]]`, absent where bit i of `validity` is 0.
pub(crate) struct BinaryColumn {
    /// One bit per row, lowest first.
    pub(crate) validity: Vec<u8>,
    /// Number of rows that are absent.
    pub(crate) null_count: usize,
    /// Where the rows begin and end, one more than rows.
    pub(crate) offsets: Vec<i32>,
    /// All values, back to back.
    pub(crate) data: Vec<u8>,
}

/// Arrow `list<struct<key: string, value: binary>>`: row i has the headers `offsets[i]..offsets[i + 1]`.
pub(crate) struct HeadersColumn {
    /// Where the rows begin and end, one more than rows.
    pub(crate) offsets: Vec<i32>,
    /// Keys of all headers; none is absent.
    pub(crate) key: BinaryColumn,
    /// Values of all headers.
    pub(crate) value: BinaryColumn,
}

/// Decodes batches that lie back to back, from `position` on, until one of the selection's limits or the end.
pub(crate) fn decode(bytes: &[u8], position: usize, selection: &Selection) -> Result<Columns, BatchError> {
    let mut columns = Columns::new(position, selection, bytes.len() - position);
    columns.append(bytes, selection, &mut None)?;
    Ok(columns)
}

/// Decodes pages of batches as they come, each left where it is. A compressed batch is opened once, however many columns
/// its records go into.
pub(crate) struct Decoder<Page> {
    selection: Selection,
    /// Position in the first page.
    position: usize,
    pages: VecDeque<Page>,
    opened: Option<Opened>,
}

/// A compressed batch that was opened and has records left.
struct Opened {
    base_offset: u64,
    records: Vec<u8>,
}

impl<Page: AsRef<[u8]>> Decoder<Page> {
    pub(crate) fn new(selection: Selection) -> Self {
        Self { selection, position: 0, pages: VecDeque::new(), opened: None }
    }

    /// Adds a page, which begins where the last one ended.
    pub(crate) fn add(&mut self, page: Page) {
        self.pages.push_back(page);
    }

    /// Bytes of the pages that are not decoded yet.
    pub(crate) fn waiting(&self) -> usize {
        self.pages.iter().map(|page| page.as_ref().len()).sum::<usize>() - self.position
    }

    /// Decodes what is there, at most `bytes_max`. Behind an error it is of no use any more.
    pub(crate) fn take(&mut self) -> Result<Columns, BatchError> {
        let mut columns = Columns::new(self.position, &self.selection, self.waiting());
        while let Some(page) = self.pages.front() {
            let room = columns.append(page.as_ref(), &self.selection, &mut self.opened)?;
            self.selection.start = columns.next_offset;
            self.position = columns.position;
            if room == Room::None {
                break;
            }
            self.pages.pop_front();
            (columns.position, self.position) = (0, 0);
        }
        Ok(columns)
    }
}

#[derive(PartialEq, Eq)]
enum Room {
    Left,
    None,
}

impl Columns {
    /// Empty columns with room for `bytes` that are about to be decoded.
    fn new(position: usize, selection: &Selection, bytes: usize) -> Self {
        Self {
            offset: Vec::new(),
            timestamp_us: Vec::new(),
            timestamp_type: Vec::new(),
            key: BinaryColumn::new(0),
            value: BinaryColumn::new(bytes.min(selection.bytes_max)),
            headers: selection.headers.then(HeadersColumn::new),
            position,
            next_offset: selection.start,
        }
    }

    /// Decodes batches that lie back to back, from the own position on.
    fn append(
        &mut self,
        bytes: &[u8],
        selection: &Selection,
        opened: &mut Option<Opened>,
    ) -> Result<Room, BatchError> {
        while self.position < bytes.len() && self.next_offset < selection.end {
            let (batch, _) = Batch::parse(&bytes[self.position..])?;
            if self.append_batch(&batch, selection, opened)? == Room::None {
                return Ok(Room::None);
            }
            self.position += batch.bytes().len();
        }
        Ok(Room::Left)
    }

    fn append_batch(
        &mut self,
        batch: &Batch<'_>,
        selection: &Selection,
        opened: &mut Option<Opened>,
    ) -> Result<Room, BatchError> {
        if batch.base_offset() >= selection.end {
            self.next_offset = selection.end;
            return Ok(Room::None);
        }
        if batch.end_offset() <= self.next_offset {
            return Ok(Room::Left);
        }
        if !batch.is_compressed() {
            return self.append_records(batch, batch.records(), selection);
        }
        let records = match opened.take().filter(|opened| opened.base_offset == batch.base_offset()) {
            Some(opened) => opened.records,
            None => batch.open()?.into_owned(),
        };
        let room = self.append_records(batch, batch.header().records_in(&records), selection)?;
        if room == Room::None && self.next_offset < selection.end {
            *opened = Some(Opened { base_offset: batch.base_offset(), records });
        }
        Ok(room)
    }

    fn append_records(
        &mut self,
        batch: &Batch<'_>,
        records: Records<'_>,
        selection: &Selection,
    ) -> Result<Room, BatchError> {
        let timestamp_type = i32::from(batch.header().is_log_append_time());
        for record in records {
            let record = record?;
            if record.offset < self.next_offset {
                continue;
            }
            if record.offset >= selection.end || self.is_full(&record, selection) {
                return Ok(Room::None);
            }
            self.append_record(&record, timestamp_type);
        }
        Ok(Room::Left)
    }

    fn is_full(&self, record: &Record<'_>, selection: &Selection) -> bool {
        let size = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len);
        let mut wanted = size(record.key) + size(record.value);
        let mut taken = self.key.data.len() + self.value.data.len();
        if let Some(headers) = &self.headers {
            wanted += record.headers.map(|header| header.key.len() + size(header.value)).sum::<usize>();
            taken += headers.key.data.len() + headers.value.data.len();
        }
        !self.offset.is_empty() && taken + wanted > selection.bytes_max
    }

    fn append_record(&mut self, record: &Record<'_>, timestamp_type: i32) {
        self.offset.push(record.offset.cast_signed());
        self.timestamp_us.push(record.timestamp_ms.saturating_mul(1_000));
        self.timestamp_type.push(timestamp_type);
        self.key.push(record.key);
        self.value.push(record.value);
        if let Some(headers) = &mut self.headers {
            for header in record.headers {
                headers.key.push(Some(header.key.as_bytes()));
                headers.value.push(header.value);
            }
            headers.offsets.push(arrow_offset(headers.key.rows()));
        }
        self.next_offset = record.offset + 1;
    }
}

impl BinaryColumn {
    fn new(bytes: usize) -> Self {
        Self { validity: Vec::new(), null_count: 0, offsets: vec![0], data: spare::take(bytes) }
    }

    fn rows(&self) -> usize {
        self.offsets.len() - 1
    }

    fn push(&mut self, value: Option<&[u8]>) {
        let bit = self.rows() % 8;
        if bit == 0 {
            self.validity.push(0);
        }
        if let Some(value) = value {
            if let Some(byte) = self.validity.last_mut() {
                *byte |= 1 << bit;
            }
            self.data.extend_from_slice(value);
        } else {
            self.null_count += 1;
        }
        self.offsets.push(arrow_offset(self.data.len()));
    }
}

impl HeadersColumn {
    fn new() -> Self {
        Self { offsets: vec![0], key: BinaryColumn::new(0), value: BinaryColumn::new(0) }
    }
}

/// The length as Arrow counts it. A batch, and so a record, is below 2 GiB, and `bytes_max` bounds the rest.
fn arrow_offset(bytes: usize) -> i32 {
    i32::try_from(bytes).expect("the selection's limit keeps columns below 2 GiB")
}
