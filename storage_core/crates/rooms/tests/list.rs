//! The list of what breaks the rules: a new line fails and so does one that is not needed any more.

use std::collections::BTreeSet;

use walrus_rooms::{compare, known};

fn lines(lines: &[&str]) -> BTreeSet<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

#[test]
fn a_list_that_agrees_is_silent() {
    assert_eq!(compare(&lines(&["a", "b"]), &lines(&["a", "b"])), "");
}

#[test]
fn a_place_that_is_not_listed_is_told_with_what_to_do() {
    let text = compare(&lines(&["a"]), &lines(&["a", "log: up log -> store: x.rs knows y.rs"]));
    assert!(text.starts_with("These places break the rules of the rooms"), "{text}");
    assert!(text.contains("\n    log: up log -> store: x.rs knows y.rs\n"), "{text}");
    assert!(!text.contains("Take them out"), "{text}");
}

#[test]
fn a_line_that_breaks_no_rule_any_more_has_to_go() {
    let text = compare(&lines(&["a", "b"]), &lines(&["b"]));
    assert!(text.contains("Take them out, so that nobody can put them back:\n    a\n"), "{text}");
    assert!(!text.contains("These places break"), "{text}");
}

#[test]
fn lines_for_readers_are_left_out() {
    assert_eq!(known("# why\na\nb\n"), Ok(lines(&["a", "b"])));
}

#[test]
fn a_list_out_of_order_or_with_a_line_twice_is_refused() {
    assert!(known("b\na\n").unwrap_err().ends_with(": a"));
    assert!(known("a\na\n").unwrap_err().ends_with(": a"));
}
