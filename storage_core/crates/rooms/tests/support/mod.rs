//! Crates of a few lines.

use walrus_rooms::{Knowledge, Sources};

/// What the files of a crate know of each other, given as (path below `src/`, text).
pub(crate) fn read(files: &[(&str, &str)]) -> Knowledge {
    let sources: Sources =
        files.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned())).collect();
    Knowledge::read(&sources).unwrap_or_else(|why| panic!("{why}"))
}
