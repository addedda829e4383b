//! What a consumer says it subscribes to, and what it is to read, in the layouts that all clients of Kafka share
//! (ConsumerProtocolSubscription, ConsumerProtocolAssignment): a version of 16 bits, then the topics, each with a length of 16 bits, and
//! in an assignment with its partitions; all numbers are big-endian. What follows differs by version.

use bytes::Buf;

/// Whether a consumer subscribes to a topic; true where that cannot be read.
pub(crate) fn subscribes(subscription: &[u8], topic: &str) -> bool {
    names(subscription, topic).unwrap_or(true)
}

fn names(mut rest: &[u8], topic: &str) -> Option<bool> {
    rest.try_get_i16().ok()?;
    for _ in 0..rest.try_get_i32().ok()? {
        let length = usize::try_from(rest.try_get_i16().ok()?).ok()?;
        let (name, behind) = rest.split_at_checked(length)?;
        if name == topic.as_bytes() {
            return Some(true);
        }
        rest = behind;
    }
    Some(false)
}

/// What a consumer reads: topics and their partitions; none where that cannot be read.
pub(crate) fn assigned(share: &[u8]) -> Vec<(String, Vec<u32>)> {
    topics_of(share).unwrap_or_default()
}

fn topics_of(mut rest: &[u8]) -> Option<Vec<(String, Vec<u32>)>> {
    rest.try_get_i16().ok()?;
    let mut topics = Vec::new();
    for _ in 0..rest.try_get_i32().ok()? {
        let length = usize::try_from(rest.try_get_i16().ok()?).ok()?;
        let (name, behind) = rest.split_at_checked(length)?;
        rest = behind;
        let name = std::str::from_utf8(name).ok()?.to_owned();
        let mut partitions = Vec::new();
        for _ in 0..rest.try_get_i32().ok()? {
            partitions.push(u32::try_from(rest.try_get_i32().ok()?).ok()?);
        }
        topics.push((name, partitions));
    }
    Some(topics)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subscription_names_its_topics_and_one_that_cannot_be_read_may_name_any() {
        let subscription = [0, 3, 0, 0, 0, 2, 0, 1, b'a', 0, 2, b'b', b'c', 0xff, 0xff, 0xff, 0xff];
        assert!(subscribes(&subscription, "a") && subscribes(&subscription, "bc"));
        assert!(!subscribes(&subscription, "b"));
        for cut in 0..subscription.len() - 4 {
            assert!(subscribes(&subscription[..cut], "b"), "{cut}");
        }
        assert!(subscribes(&[0, 0, 0x7f, 0xff, 0xff, 0xff], "a"));
        assert!(!subscribes(&[0, 0, 0, 0, 0, 0], "a"));
    }

    #[test]
    fn an_assignment_names_topics_with_their_partitions_or_nothing() {
        let share =
            [0, 1, 0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(assigned(&share), [("t".to_owned(), vec![0, 3])]);
        for cut in 0..share.len() - 4 {
            assert_eq!(assigned(&share[..cut]), [], "{cut}");
        }
        assert_eq!(assigned(&[0, 1, 0x7f, 0xff, 0xff, 0xff]), []);
    }
}
