//! Seeded choices, and values that tell what they are.

/// SplitMix64: small, seeded; failures name the seed.
pub struct Random(pub u64);

impl Random {
    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below a bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    /// True once in so many times.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of several things.
    pub fn choose<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}

/// A value, as its number and size: no two are equal, and none is zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// Number of the value, which is never used twice in a trial.
    pub number: u64,
    /// Size of the value, at least eight.
    pub bytes: usize,
}

impl Value {
    /// Its bytes.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut random = Random(self.number);
        let mut bytes = Vec::with_capacity(self.bytes + 8);
        bytes.extend_from_slice(&self.number.to_le_bytes());
        while bytes.len() < self.bytes {
            bytes.extend_from_slice(&random.number().to_le_bytes());
        }
        bytes.truncate(self.bytes.max(8));
        bytes
    }

    /// Whether these are its bytes.
    pub fn is(self, bytes: &[u8]) -> bool {
        bytes == self.to_bytes()
    }
}
