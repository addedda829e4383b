//! The zigzag varints of records: at most 5 bytes for 32 bits, 10 for 64. A varint that is longer, or has more bits than
//! fit, is refused.

/// Appends a 32-bit number.
pub(super) fn write_i32(out: &mut Vec<u8>, value: i32) {
    write_i64(out, i64::from(value));
}

/// Takes a 32-bit number off the front.
#[inline]
pub(super) fn read_i32(bytes: &mut &[u8]) -> Option<i32> {
    i32::try_from(read_i64(bytes)?).ok()
}

/// Appends a 64-bit number.
pub(super) fn write_i64(out: &mut Vec<u8>, value: i64) {
    let mut rest = zigzag(value);
    while rest >= 0x80 {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push((rest & 0x7f) as u8);
}

/// Takes a 64-bit number off the front.
#[inline]
pub(super) fn read_i64(bytes: &mut &[u8]) -> Option<i64> {
    let mut value = 0_u64;
    for (index, &byte) in bytes.iter().take(10).enumerate() {
        let bits = u64::from(byte & 0x7f);
        if index == 9 && bits > 1 {
            return None; // Only one bit is left for the tenth byte.
        }
        value |= bits << (7 * index);
        if byte & 0x80 == 0 {
            *bytes = &bytes[index + 1..];
            return Some(unzigzag(value));
        }
    }
    None
}

/// Number of bytes that [`write_i64`] appends for a value.
pub(super) fn size(value: i64) -> usize {
    let bits = 64 - (zigzag(value) | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

const fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -((value & 1).cast_signed())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_numbers_have_kafkas_bytes() {
        let known: [(i64, &[u8]); 8] = [
            (0, &[0]),
            (-1, &[1]),
            (1, &[2]),
            (63, &[0x7e]),
            (-64, &[0x7f]),
            (64, &[0x80, 0x01]),
            (i64::from(i32::MAX), &[0xfe, 0xff, 0xff, 0xff, 0x0f]),
            (i64::MIN, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]),
        ];
        for (value, bytes) in known {
            let mut out = Vec::new();
            write_i64(&mut out, value);
            assert_eq!(out, bytes, "{value}");
            assert_eq!(size(value), bytes.len(), "{value}");
        }
    }

    #[test]
    fn numbers_that_are_cut_too_long_or_too_wide_are_refused() {
        assert_eq!(read_i64(&mut &[][..]), None);
        assert_eq!(read_i64(&mut &[0x80, 0x80][..]), None);
        assert_eq!(read_i64(&mut &[0x80; 11][..]), None);
        let mut wide = [0xff; 10];
        wide[9] = 0x02;
        assert_eq!(read_i64(&mut &wide[..]), None);
        let mut beyond_32_bits = Vec::new();
        write_i64(&mut beyond_32_bits, i64::from(i32::MAX) + 1);
        assert_eq!(read_i32(&mut &beyond_32_bits[..]), None);
    }

    proptest! {
        #[test]
        fn every_number_comes_back_and_leaves_the_rest(value: i64, tail: Vec<u8>) {
            let mut out = Vec::new();
            write_i64(&mut out, value);
            prop_assert_eq!(out.len(), size(value));
            out.extend_from_slice(&tail);
            let mut rest = &out[..];
            prop_assert_eq!(read_i64(&mut rest), Some(value));
            prop_assert_eq!(rest, &tail[..]);
        }
    }
}
