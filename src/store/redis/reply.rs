//! What a script said of a batch.

use super::batch::{Batch, Request};
use super::msgpack::Reader;
use super::terms::EXACT;
use crate::clock::Micros;
use crate::limit::State;

#[derive(Debug)]
pub struct Reply {
    now: Micros,
    requests: Vec<Outcome>,
    /// One for each charge, in the order they were pushed.
    states: Vec<State>,
}

/// The reply is not one to this batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the script's reply does not answer what was asked")]
pub struct ReplyError;

#[derive(Debug, Clone, Copy)]
struct Outcome {
    admitted: bool,
    /// Where its states end.
    end: usize,
}

impl Reply {
    /// # Errors
    /// If the bytes are anything but a reply to this batch.
    pub fn parse(bytes: &[u8], batch: &Batch) -> Result<Self, ReplyError> {
        Self::read(&mut Reader(bytes), batch).ok_or(ReplyError)
    }

    /// The instant at which all requests were decided, on Redis's clock.
    #[must_use]
    pub fn now(&self) -> Micros {
        self.now
    }

    /// Whether a request was admitted, by its place.
    ///
    /// # Panics
    /// If the batch had no such request.
    #[must_use]
    pub fn admitted(&self, request: usize) -> bool {
        self.requests[request].admitted
    }

    /// The states of the request's charges, in the order they were pushed: charged if it was
    /// admitted, else as they were. Charges on the same bucket have the same.
    ///
    /// # Panics
    /// If the batch had no such request.
    pub fn states(&self, request: usize) -> impl ExactSizeIterator<Item = State> + '_ {
        let start = request.checked_sub(1).map_or(0, |before| self.requests[before].end);
        self.states[start..self.requests[request].end].iter().copied()
    }

    fn read(reader: &mut Reader<'_>, batch: &Batch) -> Option<Self> {
        if reader.array()? != 1 + batch.reply_length {
            return None;
        }
        let now = Micros(reader.number().filter(|now| *now < EXACT)?);
        let mut requests = Vec::with_capacity(batch.requests.len());
        let mut states = Vec::with_capacity(batch.parts.len());
        let mut checks = Vec::new();
        let mut start = Request::default();
        for request in &batch.requests {
            let admitted = match reader.number()? {
                0 => false,
                1 => true,
                _ => return None,
            };
            checks.clear();
            for terms in batch.terms_of(start.checks..request.checks) {
                checks.push(terms.state(reader)?);
            }
            let parts = &batch.parts[start.parts..request.parts];
            states.extend(parts.iter().map(|part| checks[*part]));
            requests.push(Outcome { admitted, end: request.parts });
            start = *request;
        }
        reader.is_empty().then_some(Self { now, requests, states })
    }
}

/// Whether each request was admitted, in a reply to a batch of which only the
/// [`Batch::flags`] are left. `None` if it is no such reply.
#[must_use]
pub fn flags(bytes: &[u8], flags: &[usize]) -> Option<Vec<bool>> {
    let mut reader = Reader(bytes);
    let length = reader.array()?;
    let numbers = (0..length).map(|_| reader.number()).collect::<Option<Vec<_>>>()?;
    flags.iter().map(|flag| numbers.get(*flag).map(|number| *number == 1)).collect()
}

#[cfg(test)]
mod tests;
