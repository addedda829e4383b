//! What a consumer says it subscribes to, in the layout that all clients of Kafka share (ConsumerProtocolSubscription): a version of
//! 16 bits, then the topics, each with a length of 16 bits; all numbers are big-endian. What follows differs by version.

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
}
