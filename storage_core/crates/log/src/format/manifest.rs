//! The file MANIFEST: the identity of the store, and how its files are cut. It is written once, when the store is
//! created; the headers of journal and blocks repeat it, so that it can be made again.

use uuid::Uuid;

use super::fields::{Fields, PutFields};
use super::{FORMAT_VERSION, checksum};
use crate::error::{Error, Result};
use crate::options::Options;

pub(crate) const MANIFEST_NAME: &str = "MANIFEST";
const MAGIC: &[u8; 8] = b"WALRUSMF";
const MANIFEST_BYTES: usize = 44;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) store: Uuid,
    pub(crate) block_bytes: u64,
    pub(crate) blocks_per_file: u32,
}

impl Manifest {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(MANIFEST_BYTES);
        out.put(MAGIC);
        out.put_u32(FORMAT_VERSION);
        out.put_uuid(self.store);
        out.put_u64(self.block_bytes);
        out.put_u32(self.blocks_per_file);
        let crc = checksum(&out);
        out.put_u32(crc);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let damaged = |reason| Error::damaged(MANIFEST_NAME, reason);
        let mut fields = Fields(bytes);
        if fields.bytes(8) != Some(MAGIC) {
            return Err(damaged("it does not start with WALRUSMF"));
        }
        let found = fields.u32().ok_or_else(|| damaged("it is cut off"))?;
        let manifest = (|| {
            let (store, block_bytes, blocks_per_file) = (fields.uuid()?, fields.u64()?, fields.u32()?);
            Some(Self { store, block_bytes, blocks_per_file })
        })();
        let (Some(manifest), Some(crc), true) = (manifest, fields.u32(), bytes.len() == MANIFEST_BYTES)
        else {
            return Err(damaged("its length is wrong"));
        };
        if crc != checksum(&bytes[..MANIFEST_BYTES - 4]) {
            return Err(damaged("its checksum is wrong"));
        }
        if found != FORMAT_VERSION {
            let path = MANIFEST_NAME.to_owned();
            return Err(Error::UnsupportedFormat { path, found, supported: FORMAT_VERSION });
        }
        manifest.check()?;
        Ok(manifest)
    }

    /// Checks that files can be cut like this.
    pub(crate) fn check(&self) -> Result<()> {
        let &Self { block_bytes, blocks_per_file, .. } = self;
        Options { block_bytes, blocks_per_file, ..Options::default() }.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_refused() {
        let manifest = Manifest { store: Uuid::from_u128(7), block_bytes: 65536, blocks_per_file: 4 };
        let good = manifest.encode();
        assert_eq!(Manifest::decode(&good).unwrap(), manifest);
        for position in 0..good.len() {
            for bit in 0..8 {
                let mut bytes = good.clone();
                bytes[position] ^= 1 << bit;
                assert!(Manifest::decode(&bytes).is_err(), "byte {position}");
            }
        }
        for length in 0..good.len() {
            assert!(Manifest::decode(&good[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn another_version_under_a_right_checksum_is_told_from_damage() {
        for version in [3, 5] {
            let mut bytes =
                Manifest { store: Uuid::from_u128(7), block_bytes: 65536, blocks_per_file: 4 }.encode();
            bytes[8] = version;
            let error = Manifest::decode(&bytes).unwrap_err();
            assert!(matches!(error, Error::Damaged { .. }), "{error}");
            let crc = checksum(&bytes[..MANIFEST_BYTES - 4]);
            bytes[MANIFEST_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
            let error = Manifest::decode(&bytes).unwrap_err();
            let told = error.to_string();
            assert!(matches!(error, Error::UnsupportedFormat { supported: 4, .. }), "{told}");
            let advice = if version == 3 { "older" } else { "newer" };
            assert!(told.contains(&format!("version {version}")) && told.contains(advice), "{told}");
        }
    }
}
