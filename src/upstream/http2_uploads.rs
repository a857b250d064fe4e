//! Whether the bodies of requests get on over one HTTP/2 connection, or wait for the server to read.
//!
//! They share one window (RFC 9113 section 5.2.1): a server that does not read one of them may stop all
//! others. hyper asks for the next piece of a body once it could send of the one before, so what waits is
//! known without a timer.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

/// For how long nothing may be sent of any body while pieces wait. Servers that do read let something
/// through within a few round trips.
const STALL_TIME: Duration = Duration::from_millis(250);

/// The uploads of one connection.
#[derive(Debug, Default)]
pub(super) struct Uploads {
    /// Of how many a piece waits to be sent.
    waiting: Cell<usize>,
    /// Since when pieces wait and nothing was sent.
    waiting_since: Cell<Option<Instant>>,
}

impl Uploads {
    /// Whether another would likely wait as well.
    pub(super) fn are_stalled(&self, now: Instant) -> bool {
        let time = |since| now.saturating_duration_since(since);
        self.waiting_since.get().is_some_and(|since| time(since) >= STALL_TIME)
    }

    /// No request is under way that could have used up the window.
    pub(super) fn clear(&self) {
        self.waiting_since.set(None);
    }

    fn begin_wait(&self, now: Instant) {
        self.waiting.set(self.waiting.get() + 1);
        self.waiting_since.set(self.waiting_since.get().or(Some(now)));
    }

    /// `is_sent`: and not given up.
    fn end_wait(&self, is_sent: bool, now: Instant) {
        self.waiting.set(self.waiting.get() - 1);
        let others_wait = self.waiting.get() > 0;
        if is_sent {
            self.waiting_since.set(others_wait.then_some(now));
        } else if !others_wait && !self.are_stalled(now) {
            // One that is given up says nothing of the window, so what has stalled stays so.
            self.waiting_since.set(None);
        }
    }
}

/// One of them.
#[derive(Debug)]
pub(super) struct Upload {
    uploads: Rc<Uploads>,
    waits: bool,
}

impl Upload {
    pub(super) fn new(uploads: &Rc<Uploads>) -> Self {
        Upload { uploads: uploads.clone(), waits: false }
    }

    /// hyper has a piece to send.
    pub(super) fn note_taken(&mut self) {
        if !std::mem::replace(&mut self.waits, true) {
            self.uploads.begin_wait(Instant::now());
        }
    }

    /// It asks for another.
    pub(super) fn note_asked(&mut self) {
        if std::mem::take(&mut self.waits) {
            self.uploads.end_wait(true, Instant::now());
        }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if self.waits {
            self.uploads.end_wait(false, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_stall_when_nothing_is_sent_of_any_for_a_while() {
        let (uploads, start) = (Uploads::default(), Instant::now());
        uploads.begin_wait(start);
        uploads.begin_wait(start + STALL_TIME / 2);
        let stalled = start + STALL_TIME;
        assert!(!uploads.are_stalled(stalled - Duration::from_nanos(1)));
        assert!(uploads.are_stalled(stalled));
        uploads.end_wait(true, stalled);
        assert!(!uploads.are_stalled(stalled), "there is a window");
        assert!(uploads.are_stalled(stalled + STALL_TIME), "and the other still waits");
        uploads.end_wait(true, stalled + STALL_TIME);
        assert!(!uploads.are_stalled(stalled + 2 * STALL_TIME), "none waits");
    }

    #[test]
    fn one_that_is_given_up_does_not_show_that_there_is_a_window() {
        let (uploads, start) = (Uploads::default(), Instant::now());
        uploads.begin_wait(start);
        uploads.end_wait(false, start + STALL_TIME / 2);
        assert!(!uploads.are_stalled(start + STALL_TIME), "nor that there is none");
        uploads.begin_wait(start + STALL_TIME);
        let stalled = start + 2 * STALL_TIME;
        uploads.end_wait(false, stalled);
        assert!(uploads.are_stalled(stalled));
        uploads.clear();
        assert!(!uploads.are_stalled(stalled));
    }

    #[test]
    fn a_piece_waits_from_when_it_is_taken_until_the_next_is_asked_for() {
        let uploads = Rc::<Uploads>::default();
        let mut upload = Upload::new(&uploads);
        upload.note_asked();
        upload.note_taken();
        assert_eq!(uploads.waiting.get(), 1);
        upload.note_asked();
        upload.note_asked();
        assert_eq!(uploads.waiting.get(), 0);
        upload.note_taken();
        drop(upload);
        assert_eq!(uploads.waiting.get(), 0);
    }
}
