//! The rules of the rooms, and the places that break them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::circles::circles;
use crate::layout::Layout;
use crate::references::Knowledge;

/// A place at which the sources break a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Violation {
    /// A file knows one of a room above or beside its own.
    Up {
        /// The rooms of the two.
        rooms: (String, String),
        /// The file that knows, and the one that is known.
        files: (String, String),
    },
    /// A file knows one of its own room that knows it, too, be it by way of others.
    Circle {
        /// The room of both.
        room: String,
        /// The file that knows, and the one that is known.
        files: (String, String),
    },
    /// A file below the listeners names the facade.
    Facade {
        /// The file that names it.
        file: String,
        /// The facade's type that it names.
        name: String,
    },
    /// A type gets methods outside of its room.
    Impl {
        /// The file in which it gets them.
        file: String,
        /// The type.
        name: String,
        /// The file that defines it.
        defined: String,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Up { rooms, files } => {
                write!(f, "up {} -> {}: {} knows {}", rooms.0, rooms.1, files.0, files.1)
            }
            Self::Circle { room, files } => write!(f, "circle in {room}: {} knows {}", files.0, files.1),
            Self::Facade { file, name } => write!(f, "facade: {file} names {name}"),
            Self::Impl { file, name, defined } => {
                write!(f, "impl: {file} gives methods to {name} of {defined}")
            }
        }
    }
}

/// The room of each file. An error names a file that has none, or a line of the layout that is of no use any more.
pub fn rooms<'a>(layout: &'a Layout, knowledge: &'a Knowledge) -> Result<BTreeMap<&'a str, &'a str>, String> {
    let ranks = layout.ranks();
    for (file, room) in layout.placed {
        if !knowledge.files.contains(*file) {
            return Err(format!("The layout places {file}, which does not exist: take its line out."));
        }
        if !ranks.contains_key(room) {
            return Err(format!("The layout places {file} in {room}, which its order does not have."));
        }
        if folder_of(file) == Some(room) {
            return Err(format!("The layout places {file} in its own folder: take its line out."));
        }
    }
    let room_of = |file: &'a str| {
        let placed = layout.placed.iter().find(|(placed, _)| *placed == file).map(|(_, room)| *room);
        placed.or_else(|| folder_of(file).filter(|folder| ranks.contains_key(folder)))
    };
    let mut found = BTreeMap::new();
    for file in &knowledge.files {
        let room = room_of(file).ok_or_else(|| {
            format!("{file} lies in no room: move it into the folder of one, or place it in the layout until it is moved.")
        })?;
        found.insert(file.as_str(), room);
    }
    Ok(found)
}

/// Everything that breaks a rule, sorted.
pub fn violations(layout: &Layout, knowledge: &Knowledge) -> Result<BTreeSet<Violation>, String> {
    let rooms = rooms(layout, knowledge)?;
    let mut found = BTreeSet::new();
    found.extend(arrows_up(layout, knowledge, &rooms));
    found.extend(circles_in_rooms(knowledge, &rooms));
    found.extend(names_of_facade(layout, knowledge, &rooms));
    found.extend(impls_outside(knowledge, &rooms));
    Ok(found)
}

fn arrows_up(layout: &Layout, knowledge: &Knowledge, rooms: &BTreeMap<&str, &str>) -> Vec<Violation> {
    let ranks = layout.ranks();
    let mut found = Vec::new();
    for files in knowledge.arrows.keys().chain(&knowledge.passed_on) {
        let (from, to) = (rooms[files.0.as_str()], rooms[files.1.as_str()]);
        if from != to && ranks[to] <= ranks[from] {
            found.push(Violation::Up { rooms: (from.to_owned(), to.to_owned()), files: files.clone() });
        }
    }
    found
}

/// A circle that goes through several rooms has an arrow up or sideways, so that only those inside of a room are left.
fn circles_in_rooms(knowledge: &Knowledge, rooms: &BTreeMap<&str, &str>) -> Vec<Violation> {
    let mut found = Vec::new();
    for room in rooms.values().collect::<BTreeSet<_>>() {
        let files =
            rooms.iter().filter(|(_, other)| *other == room).map(|(file, _)| (*file).to_owned()).collect();
        for circle in circles(knowledge, &files) {
            let inside =
                knowledge.arrows.keys().filter(|(from, to)| circle.contains(from) && circle.contains(to));
            found.extend(
                inside.map(|files| Violation::Circle { room: (*room).to_owned(), files: files.clone() }),
            );
        }
    }
    found
}

fn names_of_facade(layout: &Layout, knowledge: &Knowledge, rooms: &BTreeMap<&str, &str>) -> Vec<Violation> {
    let Some(facade) = &layout.facade else { return Vec::new() };
    let mut found = Vec::new();
    for ((from, to), names) in &knowledge.arrows {
        if to == facade.file && !facade.may_name.contains(&rooms[from.as_str()]) {
            let types = names.iter().filter(|name| facade.types.contains(&name.as_str()));
            found.extend(types.map(|name| Violation::Facade { file: from.clone(), name: name.clone() }));
        }
    }
    found
}

/// An `impl` of a trait of the file's own room is none of these: who calls its methods must name the trait.
fn impls_outside(knowledge: &Knowledge, rooms: &BTreeMap<&str, &str>) -> Vec<Violation> {
    let room = |file: &str| rooms[file];
    let is_outside = |block: &&crate::references::Impl| {
        let here = room(&block.file);
        here != room(&block.of.file)
            && block.of_trait.as_ref().is_none_or(|of_trait| room(&of_trait.file) != here)
    };
    let outside = knowledge.impls.iter().filter(is_outside);
    outside
        .map(|block| Violation::Impl {
            file: block.file.clone(),
            name: block.of.name.clone(),
            defined: block.of.file.clone(),
        })
        .collect()
}

fn folder_of(file: &str) -> Option<&str> {
    file.split_once('/').map(|(folder, _)| folder)
}
