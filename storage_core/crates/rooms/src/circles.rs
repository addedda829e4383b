//! Circles of files: sets in which each one reaches every other one along arrows.

use std::collections::{BTreeMap, BTreeSet};

use crate::references::Knowledge;

/// All circles of two files and more among `files`, along arrows between these alone.
pub fn circles(knowledge: &Knowledge, files: &BTreeSet<String>) -> Vec<BTreeSet<String>> {
    let reach: BTreeMap<&str, BTreeSet<&str>> =
        files.iter().map(|file| (file.as_str(), reachable(knowledge, files, file))).collect();
    let mut found: Vec<BTreeSet<String>> = Vec::new();
    for (file, reached) in &reach {
        let circle: BTreeSet<String> = reached
            .iter()
            .filter(|other| reach[**other].contains(file))
            .map(|other| (*other).to_owned())
            .collect();
        if circle.len() > 1 && !found.contains(&circle) {
            found.push(circle);
        }
    }
    found
}

fn reachable<'a>(knowledge: &'a Knowledge, files: &'a BTreeSet<String>, from: &'a str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut next = vec![from];
    while let Some(file) = next.pop() {
        for known in knowledge.known_by(file).filter(|known| files.contains(*known)) {
            if reached.insert(known) {
                next.push(known);
            }
        }
    }
    reached
}
