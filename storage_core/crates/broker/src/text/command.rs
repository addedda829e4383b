//! Requests of the text protocol, parsed once at the edge.
//!
//! Words and error texts are the original's; `GETAT`, `COMMIT`, `TOPICS` and `DELETE` are ours. A payload is everything
//! behind the one blank after the topic, to the last byte of the frame: blanks and line ends in it are the client's.
//! Everywhere else blanks at the end of a request mean nothing.

use crate::{Error, TopicName};

/// One request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command<'a> {
    /// Creates a topic, unless it is there already.
    Register { topic: TopicName },
    /// Appends one record.
    Put { topic: TopicName, payload: &'a str },
    /// Takes the next record of the topic's shared cursor.
    Get { topic: TopicName },
    /// Reads the record at an offset; moves no cursor.
    GetAt { topic: TopicName, offset: u64, partition: u32 },
    /// Says that every answer to a `GET` of this connection has arrived.
    Commit,
    /// Shows the segments of a topic, as JSON.
    State { topic: TopicName },
    /// Shows what the node knows about its cluster, as JSON.
    Metrics,
    /// Lists the names of the topics, as JSON.
    Topics,
    /// Drops a topic with all its records.
    Delete { topic: TopicName },
}

/// A request that is not understood. The connection goes on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadCommand {
    #[error("unknown command")]
    Unknown,
    #[error("{word} requires a topic")]
    TopicMissing { word: &'static str },
    #[error("PUT requires a payload")]
    PayloadMissing,
    #[error("GETAT requires an offset")]
    OffsetMissing,
    #[error("GETAT requires {what} to be a whole number from 0, got `{got}`")]
    NotANumber { what: &'static str, got: String },
    #[error("{word} takes {takes}, got more: `{rest}`")]
    TooMuch { word: &'static str, takes: &'static str, rest: String },
    #[error(transparent)]
    TopicName(#[from] Error),
}

impl<'a> Command<'a> {
    /// Parses the text of one frame.
    pub(crate) fn parse(text: &'a str) -> Result<Self, BadCommand> {
        let (word, rest) = text.split_once(' ').unwrap_or((text.trim_end(), ""));
        match word {
            "PUT" => put(rest),
            "REGISTER" => only_topic("REGISTER", rest).map(|topic| Self::Register { topic }),
            "GET" => only_topic("GET", rest).map(|topic| Self::Get { topic }),
            "GETAT" => get_at(rest),
            "STATE" => only_topic("STATE", rest).map(|topic| Self::State { topic }),
            "DELETE" => only_topic("DELETE", rest).map(|topic| Self::Delete { topic }),
            "COMMIT" => nothing("COMMIT", rest).map(|()| Self::Commit),
            "METRICS" => nothing("METRICS", rest).map(|()| Self::Metrics),
            "TOPICS" => nothing("TOPICS", rest).map(|()| Self::Topics),
            _ => Err(BadCommand::Unknown),
        }
    }

    /// Whether the answer may be large.
    pub(crate) fn is_read(&self) -> bool {
        matches!(
            self,
            Self::Get { .. } | Self::GetAt { .. } | Self::State { .. } | Self::Metrics | Self::Topics
        )
    }

    /// The command's word in the protocol.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Register { .. } => "REGISTER",
            Self::Put { .. } => "PUT",
            Self::Get { .. } => "GET",
            Self::GetAt { .. } => "GETAT",
            Self::Commit => "COMMIT",
            Self::State { .. } => "STATE",
            Self::Metrics => "METRICS",
            Self::Topics => "TOPICS",
            Self::Delete { .. } => "DELETE",
        }
    }
}

fn put(rest: &str) -> Result<Command<'_>, BadCommand> {
    let Some((name, payload)) = rest.split_once(' ') else {
        let topic = rest.trim_end();
        return Err(if topic.is_empty() {
            BadCommand::TopicMissing { word: "PUT" }
        } else {
            BadCommand::PayloadMissing
        });
    };
    if name.is_empty() {
        return Err(BadCommand::TopicMissing { word: "PUT" });
    }
    Ok(Command::Put { topic: TopicName::parse(name)?, payload })
}

fn get_at(rest: &str) -> Result<Command<'_>, BadCommand> {
    let mut words = rest.trim_end().splitn(4, ' ');
    let topic = match words.next() {
        Some(name) if !name.is_empty() => TopicName::parse(name)?,
        _ => return Err(BadCommand::TopicMissing { word: "GETAT" }),
    };
    let offset = words.next().ok_or(BadCommand::OffsetMissing)?;
    let offset = offset.parse().map_err(|_| not_a_number("the offset", offset))?;
    let partition = match words.next() {
        Some(partition) => partition.parse().map_err(|_| not_a_number("the partition", partition))?,
        None => 0,
    };
    match words.next() {
        Some(rest) => Err(too_much("GETAT", "a topic, an offset and a partition", rest)),
        None => Ok(Command::GetAt { topic, offset, partition }),
    }
}

fn only_topic(word: &'static str, rest: &str) -> Result<TopicName, BadCommand> {
    let rest = rest.trim_end();
    let (name, more) = rest.split_once(' ').unwrap_or((rest, ""));
    if name.is_empty() {
        return Err(BadCommand::TopicMissing { word });
    }
    if !more.is_empty() {
        return Err(too_much(word, "one topic", more));
    }
    Ok(TopicName::parse(name)?)
}

fn nothing(word: &'static str, rest: &str) -> Result<(), BadCommand> {
    match rest.trim() {
        "" => Ok(()),
        more => Err(too_much(word, "nothing", more)),
    }
}

fn not_a_number(what: &'static str, got: &str) -> BadCommand {
    BadCommand::NotANumber { what, got: shown(got) }
}

fn too_much(word: &'static str, takes: &'static str, rest: &str) -> BadCommand {
    BadCommand::TooMuch { word, takes, rest: shown(rest) }
}

/// A client's text as an error shows it: at most 64 characters, none of them able to move a terminal's cursor.
fn shown(text: &str) -> String {
    let mut shown: String =
        text.chars().take(64).map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect();
    if text.chars().nth(64).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(name: &str) -> TopicName {
        TopicName::parse(name).unwrap()
    }

    #[test]
    fn every_command_is_understood() {
        for (text, command) in [
            ("REGISTER logs", Command::Register { topic: name("logs") }),
            ("REGISTER logs \r\n", Command::Register { topic: name("logs") }),
            ("PUT logs hello", Command::Put { topic: name("logs"), payload: "hello" }),
            ("GET logs", Command::Get { topic: name("logs") }),
            ("GET a.b_c-9\n", Command::Get { topic: name("a.b_c-9") }),
            ("GETAT logs 7", Command::GetAt { topic: name("logs"), offset: 7, partition: 0 }),
            ("GETAT logs 7 2", Command::GetAt { topic: name("logs"), offset: 7, partition: 2 }),
            ("STATE logs", Command::State { topic: name("logs") }),
            ("DELETE logs", Command::Delete { topic: name("logs") }),
            ("COMMIT", Command::Commit),
            ("METRICS", Command::Metrics),
            ("METRICS \n", Command::Metrics),
            ("METRICS\n", Command::Metrics),
            ("TOPICS", Command::Topics),
        ] {
            assert_eq!(text.split([' ', '\n']).next(), Some(command.word()));
            assert_eq!(Command::parse(text), Ok(command), "{text:?}");
        }
    }

    #[test]
    fn a_payload_is_kept_to_the_last_byte() {
        for payload in ["x", " x", "a b  c ", "tail blanks   ", "line\r\n", "\n", "", " ", "ü€\u{0}"] {
            let text = format!("PUT t {payload}");
            assert_eq!(Command::parse(&text), Ok(Command::Put { topic: name("t"), payload }), "{text:?}");
        }
    }

    #[test]
    fn errors_have_the_words_of_the_original() {
        for (text, message) in [
            ("", "unknown command"),
            (" ", "unknown command"),
            ("\n", "unknown command"),
            ("NOPE", "unknown command"),
            ("get logs", "unknown command"),
            ("PUTT t x", "unknown command"),
            ("REGISTER", "REGISTER requires a topic"),
            ("REGISTER ", "REGISTER requires a topic"),
            ("PUT", "PUT requires a topic"),
            ("PUT ", "PUT requires a topic"),
            ("PUT  x", "PUT requires a topic"),
            ("PUT t", "PUT requires a payload"),
            ("GET", "GET requires a topic"),
            ("GET \r\n", "GET requires a topic"),
            ("STATE", "STATE requires a topic"),
            ("DELETE", "DELETE requires a topic"),
            ("GETAT", "GETAT requires a topic"),
            ("GETAT t", "GETAT requires an offset"),
            ("GETAT t -1", "GETAT requires the offset to be a whole number from 0, got `-1`"),
            ("GETAT t 1 x", "GETAT requires the partition to be a whole number from 0, got `x`"),
            ("GETAT t 1 2 3", "GETAT takes a topic, an offset and a partition, got more: `3`"),
            ("GET t u", "GET takes one topic, got more: `u`"),
            ("METRICS now", "METRICS takes nothing, got more: `now`"),
        ] {
            assert_eq!(Command::parse(text).unwrap_err().to_string(), message, "{text:?}");
        }
        for text in ["GET ..", "PUT a/b x", "REGISTER ü", "GETAT . 0", "PUT _walrus/__cursors x"] {
            assert!(
                matches!(Command::parse(text), Err(BadCommand::TopicName(Error::InvalidTopic { .. }))),
                "{text:?}"
            );
        }
    }

    #[test]
    fn a_topic_name_has_1_to_249_characters() {
        assert!(Command::parse(&format!("GET {}", "a".repeat(249))).is_ok());
        let message = Command::parse(&format!("GET {}", "a".repeat(60_000))).unwrap_err().to_string();
        assert!(message.len() < 200, "an error does not throw a long name back: {message}");
    }

    #[test]
    fn an_error_shows_no_control_characters() {
        let message = Command::parse("GET t\u{1b}[2J").unwrap_err().to_string();
        assert!(!message.contains('\u{1b}'), "{message:?}");
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in any::<String>()) {
            let _ = Command::parse(&text);
        }

        #[test]
        fn any_payload_comes_out_as_it_went_in(payload in any::<String>()) {
            let text = format!("PUT t {payload}");
            prop_assert_eq!(Command::parse(&text), Ok(Command::Put { topic: name("t"), payload: &payload }));
        }
    }
}
