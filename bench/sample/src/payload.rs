//! Records that do not compress and that say which one they are, so that a read-back proves each of them.

/// A pool of pseudo-random records; record `i` is pool entry `i % pool` with `i` written into its first 8 bytes.
#[derive(Debug)]
pub struct Payload {
    pool: Vec<u8>,
    record_bytes: usize,
}

const POOL_RECORDS: usize = 64;
const STAMP_BYTES: usize = 8;

impl Payload {
    /// Records of `record_bytes` each, at least the 8 bytes of their number.
    #[must_use]
    pub fn new(record_bytes: usize) -> Self {
        Self::with_pool(record_bytes, POOL_RECORDS)
    }

    /// The same, with `records` of them in memory at once, which is how many [`Payload::batch`] can give.
    #[must_use]
    pub fn with_pool(record_bytes: usize, records: usize) -> Self {
        let record_bytes = record_bytes.max(STAMP_BYTES);
        // splitmix64: fixed seed, the same bytes in every run and for every system
        let mut state: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut pool: Vec<u8> = (0..(records * record_bytes).div_ceil(8))
            .flat_map(|_| {
                state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
                let mut z = state;
                z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
                z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
                (z ^ (z >> 31)).to_le_bytes()
            })
            .collect();
        pool.truncate(records * record_bytes);
        Self { pool, record_bytes }
    }

    /// Record `number`, valid until the next call.
    pub fn record(&mut self, number: u64) -> &[u8] {
        let at = self.place(number);
        let record = &mut self.pool[at..at + self.record_bytes];
        record[..STAMP_BYTES].copy_from_slice(&number.to_le_bytes());
        record
    }

    /// As many records as the pool holds, from `first` on, which must be a multiple of that.
    pub fn batch(&mut self, first: u64) -> Vec<&[u8]> {
        let mut numbers = first..;
        debug_assert_eq!(self.place(first), 0, "a batch begins where the pool does");
        let stamped =
            self.pool.chunks_exact_mut(self.record_bytes).zip(&mut numbers).map(|(record, number)| {
                record[..STAMP_BYTES].copy_from_slice(&number.to_le_bytes());
                &*record
            });
        stamped.collect()
    }

    /// Whether `bytes` are record `number`.
    #[must_use]
    pub fn is_record(&self, number: u64, bytes: &[u8]) -> bool {
        let at = self.place(number);
        bytes.len() == self.record_bytes
            && bytes[..STAMP_BYTES] == number.to_le_bytes()
            && bytes[STAMP_BYTES..] == self.pool[at + STAMP_BYTES..at + self.record_bytes]
    }

    fn place(&self, number: u64) -> usize {
        let records = self.pool.len() / self.record_bytes;
        usize::try_from(number % records as u64).unwrap_or(0) * self.record_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_known_by_its_number_and_by_every_byte() {
        let mut payload = Payload::new(100);
        let mut record = payload.record(70).to_vec();
        assert!(payload.is_record(70, &record));
        assert!(!payload.is_record(6, &record), "the same pool entry, another number");
        record[99] ^= 1;
        assert!(!payload.is_record(70, &record));
        assert!(!payload.is_record(70, &record[..99]));
    }

    #[test]
    fn a_batch_is_the_records_one_by_one() {
        let mut payload = Payload::with_pool(16, 5);
        let batch: Vec<Vec<u8>> = payload.batch(10).into_iter().map(<[u8]>::to_vec).collect();
        assert_eq!(batch.len(), 5);
        assert!((10..).zip(&batch).all(|(number, record)| payload.is_record(number, record)));
    }
}
