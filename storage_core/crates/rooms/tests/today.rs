//! The broker and the engine as they are, against `known.txt`.

use walrus_rooms::Crates;

#[test]
fn what_breaks_the_rules_is_in_the_list_and_what_is_in_the_list_breaks_them() {
    let differences =
        Crates::read().and_then(|crates| crates.differences()).unwrap_or_else(|why| panic!("{why}"));
    assert!(differences.is_empty(), "\n{differences}");
}
