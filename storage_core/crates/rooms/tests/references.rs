//! The file to which a name leads.

mod support;

use support::read;
use walrus_rooms::{Knowledge, Sources};

/// The arrows of a crate as `from knows to: names`.
fn arrows(files: &[(&str, &str)]) -> Vec<String> {
    let told = |((from, to), names): (&(String, String), &std::collections::BTreeSet<String>)| {
        format!("{from} knows {to}: {}", names.iter().map(String::as_str).collect::<Vec<_>>().join(", "))
    };
    read(files).arrows.iter().map(told).collect()
}

const THING: (&str, &str) =
    ("b.rs", "pub(crate) struct Thing; pub(crate) fn act() {} pub(crate) enum Kind { One }");

/// The arrows of a crate whose file `a.rs` has this text, beside a `b.rs` that defines `Thing`, `act` and `Kind`.
fn arrows_of(a: &str) -> Vec<String> {
    arrows(&[("lib.rs", "mod a; mod b;"), ("a.rs", a), THING])
}

#[test]
fn an_import_leads_to_the_file_that_defines_the_name() {
    assert_eq!(arrows_of("use crate::b::Thing;"), ["a.rs knows b.rs: Thing"]);
    assert_eq!(arrows_of("use super::b::{Kind, Thing as Other};"), ["a.rs knows b.rs: Kind, Thing"]);
    assert_eq!(arrows_of("use crate::{b::{self, Kind::One}};"), ["a.rs knows b.rs: Kind"]);
    assert_eq!(arrows_of("use crate::b::Thing as _;"), ["a.rs knows b.rs: Thing"]);
}

#[test]
fn an_import_inside_a_function_counts() {
    assert_eq!(arrows_of("fn f() { use crate::b::act; act() }"), ["a.rs knows b.rs: act"]);
}

#[test]
fn a_path_that_is_written_out_counts_wherever_it_stands() {
    for text in [
        "struct A { field: Option<crate::b::Thing> }",
        "fn f() -> Vec<super::b::Thing> { Vec::new() }",
        "fn f() { crate::b::act() }",
        "fn f(kind: u8) { match kind { crate::b::Thing => {} _ => {} } }",
        "impl Iterator for X { type Item = crate::b::Thing; }",
        "fn f<T: Into<crate::b::Thing>>(t: T) {}",
        "const A: &dyn Fn(&crate::b::Thing) = &|_| {};",
    ] {
        let found = arrows_of(text);
        assert!(
            found == ["a.rs knows b.rs: Thing"] || found == ["a.rs knows b.rs: act"],
            "{text}: {found:?}"
        );
    }
}

#[test]
fn a_module_that_is_imported_counts_by_what_is_taken_out_of_it() {
    assert_eq!(arrows_of("use crate::b; fn f() { b::act() }"), ["a.rs knows b.rs: act"]);
    assert_eq!(arrows_of("use crate::b as other; fn f() { other::act() }"), ["a.rs knows b.rs: act"]);
    assert!(arrows_of("use crate::b;").is_empty(), "rustc warns of it, and nothing is known by it");
}

#[test]
fn what_is_found_in_its_own_file_or_in_another_crate_is_no_arrow() {
    assert!(
        arrows_of(
            "use std::sync::Arc; use ::b::Thing; struct Own; fn f(own: self::Own) { tokio::spawn(own) }"
        )
        .is_empty()
    );
    assert!(arrows_of("fn f<b>(b: u8) -> u8 { b }").is_empty());
}

#[test]
fn a_name_of_a_file_that_only_a_comment_or_an_attribute_has_is_no_arrow() {
    assert!(
        arrows_of("/// See [`crate::b::Thing`].\n// crate::b::act()\n#[doc = \"crate::b\"]\nfn f() {}")
            .is_empty()
    );
    assert!(arrows_of("pub(in crate::b) fn f() {}").is_empty());
    assert!(arrows_of("const TEXT: &str = \"crate::b::Thing\";").is_empty());
}

#[test]
fn tests_do_not_count() {
    assert!(arrows_of("#[cfg(test)] mod tests { use crate::b::Thing; }").is_empty());
    assert!(arrows_of("#[cfg(test)] use crate::b::Thing;").is_empty());
    assert!(arrows_of("#[cfg(all(test, feature = \"x\"))] fn f() { crate::b::act() }").is_empty());
    assert!(arrows_of("struct A; impl A { #[cfg(test)] fn f() { crate::b::act() } }").is_empty());
    assert!(arrows_of("fn f() { #[cfg(test)] crate::b::act(); }").is_empty());
    assert!(arrows_of("struct A { #[cfg(test)] thing: crate::b::Thing }").is_empty());
}

#[test]
fn a_file_that_only_tests_compile_is_no_file_of_the_crate() {
    let found = read(&[("lib.rs", "#[cfg(test)] mod a; mod b;"), ("a.rs", "use crate::b::Thing;"), THING]);
    assert_eq!(found.files.iter().map(String::as_str).collect::<Vec<_>>(), ["b.rs", "lib.rs"]);
}

#[test]
fn code_that_is_compiled_without_tests_too_counts() {
    assert_eq!(
        arrows_of("#[cfg(any(test, feature = \"x\"))] use crate::b::Thing;"),
        ["a.rs knows b.rs: Thing"]
    );
    assert_eq!(arrows_of("#[cfg(not(test))] use crate::b::Thing;"), ["a.rs knows b.rs: Thing"]);
}

#[test]
fn a_reexport_is_followed_to_the_file_behind_it() {
    let files = |a| {
        [
            ("lib.rs", "mod a; mod deep;"),
            ("a.rs", a),
            (
                "deep/mod.rs",
                "mod inner; pub(crate) use inner::Thing; pub(crate) use self::inner::act as acts;",
            ),
            ("deep/inner.rs", "pub(crate) struct Thing; pub(crate) fn act() {}"),
        ]
    };
    assert_eq!(arrows(&files("use crate::deep::Thing;")), ["a.rs knows deep/inner.rs: Thing"]);
    assert_eq!(arrows(&files("fn f() { crate::deep::acts() }")), ["a.rs knows deep/inner.rs: act"]);
}

#[test]
fn a_reexport_through_the_root_does_not_lead_to_the_root() {
    let root = "mod a; mod b; pub use b::Thing; pub use a::*;";
    let found = arrows(&[("lib.rs", root), ("a.rs", "use crate::Thing;"), THING]);
    assert_eq!(found, ["a.rs knows b.rs: Thing"]);
}

#[test]
fn what_a_folder_passes_on_of_its_own_files_it_knows_only_if_it_uses_it() {
    let files = |folder| {
        [
            ("lib.rs", "mod b; mod deep;"),
            THING,
            ("deep/mod.rs", folder),
            ("deep/inner.rs", "pub(crate) struct Thing; pub(crate) fn act() {}"),
        ]
    };
    assert!(
        arrows(&files("mod inner; pub(crate) use inner::{self, Thing}; pub(crate) use inner::*;")).is_empty()
    );
    let uses = ["deep/mod.rs knows deep/inner.rs: Thing"];
    assert_eq!(arrows(&files("mod inner; pub(crate) use inner::Thing; fn f(thing: Thing) {}")), uses);
    assert_eq!(arrows(&files("mod inner; pub(crate) use inner::*; fn f() { vec![Thing] }")), uses);
    assert_eq!(arrows(&files("mod inner; use inner::Thing;")), uses);
    let others = "mod inner; pub(crate) use crate::b::Thing; pub(crate) use crate::b;";
    assert_eq!(arrows(&files(others)), ["deep/mod.rs knows b.rs: Thing, self"]);
}

#[test]
fn a_folder_whose_files_meet_by_its_reexports_has_no_circle_through_them() {
    let found = arrows(&[
        ("lib.rs", "mod deep;"),
        ("deep/mod.rs", "mod one; mod two; pub(crate) use one::One; pub(crate) use two::Two;"),
        ("deep/one.rs", "pub(crate) struct One;"),
        ("deep/two.rs", "use super::One; pub(crate) struct Two;"),
    ]);
    assert!(found.contains(&"deep/two.rs knows deep/one.rs: One".to_owned()), "{found:?}");
    assert!(!found.iter().any(|arrow| arrow.contains("knows deep/mod.rs")), "{found:?}");
}

#[test]
fn super_climbs_one_module_at_a_time_and_a_module_inside_a_file_is_one() {
    let found = arrows(&[
        ("lib.rs", "mod b; mod deep;"),
        THING,
        ("deep/mod.rs", "mod inner; pub(crate) struct Own;"),
        (
            "deep/inner.rs",
            "mod within { fn f() -> super::super::Own { super::super::super::b::act() } } use super::super::b::Kind;",
        ),
    ]);
    assert_eq!(found, ["deep/inner.rs knows b.rs: Kind, act", "deep/inner.rs knows deep/mod.rs: Own"]);
}

#[test]
fn modules_inside_a_file_belong_to_the_file_and_files_may_lie_below_them() {
    let found = arrows(&[
        ("lib.rs", "mod a; mod outer { pub(crate) struct Within; mod file; }"),
        ("outer/file.rs", "use super::Within;"),
        ("a.rs", "use crate::outer::Within;"),
    ]);
    assert_eq!(found, ["a.rs knows lib.rs: Within", "outer/file.rs knows lib.rs: Within"]);
}

#[test]
fn a_glob_counts_by_the_names_that_are_used() {
    assert_eq!(arrows_of("use crate::b::*; fn f(thing: Thing) {}"), ["a.rs knows b.rs: Thing"]);
    assert!(arrows_of("use crate::b::*; fn f(thing: Option<u8>) {}").is_empty());
    assert!(
        arrows_of("use crate::b::*; struct Thing; fn f(thing: Thing) {}").is_empty(),
        "its own stands before the glob's"
    );
}

#[test]
fn a_glob_that_is_passed_on_is_followed() {
    let found = arrows(&[
        ("lib.rs", "mod a; mod deep;"),
        ("a.rs", "use crate::deep::Thing; use crate::deep::*; fn f() { act() }"),
        ("deep/mod.rs", "mod inner; pub(crate) use inner::*;"),
        ("deep/inner.rs", "pub(crate) struct Thing; pub(crate) fn act() {}"),
    ]);
    assert_eq!(found, ["a.rs knows deep/inner.rs: Thing, act"]);
}

#[test]
fn tokens_of_macros_are_looked_through() {
    assert_eq!(
        arrows_of("fn f() { assert!(matches!(x, crate::b::Kind::One), \"{}\", y); }"),
        ["a.rs knows b.rs: Kind"]
    );
    assert_eq!(
        arrows_of("use crate::b; fn f() { info!(kind = ?b::Kind::One, \"it\") }"),
        ["a.rs knows b.rs: Kind"]
    );
    assert_eq!(arrows_of("macro_rules! m { () => { $crate::b::act() } }"), ["a.rs knows b.rs: act"]);
    assert_eq!(arrows_of("fn f() { vec![0..crate::b::act()] }"), ["a.rs knows b.rs: act"]);
    assert_eq!(arrows_of("use crate::b::*; fn f() { vec![Thing] }"), ["a.rs knows b.rs: Thing"]);
}

#[test]
fn fields_methods_and_other_crates_in_macros_are_no_paths() {
    assert!(
        arrows_of("use crate::b::*; fn f() { vec![x.act, x.act(), ::tokio::b::act(), y::act()] }").is_empty()
    );
}

#[test]
fn a_macro_is_a_thing_of_the_file_that_defines_it() {
    let b = ("b.rs", "macro_rules! seeded { () => {} } pub(crate) use seeded;");
    let root = ("lib.rs", "mod a; mod b; pub(crate) use b::seeded;");
    let found = arrows(&[root, b, ("a.rs", "use crate::seeded; fn f() { seeded!() }")]);
    assert_eq!(found, ["a.rs knows b.rs: seeded"]);
    assert_eq!(arrows(&[root, b, ("a.rs", "fn f() { crate::seeded!() }")]), ["a.rs knows b.rs: seeded"]);
}

#[test]
fn a_name_that_a_macro_defines_is_in_the_file_that_calls_the_macro() {
    let b = ("b.rs", "pub mod v1 { tonic::include_proto!(\"x\"); }");
    let found =
        arrows(&[("lib.rs", "mod a; mod b;"), b, ("a.rs", "use crate::b::v1; fn f(a: v1::answer::Kind) {}")]);
    assert_eq!(found, ["a.rs knows b.rs: answer"]);
}

#[test]
fn names_of_other_crates_that_a_module_passes_on_lead_to_the_module() {
    let b = ("b.rs", "pub(crate) use std::sync::atomic;");
    let found = arrows(&[("lib.rs", "mod a; mod b;"), b, ("a.rs", "use crate::b::atomic::AtomicU64;")]);
    assert_eq!(found, ["a.rs knows b.rs: atomic"]);
}

#[test]
fn a_module_and_a_function_of_one_name_are_kept_apart() {
    let found = arrows(&[
        ("lib.rs", "mod a; mod mend; mod b; pub use b::act as mend;"),
        ("a.rs", "use crate::mend; fn f() { mend::Wound }"),
        ("mend.rs", "pub(crate) struct Wound;"),
        THING,
    ]);
    assert_eq!(found, ["a.rs knows b.rs: act", "a.rs knows mend.rs: Wound"]);
}

#[test]
fn imports_in_a_circle_end() {
    let found = arrows(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "pub(crate) use crate::b::x; pub(crate) use crate::b::*;"),
        ("b.rs", "pub(crate) use crate::a::x; pub(crate) use crate::a::*;"),
    ]);
    assert!(!found.is_empty());
}

#[test]
fn a_file_that_is_declared_and_missing_is_told() {
    let sources: Sources = [("lib.rs".to_owned(), "mod gone;".to_owned())].into();
    assert_eq!(Knowledge::read(&sources).unwrap_err(), "gone.rs is declared as a module and does not exist");
    let sources: Sources = [("lib.rs".to_owned(), "fn f( {}".to_owned())].into();
    assert!(Knowledge::read(&sources).unwrap_err().starts_with("lib.rs cannot be parsed: "));
}
