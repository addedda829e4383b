//! The shapes of requests, as far as lengths and counts are concerned: whatever a request claims is checked against the bytes that
//! are left of it before `kafka_protocol` decodes it, which allocates what is claimed.

use std::ops::RangeInclusive;

/// Limit on the elements of all arrays of a request together, and its tagged fields: each takes memory of its own once decoded.
const ELEMENTS_MAX: usize = 200_000;

/// A field of a request, in the versions that have it.
pub(super) struct Field {
    kind: Kind,
    since: i16,
    until: i16,
}

enum Kind {
    /// A field of this many bytes in every request.
    Fixed(usize),
    /// A string, or none; its length has 16 bits.
    Text,
    /// Bytes, or none; their length has 32 bits.
    Bytes,
    /// An array of structs, or none.
    Structs(&'static [Field]),
    /// An array of 32-bit numbers, or none.
    Numbers,
    /// An array of strings, or none.
    Texts,
}

const fn field(kind: Kind) -> Field {
    Field { kind, since: 0, until: i16::MAX }
}

/// A field of this many bytes in every request.
pub(super) const fn fixed(bytes: usize) -> Field {
    field(Kind::Fixed(bytes))
}

/// A string, or none.
pub(super) const fn text() -> Field {
    field(Kind::Text)
}

/// Bytes, or none.
pub(super) const fn bytes() -> Field {
    field(Kind::Bytes)
}

/// An array of structs of these fields, or none.
pub(super) const fn structs(fields: &'static [Field]) -> Field {
    field(Kind::Structs(fields))
}

/// An array of 32-bit numbers, or none.
pub(super) const fn numbers() -> Field {
    field(Kind::Numbers)
}

/// An array of strings, or none.
pub(super) const fn texts() -> Field {
    field(Kind::Texts)
}

impl Field {
    /// The field is there from this version on.
    pub(super) const fn since(mut self, version: i16) -> Self {
        self.since = version;
        self
    }

    /// The field is there up to this version.
    pub(super) const fn until(mut self, version: i16) -> Self {
        self.until = version;
        self
    }

    fn versions(&self) -> RangeInclusive<i16> {
        self.since..=self.until
    }
}

/// The shape of an API's requests.
pub(super) struct Schema {
    /// The first version with compact lengths and tagged fields.
    pub(super) flexible_since: i16,
    pub(super) fields: &'static [Field],
}

impl Schema {
    /// Whether a version has compact lengths and tagged fields.
    pub(super) fn is_flexible(&self, version: i16) -> bool {
        version >= self.flexible_since
    }

    /// Checks what the body of a request claims against the bytes that it has.
    pub(super) fn check(&self, version: i16, body: &[u8]) -> Result<(), &'static str> {
        let is_flexible = self.is_flexible(version);
        Walk { rest: body, version, is_flexible, elements: 0 }.fields(self.fields)
    }
}

/// Length of the rest of a request's header, which is behind what all have: the client's id, and tagged fields where the request
/// is flexible. The id's length is never compact.
pub(super) fn header_rest(is_flexible: bool, bytes: &[u8]) -> Result<usize, &'static str> {
    let mut walk = Walk { rest: bytes, version: 0, is_flexible: false, elements: 0 };
    walk.text()?;
    walk.is_flexible = is_flexible;
    walk.tagged_fields()?;
    Ok(bytes.len() - walk.rest.len())
}

struct Walk<'a> {
    rest: &'a [u8],
    version: i16,
    is_flexible: bool,
    elements: usize,
}

const CUT_OFF: &str = "it is cut off";

impl Walk<'_> {
    fn fields(&mut self, fields: &[Field]) -> Result<(), &'static str> {
        let version = self.version;
        for field in fields.iter().filter(|field| field.versions().contains(&version)) {
            match field.kind {
                Kind::Fixed(bytes) => self.skip(bytes)?,
                Kind::Text => self.text()?,
                Kind::Bytes => {
                    let length = if self.is_flexible { self.compact()? } else { self.number()? };
                    self.skip(length.unwrap_or(0))?;
                }
                Kind::Structs(fields) => {
                    for _ in 0..self.count()? {
                        self.fields(fields)?;
                    }
                }
                Kind::Texts => {
                    for _ in 0..self.count()? {
                        self.text()?;
                    }
                }
                Kind::Numbers => {
                    let count = self.count()?;
                    self.skip(count.checked_mul(4).ok_or(CUT_OFF)?)?;
                }
            }
        }
        self.tagged_fields()
    }

    fn text(&mut self) -> Result<(), &'static str> {
        let length = if self.is_flexible {
            self.compact()?
        } else {
            let (length, rest) = self.rest.split_first_chunk().ok_or(CUT_OFF)?;
            self.rest = rest;
            present(i16::from_be_bytes(*length).into())?
        };
        self.skip(length.unwrap_or(0))
    }

    /// The number of elements of an array. Each has at least one byte.
    fn count(&mut self) -> Result<usize, &'static str> {
        let count = if self.is_flexible { self.compact()? } else { self.number()? }.unwrap_or(0);
        if count > self.rest.len() {
            return Err("an array says that it has more elements than there are bytes");
        }
        self.elements += count;
        if self.elements > ELEMENTS_MAX { Err("it has too many elements") } else { Ok(count) }
    }

    fn tagged_fields(&mut self) -> Result<(), &'static str> {
        if !self.is_flexible {
            return Ok(());
        }
        let fields = self.varint()?;
        self.elements = self.elements.saturating_add(fields);
        if self.elements > ELEMENTS_MAX {
            return Err("it has too many tagged fields");
        }
        for _ in 0..fields {
            self.varint()?;
            let length = self.varint()?;
            self.skip(length)?;
        }
        Ok(())
    }

    /// A length or count of 32 bits; `None` for -1.
    fn number(&mut self) -> Result<Option<usize>, &'static str> {
        let (number, rest) = self.rest.split_first_chunk().ok_or(CUT_OFF)?;
        self.rest = rest;
        present(i32::from_be_bytes(*number))
    }

    /// A compact length or count, which is one more than it means; `None` for 0.
    fn compact(&mut self) -> Result<Option<usize>, &'static str> {
        Ok(self.varint()?.checked_sub(1))
    }

    fn varint(&mut self) -> Result<usize, &'static str> {
        let mut value = 0_u32;
        for index in 0..5 {
            let (byte, rest) = self.rest.split_first().ok_or(CUT_OFF)?;
            self.rest = rest;
            if index == 4 && *byte > 0x0f {
                break; // only four bits are left for the fifth byte
            }
            value |= u32::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                return Ok(value as usize);
            }
        }
        Err("a number has more than 32 bits")
    }

    fn skip(&mut self, bytes: usize) -> Result<(), &'static str> {
        self.rest = self.rest.get(bytes..).ok_or(CUT_OFF)?;
        Ok(())
    }
}

/// A length; `None` for -1.
fn present(length: i32) -> Result<Option<usize>, &'static str> {
    if length == -1 {
        return Ok(None);
    }
    usize::try_from(length).map(Some).map_err(|_| "a length is negative")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOPICS: Schema = Schema {
        flexible_since: 9,
        fields: &[
            structs(&[text(), numbers()]),
            fixed(1).since(4).until(8),
            bytes().since(2),
            texts().since(11),
        ],
    };
    const NAMES: Schema = Schema { flexible_since: 9, fields: &[structs(&[text()])] };

    #[test]
    fn what_is_claimed_and_not_there_is_refused() {
        let good = [0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 7, 1, 0, 0, 0, 2, 8, 8];
        assert_eq!(TOPICS.check(4, &good), Ok(()));
        for cut in 0..good.len() {
            assert!(TOPICS.check(4, &good[..cut]).is_err(), "{cut}");
        }
        assert!(TOPICS.check(1, &good[..15]).is_ok(), "an early version has fewer fields");
        for count in [i32::MAX, 1 << 20, -2] {
            let mut claims = good;
            claims[..4].copy_from_slice(&count.to_be_bytes());
            assert!(TOPICS.check(4, &claims).is_err());
        }
    }

    #[test]
    fn compact_counts_of_two_to_the_31_and_endless_tags_are_refused() {
        let flexible = |body: &[u8]| TOPICS.check(10, body);
        assert_eq!(flexible(&[1, 3, 9, 9, 0]), Ok(()), "no topics, two bytes, no tags");
        assert!(flexible(&[0xff, 0xff, 0xff, 0xff, 0x07, 0, 0]).is_err());
        assert!(flexible(&[0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]).is_err());
        assert!(flexible(&[1, 1, 0xff, 0xff, 0xff, 0xff, 0x0f]).is_err());
        assert_eq!(flexible(&[1, 1, 1, 77, 2, 0, 0]), Ok(()), "an unknown tag is passed over");
    }

    #[test]
    fn strings_of_an_array_have_no_tagged_fields_of_their_own() {
        assert_eq!(TOPICS.check(11, &[1, 1, 3, 2, b'a', 1, 0]), Ok(()));
        assert!(TOPICS.check(11, &[1, 1, 3, 2, b'a', 9, 0]).is_err());
        assert!(TOPICS.check(11, &[1, 1, 0xff, 0xff, 0xff, 0xff, 0x07, 0]).is_err());
    }

    #[test]
    fn a_request_may_not_have_an_element_for_each_of_many_bytes() {
        let mut many = 300_000_i32.to_be_bytes().to_vec();
        many.extend_from_slice(&[0xff; 600_000]);
        assert_eq!(NAMES.check(0, &many), Err("it has too many elements"));
    }
}
