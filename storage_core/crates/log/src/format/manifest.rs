//! MANIFEST: who the store is and how its files are cut. Written once, when the store is created.

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
        // The version comes before the checksum: a newer format may be checked otherwise.
        let found = fields.u32().ok_or_else(|| damaged("it is cut off"))?;
        if found > FORMAT_VERSION {
            let path = MANIFEST_NAME.to_owned();
            return Err(Error::UnsupportedFormat { path, found, supported: FORMAT_VERSION });
        }
        if found == 0 {
            return Err(damaged("its version is 0"));
        }
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
        let Self { block_bytes, blocks_per_file, .. } = manifest;
        Options { block_bytes, blocks_per_file, ..Options::default() }.check()?;
        Ok(manifest)
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
    fn a_newer_version_is_told_from_damage() {
        let mut bytes =
            Manifest { store: Uuid::from_u128(7), block_bytes: 65536, blocks_per_file: 4 }.encode();
        bytes[8] = 2;
        let error = Manifest::decode(&bytes).unwrap_err();
        assert!(matches!(error, Error::UnsupportedFormat { found: 2, supported: 1, .. }), "{error}");
    }
}
