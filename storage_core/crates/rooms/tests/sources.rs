//! The broker and the engine, as they are, keep the rules.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use walrus_rooms::{Crates, told};

#[test]
fn nothing_in_the_broker_and_the_engine_breaks_the_rules_of_the_rooms() {
    let report = Crates::read().and_then(|crates| crates.report()).unwrap_or_else(|why| panic!("{why}"));
    assert!(report.is_empty(), "\n{report}");
}

#[test]
fn a_place_that_breaks_a_rule_is_told_with_what_to_do() {
    let place = "log: up log -> store: x.rs knows y.rs".to_owned();
    let report = told(&BTreeSet::from([place.clone()]));
    assert!(report.starts_with("These places break the rules of the rooms"), "{report}");
    assert!(report.ends_with(&format!("\n    {place}\n")), "{report}");
    assert_eq!(told(&BTreeSet::new()), "");
}

/// All Rust files below a folder.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
    let paths = entries.map(|entry| entry.expect("an entry of a folder of the sources").path());
    let files = |path: PathBuf| if path.is_dir() { rust_files(&path) } else { vec![path] };
    paths.flat_map(files).filter(|path| path.extension().is_some_and(|kind| kind == "rs")).collect()
}

#[test]
fn every_wait_of_the_broker_has_its_name_in_one_file() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../broker/src");
    let is_constant = |line: &&str| line.contains("const ") && line.contains(": Duration =");
    // Constants of a module of tests are indented, and the scenarios are tests.
    let is_of_the_file = |line: &&str| !line.starts_with(' ');
    let mut places = BTreeSet::new();
    for path in rust_files(&sources) {
        let file = path.strip_prefix(&sources).expect("below the sources").display().to_string();
        let text = fs::read_to_string(&path).unwrap_or_else(|why| panic!("{file}: {why}"));
        if !file.starts_with("scenarios/")
            && text.lines().filter(is_constant).any(|line| is_of_the_file(&line))
        {
            places.insert(file);
        }
    }
    assert_eq!(places, BTreeSet::from(["node/patience.rs".to_owned()]), "waits depend on each other");
}
