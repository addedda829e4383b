//! Organisations: each is a namespace of its own, whose topics no other sees, with limits on what it may have.

use serde::{Deserialize, Serialize};

use crate::creations::Creations;

/// The organisation of listeners that name none. It is there from the beginning.
pub const DEFAULT_ORG: &str = "default";

/// The place of Walrus's own topics, such as those of the cursors. No organisation can have this name.
pub const INTERNAL_ORG: &str = "_walrus";

/// Longest name of an organisation, in bytes: that of a label of DNS.
const NAME_BYTES_MAX: usize = 63;

/// An organisation that may have topics. It is made by an administrator, never by a client's request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Organisation {
    /// What it may have.
    pub limits: OrganisationLimits,
    /// Count of its topics that were created lately.
    #[serde(default)]
    pub creations: Creations,
    /// Version of the metadata at the last change of its limits: what commands compare with.
    pub version: u64,
}

/// The limits of an organisation, beside those of the cluster; `None`: the cluster's alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OrganisationLimits {
    /// Topics.
    pub topics_max: Option<u64>,
    /// Partitions of all its topics together.
    pub partitions_max: Option<u64>,
    /// Topics that are created in one second.
    pub creations_per_second_max: Option<u64>,
}

/// Whether a name can be that of an organisation: 1 to 63 characters of `[A-Za-z0-9._-]`, the first one a letter or digit.
#[must_use]
pub fn is_org_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(allowed)
        && name.as_bytes()[0].is_ascii_alphanumeric()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_organisation_can_have_the_name_of_the_place_of_walruss_own_topics() {
        assert!(is_org_name(DEFAULT_ORG));
        for good in ["a", "7", "acme.eu", "a_b-c", &"x".repeat(63)] {
            assert!(is_org_name(good), "{good}");
        }
        for bad in ["", ".", "-a", "a/b", "a b", "ü", &"x".repeat(64), INTERNAL_ORG] {
            assert!(!is_org_name(bad), "{bad}");
        }
    }
}
