//! The APIs that are offered, in which versions, and the shapes of their requests. No version is offered that no test runs.

use super::schema::{Schema, bytes, fixed, numbers, structs, text, texts};

/// An API that is offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offered {
    Produce,
    Fetch,
    ListOffsets,
    Metadata,
    OffsetCommit,
    OffsetFetch,
    FindCoordinator,
    JoinGroup,
    Heartbeat,
    LeaveGroup,
    SyncGroup,
    DescribeGroups,
    ListGroups,
    ApiVersions,
    CreateTopics,
    DeleteTopics,
    DeleteRecords,
    InitProducerId,
    OffsetForLeaderEpoch,
    DescribeAcls,
    DescribeConfigs,
    AlterConfigs,
    DescribeLogDirs,
    CreatePartitions,
    DeleteGroups,
    IncrementalAlterConfigs,
    ListPartitionReassignments,
    OffsetDelete,
    DescribeCluster,
    DescribeProducers,
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
pub(super) const OFFERS: [Offer; 30] = [
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
        api: Offered::OffsetCommit,
        key: 8,
        name: "OffsetCommit",
        told_from: 2,
        served_from: 2,
        max: 9,
        schema: Schema {
            flexible_since: 8,
            fields: &[
                text(),
                fixed(4), // generation
                text(),
                text().since(7),
                fixed(8).until(4), // how long it is to be kept
                structs(&[
                    text(),
                    structs(&[
                        fixed(4 + 8),      // partition, offset
                        fixed(4).since(6), // leader epoch
                        text(),
                    ]),
                ]),
            ],
        },
    },
    Offer {
        api: Offered::OffsetFetch,
        key: 9,
        name: "OffsetFetch",
        told_from: 1,
        served_from: 1,
        max: 9,
        schema: Schema {
            flexible_since: 6,
            fields: &[
                text().until(7),
                structs(&[text(), numbers()]).until(7),
                structs(&[
                    text(),
                    text().since(9),
                    fixed(4).since(9), // epoch of the member
                    structs(&[text(), numbers()]),
                ])
                .since(8),
                fixed(1).since(7), // whether stable offsets only
            ],
        },
    },
    Offer {
        api: Offered::FindCoordinator,
        key: 10,
        name: "FindCoordinator",
        told_from: 0,
        served_from: 0,
        max: 4,
        schema: Schema {
            flexible_since: 3,
            fields: &[
                text().until(3),
                fixed(1).since(1), // kind
                texts().since(4),
            ],
        },
    },
    Offer {
        api: Offered::JoinGroup,
        key: 11,
        name: "JoinGroup",
        told_from: 0,
        served_from: 0,
        max: 9,
        schema: Schema {
            flexible_since: 6,
            fields: &[
                text(),
                fixed(4),          // session timeout
                fixed(4).since(1), // rebalance timeout
                text(),
                text().since(5),
                text(),
                structs(&[text(), bytes()]),
                text().since(8),
            ],
        },
    },
    Offer {
        api: Offered::Heartbeat,
        key: 12,
        name: "Heartbeat",
        told_from: 0,
        served_from: 0,
        max: 4,
        schema: Schema {
            flexible_since: 4,
            fields: &[
                text(),
                fixed(4), // generation
                text(),
                text().since(3),
            ],
        },
    },
    Offer {
        api: Offered::LeaveGroup,
        key: 13,
        name: "LeaveGroup",
        told_from: 0,
        served_from: 0,
        max: 5,
        schema: Schema {
            flexible_since: 4,
            fields: &[text(), text().until(2), structs(&[text(), text(), text().since(5)]).since(3)],
        },
    },
    Offer {
        api: Offered::SyncGroup,
        key: 14,
        name: "SyncGroup",
        told_from: 0,
        served_from: 0,
        max: 5,
        schema: Schema {
            flexible_since: 4,
            fields: &[
                text(),
                fixed(4), // generation
                text(),
                text().since(3),
                text().since(5),
                text().since(5),
                structs(&[text(), bytes()]),
            ],
        },
    },
    Offer {
        api: Offered::DescribeGroups,
        key: 15,
        name: "DescribeGroups",
        told_from: 0,
        served_from: 0,
        max: 5,
        schema: Schema {
            flexible_since: 5,
            fields: &[
                texts(),
                fixed(1).since(3), // whether the operations that are allowed are wanted
            ],
        },
    },
    Offer {
        api: Offered::ListGroups,
        key: 16,
        name: "ListGroups",
        told_from: 0,
        served_from: 0,
        max: 5,
        schema: Schema { flexible_since: 3, fields: &[texts().since(4), texts().since(5)] },
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
        api: Offered::CreateTopics,
        key: 19,
        name: "CreateTopics",
        told_from: 2,
        served_from: 2,
        max: 7,
        schema: Schema {
            flexible_since: 5,
            fields: &[
                structs(&[
                    text(),
                    fixed(4 + 2), // partitions, copies
                    structs(&[fixed(4), numbers()]),
                    structs(&[text(), text()]),
                ]),
                fixed(4 + 1), // timeout, whether to check only
            ],
        },
    },
    Offer {
        api: Offered::DeleteTopics,
        key: 20,
        name: "DeleteTopics",
        told_from: 1,
        served_from: 1,
        max: 6,
        schema: Schema {
            flexible_since: 4,
            fields: &[
                structs(&[text(), fixed(16)]).since(6),
                texts().until(5),
                fixed(4), // timeout
            ],
        },
    },
    Offer {
        api: Offered::DeleteRecords,
        key: 21,
        name: "DeleteRecords",
        told_from: 0,
        served_from: 0,
        max: 2,
        schema: Schema {
            flexible_since: 2,
            fields: &[
                structs(&[text(), structs(&[fixed(4 + 8)])]),
                fixed(4), // timeout
            ],
        },
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
    Offer {
        api: Offered::DescribeAcls,
        key: 29,
        name: "DescribeAcls",
        told_from: 1,
        served_from: 1,
        max: 3,
        schema: Schema {
            flexible_since: 2,
            fields: &[
                fixed(1), // kind of resource
                text(),
                fixed(1), // pattern
                text(),
                text(),
                fixed(1 + 1), // operation, permission
            ],
        },
    },
    Offer {
        api: Offered::DescribeConfigs,
        key: 32,
        name: "DescribeConfigs",
        told_from: 1,
        served_from: 1,
        max: 4,
        schema: Schema {
            flexible_since: 4,
            fields: &[
                structs(&[fixed(1), text(), texts()]),
                fixed(1),          // synonyms
                fixed(1).since(3), // documentation
            ],
        },
    },
    Offer {
        api: Offered::AlterConfigs,
        key: 33,
        name: "AlterConfigs",
        told_from: 0,
        served_from: 0,
        max: 2,
        schema: Schema {
            flexible_since: 2,
            fields: &[
                structs(&[fixed(1), text(), structs(&[text(), text()])]),
                fixed(1), // whether to check only
            ],
        },
    },
    Offer {
        api: Offered::DescribeLogDirs,
        key: 35,
        name: "DescribeLogDirs",
        told_from: 1,
        served_from: 1,
        max: 4,
        schema: Schema { flexible_since: 2, fields: &[structs(&[text(), numbers()])] },
    },
    Offer {
        api: Offered::CreatePartitions,
        key: 37,
        name: "CreatePartitions",
        told_from: 0,
        served_from: 0,
        max: 3,
        schema: Schema {
            flexible_since: 2,
            fields: &[
                structs(&[text(), fixed(4), structs(&[numbers()])]),
                fixed(4 + 1), // timeout, whether to check only
            ],
        },
    },
    Offer {
        api: Offered::DeleteGroups,
        key: 42,
        name: "DeleteGroups",
        told_from: 0,
        served_from: 0,
        max: 2,
        schema: Schema { flexible_since: 2, fields: &[texts()] },
    },
    Offer {
        api: Offered::IncrementalAlterConfigs,
        key: 44,
        name: "IncrementalAlterConfigs",
        told_from: 0,
        served_from: 0,
        max: 1,
        schema: Schema {
            flexible_since: 1,
            fields: &[
                structs(&[fixed(1), text(), structs(&[text(), fixed(1), text()])]),
                fixed(1), // whether to check only
            ],
        },
    },
    Offer {
        api: Offered::ListPartitionReassignments,
        key: 46,
        name: "ListPartitionReassignments",
        told_from: 0,
        served_from: 0,
        max: 0,
        schema: Schema {
            flexible_since: 0,
            fields: &[
                fixed(4), // timeout
                structs(&[text(), numbers()]),
            ],
        },
    },
    Offer {
        api: Offered::OffsetDelete,
        key: 47,
        name: "OffsetDelete",
        told_from: 0,
        served_from: 0,
        max: 0,
        schema: Schema {
            flexible_since: i16::MAX,
            fields: &[text(), structs(&[text(), structs(&[fixed(4)])])],
        },
    },
    Offer {
        api: Offered::DescribeCluster,
        key: 60,
        name: "DescribeCluster",
        told_from: 0,
        served_from: 0,
        max: 1,
        schema: Schema {
            flexible_since: 0,
            fields: &[
                fixed(1),          // operations allowed
                fixed(1).since(1), // kind of endpoints
            ],
        },
    },
    Offer {
        api: Offered::DescribeProducers,
        key: 61,
        name: "DescribeProducers",
        told_from: 0,
        served_from: 0,
        max: 0,
        schema: Schema { flexible_since: 0, fields: &[structs(&[text(), numbers()])] },
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
