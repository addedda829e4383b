//! The searches of the suite, as far as they get in a minute; `make model` goes on.

use walrus_simulator::model::search;
use walrus_simulator::suite::searches;

#[test]
fn no_order_of_a_few_events_breaks_a_promise() {
    for one in searches(None) {
        let report = search(&one.setting, &one.events, 10_000, 2);
        if let Some(trace) = &report.found {
            panic!("{}:\n{trace}", one.name);
        }
        assert!(report.exhausted || report.states >= 10_000, "{}: {} states", one.name, report.states);
    }
}
