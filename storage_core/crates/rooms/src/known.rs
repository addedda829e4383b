//! The list of what breaks the rules today, and what has become of it.

use std::collections::BTreeSet;
use std::path::Path;

use crate::layout::{LAYOUTS, Layout};
use crate::references::Knowledge;
use crate::rules::violations;
use crate::tree::read_sources;

/// The crates with rooms, as they lie on the disk.
#[derive(Debug)]
pub struct Crates(Vec<(&'static Layout, Knowledge)>);

impl Crates {
    /// Reads them from the workspace that this crate is a member of.
    pub fn read() -> Result<Self, String> {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let read = |layout: &'static Layout| {
            let sources = crates.join(layout.name).join("src");
            let sources =
                read_sources(&sources).map_err(|error| format!("{}: {error}", sources.display()))?;
            let knowledge = Knowledge::read(&sources).map_err(|why| format!("{}: {why}", layout.name))?;
            Ok((layout, knowledge))
        };
        LAYOUTS.iter().map(|layout| read(layout)).collect::<Result<_, _>>().map(Self)
    }

    /// Each crate's layout, and what its files know.
    pub fn each(&self) -> impl Iterator<Item = (&'static Layout, &Knowledge)> {
        self.0.iter().map(|(layout, knowledge)| (*layout, knowledge))
    }

    /// What to do where the sources and `known.txt` differ; empty if they agree.
    pub fn differences(&self) -> Result<String, String> {
        Ok(compare(&known(include_str!("../known.txt"))?, &self.violations()?))
    }

    /// All that breaks a rule, as lines of `known.txt`.
    pub fn violations(&self) -> Result<BTreeSet<String>, String> {
        let mut lines = BTreeSet::new();
        for (layout, knowledge) in self.each() {
            let found = violations(layout, knowledge).map_err(|why| format!("{}: {why}", layout.name))?;
            lines.extend(found.iter().map(|violation| format!("{}: {violation}", layout.name)));
        }
        Ok(lines)
    }
}

/// The lines of `known.txt`, which are sorted, each of them once. A line that begins with `#` is for readers.
pub fn known(text: &str) -> Result<BTreeSet<String>, String> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    for pair in lines.windows(2) {
        if pair[0] >= pair[1] {
            return Err(format!("known.txt is not sorted: this line stands too late or twice: {}", pair[1]));
        }
    }
    Ok(lines.into_iter().map(str::to_owned).collect())
}

/// What to do where the list and the sources differ; empty if they agree.
pub fn compare(known: &BTreeSet<String>, found: &BTreeSet<String>) -> String {
    let mut text = String::new();
    let mut tell = |lines: Vec<&String>, what_to_do: &str| {
        if !lines.is_empty() {
            text.push_str(what_to_do);
            lines.iter().for_each(|line| text.push_str(&format!("\n    {line}")));
            text.push('\n');
        }
    };
    tell(
        found.difference(known).collect(),
        "These places break the rules of the rooms and are not in storage_core/crates/rooms/known.txt, which may only get \
         shorter. Let the lower room return what happened instead of calling the upper one, or move what both need below \
         both; where a file that was in the list has moved, give its lines the new path:",
    );
    tell(
        known.difference(found).collect(),
        "These lines of storage_core/crates/rooms/known.txt break no rule any more. Take them out, so that nobody can put \
         them back:",
    );
    text
}
