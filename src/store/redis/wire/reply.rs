//! The reply of a script to a batch.

use smallvec::SmallVec;

use super::batch::{Batch, Request, VerdictPosition};
use super::check_args::{CheckArgs, CheckReply};
use super::msgpack::Reader;
use super::pair_choices::{PairChoice, PairChoices, PairCounter};
use crate::clock::Micros;
use crate::limit::wire::EXACT;
use crate::store::Choice;

#[derive(Debug)]
pub struct Reply {
    now: Micros,
    requests: Vec<Outcome>,
    /// One for each charge, in the order they were pushed.
    replies: Vec<CheckReply>,
}

/// The reply is not one to this batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the script's reply does not answer what was asked")]
pub struct ReplyError;

#[derive(Debug, Clone, Copy)]
struct Outcome {
    verdict: RequestVerdict,
    /// Where its states end.
    end: usize,
}

/// What a reply, or a fence, says of a whole request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestVerdict {
    pub admitted: bool,
    pub pairs: PairChoices,
}

impl Reply {
    /// # Errors
    /// If the bytes are anything but a reply to this batch.
    pub fn parse(bytes: &[u8], batch: &Batch) -> Result<Self, ReplyError> {
        Self::read(&mut Reader(bytes), batch).ok_or(ReplyError)
    }

    /// The instant at which all requests were decided, on Redis's clock.
    pub fn now(&self) -> Micros {
        self.now
    }

    /// Whether a request was admitted, by its position.
    ///
    /// # Panics
    /// If the batch had no such request.
    pub fn admitted(&self, request: usize) -> bool {
        self.requests[request].verdict.admitted
    }

    /// The same, and what came of the request's pairs.
    ///
    /// # Panics
    /// If the batch had no such request.
    pub fn verdict(&self, request: usize) -> RequestVerdict {
        self.requests[request].verdict
    }

    /// What became of the request's charges, in the order they were pushed. Charges on the same
    /// bucket have the same.
    ///
    /// # Panics
    /// If the batch had no such request.
    pub fn check_replies(&self, request: usize) -> impl ExactSizeIterator<Item = CheckReply> + '_ {
        let start = request.checked_sub(1).map_or(0, |before| self.requests[before].end);
        self.replies[start..self.requests[request].end].iter().copied()
    }

    fn read(reader: &mut Reader<'_>, batch: &Batch) -> Option<Self> {
        if reader.array()? != 1 + batch.reply_length {
            return None;
        }
        let now = Micros(reader.number().filter(|now| *now < EXACT)?);
        let mut requests = Vec::with_capacity(batch.requests.len());
        let mut replies = Vec::with_capacity(batch.parts.len());
        let mut checks: SmallVec<[CheckReply; 4]> = SmallVec::new();
        let mut start = Request::default();
        for request in &batch.requests {
            let verdict = reader.number()?;
            let mut pairs = PairChoices::default();
            if request.pairs > 0 {
                pairs = PairChoices::read(reader.number()?, request.pairs)?;
            }
            let mut counter = PairCounter::default();
            checks.clear();
            let mut has_bound = false;
            for (position, args) in batch.args_of(start.checks..request.checks).enumerate() {
                let mut would_refuse =
                    verdict.checked_shr(1 + position as u32).is_some_and(|it| it & 1 == 1);
                if would_refuse && (args.enforced || args.choice != Choice::Alone) {
                    return None;
                }
                has_bound |= args.bound;
                let mut skipped = false;
                if let Some(pair) = counter.next(args.choice) {
                    let came = pairs.of(pair);
                    skipped = args.choice == Choice::Second && came == PairChoice::First;
                    would_refuse = !skipped && !came.is(args.choice);
                }
                checks.push(CheckReply { would_refuse, skipped, ..args.read_reply(reader)? });
            }
            if verdict.checked_shr(1 + checks.len() as u32).is_some_and(|more| more > 0) {
                return None;
            }
            if has_bound {
                withhold(batch.args_of(start.checks..request.checks), &mut checks);
            }
            let parts = &batch.parts[start.parts..request.parts];
            replies.extend(parts.iter().map(|part| checks[*part]));
            let verdict = RequestVerdict { admitted: verdict & 1 == 1, pairs };
            requests.push(Outcome { verdict, end: request.parts });
            start = *request;
        }
        reader.is_empty().then_some(Self { now, requests, replies })
    }
}

/// Of bound checks none is charged if one of them refuses.
fn withhold<'a>(args: impl Iterator<Item = &'a CheckArgs>, checks: &mut [CheckReply]) {
    let bound: SmallVec<[(&CheckArgs, &mut CheckReply); 8]> =
        args.zip(checks).filter(|(args, _)| args.bound).collect();
    let refuses = |(args, reply): &(&CheckArgs, &mut CheckReply)| {
        reply.would_refuse && args.choice != Choice::First
    };
    if bound.iter().any(refuses) {
        bound.into_iter().for_each(|(_, reply)| reply.withheld = true);
    }
}

/// The instant of Redis's clock that any reply begins with, and whether it is all there is: then
/// the call came too late, and nothing was decided.
pub(crate) fn instant(bytes: &[u8]) -> Option<(Micros, bool)> {
    let mut reader = Reader(bytes);
    let length = reader.array()?;
    let now = Micros(reader.number().filter(|now| *now < EXACT)?);
    Some((now, length == 1))
}

/// What became of each request, in a reply to a batch of which only the
/// [`Batch::verdict_positions`] are left. `None` if it is no such reply.
pub(crate) fn verdicts(bytes: &[u8], positions: &[VerdictPosition]) -> Option<Vec<RequestVerdict>> {
    let mut reader = Reader(bytes);
    let length = reader.array()?;
    let numbers = (0..length).map(|_| reader.number()).collect::<Option<Vec<_>>>()?;
    let verdict = |position: &VerdictPosition| {
        let admitted = numbers.get(position.verdict)? & 1 == 1;
        let pairs = match position.pairs {
            0 => PairChoices::default(),
            pairs => PairChoices::read(*numbers.get(position.verdict + 1)?, pairs)?,
        };
        Some(RequestVerdict { admitted, pairs })
    };
    positions.iter().map(verdict).collect()
}

#[cfg(test)]
mod tests;
