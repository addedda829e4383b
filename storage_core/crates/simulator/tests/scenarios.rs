//! Scenarios: lives that earlier wordings of the rules did not survive.

use walrus_simulator::scenario::SCENARIOS;

#[test]
fn what_broke_earlier_wordings_of_the_rules_breaks_nothing_now() {
    for (name, scenario) in SCENARIOS {
        assert_eq!(scenario(None), Ok(()), "{name}");
    }
}
