//! The APIs that are offered, in which versions, and the shapes of their requests. No version is offered that no test runs.

use super::schema::{Schema, bytes, fixed, numbers, structs, text};

/// An API that is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offered {
    Produce,
    Fetch,
    ListOffsets,
    Metadata,
    ApiVersions,
    InitProducerId,
    OffsetForLeaderEpoch,
}

/// An offer of an API.
pub(super) struct Offer {
    pub(super) api: Offered,
    pub(super) key: i16,
    /// Its name, in metrics.
    pub(super) name: &'static str,
    /// First version that is told to clients.
    pub(super) told_from: i16,
    /// First version that is served.
    pub(super) served_from: i16,
    /// Last version, told and served.
    pub(super) max: i16,
    pub(super) schema: Schema,
}

impl Offer {
    pub(super) fn serves(&self, version: i16) -> bool {
        (self.served_from..=self.max).contains(&version)
    }
}

/// All offers, by key.
pub(super) const OFFERS: [Offer; 7] = [
    Offer {
        api: Offered::Produce,
        key: 0,
        name: "Produce",
        // librdkafka before 2.11.1 takes a broker that does not tell these versions for one that knows no compression
        // (KAFKA-18659), and does not compress. No client that tells its versions sends them.
        told_from: 0,
        served_from: 3,
        max: 10,
        schema: Schema {
            flexible_since: 9,
            fields: &[
                text(),
                fixed(2 + 4), // acks, timeout
                structs(&[text(), structs(&[fixed(4), bytes()])]),
            ],
        },
    },
    Offer {
        api: Offered::Fetch,
        key: 1,
        name: "Fetch",
        told_from: 4,
        served_from: 4,
        max: 12,
        schema: Schema {
            flexible_since: 12,
            fields: &[
                fixed(4 + 4 + 4 + 4 + 1), // replica, wait, bytes at least and at most, isolation
                fixed(4 + 4).since(7),    // session and its epoch
                structs(&[
                    text(),
                    structs(&[
                        fixed(4),           // partition
                        fixed(4).since(9),  // current leader epoch
                        fixed(8),           // offset
                        fixed(4).since(12), // last fetched epoch
                        fixed(8).since(5),  // log start
                        fixed(4),           // bytes at most
                    ]),
                ]),
                structs(&[text(), numbers()]).since(7),
                text().since(11),
            ],
        },
    },
    Offer {
        api: Offered::ListOffsets,
        key: 2,
        name: "ListOffsets",
        told_from: 1,
        served_from: 1,
        max: 7,
        schema: Schema {
            flexible_since: 6,
            fields: &[
                fixed(4),          // replica
                fixed(1).since(2), // isolation
                structs(&[text(), structs(&[fixed(4), fixed(4).since(4), fixed(8)])]),
            ],
        },
    },
    Offer {
        api: Offered::Metadata,
        key: 3,
        name: "Metadata",
        told_from: 0,
        served_from: 0,
        max: 11,
        schema: Schema {
            flexible_since: 9,
            fields: &[
                structs(&[fixed(16).since(10), text()]),
                fixed(1).since(4),           // auto-creation
                fixed(1).since(8).until(10), // operations allowed on the cluster
                fixed(1).since(8),           // operations allowed on topics
            ],
        },
    },
    Offer {
        api: Offered::ApiVersions,
        key: 18,
        name: "ApiVersions",
        told_from: 0,
        served_from: 0,
        max: 4,
        schema: Schema { flexible_since: 3, fields: &[text().since(3), text().since(3)] },
    },
    Offer {
        api: Offered::InitProducerId,
        key: 22,
        name: "InitProducerId",
        told_from: 0,
        served_from: 0,
        max: 5,
        schema: Schema {
            flexible_since: 2,
            fields: &[text(), fixed(4), fixed(8 + 2).since(3)], // transactional id, its timeout, producer and its epoch
        },
    },
    Offer {
        api: Offered::OffsetForLeaderEpoch,
        key: 23,
        name: "OffsetForLeaderEpoch",
        told_from: 2,
        served_from: 2,
        max: 4,
        schema: Schema {
            flexible_since: 4,
            fields: &[fixed(4).since(3), structs(&[text(), structs(&[fixed(4 + 4 + 4)])])],
        },
    },
];

/// The offer of an API by its key.
pub(super) fn find(key: i16) -> Option<&'static Offer> {
    OFFERS.iter().find(|offer| offer.key == key)
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::ApiKey;

    use super::*;

    #[test]
    fn what_is_served_stands_in_the_reference_and_nothing_else() {
        let page = include_str!("../../../../../docs/reference/kafka.md");
        let (_, served) = page.split_once("## What is served\n").unwrap();
        let (served, _) = served.split_once("\n- ").unwrap();
        let rows: Vec<&str> = served.lines().filter(|line| line.starts_with("| ")).skip(2).collect();
        let row = |offer: &Offer| format!("| {} | {}-{} |", offer.name, offer.served_from, offer.max);
        for offer in &OFFERS {
            assert!(rows.iter().any(|line| line.starts_with(&row(offer))), "{}", row(offer));
        }
        assert_eq!(rows.len(), OFFERS.len());
    }

    #[test]
    fn offers_are_versions_that_the_codec_knows_with_their_headers() {
        for offer in &OFFERS {
            let known = ApiKey::try_from(offer.key).unwrap();
            let versions = known.valid_versions();
            assert!(versions.min <= offer.served_from && offer.max <= versions.max, "{}", offer.name);
            assert!(offer.told_from <= offer.served_from && offer.served_from <= offer.max);
            for version in offer.served_from..=offer.max {
                let is_flexible = known.request_header_version(version) == 2;
                assert_eq!(offer.schema.is_flexible(version), is_flexible, "{} {version}", offer.name);
            }
        }
    }
}
