//! The crates with rooms, and what breaks the rules in them.

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

    /// Each crate's layout, and the references between its files.
    pub fn each(&self) -> impl Iterator<Item = (&'static Layout, &Knowledge)> {
        self.0.iter().map(|(layout, knowledge)| (*layout, knowledge))
    }

    /// The places that break the rules, and what to do about them, in words; empty if none does.
    pub fn report(&self) -> Result<String, String> {
        Ok(told(&self.violations()?))
    }

    /// All that breaks a rule, a line for each place.
    pub fn violations(&self) -> Result<BTreeSet<String>, String> {
        let mut lines = BTreeSet::new();
        for (layout, knowledge) in self.each() {
            let found = violations(layout, knowledge).map_err(|why| format!("{}: {why}", layout.name))?;
            lines.extend(found.iter().map(|violation| format!("{}: {violation}", layout.name)));
        }
        Ok(lines)
    }
}

/// Advice on places that break the rules; empty if there are none.
pub fn told(places: &BTreeSet<String>) -> String {
    if places.is_empty() {
        return String::new();
    }
    let lines: String = places.iter().map(|place| format!("\n    {place}")).collect();
    format!(
        "These places break the rules of the rooms. Let the lower room return what happened instead of calling the upper \
         one, or move what both need below both:{lines}\n"
    )
}
