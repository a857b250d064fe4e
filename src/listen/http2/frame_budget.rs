//! How many frames a client may send that ask for nothing, and how many streams it may take back.
//!
//! Pings, settings, priorities, window updates and empty data cost the sender next to nothing and the
//! receiver work. A client that is served earns them: by requests, by bodies, and by what it reads of its
//! answers. One that sends nothing else runs out, and its connection is closed. A stream that is reset
//! before its answer has begun, by either side, is work for nothing: it is earned by answers and by time,
//! and costs more than one. A client that takes back everything it asks for runs out; one that leaves
//! answers it has begun to read, as calls of gRPC are cancelled, does not.

use std::error::Error as _;

use tokio::time::Instant;

/// What a connection begins with, and the most it can have.
const FRAMES: u32 = 1000;
/// What comes back by itself: keep-alive of a client whose one stream is silent for days.
const FRAMES_PER_SECOND: u32 = 10;
/// What a piece of an answer or of a body earns, and one byte in so many.
const PER_PIECE: u32 = 4;
const BYTES_PER_FRAME: u32 = 512;
/// What an answer earns, and what a stream costs that was taken back: two in five may be.
const PER_ANSWER: u32 = 2;
const PER_RESET: u32 = 3;
/// Besides, so many may be: calls whose deadline passes while an upstream hangs.
const RESETS_PER_SECOND: u32 = 10;

/// The client has sent too much that asks for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum FloodError {
    #[error("too many frames that carry no request and no data")]
    Frames,
    #[error("too many streams that were reset before they were answered")]
    Streams,
    #[error("the codec has seen a flood")]
    Codec,
}

impl FloodError {
    /// Its name in `weir_http2_floods_total`.
    pub(super) fn reason(self) -> &'static str {
        match self {
            FloodError::Frames => "frames",
            FloodError::Streams => "streams",
            FloodError::Codec => "codec",
        }
    }

    /// What the codec ends connections for by itself: headers that never end or unpack to far too much,
    /// data in crumbs.
    pub(super) fn seen_by_codec(error: &hyper::Error) -> Option<Self> {
        let codec = error.source()?.downcast_ref::<h2::Error>()?;
        let is_flood = codec.is_library() && codec.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM);
        is_flood.then_some(FloodError::Codec)
    }
}

#[derive(Debug)]
pub(super) struct FrameBudget {
    frames: u32,
    refilled_at: Instant,
    resets: u32,
    max_resets: u32,
    resets_refilled_at: Instant,
}

impl FrameBudget {
    /// For a connection that may have so many streams at once: all of them may be reset, twice over.
    pub(super) fn new(streams: u32, now: Instant) -> Self {
        let max_resets = streams.saturating_mul(2).max(100) * PER_RESET;
        FrameBudget {
            frames: FRAMES,
            refilled_at: now,
            resets: max_resets,
            max_resets,
            resets_refilled_at: now,
        }
    }

    /// A request, or a piece of a body in either direction.
    pub(super) fn earn(&mut self, bytes: u32) {
        self.frames = (self.frames + PER_PIECE + bytes / BYTES_PER_FRAME).min(FRAMES);
    }

    pub(super) fn earn_stream(&mut self) {
        self.resets = (self.resets + PER_ANSWER).min(self.max_resets);
    }

    pub(super) fn spend_frame(&mut self, now: impl FnOnce() -> Instant) -> Result<(), FloodError> {
        if self.frames == 0 {
            let refill = refill(&mut self.refilled_at, now(), FRAMES_PER_SECOND);
            self.frames = refill.min(FRAMES);
        }
        self.frames = self.frames.checked_sub(1).ok_or(FloodError::Frames)?;
        Ok(())
    }

    pub(super) fn spend_stream(&mut self, now: impl FnOnce() -> Instant) -> Result<(), FloodError> {
        if self.resets < PER_RESET {
            let per_second = RESETS_PER_SECOND * PER_RESET;
            let refill = refill(&mut self.resets_refilled_at, now(), per_second);
            self.resets = self.resets.saturating_add(refill).min(self.max_resets);
        }
        self.resets = self.resets.checked_sub(PER_RESET).ok_or(FloodError::Streams)?;
        Ok(())
    }
}

/// What whole seconds have added since the last time that any had passed.
fn refill(refilled_at: &mut Instant, now: Instant, per_second: u32) -> u32 {
    let seconds = now.saturating_duration_since(*refilled_at).as_secs();
    if seconds > 0 {
        *refilled_at = now;
    }
    u32::try_from(seconds).unwrap_or(u32::MAX).saturating_mul(per_second)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// How many frames may be sent at an instant, up to a bound.
    fn spend_all(budget: &mut FrameBudget, now: Instant) -> usize {
        (0..5000).take_while(|_| budget.spend_frame(|| now).is_ok()).count()
    }

    #[test]
    fn frames_run_out_unless_they_are_earned_or_waited_for() {
        let start = Instant::now();
        let mut budget = FrameBudget::new(128, start);
        assert_eq!(spend_all(&mut budget, start), 1000);
        budget.earn(0);
        budget.earn(16 * 1024);
        assert_eq!(spend_all(&mut budget, start), 4 + 4 + 32);
        assert_eq!(spend_all(&mut budget, start + Duration::from_millis(900)), 0);
        assert_eq!(spend_all(&mut budget, start + Duration::from_secs(2)), 20);
        assert_eq!(spend_all(&mut budget, start + Duration::from_secs(100_000)), 1000);
    }

    #[test]
    fn two_in_five_streams_may_be_taken_back() {
        let start = Instant::now();
        let mut budget = FrameBudget::new(128, start);
        assert_eq!((0..1000).take_while(|_| budget.spend_stream(|| start).is_ok()).count(), 256);
        for _ in 0..1000 {
            (0..3).for_each(|_| budget.earn_stream());
            (0..2).for_each(|_| assert_eq!(budget.spend_stream(|| start), Ok(())));
        }
        budget.earn_stream();
        assert_eq!(budget.spend_stream(|| start), Err(FloodError::Streams));
    }

    #[test]
    fn ten_streams_a_second_may_be_taken_back_besides() {
        let start = Instant::now();
        let mut budget = FrameBudget::new(128, start);
        let mut spend_all = |seconds| {
            let now = start + Duration::from_secs(seconds);
            (0..1000).take_while(|_| budget.spend_stream(|| now).is_ok()).count()
        };
        assert_eq!(spend_all(0), 256);
        assert_eq!([spend_all(3), spend_all(4), spend_all(4)], [30, 10, 0]);
        assert_eq!(spend_all(100_000), 256);
    }
}
