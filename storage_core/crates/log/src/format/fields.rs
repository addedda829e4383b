//! Little-endian fields one after the other, which are taken in the order in which they were put.

use uuid::Uuid;

/// Appends fields to bytes.
pub(crate) trait PutFields {
    fn put(&mut self, bytes: &[u8]);

    fn put_u8(&mut self, value: u8) {
        self.put(&[value]);
    }

    fn put_u16(&mut self, value: u16) {
        self.put(&value.to_le_bytes());
    }

    fn put_u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }

    fn put_i64(&mut self, value: i64) {
        self.put(&value.to_le_bytes());
    }

    fn put_uuid(&mut self, value: Uuid) {
        self.put(value.as_bytes());
    }

    /// Appends the number of bytes, in 32 bits, and the bytes.
    fn put_block(&mut self, bytes: &[u8]) {
        self.put_u32(u32::try_from(bytes.len()).expect("callers limit what they store"));
        self.put(bytes);
    }
}

impl PutFields for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Takes fields off the front of bytes; each method returns `None` if too few are left.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    pub(crate) fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_le_bytes)
    }

    pub(crate) fn i16(&mut self) -> Option<i16> {
        self.array().map(i16::from_le_bytes)
    }

    pub(crate) fn uuid(&mut self) -> Option<Uuid> {
        self.array().map(Uuid::from_bytes)
    }

    /// Takes bytes that [`PutFields::put_block`] put.
    pub(crate) fn block(&mut self) -> Option<&'a [u8]> {
        let count = self.u32()?;
        self.bytes(count as usize)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
