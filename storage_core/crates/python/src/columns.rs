//! Stored batches as columns in Arrow's layout, for Spark. No Python in here.
//!
//! Copies each key and value once; per record nothing is allocated.

use walrus_log::batch::{Batch, BatchError, Record};

/// What is wanted of the batches.
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
    /// Where to go on: below it every wanted record of the input is in the columns.
    pub(crate) next_offset: u64,
}

/// Arrow `binary`: row i is `data[offsets[i]..offsets[i + 1]]`, absent where bit i of `validity` is 0.
pub(crate) struct BinaryColumn {
    /// One bit per row, lowest first.
    pub(crate) validity: Vec<u8>,
    /// Rows that are absent.
    pub(crate) null_count: usize,
    /// One more than rows.
    pub(crate) offsets: Vec<i32>,
    /// All values, back to back.
    pub(crate) data: Vec<u8>,
}

/// Arrow `list<struct<key: string, value: binary>>`: row i has the headers `offsets[i]..offsets[i + 1]`.
pub(crate) struct HeadersColumn {
    /// One more than rows.
    pub(crate) offsets: Vec<i32>,
    /// Keys of all headers; none is absent.
    pub(crate) key: BinaryColumn,
    /// Values of all headers.
    pub(crate) value: BinaryColumn,
}

/// Decodes batches that lie back to back, from `position` on, until one of the selection's limits or the end.
pub(crate) fn decode(bytes: &[u8], position: usize, selection: &Selection) -> Result<Columns, BatchError> {
    let mut columns = Columns::new(position, selection);
    while columns.position < bytes.len() && columns.next_offset < selection.end {
        let (batch, _) = Batch::parse(&bytes[columns.position..])?;
        if columns.append_batch(&batch, selection)? == Room::None {
            break;
        }
        columns.position += batch.bytes().len();
    }
    Ok(columns)
}

#[derive(PartialEq, Eq)]
enum Room {
    Left,
    None,
}

impl Columns {
    fn new(position: usize, selection: &Selection) -> Self {
        Self {
            offset: Vec::new(),
            timestamp_us: Vec::new(),
            timestamp_type: Vec::new(),
            key: BinaryColumn::new(),
            value: BinaryColumn::new(),
            headers: selection.headers.then(HeadersColumn::new),
            position,
            next_offset: selection.start,
        }
    }

    fn append_batch(&mut self, batch: &Batch<'_>, selection: &Selection) -> Result<Room, BatchError> {
        if batch.base_offset() >= selection.end {
            self.next_offset = selection.end;
            return Ok(Room::None);
        }
        if batch.end_offset() <= self.next_offset {
            return Ok(Room::Left);
        }
        let timestamp_type = i32::from(batch.header().is_log_append_time());
        for record in batch.records() {
            let record = record?;
            if record.offset < self.next_offset {
                continue;
            }
            if record.offset >= selection.end || self.is_full(&record, selection) {
                return Ok(Room::None);
            }
            self.append(&record, timestamp_type);
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

    fn append(&mut self, record: &Record<'_>, timestamp_type: i32) {
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
    fn new() -> Self {
        Self { validity: Vec::new(), null_count: 0, offsets: vec![0], data: Vec::new() }
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
        Self { offsets: vec![0], key: BinaryColumn::new(), value: BinaryColumn::new() }
    }
}

/// A batch, and so a record, is below 2 GiB; `bytes_max` sees to the rest.
fn arrow_offset(bytes: usize) -> i32 {
    i32::try_from(bytes).expect("the selection's limit keeps columns below 2 GiB")
}
