//! Records as bytes: what is written is read again, and nothing else is taken for a record.
#![allow(clippy::unwrap_used, reason = "tests unwrap")]

use bytes::Bytes;
use proptest::prelude::*;
use walrus_groups::{Committed, GroupName, GroupRecord, Key, MemberRecord, Place, Unreadable};
use walrus_model::TopicId;

fn bytes() -> impl Strategy<Value = Bytes> {
    proptest::collection::vec(any::<u8>(), 0..20).prop_map(Bytes::from)
}

fn member() -> impl Strategy<Value = MemberRecord> {
    let names = (".{0,9}", proptest::option::of(".{0,9}"), ".{0,9}", ".{0,9}");
    (names, any::<(u64, u64)>(), bytes(), bytes()).prop_map(
        |((id, instance, client_id, host), timeouts, subscription, share)| MemberRecord {
            id,
            instance,
            client_id,
            host,
            session_timeout_ms: timeouts.0,
            rebalance_timeout_ms: timeouts.1,
            subscription,
            share,
        },
    )
}

fn group() -> impl Strategy<Value = GroupRecord> {
    let members = proptest::collection::vec(member(), 0..4);
    (any::<i32>(), ".{0,9}", ".{0,9}", ".{0,9}", members).prop_map(
        |(generation, protocol_type, protocol, leader, members)| GroupRecord {
            generation,
            protocol_type,
            protocol,
            leader,
            members,
        },
    )
}

fn key() -> impl Strategy<Value = Key> {
    let name = ("[a-z]{1,9}", ".{0,30}").prop_map(|(org, name)| GroupName { org, name });
    let place = any::<(u128, u32)>()
        .prop_map(|(topic, partition)| Place { topic: TopicId::from_u128(topic), partition });
    prop_oneof![
        Just(Key::Nothing),
        name.clone().prop_map(Key::Group),
        (name, place).prop_map(|(name, place)| Key::Offset(name, place)),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read_again_and_nothing_shorter_or_longer(
        group in group(), key in key(), offset in any::<(i64, i32)>(), metadata in ".{0,30}"
    ) {
        let committed = Committed { offset: offset.0, leader_epoch: offset.1, metadata };
        prop_assert_eq!(GroupRecord::decode(&group.encode()), Ok(group.clone()));
        prop_assert_eq!(Committed::decode(&committed.encode()), Ok(committed.clone()));
        prop_assert_eq!(Key::decode(&key.encode()), Ok(key.clone()));
        for value in [group.encode(), committed.encode()] {
            for cut in 0..value.len() {
                prop_assert!(GroupRecord::decode(&value[..cut]).is_err() || value == committed.encode());
                prop_assert!(Committed::decode(&value[..cut]).is_err() || value == group.encode());
            }
        }
        let mut longer = group.encode();
        longer.push(0);
        prop_assert!(GroupRecord::decode(&longer).is_err());
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        drop((Key::decode(&bytes), GroupRecord::decode(&bytes), Committed::decode(&bytes)));
    }
}

#[test]
fn records_of_later_versions_are_told_from_those_that_are_broken() {
    assert_eq!(Committed::decode(&[2, 0]), Err(Unreadable::Version(2)));
    assert_eq!(GroupRecord::decode(&[0]), Err(Unreadable::Version(0)));
    assert_eq!(Key::decode(&[9, 0]), Err(Unreadable::Kind(9)));
    assert!(Unreadable::Version(2).to_string().contains("upgrade"));
    let mut many = GroupRecord::default().encode();
    let count = many.len() - 4;
    many[count..].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(matches!(GroupRecord::decode(&many), Err(Unreadable::Malformed(_))));
}
