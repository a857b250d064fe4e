//! What the parts of one stream tell each other: that it lives, and whether it waits for the client.
//!
//! hyper makes a task of each stream and has no deadline for one whose client does not read. So the body
//! notes when hyper asks it for more, and the task of [`super::stream_executor`] gives up once it has not
//! for too long.

use std::cell::Cell;
use std::rc::Rc;

use super::activity::ConnectionActivity;

/// One stream, for as long as any part of it holds this.
#[derive(Debug, Clone)]
pub(super) struct StreamProgress(Rc<Shared>);

#[derive(Debug)]
struct Shared {
    activity: Rc<ConnectionActivity>,
    /// A piece of the answer waits for room at the client: how long it is.
    handed_out: Cell<Option<u32>>,
    /// How many pieces the client has had room for.
    taken: Cell<u64>,
}

impl StreamProgress {
    pub(super) fn begin(activity: &Rc<ConnectionActivity>) -> Self {
        activity.note_begun();
        let activity = activity.clone();
        StreamProgress(Rc::new(Shared {
            activity,
            handed_out: Cell::new(None),
            taken: Cell::new(0),
        }))
    }

    /// The codec has a piece of the answer.
    pub(super) fn note_handed_out(&self, bytes: usize) {
        self.0.handed_out.set(Some(u32::try_from(bytes).unwrap_or(u32::MAX)));
    }

    pub(super) fn note_taken(&self) {
        if let Some(bytes) = self.0.handed_out.take() {
            self.0.taken.set(self.0.taken.get() + 1);
            self.0.activity.note_sent(bytes);
        }
    }

    /// Which piece of the answer waits for room at the client, if one does.
    pub(super) fn waits_for_client(&self) -> Option<u64> {
        self.0.handed_out.get().map(|_| self.0.taken.get())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.activity.note_ended();
    }
}
