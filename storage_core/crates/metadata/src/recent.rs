//! The last commands and what became of them: when the same proposal comes twice, the second is answered as the first was.

use imbl::{HashMap, Vector};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::answer::Applied;
use crate::rejection::CommandRejection;

/// The number of commands that are remembered. A proposer gives up on an unknown outcome long before so many others came.
const RECENT_MAX: usize = 4_096;

type Outcome = Result<Applied, CommandRejection>;

/// The commands that are remembered. Clones share what neither changes afterwards.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<Remembered>", into = "Vec<Remembered>")]
pub struct Recent {
    /// From the oldest to the newest.
    order: Vector<Uuid>,
    outcomes: HashMap<Uuid, Outcome>,
}

/// A remembered command as a snapshot has it.
#[derive(Clone, Serialize, Deserialize)]
struct Remembered {
    /// The envelope's id.
    id: Uuid,
    /// The answer or refusal that the proposer got.
    outcome: Outcome,
}

impl Recent {
    /// The outcome of a command, if it is remembered.
    pub(crate) fn outcome(&self, id: Uuid) -> Option<&Outcome> {
        self.outcomes.get(&id)
    }

    /// Remembers the outcome of a command that is not remembered yet, and forgets the oldest one where there are too many.
    pub(crate) fn remember(&mut self, id: Uuid, outcome: Outcome) {
        self.order.push_back(id);
        self.outcomes.insert(id, outcome);
        if self.order.len() > RECENT_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.outcomes.remove(&oldest);
        }
    }

    /// How many commands are remembered.
    #[must_use]
    pub fn count(&self) -> usize {
        self.order.len()
    }
}

impl From<Vec<Remembered>> for Recent {
    /// The oldest ones are left out where there are too many, and of two with one id the newer.
    fn from(listed: Vec<Remembered>) -> Self {
        let mut recent = Self::default();
        for Remembered { id, outcome } in listed {
            if recent.outcome(id).is_none() {
                recent.remember(id, outcome);
            }
        }
        recent
    }
}

impl From<Recent> for Vec<Remembered> {
    fn from(recent: Recent) -> Self {
        let found = |id: &Uuid| {
            recent.outcomes.get(id).map(|outcome| Remembered { id: *id, outcome: outcome.clone() })
        };
        recent.order.iter().filter_map(found).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Answer;

    #[test]
    fn so_many_commands_are_remembered_and_the_oldest_is_forgotten_first() {
        let outcome = |n: usize| Ok(Applied { version: n as u64, answer: Answer::Nothing });
        let id = |n: usize| Uuid::from_u128(n as u128);
        let mut recent = Recent::default();
        for n in 0..RECENT_MAX + 10 {
            recent.remember(id(n), outcome(n));
        }
        assert_eq!(recent.count(), RECENT_MAX);
        assert_eq!((recent.outcome(id(9)), recent.outcome(id(10))), (None, Some(&outcome(10))));
        let restored: Recent = serde_json::from_str(&serde_json::to_string(&recent).unwrap()).unwrap();
        assert_eq!(restored, recent);
        let first = serde_json::to_value(&recent).unwrap()[0]["id"].clone();
        assert_eq!(first, id(10).to_string(), "a snapshot has them in order");
    }
}
