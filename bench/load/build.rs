//! Compiles the definition of the Log service at the repository's root, the same file the broker compiles.

use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(&std::env::var("CARGO_MANIFEST_DIR")?).join("../../proto").canonicalize()?;
    println!("cargo:rerun-if-changed={}", root.display());
    let descriptors = protox::compile([root.join("walrus/v1/log.proto")], [&root])?;
    tonic_prost_build::configure().bytes(".").build_server(false).compile_fds(descriptors)?;
    Ok(())
}
