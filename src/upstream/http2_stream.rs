//! Room for one request on an HTTP/2 connection, and what the connection is told of how it went.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use http::Request;

use super::FailureScope;
use super::http2_body::RequestBody;
use super::http2_connection::{Http2Connection, SentRequest};
use super::http2_uploads::Uploads;

#[derive(Debug)]
#[must_use = "dropping it gives the room back"]
pub(crate) struct Http2Stream {
    connection: Rc<Http2Connection>,
    /// The request was sent and nothing came of it yet, so that giving it up resets the stream.
    is_unanswered: Cell<bool>,
    /// Of its request, among those of the connection.
    number: Cell<u64>,
    /// How often the connection had been taken back when this was opened.
    taken_back: u32,
}

impl Http2Stream {
    /// For a connection that has counted it.
    pub(super) fn new(connection: Rc<Http2Connection>, taken_back: u32) -> Self {
        let (is_unanswered, number) = (Cell::new(false), Cell::new(0));
        Http2Stream { connection, is_unanswered, number, taken_back }
    }

    /// Whose request is about to be sent.
    pub(crate) fn set_sender(&self, client: IpAddr) {
        self.number.set(self.connection.senders.note_sent(client));
    }

    /// The connection has ended. Against whom that holds, where a request of that client was on it.
    pub(super) fn connection_failure_scope(&self, client: IpAddr) -> FailureScope {
        self.connection.senders.failure_scope(client)
    }

    pub(super) fn send(&self, request: Request<RequestBody>) -> SentRequest {
        self.is_unanswered.set(true);
        self.connection.send(request)
    }

    /// Whether no other request is sent on its connection.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.connection.is_exclusive
    }

    /// Where the body of its request tells whether it gets on.
    pub(super) fn uploads(&self) -> &Rc<Uploads> {
        &self.connection.uploads
    }

    /// The head of the response is there.
    pub(super) fn note_answered(&self) {
        self.is_unanswered.set(false);
        self.connection.senders.note_over(self.number.get());
        self.connection.note_answered();
    }

    /// The server has ended the stream, or `with_connection` all of them.
    pub(super) fn note_ended(&self, with_connection: bool) {
        self.is_unanswered.set(false);
        if !with_connection {
            self.connection.senders.note_over(self.number.get());
        }
    }

    /// The server has refused to go on with this connection.
    pub(super) fn retire_connection(&self) {
        self.connection.retire();
    }

    /// No response has come in time. If nothing else has come lately either, the connection is likely
    /// dead, and others need not find out in the same way.
    pub(super) fn note_timeout(&self, timeout: Duration) {
        if !self.connection.has_read_within(timeout / 2) {
            self.connection.retire();
        }
    }
}

impl Drop for Http2Stream {
    fn drop(&mut self) {
        if self.is_unanswered.get() {
            self.connection.senders.note_over(self.number.get());
            self.connection.note_given_up();
        }
        self.connection.close_stream(self.taken_back);
    }
}
