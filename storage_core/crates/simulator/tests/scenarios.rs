//! Scenarios: lives that earlier wordings of the rules did not survive.

use walrus_simulator::mistake::Mistake;
use walrus_simulator::scenario::SCENARIOS;

#[test]
fn what_broke_earlier_wordings_of_the_rules_breaks_nothing_now() {
    for (name, scenario) in SCENARIOS {
        assert_eq!(scenario(None), Ok(()), "{name}");
    }
}

#[test]
fn scenarios_about_what_goes_find_the_mistakes_that_they_are_about() {
    let finds = |mistake| SCENARIOS.iter().any(|(_, scenario)| scenario(Some(mistake)).is_err());
    assert!(finds(Mistake::SuccessorWithoutTable));
    assert!(finds(Mistake::CountedAndStillScratch));
    assert!(finds(Mistake::LeavesUnasked));
}
