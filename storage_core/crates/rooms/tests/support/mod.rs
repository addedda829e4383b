//! Crates of a few lines, for tests.

use walrus_rooms::{Knowledge, Sources};

/// The references between the files of a crate, given as (path below `src/`, text).
pub(crate) fn read(files: &[(&str, &str)]) -> Knowledge {
    let sources: Sources =
        files.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned())).collect();
    Knowledge::read(&sources).unwrap_or_else(|why| panic!("{why}"))
}
