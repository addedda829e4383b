//! The digest by which copies of a log are compared: a number over the checksums of its batches, in order. It does not
//! depend on how batches are cut into blocks: digests of neighbours concatenate.

/// The value of a polynomial over batches, modulo the Mersenne prime 2^61 - 1, and the number of batches that it covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Digest {
    pub(crate) value: u64,
    pub(crate) batches: u64,
}

/// Computes the value that [`crate::Log::digest`] has after one more batch is appended to a log with this digest.
#[must_use]
pub fn digest_after(digest: u64, base_offset: u64, records: u32, crc: u32) -> u64 {
    let mut after = Digest { value: digest, batches: 0 };
    after.push(base_offset, records, crc);
    after.value
}

const PRIME: u64 = (1 << 61) - 1;
const BASE: u64 = 0x0123_4567_89ab_cdef % PRIME;

impl Digest {
    /// Adds a batch by its base offset, its number of records and its CRC.
    pub(crate) fn push(&mut self, base_offset: u64, records: u32, crc: u32) {
        let batch = mix(base_offset ^ (u64::from(crc) << 32) ^ u64::from(records));
        self.value = add(multiply(self.value, BASE), batch);
        self.batches += 1;
    }

    /// The digest of these batches followed by those of `next`.
    pub(crate) fn concat(self, next: Self) -> Self {
        let shifted = multiply(self.value, power(BASE, next.batches));
        Self { value: add(shifted, next.value), batches: self.batches.wrapping_add(next.batches) }
    }
}

/// The finaliser of SplitMix64, reduced; it does not map zero to zero.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) % PRIME
}

fn add(a: u64, b: u64) -> u64 {
    (a % PRIME + b % PRIME) % PRIME
}

fn multiply(a: u64, b: u64) -> u64 {
    (u128::from(a) * u128::from(b) % u128::from(PRIME)) as u64
}

fn power(mut base: u64, mut exponent: u64) -> u64 {
    let mut result = 1;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = multiply(result, base);
        }
        base = multiply(base, base);
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(batches: &[(u64, u32, u32)]) -> Digest {
        let mut digest = Digest::default();
        for &(offset, records, crc) in batches {
            digest.push(offset, records, crc);
        }
        digest
    }

    #[test]
    fn it_does_not_matter_where_blocks_are_cut() {
        let batches: Vec<_> =
            (0..20_u32).map(|i| (u64::from(i) * 3, 3, i.wrapping_mul(0x9e37_79b1))).collect();
        for cut in 0..=batches.len() {
            assert_eq!(of(&batches[..cut]).concat(of(&batches[cut..])), of(&batches));
        }
    }

    #[test]
    fn order_and_content_matter() {
        assert_ne!(of(&[(0, 1, 5), (1, 1, 6)]), of(&[(1, 1, 6), (0, 1, 5)]));
        assert_ne!(of(&[(0, 1, 5)]), of(&[(0, 1, 4)]));
        assert_ne!(of(&[(0, 1, 5)]), of(&[(0, 2, 5)]));
    }
}
