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
        let record_bytes = record_bytes.max(STAMP_BYTES);
        // splitmix64: fixed seed, the same bytes in every run and for every system
        let mut state: u64 = 0x9E37_79B9_7F4A_7C15;
        let words = (POOL_RECORDS * record_bytes).div_ceil(8);
        let mut pool: Vec<u8> = (0..words)
            .flat_map(|_| {
                state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
                let mut z = state;
                z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
                z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
                (z ^ (z >> 31)).to_le_bytes()
            })
            .collect();
        pool.truncate(POOL_RECORDS * record_bytes);
        Self { pool, record_bytes }
    }

    /// Record `number`, valid until the next call.
    pub fn record(&mut self, number: u64) -> &[u8] {
        let at = self.place(number);
        let record = &mut self.pool[at..at + self.record_bytes];
        record[..STAMP_BYTES].copy_from_slice(&number.to_le_bytes());
        record
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
        let entry = usize::try_from(number % POOL_RECORDS as u64).unwrap_or(0);
        entry * self.record_bytes
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
}
