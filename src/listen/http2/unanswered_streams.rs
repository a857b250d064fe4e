//! Which streams of a connection have been opened and not been answered yet, by what goes over the wire.

use super::frame_budget::FloodError;

/// The codec has no more than `max_streams` of them under way and some 1000 to reset. Others it ignores:
/// those that are opened after it has told the client to open none.
const MAX_UNANSWERED: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct UnansweredStreams {
    /// In order: clients count upwards.
    ids: Vec<u32>,
}

impl UnansweredStreams {
    /// Notes a stream that is newer than all before.
    pub(super) fn insert(&mut self, id: u32) -> Result<(), FloodError> {
        if self.ids.len() == MAX_UNANSWERED {
            return Err(FloodError::Streams);
        }
        self.ids.push(id);
        Ok(())
    }

    /// Its answer begins, or it is reset. False if that was so before.
    pub(super) fn remove(&mut self, id: u32) -> bool {
        match self.ids.binary_search(&id) {
            Ok(at) => {
                self.ids.remove(at);
                true
            }
            Err(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_unanswered_once() {
        let mut streams = UnansweredStreams::default();
        for id in [1, 3, 9] {
            streams.insert(id).unwrap();
        }
        assert_eq!([3, 3, 1, 5, 9].map(|id| streams.remove(id)), [true, false, true, false, true]);
    }

    #[test]
    fn streams_that_the_codec_ignores_run_out() {
        let mut streams = UnansweredStreams::default();
        let inserted = (0..).map(|n| 2 * n + 1).take_while(|id| streams.insert(*id).is_ok());
        assert_eq!(inserted.count(), MAX_UNANSWERED);
    }
}
