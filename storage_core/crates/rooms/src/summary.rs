//! The figures of a crate's rooms, and its drawing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::circles::circles;
use crate::layout::Layout;
use crate::references::Knowledge;
use crate::rules::{Violation, rooms, violations};

/// The figures of one crate, for people.
pub fn summary(layout: &Layout, knowledge: &Knowledge) -> Result<String, String> {
    let violations = violations(layout, knowledge)?;
    let circles = circles(knowledge, &knowledge.files);
    let largest = circles.iter().map(BTreeSet::len).max().unwrap_or(0);
    let in_circles: usize = circles.iter().map(BTreeSet::len).sum();
    let up = count(&violations, |violation| match violation {
        Violation::Up { rooms, .. } => Some(format!("{} -> {}", rooms.0, rooms.1)),
        _ => None,
    });
    let inside = count(&violations, |violation| match violation {
        Violation::Circle { room, .. } => Some(room.clone()),
        _ => None,
    });
    let impls = count(&violations, |violation| match violation {
        Violation::Impl { name, .. } => Some(name.clone()),
        _ => None,
    });
    let mut text = String::new();
    let mut line =
        |name: &str, value: String| writeln!(text, "  {name:<36}{value}").expect("a String takes it");
    line("files", format!("{}, {} arrows between them", knowledge.files.len(), knowledge.arrows.len()));
    line("files in circles", format!("{in_circles}, {largest} of them in the largest"));
    line("arrows up or sideways", told(&up));
    line("arrows in circles inside of a room", told(&inside));
    if let Some(facade) = &layout.facade {
        let names = |names: &BTreeSet<String>| names.iter().any(|name| facade.types.contains(&name.as_str()));
        let naming =
            knowledge.arrows.iter().filter(|((_, to), found)| to == facade.file && names(found)).count();
        let below = violations.iter().filter_map(|violation| match violation {
            Violation::Facade { file, .. } => Some(file),
            _ => None,
        });
        let below = below.collect::<BTreeSet<_>>().len();
        line("files that name the facade", format!("{naming}, {below} of them below the listeners"));
    }
    line("impls outside of the type's room", told(&impls));
    Ok(format!("{}\n{text}", layout.name))
}

/// The rooms of one crate and the arrows between them that break a rule, as a mermaid flowchart. An arrow down is the rule
/// and is not drawn.
pub fn drawing(layout: &Layout, knowledge: &Knowledge) -> Result<String, String> {
    let rooms = rooms(layout, knowledge)?;
    let mut files: BTreeMap<&str, usize> = BTreeMap::new();
    for room in rooms.values() {
        *files.entry(room).or_default() += 1;
    }
    let mut up: BTreeMap<(String, String), usize> = BTreeMap::new();
    for violation in violations(layout, knowledge)? {
        if let Violation::Up { rooms, .. } = violation {
            *up.entry(rooms).or_default() += 1;
        }
    }
    let mut text = String::from("flowchart TB\n");
    let lines: Vec<String> = layout
        .order
        .iter()
        .map(|line| {
            line.iter()
                .filter(|room| files.contains_key(*room))
                .map(|room| node(room, files[room]))
                .collect::<Vec<_>>()
        })
        .filter(|line| !line.is_empty())
        .map(|line| line.join(" & "))
        .collect();
    writeln!(text, "    {}", lines.join(" ~~~ ")).expect("a String takes it");
    for ((from, to), count) in up {
        writeln!(text, "    {from} -->|{count}| {to}").expect("a String takes it");
    }
    Ok(text)
}

fn node(room: &str, files: usize) -> String {
    format!("{room}[\"{room}<br/>{files} {}\"]", if files == 1 { "file" } else { "files" })
}

fn count<'a>(
    violations: impl IntoIterator<Item = &'a Violation>,
    key: impl Fn(&Violation) -> Option<String>,
) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for key in violations.into_iter().filter_map(key) {
        *counts.entry(key).or_default() += 1;
    }
    counts
}

fn told(counts: &BTreeMap<String, usize>) -> String {
    let mut text = counts.values().sum::<usize>().to_string();
    for (what, count) in counts {
        write!(text, "\n    {what:<34}{count}").expect("a String takes it");
    }
    text
}
