//! What a connection and the gateway tell each other about the request under way.
//!
//! Both hold the signals of a request, and they end with it: the connection asks whether the request
//! waits, or has to be finished without its client; the gateway asks whether the client has left.

use std::cell::Cell;

use super::early_hints::EarlyHints;

#[derive(Debug, Default)]
pub struct RequestSignals {
    waiting: Cell<bool>,
    decided: Cell<bool>,
    charge: Cell<PendingCharge>,
    client_left: Cell<bool>,
    /// What the upstream says before its response.
    pub hints: EarlyHints,
}

/// Whether the request is to be charged by its response, and how far it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum PendingCharge {
    #[default]
    None,
    /// The upstream has not seen the request yet.
    Unsent,
    /// The upstream may be at work on it.
    Sent,
}

/// Marks a request as waiting while it lives.
#[derive(Debug)]
#[must_use = "the request counts as waiting only while this lives"]
pub struct WaitingMark<'a>(&'a Cell<bool>);

impl Drop for WaitingMark<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl RequestSignals {
    /// Says that the request waits: in a queue, for its pace, or for a connection.
    pub fn wait(&self) -> WaitingMark<'_> {
        self.waiting.set(true);
        WaitingMark(&self.waiting)
    }

    /// Whether the request waits. Then half-close is treated as disconnect: most clients that
    /// finish sending have closed their connection, and no place in a queue is kept for them.
    pub fn is_waiting(&self) -> bool {
        self.waiting.get()
    }

    /// Says that the limits of the request have decided on it.
    pub(super) fn note_decided(&self) {
        self.decided.set(true);
    }

    /// Whether the limits of the request have decided on it, and charged what they charge at once.
    pub fn is_decided(&self) -> bool {
        self.decided.get()
    }

    /// Says that the request will be charged by its response.
    pub(super) fn expect_charge(&self) {
        self.charge.set(PendingCharge::Unsent);
    }

    /// Says that the request is on its way to an upstream.
    pub fn note_sent(&self) {
        if self.charge.get() == PendingCharge::Unsent {
            self.charge.set(PendingCharge::Sent);
        }
    }

    /// Says that nothing is left to be charged.
    pub(super) fn note_charged(&self) {
        self.charge.set(PendingCharge::None);
    }

    /// Whether an upstream has the request and its response is still to be charged. Then the
    /// exchange goes on, though the client has left.
    pub fn awaits_charge(&self) -> bool {
        self.charge.get() == PendingCharge::Sent
    }

    pub fn note_client_left(&self) {
        self.client_left.set(true);
    }

    /// Whether the client left before its answer.
    pub fn client_has_left(&self) -> bool {
        self.client_left.get()
    }
}
