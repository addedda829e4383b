//! The rule for names of logs, cursors and properties.

use crate::error::{Error, Result};

const NAME_BYTES_MAX: usize = 255;

/// Refuses a name that is empty, too long or contains NUL.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let reason = match name.len() {
        0 => "is empty",
        1..=NAME_BYTES_MAX if !name.contains('\0') => return Ok(()),
        1..=NAME_BYTES_MAX => "contains NUL",
        _ => "is longer than 255 bytes",
    };
    Err(Error::InvalidName { name: name.to_owned(), reason })
}
