//! The secret that all nodes of a cluster share, and the proofs that two ends of a connection know it. The exact bytes are
//! those of `docs/internals/security.md`. Neither secrets nor proofs are ever logged.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::node::locks::Lock;
use hmac::{Hmac, Mac as _};
use sha2::Sha256;

/// Lengths in bytes that a secret may have.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 16..=1_024;
const SECRETS_MAX: usize = 16;
const FILE_BYTES_MAX: u64 = 64 << 10;
/// Bytes of the nonce that each end makes for one connection.
pub(crate) const NONCE_BYTES: usize = 32;
/// Beginning of what a proof between brokers is made of, so that none made for another port fits.
const PURPOSE: &str = "walrus 1 peer ";

/// The end of a connection that proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Dialler,
    Acceptor,
}

/// A shared secret, which is never shown.
pub(crate) struct Secret(Vec<u8>);

impl Secret {
    /// The proof of knowing the secret, bound to a role and to the payloads that were exchanged.
    pub(crate) fn prove(&self, role: Role, parts: &[&[u8]]) -> Vec<u8> {
        self.mac(role, parts).finalize().into_bytes().to_vec()
    }

    fn mac(&self, role: Role, parts: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key may have any length");
        mac.update(PURPOSE.as_bytes());
        mac.update(match role {
            Role::Dialler => b"dialler\n",
            Role::Acceptor => b"acceptor\n",
        });
        for part in parts {
            let length = u32::try_from(part.len()).expect("greetings are short");
            mac.update(&length.to_le_bytes());
            mac.update(part);
        }
        mac
    }
}

/// The secret that a proof was made with. All are compared, each in constant time.
pub(crate) fn find<'a>(
    secrets: &'a [Secret],
    role: Role,
    parts: &[&[u8]],
    proof: &[u8],
) -> Option<&'a Secret> {
    let mut found = None;
    for secret in secrets {
        let fits = secret.mac(role, parts).verify_slice(proof).is_ok();
        if fits {
            found = Some(secret);
        }
    }
    found
}

/// The secrets that are known now, in the order of their file: proofs are made with the first, and taken with any.
pub(crate) struct Secrets {
    file: Option<PathBuf>,
    known: Lock<KnownSecrets>,
}

struct KnownSecrets {
    /// The state of the file when it was read, or could not be.
    stamp: Option<Stamp>,
    secrets: Arc<[Secret]>,
}

/// The state of a file by which a change of it is seen.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        let changed = (metadata.mtime(), metadata.mtime_nsec());
        Self { inode: metadata.ino(), bytes: metadata.len(), changed }
    }
}

impl Secrets {
    /// Reads the secrets from a file. Without one there is one secret: the empty one, which everybody knows.
    pub(crate) fn open(file: Option<&Path>) -> io::Result<Self> {
        let (stamp, secrets) = match file {
            Some(path) => read(path).map(|(stamp, secrets)| (Some(stamp), secrets))?,
            None => (None, vec![Secret(Vec::new())]),
        };
        let known = Lock::new(KnownSecrets { stamp, secrets: secrets.into() });
        Ok(Self { file: file.map(Path::to_owned), known })
    }

    /// The secrets, read anew if the file was changed. A file that cannot be read leaves them as they were.
    pub(crate) fn current(&self) -> Arc<[Secret]> {
        let mut known = self.known.lock();
        if let Some(path) = &self.file {
            let stamp = std::fs::metadata(path).ok().map(|metadata| Stamp::of(&metadata));
            if stamp != known.stamp {
                match read(path) {
                    Ok((stamp, secrets)) => {
                        tracing::info!(count = secrets.len(), "the file of the shared secret is read anew");
                        *known = KnownSecrets { stamp: Some(stamp), secrets: secrets.into() };
                    }
                    Err(problem) => {
                        tracing::error!(path = ?path, %problem, "the secrets known so far stay in force");
                        known.stamp = stamp;
                    }
                }
            }
        }
        known.secrets.clone()
    }
}

fn read(path: &Path) -> io::Result<(Stamp, Vec<Secret>)> {
    let mut file = File::open(path)?;
    let stamp = Stamp::of(&file.metadata()?);
    let mut text = Vec::new();
    file.by_ref().take(FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(unusable(format!("it has more than {FILE_BYTES_MAX} bytes")));
    }
    let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    let secrets: Vec<Secret> = lines.map(|line| Secret(line.to_vec())).collect();
    if let Some(place) = secrets.iter().position(|secret| !SECRET_BYTES.contains(&secret.0.len())) {
        let (min, max) = (SECRET_BYTES.start(), SECRET_BYTES.end());
        return Err(unusable(format!("secret {} of it has not {min} to {max} bytes", place + 1)));
    }
    if secrets.is_empty() || secrets.len() > SECRETS_MAX {
        return Err(unusable(format!(
            "it has {} secrets, one a line, not 1 to {SECRETS_MAX}",
            secrets.len()
        )));
    }
    Ok((stamp, secrets))
}

fn unusable(problem: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: [&[u8]; 2] = [b"hello", b"challenge"];

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Computed elsewhere from the words of the page: both sides of a connection may be of another making.
    #[test]
    fn a_proof_has_the_bytes_that_the_page_says() {
        let secret = Secret(b"sixteen bytes ok".to_vec());
        assert_eq!(
            hex(&secret.prove(Role::Dialler, &PARTS)),
            "81a48399efd8876ad9c7eaddb255ad8b1182df7ba856fdc429621bc9a7ea7add"
        );
        assert_eq!(
            hex(&secret.prove(Role::Acceptor, &[b"hello", b"challenge", b"answer"])),
            "98ffcb8427974cc64ebccc23b648652004599bc74b3594a4dbde496225a05174"
        );
        assert_eq!(
            hex(&Secret(Vec::new()).prove(Role::Dialler, &PARTS)),
            "34063608b455e37a2b89cc4b3031b7ce6975c14454164d14f9b0c5ea9b0dd654"
        );
    }

    #[test]
    fn a_proof_fits_one_secret_one_role_and_one_exchange() {
        let secrets = [Secret(b"the first secret".to_vec()), Secret(b"the second secret".to_vec())];
        let proof = secrets[1].prove(Role::Dialler, &PARTS);
        let found = find(&secrets, Role::Dialler, &PARTS, &proof).expect("all are taken");
        assert!(std::ptr::eq(found, &secrets[1]));
        assert!(find(&secrets[..1], Role::Dialler, &PARTS, &proof).is_none());
        assert!(find(&secrets, Role::Acceptor, &PARTS, &proof).is_none(), "it cannot be sent back");
        assert!(find(&secrets, Role::Dialler, &[b"hellochallenge"], &proof).is_none());
        assert!(find(&secrets, Role::Dialler, &[b"hello", b"another"], &proof).is_none());
        for cut in [0, 1, 31] {
            assert!(find(&secrets, Role::Dialler, &PARTS, &proof[..cut]).is_none());
        }
    }

    #[test]
    fn a_file_is_read_anew_when_it_changes_and_a_bad_one_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        let write = |text: &str| {
            // Another file takes the place of the old one, as Kubernetes and careful people do it.
            let next = directory.path().join("next");
            std::fs::write(&next, text).unwrap();
            std::fs::rename(next, &path).unwrap();
        };
        let known = |secrets: &Secrets| -> Vec<String> {
            secrets.current().iter().map(|secret| String::from_utf8(secret.0.clone()).unwrap()).collect()
        };
        assert!(Secrets::open(Some(&path)).is_err(), "no file");
        write("  the first secret\n\n");
        let secrets = Secrets::open(Some(&path)).unwrap();
        assert_eq!(known(&secrets), ["the first secret"]);
        write("the second secret\r\nthe first secret\n");
        assert_eq!(known(&secrets), ["the second secret", "the first secret"]);
        let many = "one secret of many\n".repeat(17);
        for bad in ["", "short", &"x".repeat(1_025), &many, &"y".repeat(65 << 10)] {
            write(bad);
            assert!(Secrets::open(Some(&path)).is_err());
            assert_eq!(known(&secrets).len(), 2, "{} bytes", bad.len());
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(known(&secrets).len(), 2);
        write("the third secret");
        assert_eq!(known(&secrets), ["the third secret"]);
    }
}
