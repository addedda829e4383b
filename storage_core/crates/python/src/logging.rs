//! The log lines of Rust: where they go, and which of them.

use std::io::{self, Write};
use std::sync::OnceLock;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry, fmt};

static FILTER: OnceLock<Handle<EnvFilter, Registry>> = OnceLock::new();

/// Sends Rust's log lines to standard error, as far as the directives let them (`info`, the syntax of `RUST_LOG`).
///
/// Gives False where logging was set up before: then nothing changes. Raises `ValueError` for wrong directives.
#[pyfunction]
pub(crate) fn init_logging(directives: &str) -> PyResult<bool> {
    let (filter, handle) = reload::Layer::new(parse(directives)?);
    let lines = fmt::layer().with_writer(|| Lines(io::stderr())).with_ansi(false);
    // This fails only if there is a subscriber already.
    let set_up = tracing_subscriber::registry().with(filter).with(lines).try_init().is_ok();
    if set_up {
        FILTER.get_or_init(|| handle);
    }
    Ok(set_up)
}

/// Changes what `init_logging` lets through. False where logging was not set up by it. Raises `ValueError`.
#[pyfunction]
pub(crate) fn set_log_filter(directives: &str) -> PyResult<bool> {
    let filter = parse(directives)?;
    Ok(FILTER.get().is_some_and(|handle| handle.reload(filter).is_ok()))
}

fn parse(directives: &str) -> PyResult<EnvFilter> {
    EnvFilter::try_new(directives).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// Writes one line for each write, whatever strangers' words are in it: control characters other than the line's end become
/// escapes. Else a peer's string could forge lines, or speak to the terminal on which they are read.
struct Lines<W>(W);

impl<W: Write> Write for Lines<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write_all(escaped(line).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

fn escaped(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let (text, end) = text.strip_suffix('\n').map_or((&*text, ""), |text| (text, "\n"));
    let mut escaped = String::with_capacity(line.len());
    for character in text.chars() {
        if character.is_control() {
            escaped.extend(character.escape_default());
        } else {
            escaped.push(character);
        }
    }
    escaped + end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strangers_words_make_no_line_of_their_own() {
        let line = "WARN refused: \u{1b}[2J\nINFO all is well \u{9b}31m\r\t\u{7f}\u{e4}\n";
        let shown = "WARN refused: \\u{1b}[2J\\nINFO all is well \\u{9b}31m\\r\\t\\u{7f}\u{e4}\n";
        let mut written = Vec::new();
        Lines(&mut written).write_all(line.as_bytes()).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), shown);
        assert_eq!(escaped(b"cut \xff"), "cut \u{fffd}");
    }
}
