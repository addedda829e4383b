//! The ids of producers.

use uuid::Uuid;

/// A producer's id: the 62 bits of a random uuid that say nothing about its version; bit 62 is for transactions.
#[must_use]
pub fn producer_id(random: Uuid) -> i64 {
    const BITS: u64 = (1 << 62) - 1;
    let (_, low) = random.as_u64_pair();
    (low & BITS).cast_signed()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn producer_ids_are_62_random_bits() {
        let ids: Vec<i64> = (0..1_000).map(|_| producer_id(Uuid::new_v4())).collect();
        let (any, all) = ids.iter().fold((0, -1), |(any, all), id| (any | id, all & id));
        assert_eq!((any, all), ((1 << 62) - 1, 0), "each of the bits is set in some and clear in others");
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), ids.len());
    }
}
