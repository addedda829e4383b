//! The broker and the engine as they are.

use std::collections::BTreeSet;

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
