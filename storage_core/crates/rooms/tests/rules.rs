//! Each rule finds what breaks it, and lets pass what is near.

mod support;

use support::read;
use walrus_rooms::{Facade, Layout, circles, drawing, rooms, summary, violations};

const HOUSE: Layout = Layout {
    name: "house",
    order: &[&["root"], &["attic"], &["left", "right"], &["cellar"]],
    placed: &[("lib.rs", "root")],
    facade: Some(Facade { file: "attic/mod.rs", types: &["House"], may_name: &["root", "attic", "left"] }),
};

/// The places in a house of these files, beside a root, that break a rule; a room that is not given has one thing.
fn found(files: &[(&str, &str)]) -> Vec<String> {
    let all = house(files);
    let all: Vec<(&str, &str)> = all.iter().map(|(file, text)| (file.as_str(), text.as_str())).collect();
    violations(&HOUSE, &read(&all)).expect("every file has a room").iter().map(ToString::to_string).collect()
}

fn house(files: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |(file, text): &(&str, &str)| ((*file).to_owned(), (*text).to_owned());
    let mut all: Vec<_> = files.iter().map(owned).collect();
    all.push(owned(&("lib.rs", "mod attic; mod cellar; mod left; mod right;")));
    for room in ["attic", "cellar", "left", "right"] {
        let file = format!("{room}/mod.rs");
        if !all.iter().any(|(other, _)| *other == file) {
            all.push((
                file,
                "pub(crate) struct House; pub(crate) struct Thing; pub(crate) trait Trait {}".to_owned(),
            ));
        }
    }
    all
}

#[test]
fn a_room_knows_those_below_it() {
    assert!(
        found(&[(
            "attic/mod.rs",
            "use crate::{cellar::Thing, left, right}; fn f(_: left::Thing) { right::Thing }"
        )])
        .is_empty()
    );
    assert!(found(&[("left/mod.rs", "use crate::cellar::Thing;")]).is_empty());
}

#[test]
fn an_arrow_up_is_found() {
    assert_eq!(
        found(&[("cellar/mod.rs", "use crate::left::Thing;")]),
        ["up cellar -> left: cellar/mod.rs knows left/mod.rs"]
    );
}

#[test]
fn an_arrow_to_a_room_of_the_same_line_is_found() {
    let names = "fn f(_: crate::right::Thing) {}";
    assert_eq!(found(&[("left/mod.rs", names)]), ["up left -> right: left/mod.rs knows right/mod.rs"]);
}

#[test]
fn a_folder_passes_on_nothing_of_a_room_above_it() {
    let layout = Layout { placed: &[("lib.rs", "root"), ("cellar/stray.rs", "attic")], ..HOUSE };
    let files = |folder| {
        read(&[
            ("lib.rs", "mod cellar;"),
            ("cellar/mod.rs", folder),
            ("cellar/stray.rs", "pub struct Stray;"),
            ("cellar/own.rs", "pub struct Own; use super::Top;"),
        ])
    };
    let found =
        violations(&layout, &files("mod own; mod stray; pub use own::Own; struct Top;")).expect("rooms");
    assert!(found.is_empty(), "{found:?}");
    let found =
        violations(&layout, &files("mod own; mod stray; pub use stray::Stray; struct Top;")).expect("rooms");
    let found: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(found, ["up cellar -> attic: cellar/mod.rs knows cellar/stray.rs"]);
}

#[test]
fn files_of_one_room_may_know_each_other_in_one_direction() {
    let files = [
        ("left/mod.rs", "mod one; mod two;"),
        ("left/one.rs", "use super::two::Two;"),
        ("left/two.rs", "pub struct Two;"),
    ];
    assert!(found(&files).is_empty());
}

#[test]
fn a_circle_inside_a_room_is_found_with_all_of_its_arrows() {
    let circle = found(&[
        ("left/mod.rs", "mod one; mod three; mod two; use one::One; struct Top;"),
        ("left/one.rs", "use super::two::Two; pub struct One;"),
        ("left/two.rs", "use super::three::Three; pub struct Two;"),
        ("left/three.rs", "use super::one::One; pub struct Three;"),
    ]);
    assert_eq!(
        circle,
        [
            "circle in left: left/one.rs knows left/two.rs",
            "circle in left: left/three.rs knows left/one.rs",
            "circle in left: left/two.rs knows left/three.rs",
        ]
    );
}

#[test]
fn a_circle_through_rooms_has_an_arrow_up() {
    let files = [
        ("left/mod.rs", "use crate::cellar::Thing; pub struct Thing;"),
        ("cellar/mod.rs", "pub struct Thing; use crate::left::Thing as _;"),
    ];
    assert_eq!(found(&files), ["up cellar -> left: cellar/mod.rs knows left/mod.rs"]);
    let all = house(&files);
    let all: Vec<(&str, &str)> = all.iter().map(|(file, text)| (file.as_str(), text.as_str())).collect();
    let knowledge = read(&all);
    let circles: Vec<Vec<String>> =
        circles(&knowledge, &knowledge.files).into_iter().map(|c| c.into_iter().collect()).collect();
    assert_eq!(circles, [["cellar/mod.rs", "left/mod.rs"]]);
}

#[test]
fn the_facade_is_named_by_listeners_and_wiring_only() {
    assert!(
        found(&[("lib.rs", "mod attic; mod cellar; mod left; mod right; pub use attic::House;")]).is_empty()
    );
    let facade: Vec<String> = found(&[("right/mod.rs", "use crate::attic::House;")]);
    assert_eq!(
        facade,
        ["up right -> attic: right/mod.rs knows attic/mod.rs", "facade: right/mod.rs names House"]
    );
    let listener = found(&[("left/mod.rs", "use crate::attic::House;")]);
    assert_eq!(listener, ["up left -> attic: left/mod.rs knows attic/mod.rs"]);
    let another = found(&[("right/mod.rs", "use crate::attic::Thing;")]);
    assert_eq!(another, ["up right -> attic: right/mod.rs knows attic/mod.rs"]);
}

#[test]
fn methods_for_a_type_of_another_room_are_found() {
    let told = ["impl: attic/mod.rs gives methods to Thing of cellar/mod.rs"];
    assert_eq!(found(&[("attic/mod.rs", "use crate::cellar::Thing; impl Thing { fn f(&self) {} }")]), told);
    assert_eq!(found(&[("attic/mod.rs", "impl crate::cellar::Thing { fn f(&self) {} }")]), told);
    assert_eq!(found(&[("attic/mod.rs", "impl<'a> Iterator for &'a crate::cellar::Thing {}")]), told);
    assert_eq!(found(&[("attic/mod.rs", "impl crate::left::Trait for crate::cellar::Thing {}")]), told);
}

#[test]
fn methods_for_a_type_of_the_same_room_are_not() {
    let files = [
        ("left/mod.rs", "mod one; pub struct Own;"),
        ("left/one.rs", "use super::Own; impl Own { fn f(&self) {} }"),
    ];
    assert!(found(&files).is_empty());
    assert!(
        found(&[(
            "attic/mod.rs",
            "struct Own; impl From<crate::cellar::Thing> for Own {} impl Vec<u8> {} impl<T> Clone for T {}"
        )])
        .is_empty()
    );
}

#[test]
fn a_trait_of_the_same_room_may_be_given_to_a_type_of_another_one() {
    assert!(found(&[("attic/mod.rs", "trait Own {} impl Own for crate::cellar::Thing {}")]).is_empty());
}

#[test]
fn a_file_lies_in_the_room_of_its_folder_or_where_the_layout_places_it() {
    let layout =
        Layout { placed: &[("lib.rs", "root"), ("left/moved.rs", "cellar"), ("free.rs", "right")], ..HOUSE };
    let knowledge = read(&[
        ("lib.rs", "mod free; mod left;"),
        ("free.rs", ""),
        ("left/mod.rs", "mod moved; mod inner;"),
        ("left/inner/mod.rs", "mod deep;"),
        ("left/inner/deep.rs", ""),
        ("left/moved.rs", ""),
    ]);
    let found = rooms(&layout, &knowledge).expect("every file has a room");
    let found: Vec<(&str, &str)> = found.into_iter().collect();
    assert_eq!(
        found,
        [
            ("free.rs", "right"),
            ("left/inner/deep.rs", "left"),
            ("left/inner/mod.rs", "left"),
            ("left/mod.rs", "left"),
            ("left/moved.rs", "cellar"),
            ("lib.rs", "root"),
        ]
    );
}

#[test]
fn a_file_without_a_room_and_a_line_of_no_use_are_told() {
    let refusal =
        |placed, files: &[(&str, &str)]| rooms(&Layout { placed, ..HOUSE }, &read(files)).unwrap_err();
    let free = [("lib.rs", "mod free;"), ("free.rs", "")];
    assert!(refusal(&[("lib.rs", "root")], &free).starts_with("free.rs lies in no room: "));
    assert!(
        refusal(&[("gone.rs", "left")], &free).starts_with("The layout places gone.rs, which does not exist")
    );
    assert!(refusal(&[("free.rs", "garden")], &free).contains("in garden, which its order does not have"));
    let moved = [("lib.rs", "mod left;"), ("left/mod.rs", "")];
    assert!(refusal(&[("lib.rs", "root"), ("left/mod.rs", "left")], &moved).contains("in its own folder"));
}

#[test]
fn figures_and_drawing_count_what_breaks_the_rules() {
    let all = house(&[("cellar/mod.rs", "use crate::attic::House; pub struct Thing;")]);
    let all: Vec<(&str, &str)> = all.iter().map(|(file, text)| (file.as_str(), text.as_str())).collect();
    let knowledge = read(&all);
    let text = summary(&HOUSE, &knowledge).expect("every file has a room");
    let line = |name: &str| {
        text.lines()
            .find(|line| line.contains(name))
            .unwrap_or("")
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(line("files in circles"), "files in circles 0, 0 of them in the largest");
    assert_eq!(line("cellar -> attic"), "cellar -> attic 1");
    assert_eq!(
        line("files that name the facade"),
        "files that name the facade 1, 1 of them below the listeners"
    );
    let drawn = drawing(&HOUSE, &knowledge).expect("every file has a room");
    assert!(drawn.contains("cellar -->|1| attic"), "{drawn}");
    assert!(drawn.contains("left[\"left<br/>1 file\"] & right[\"right<br/>1 file\"]"), "{drawn}");
}
