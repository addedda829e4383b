//! Versions of the frames between brokers and of their payloads. Two nodes speak the newest that both know; a new version
//! keeps the one before, so that nodes are upgraded one by one.

use std::fmt;

use serde::Deserialize;

/// All versions that a node speaks, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct WireVersions {
    /// Refused below this one.
    pub oldest: u32,
    /// Spoken with whoever knows it.
    pub newest: u32,
}

impl Default for WireVersions {
    fn default() -> Self {
        Self::SPOKEN
    }
}

impl WireVersions {
    /// What this release speaks. Version 3 has messages of fixed fields where version 2 had JSON.
    pub const SPOKEN: Self = Self { oldest: 3, newest: 3 };

    /// What a greeting says; one that names no oldest version speaks a single one.
    pub(crate) fn told(newest: u32, oldest: u32) -> Self {
        Self { oldest: if oldest == 0 { newest } else { oldest }, newest }
    }

    /// The version that both speak, or why they cannot talk.
    pub(crate) fn negotiate(self, theirs: Self) -> Result<u32, String> {
        let newest = self.newest.min(theirs.newest);
        if newest >= self.oldest.max(theirs.oldest) {
            return Ok(newest);
        }
        Err(format!(
            "it speaks wire versions {theirs}, this node {self}: upgrade the older one, one release at a time"
        ))
    }
}

impl fmt::Display for WireVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.oldest, self.newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn negotiate(ours: (u32, u32), theirs: (u32, u32)) -> Option<u32> {
        let versions = |(oldest, newest)| WireVersions { oldest, newest };
        versions(ours).negotiate(versions(theirs)).ok()
    }

    #[test]
    fn two_nodes_speak_the_newest_version_that_both_know() {
        assert_eq!(negotiate((1, 1), (1, 1)), Some(1));
        assert_eq!(negotiate((1, 1), (1, 2)), Some(1));
        assert_eq!(negotiate((1, 2), (1, 2)), Some(2));
        assert_eq!(negotiate((2, 3), (1, 2)), Some(2));
        assert_eq!(negotiate((2, 3), (1, 1)), None);
        assert_eq!(negotiate((1, 1), (2, 3)), None);
        assert_eq!(WireVersions::told(3, 0), WireVersions { oldest: 3, newest: 3 });
    }
}
