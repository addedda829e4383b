//! What becomes of a topic's settings by a change that a client of Kafka asks for. Pure.

use std::collections::{BTreeMap, BTreeSet};

use kafka_protocol::ResponseError;
use walrus_metadata::{DEFINITIONS, Values};

use super::Refused;
use crate::topics::catalogue::ConfigChange;

/// What is done with one setting (KIP-339).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Set,
    Delete,
    Append,
    Subtract,
}

impl Step {
    pub(super) fn of(code: i8) -> Option<Self> {
        [Self::Set, Self::Delete, Self::Append, Self::Subtract].get(usize::try_from(code).ok()?).copied()
    }
}

/// The change that replaces all settings that a topic has itself by those given.
pub(super) fn replace(
    own: &BTreeMap<String, String>,
    given: Vec<(String, Option<String>)>,
) -> Result<ConfigChange, Refused> {
    let mut set = BTreeMap::new();
    for (name, value) in given {
        set.insert(name.clone(), value.ok_or_else(|| without_value(&name))?);
    }
    let unset = own.keys().filter(|name| !set.contains_key(*name)).cloned().collect();
    Ok(ConfigChange { set, unset, expect: None })
}

/// The change that these steps make together; `in_force` has the values that are appended to.
pub(super) fn step_by_step(
    in_force: &BTreeMap<String, String>,
    steps: Vec<(String, Step, Option<String>)>,
) -> Result<ConfigChange, Refused> {
    let mut change = ConfigChange::default();
    let mut named = BTreeSet::new();
    for (name, step, value) in steps {
        if !named.insert(name.clone()) {
            return Err(Refused::new(
                ResponseError::InvalidRequest,
                format!("{name} is named more than once"),
            ));
        }
        match step {
            Step::Delete => drop(change.unset.insert(name)),
            Step::Set => {
                let value = value.ok_or_else(|| without_value(&name))?;
                change.set.insert(name, value);
            }
            Step::Append | Step::Subtract => {
                if !is_list(&name) {
                    let why =
                        format!("{name} is no list: only a list can be appended to, or subtracted from");
                    return Err(Refused::new(ResponseError::InvalidConfig, why));
                }
                let given = value.ok_or_else(|| without_value(&name))?;
                let mut words = words(in_force.get(&name).map_or("", String::as_str));
                for word in self::words(&given) {
                    words.retain(|known| *known != word);
                    if step == Step::Append {
                        words.push(word);
                    }
                }
                change.set.insert(name, words.join(","));
            }
        }
    }
    Ok(change)
}

fn is_list(name: &str) -> bool {
    let definition = DEFINITIONS.iter().find(|definition| definition.name == name);
    definition.is_some_and(|definition| matches!(definition.values, Values::SomeOf(_) | Values::Readers))
}

fn words(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

fn without_value(name: &str) -> Refused {
    Refused::new(ResponseError::InvalidConfig, format!("{name} has no value"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(values: &[(&str, &str)]) -> BTreeMap<String, String> {
        values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn steps(steps: &[(&str, Step, Option<&str>)]) -> Result<ConfigChange, Refused> {
        let in_force = named(&[("cleanup.policy", "delete"), ("walrus.retention.pinned", "a,b")]);
        let step = |(name, step, value): &(&str, Step, Option<&str>)| {
            ((*name).to_owned(), *step, value.map(str::to_owned))
        };
        step_by_step(&in_force, steps.iter().map(step).collect())
    }

    #[test]
    fn a_replacement_forgets_what_it_does_not_name() {
        let own = named(&[("retention.ms", "1"), ("segment.bytes", "2")]);
        let change = replace(&own, vec![("retention.ms".to_owned(), Some("7".to_owned()))]).unwrap();
        assert_eq!(change.set, named(&[("retention.ms", "7")]));
        assert_eq!(change.unset, BTreeSet::from(["segment.bytes".to_owned()]));
        assert!(replace(&own, vec![("retention.ms".to_owned(), None)]).is_err());
    }

    #[test]
    fn steps_set_delete_append_and_subtract() {
        let change = steps(&[
            ("retention.ms", Step::Set, Some("7")),
            ("segment.bytes", Step::Delete, None),
            ("cleanup.policy", Step::Append, Some("compact")),
            ("walrus.retention.pinned", Step::Subtract, Some("a, z")),
        ]);
        let change = change.unwrap();
        let set =
            [("retention.ms", "7"), ("cleanup.policy", "delete,compact"), ("walrus.retention.pinned", "b")];
        assert_eq!((change.set, change.unset), (named(&set), BTreeSet::from(["segment.bytes".to_owned()])));
        let again = steps(&[("cleanup.policy", Step::Append, Some("delete"))]).unwrap();
        assert_eq!(again.set, named(&[("cleanup.policy", "delete")]), "what is there is not there twice");
    }

    #[test]
    fn steps_that_cannot_be_are_refused() {
        for wrong in [
            vec![("retention.ms", Step::Append, Some("7"))],
            vec![("retention.ms", Step::Set, None)],
            vec![("retention.ms", Step::Set, Some("1")), ("retention.ms", Step::Delete, None)],
        ] {
            assert!(steps(&wrong).is_err(), "{wrong:?}");
        }
        assert_eq!((Step::of(3), Step::of(4), Step::of(-1)), (Some(Step::Subtract), None, None));
    }
}
