//! Directory names for the keys of namespaces: no two keys share one, and none leads out of the data directory.

use std::fmt::Write as _;

use crate::error::{Error, Result};

/// Longest file name that file systems take.
const NAME_BYTES_MAX: usize = 255;

/// The directory of a key: letters, digits, `-`, `_` and `.` (except in front) stay, other bytes become `%` and two
/// hex digits.
pub(super) fn directory_name(key: &str) -> Result<String> {
    let invalid = |reason| Err(Error::InvalidName { name: key.to_owned(), reason });
    if key.is_empty() {
        return invalid("is empty");
    }
    let mut name = String::with_capacity(key.len());
    for byte in key.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(char::from(byte)),
            b'.' if !name.is_empty() => name.push('.'),
            _ => write!(name, "%{byte:02X}").expect("a string takes everything"),
        }
    }
    if name.len() > NAME_BYTES_MAX {
        return invalid(
            "is longer than 255 bytes, where each byte but letters, digits, -, _ and . counts as three",
        );
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_that_look_like_paths_are_safe_and_differ() {
        let names = ["a/b", "a_b", "..", ".", "a%2Fb", "ä", "A"].map(|key| directory_name(key).unwrap());
        assert_eq!(names, ["a%2Fb", "a_b", "%2E.", "%2E", "a%252Fb", "%C3%A4", "A"]);
        assert!(directory_name("").is_err());
        assert!(directory_name(&"/".repeat(86)).is_err());
        assert!(directory_name(&"x".repeat(255)).is_ok());
    }

    proptest! {
        #[test]
        fn different_keys_have_different_directories(a in "[./%2Fa_\\x00ä]{1,5}", b in "[./%2Fa_\\x00ä]{1,5}") {
            let (name_a, name_b) = (directory_name(&a).unwrap(), directory_name(&b).unwrap());
            prop_assert_eq!(name_a == name_b, a == b);
            prop_assert!(!name_a.contains(['/', '\0']) && !name_a.starts_with('.'));
        }
    }
}
