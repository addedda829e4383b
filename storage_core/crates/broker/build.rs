//! Compiles the protocol definitions at the repository's root. `protox` parses them, so no `protoc` is needed.

use std::error::Error;
use std::path::{Path, PathBuf};

use prost::Message as _;

/// What is compiled, below `proto/`: the public services, and the messages between brokers.
const FOLDERS: [&str; 2] = ["walrus/v1", "walrus/peer/v1"];
/// Messages with descriptors in them: those of a failover, boxed so that the many appends beside them stay small.
const BOXED: [&str; 4] = [
    ".walrus.peer.v1.ReplicaRequest.message.fence",
    ".walrus.peer.v1.ReplicaRequest.message.accept",
    ".walrus.peer.v1.ReplicaAnswer.answer.promised",
    ".walrus.peer.v1.ReplicaAnswer.answer.refused",
];
/// Served by the control plane.
const NOT_OURS: &str = "admin.proto";

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(&std::env::var("CARGO_MANIFEST_DIR")?).join("../../../proto").canonicalize()?;
    println!("cargo:rerun-if-changed={}", root.display());
    let mut files: Vec<PathBuf> = Vec::new();
    for folder in FOLDERS {
        for entry in std::fs::read_dir(root.join(folder))? {
            let path = entry?.path();
            let ours = !path.ends_with(NOT_OURS);
            if ours && path.extension().is_some_and(|extension| extension == "proto") {
                files.push(path);
            }
        }
    }
    files.sort();

    let descriptors = protox::compile(&files, [&root])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("walrus_descriptors.bin"), descriptors.encode_to_vec())?; // for the reflection service
    let builder =
        BOXED.iter().fold(tonic_prost_build::configure().bytes("."), |builder, path| builder.boxed(path));
    builder.compile_fds(descriptors)?;
    Ok(())
}
