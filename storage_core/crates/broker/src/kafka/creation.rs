//! Topics that are made because a client of Kafka's protocol names them. What such clients take for granted of a topic is written
//! into its settings, so that it is seen there and can be changed: the defaults of Kafka 4 where those here are others, and leaders
//! that stay, since each move of one costs a client a look at the metadata.

use std::collections::BTreeMap;

use super::context::Context;
use crate::node::error::{Error, Result};
use crate::node::names::TopicPath;
use crate::topics::catalogue::NewTopic;

/// Settings of topics that are made over Kafka's protocol.
const DEFAULTS: [(&str, &str); 4] = [
    ("max.message.bytes", "1048588"),
    ("message.timestamp.after.max.ms", "3600000"),
    ("retention.ms", "604800000"),
    ("walrus.leaders", "sticky"),
];

/// The settings of a topic that is made over Kafka's protocol, where its maker says nothing else.
pub(super) fn defaults() -> BTreeMap<String, String> {
    DEFAULTS.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// One of these settings.
pub(super) fn default_of(setting: &str) -> &'static str {
    DEFAULTS.iter().find(|(name, _)| *name == setting).map_or("", |(_, value)| value)
}

/// Makes a topic with as many partitions as the cluster says, unless somebody else has just made one of that name.
pub(super) async fn create(context: &Context, path: &TopicPath) -> Result<()> {
    let partitions = context.broker.cluster().routing().metadata.config.partitions_default();
    match context.broker.create_topic(path, NewTopic { partitions, config: defaults() }).await {
        Ok(_) | Err(Error::TopicExists { .. } | Error::TopicDiffers { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use walrus_metadata::DEFINITIONS;

    use super::*;

    #[test]
    fn the_defaults_are_settings_that_a_topic_can_have() {
        let page = include_str!("../../../../../docs/reference/kafka.md");
        for (name, value) in DEFAULTS {
            assert!(DEFINITIONS.iter().any(|definition| definition.name == name), "{name}");
            assert!(page.contains(&format!("`{name}={value}`")), "{name} is not in the reference");
        }
    }
}
