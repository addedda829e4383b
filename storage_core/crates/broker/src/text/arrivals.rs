//! Keeps track of which answers a client can have seen when it sent a request.
//!
//! A request is a sign that the answers before it have arrived only if it came after they were sent: a client that
//! pipelines sends requests blindly. Pure; positions count the bytes of the connection from its start.

use std::collections::VecDeque;

/// Knows how many answers had been sent when each byte of the connection arrived.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    received: u64,
    consumed: u64,
    answers_sent: u64,
    /// Positions of first bytes, each with the number of answers that were sent before it arrived; both ascend.
    marks: VecDeque<(u64, u64)>,
}

impl Arrivals {
    /// Notes that `bytes` more have arrived.
    pub(super) fn receive(&mut self, bytes: usize) {
        if self.marks.back().is_none_or(|(_, answers)| *answers != self.answers_sent) {
            self.marks.push_back((self.received, self.answers_sent));
        }
        self.received += bytes as u64;
    }

    /// Takes the next `bytes` as one request; says how many answers had been sent when its first byte arrived.
    pub(super) fn consume(&mut self, bytes: usize) -> u64 {
        while self.marks.get(1).is_some_and(|(position, _)| *position <= self.consumed) {
            self.marks.pop_front();
        }
        self.consumed += bytes as u64;
        self.marks.front().map_or(0, |(_, answers)| *answers)
    }

    /// Notes that one more answer is sent; says its number, from 1.
    pub(super) fn answer(&mut self) -> u64 {
        self.answers_sent += 1;
        self.answers_sent
    }

    /// Number of the answer that will be sent next.
    pub(super) fn next_answer(&self) -> u64 {
        self.answers_sent + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_sent_after_an_answer_confirms_it() {
        let mut arrivals = Arrivals::default();
        for turn in 0..5 {
            arrivals.receive(10);
            assert_eq!(arrivals.consume(10), turn);
            arrivals.answer();
        }
        assert_eq!(arrivals.marks.len(), 1);
    }

    #[test]
    fn requests_that_came_together_confirm_nothing_of_each_other() {
        let mut arrivals = Arrivals::default();
        arrivals.receive(30);
        for _ in 0..3 {
            assert_eq!(arrivals.consume(10), 0);
            arrivals.answer();
        }
        arrivals.receive(10);
        assert_eq!(arrivals.consume(10), 3);
    }

    #[test]
    fn a_request_that_begins_before_an_answer_and_ends_behind_it_does_not_confirm_it() {
        let mut arrivals = Arrivals::default();
        arrivals.receive(14);
        assert_eq!(arrivals.consume(10), 0);
        arrivals.answer();
        arrivals.receive(6);
        assert_eq!(arrivals.consume(10), 0, "its first four bytes came before the answer");
        arrivals.answer();
        arrivals.receive(10);
        assert_eq!(arrivals.consume(10), 2);
    }
}
