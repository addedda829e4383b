//! Connections by the software of their clients, which tell it with ApiVersions 3 and later (KIP-511).

use std::collections::HashMap;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::node::locks::Lock;
use crate::node::metrics::Metrics;

/// Limit on the different clients that are told apart at a time; those that come when there are so many are counted as others.
const DIFFERENT_MAX: usize = 100;
/// Longest name or version that is shown.
const WORD_BYTES_MAX: usize = 64;
const OTHER: &str = "other";

/// A client's software.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Software {
    name: String,
    version: String,
}

impl Software {
    fn other() -> Self {
        Self { name: OTHER.to_owned(), version: OTHER.to_owned() }
    }

    /// What a client says of itself, if it is what Kafka takes.
    fn told(name: &str, version: &str) -> Option<Self> {
        let told = || Self { name: name.to_owned(), version: version.to_owned() };
        (is_word(name) && is_word(version)).then(told)
    }
}

/// Whether this is a name or version as Kafka takes them: letters, digits, `-` and `.`, the first and the last neither of the two.
fn is_word(word: &str) -> bool {
    let is_alphanumeric = |at: Option<&u8>| at.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = word.as_bytes();
    bytes.len() <= WORD_BYTES_MAX
        && is_alphanumeric(bytes.first())
        && is_alphanumeric(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
}

/// Programs that are built on librdkafka and say so neither with their name nor with their version, by that name.
const BUILT_ON_LIBRDKAFKA: [&str; 1] = ["ClickHouse"];

/// Whether a client is built on librdkafka, by what it says of itself. Most bindings and tools have the library's name in their own
/// or in their version, as the library's documentation asks; Confluent's have one name in common. Any other is known by its name, or
/// not at all.
pub(super) fn is_librdkafka(name: &str, version: &str) -> bool {
    name.starts_with("confluent-kafka-")
        || BUILT_ON_LIBRDKAFKA.contains(&name)
        || [name, version].iter().any(|word| word.contains("rdkafka"))
}

/// Counts connections by the software of their clients.
pub(super) struct Clients {
    /// Number of connections of each.
    open: Lock<HashMap<Software, i64>>,
    shown: Family<Software, Gauge>,
}

impl Clients {
    /// Registers the gauge, once.
    pub(super) fn new(metrics: &Metrics) -> Self {
        let clients = Self { open: Lock::default(), shown: Family::default() };
        metrics.register(|registry| {
            let help = "Open connections by the name and version of the client's software";
            registry.register("walrus_kafka_clients", help, clients.shown.clone());
        });
        clients
    }

    /// Counts a connection until what is returned is dropped.
    pub(super) fn enter(&self, name: &str, version: &str) -> Present<'_> {
        let mut open = self.open.lock();
        let told = Software::told(name, version);
        let has_place = |told: &Software| open.contains_key(told) || open.len() < DIFFERENT_MAX;
        let software = told.filter(has_place).unwrap_or_else(Software::other);
        let count = open.entry(software.clone()).or_default();
        *count += 1;
        self.shown.get_or_create(&software).set(*count);
        Present { clients: self, software }
    }
}

/// A connection that is counted.
pub(super) struct Present<'a> {
    clients: &'a Clients,
    software: Software,
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        let mut open = self.clients.open.lock();
        let Some(count) = open.get_mut(&self.software) else { return };
        *count -= 1;
        self.clients.shown.get_or_create(&self.software).set(*count);
        if *count == 0 {
            open.remove(&self.software);
            self.clients.shown.remove(&self.software);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_name_of_kafkas_is_not_shown() {
        for word in ["librdkafka", "v2.3.0", "apache-kafka-java", "1", "a..b"] {
            assert!(is_word(word), "{word}");
        }
        let long = "a".repeat(WORD_BYTES_MAX + 1);
        for word in ["", "-", ".a", "a-", "a b", "a\"", "a\n", "ä", &long] {
            assert!(!is_word(word), "{word:?}");
        }
    }

    #[test]
    fn clients_that_are_built_on_librdkafka_are_known_by_what_they_say() {
        let built_on_it = [
            ("librdkafka", "2.16.0"),
            ("confluent-kafka-python", "2.16.0"),
            ("confluent-kafka-go", "2.3.0"),
            ("rust-rdkafka", "0.36.2"),
            ("karafka", "v2.5.0-rdkafka-ruby-v0.19.5-librdkafka-v2.8.0"),
            ("ClickHouse", "v25.8.2.29-lts"),
        ];
        for (name, version) in built_on_it {
            assert!(is_librdkafka(name, version), "{name} {version}");
        }
        for (name, version) in
            [("apache-kafka-java", "4.1.0"), ("kgo", "v1.20.1"), ("sarama", "1.46"), ("", "")]
        {
            assert!(!is_librdkafka(name, version), "{name} {version}");
        }
    }

    #[test]
    fn strangers_cannot_make_up_more_names_than_are_told_apart() {
        let metrics = Metrics::new();
        let clients = Clients::new(&metrics);
        let made_up: Vec<_> =
            (0..3 * DIFFERENT_MAX).map(|n| clients.enter("made-up", &n.to_string())).collect();
        let known = clients.enter("made-up", "0");
        let lines = |metrics: &Metrics| {
            let text = metrics.encode();
            text.lines().filter(|line| line.starts_with("walrus_kafka_clients{")).map(str::to_owned).collect()
        };
        let shown: Vec<String> = lines(&metrics);
        assert_eq!(shown.len(), DIFFERENT_MAX + 1);
        for line in [r#"{name="other",version="other"} 200"#, r#"{name="made-up",version="0"} 2"#] {
            assert!(shown.iter().any(|shown| shown.ends_with(line)), "{line} is missing: {shown:?}");
        }
        drop((made_up, known));
        assert_eq!(lines(&metrics), Vec::<String>::new(), "they are gone");
    }
}
