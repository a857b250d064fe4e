//! Whose requests are under way on an HTTP/2 connection, as far as it matters when the connection ends.
//!
//! Servers end connections over single requests, and nothing says over which. So the end of a connection
//! is one failure, however many requests it had, and holds against who sent the last of those that were not
//! answered: that is the likeliest. Repeated on connections of their own, the others fail for themselves only.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;

use super::FailureScope;

#[derive(Debug, Default)]
pub(super) struct Senders {
    /// How many requests were sent.
    sent: Cell<u64>,
    /// Those that are neither answered nor given up, in the order in which they were sent. No more than
    /// the connection has streams.
    unanswered: RefCell<Vec<UnansweredRequest>>,
    /// The end of the connection is counted.
    is_counted: Cell<bool>,
}

#[derive(Debug)]
struct UnansweredRequest {
    number: u64,
    client: IpAddr,
}

impl Senders {
    /// A request is sent. Returns its number.
    pub(super) fn note_sent(&self, client: IpAddr) -> u64 {
        let number = self.sent.get() + 1;
        self.sent.set(number);
        self.unanswered.borrow_mut().push(UnansweredRequest { number, client });
        number
    }

    /// A request is answered or given up.
    pub(super) fn note_over(&self, number: u64) {
        let mut unanswered = self.unanswered.borrow_mut();
        if let Ok(at) = unanswered.binary_search_by_key(&number, |sent| sent.number) {
            unanswered.remove(at);
        }
    }

    /// Against whom the end of the connection holds, asked for each of its requests. `client`: who sent
    /// that one.
    pub(super) fn failure_scope(&self, client: IpAddr) -> FailureScope {
        match self.is_counted.replace(true) {
            true => FailureScope::Nobody,
            false => {
                let unanswered = self.unanswered.borrow();
                FailureScope::Client(unanswered.last().map_or(client, |sent| sent.client))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    #[test]
    fn the_end_of_a_connection_holds_once_and_against_who_sent_last() {
        let senders = Senders::default();
        (1..=3).for_each(|number| _ = senders.note_sent(client(number)));
        senders.note_over(1);
        assert_eq!(senders.failure_scope(client(2)), FailureScope::Client(client(3)));
        assert_eq!(senders.failure_scope(client(3)), FailureScope::Nobody);
    }

    #[test]
    fn it_holds_against_who_sent_the_last_of_those_that_were_not_answered() {
        let senders = Senders::default();
        let numbers = [1, 2, 3, 4].map(|number| senders.note_sent(client(number)));
        senders.note_over(numbers[3]);
        senders.note_over(numbers[1]);
        assert_eq!(senders.failure_scope(client(1)), FailureScope::Client(client(3)));
        let senders = Senders::default();
        let numbers = [1, 2, 3].map(|number| senders.note_sent(client(number)));
        senders.note_over(numbers[2]);
        assert_eq!(senders.failure_scope(client(1)), FailureScope::Client(client(2)));
    }

    #[test]
    fn it_holds_against_nobody_whose_request_was_answered() {
        let senders = Senders::default();
        let numbers = [1, 2].map(|number| senders.note_sent(client(number)));
        senders.note_over(numbers[1]);
        assert_eq!(senders.failure_scope(client(1)), FailureScope::Client(client(1)));
    }
}
