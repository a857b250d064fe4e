//! What the tasks that tell Redis something beside requests have in common: a connection and
//! deadlines of their own, one warning for several failures in a row, and reports that are told again
//! if they could not be told.

use std::time::Duration;

use redis::{Cmd, FromRedisValue, Value};
use tokio::time::{Instant, timeout};

use crate::store::redis::RedisShared;
use crate::store::redis::connect::failure::{Failure, Reason};
use crate::store::redis::connect::hash_slot::{group_by_hash_slot, hash_slot};
use crate::store::redis::connect::session::Session;

/// How long one call may take.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(1);
/// How many reports one call has: Redis serves nobody else meanwhile.
const REPORTS_PER_CALL: usize = 100;

/// The connection of such a task. It is made when it is needed, and anew after a failure.
#[derive(Debug, Default)]
pub(crate) struct ReportLink {
    session: Option<Session>,
    is_failing: bool,
}

impl ReportLink {
    pub(crate) fn is_open(&self) -> bool {
        self.session.is_some()
    }

    pub(crate) async fn session(&mut self, shared: &RedisShared) -> Result<Session, Failure> {
        match &self.session {
            Some(session) => Ok(session.clone()),
            None => Ok(self.session.insert(open(shared).await?).clone()),
        }
    }

    pub(crate) fn close(&mut self) {
        self.session = None;
    }

    /// Notes how a round went. The first of several failures in a row is logged, with what follows, and so
    /// is their `end`.
    pub(crate) fn note(&mut self, round: &Result<(), Failure>, consequence: &str, end: &str) {
        let Err(failure) = round else {
            if std::mem::take(&mut self.is_failing) {
                tracing::info!("{end}");
            }
            return;
        };
        self.close();
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::warn!(%failure, "{consequence}");
        }
    }
}

pub(crate) async fn open(shared: &RedisShared) -> Result<Session, Failure> {
    let opened = timeout(CALL_TIMEOUT, Session::open(&shared.dialer)).await;
    opened.unwrap_or_else(|_| Err(Failure::timeout()))
}

/// Reports on their way to Redis, in calls of one hash slot each. What was not told is put back when
/// this is dropped. A call that failed may have been run all the same: what it told then counts twice.
#[derive(Debug)]
pub(crate) struct ReportCalls<R, P: Fn(&[R])> {
    /// The next one is the last.
    calls: Vec<ReportCall<R>>,
    put_back: P,
}

#[derive(Debug)]
pub(crate) struct ReportCall<R> {
    pub(crate) slot: u16,
    pub(crate) reports: Vec<R>,
}

impl<R, P: Fn(&[R])> ReportCalls<R, P> {
    pub(crate) fn new(reports: Vec<R>, slot_of: impl Fn(&R) -> u16, put_back: P) -> Self {
        let mut calls = Vec::new();
        for group in group_by_hash_slot(reports, slot_of) {
            let (slot, mut reports) = (group.slot, group.items.into_iter().peekable());
            while reports.peek().is_some() {
                let reports = reports.by_ref().take(REPORTS_PER_CALL).collect();
                calls.push(ReportCall { slot, reports });
            }
        }
        calls.reverse();
        ReportCalls { calls, put_back }
    }

    /// What to tell now.
    pub(crate) fn next(&self) -> Option<&ReportCall<R>> {
        self.calls.last()
    }

    /// That has been told.
    pub(crate) fn told(&mut self) {
        self.calls.pop();
    }
}

impl<R, P: Fn(&[R])> Drop for ReportCalls<R, P> {
    fn drop(&mut self) {
        self.calls.iter().rev().for_each(|call| (self.put_back)(&call.reports));
    }
}

/// One command about one key.
pub(crate) async fn ask(
    session: &Session,
    command: &str,
    name: &[u8],
    arguments: impl Fn(&mut Cmd),
) -> Result<Value, Failure> {
    let command = |_| {
        let mut cmd = redis::cmd(command);
        cmd.arg(name);
        arguments(&mut cmd);
        cmd
    };
    session.run(hash_slot(name), Instant::now() + CALL_TIMEOUT, command).await
}

pub(crate) fn parsed<T: FromRedisValue>(value: Value) -> Result<T, Failure> {
    T::from_redis_value(value).map_err(|error| Failure::new(Reason::Reply, error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn the_first_failure_in_a_row_is_logged_and_so_is_their_end() {
        let mut link = ReportLink::default();
        let failed = Err(Failure::timeout());
        let lines = crate::test_log::logged(|| {
            for round in [&Ok(()), &failed, &failed, &Ok(()), &Ok(()), &failed] {
                link.note(round, "counts are kept back", "counts are told again");
            }
        });
        let expected = [
            "WARN counts are kept back failure=no answer in time",
            "INFO counts are told again",
            "WARN counts are kept back failure=no answer in time",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn what_was_not_told_is_put_back() {
        let (mut told, back) = (Vec::new(), RefCell::new(Vec::new()));
        // Fifty in slot 1, then 250 in slot 2, then fifty in slot 3.
        let slot_of = |it: &u32| if *it < 50 { 1 } else { 2 + u16::from(*it >= 300) };
        let put_back = |reports: &[u32]| back.borrow_mut().extend_from_slice(reports);
        let mut calls = ReportCalls::new((0..350).collect(), slot_of, put_back);
        while let Some(call) = calls.next() {
            assert!(call.reports.iter().all(|it| slot_of(it) == call.slot));
            assert!(call.reports.len() <= REPORTS_PER_CALL);
            if call.reports.contains(&150) {
                break;
            }
            told.extend_from_slice(&call.reports);
            calls.told();
        }
        drop(calls);
        assert_eq!(told, (0..150).collect::<Vec<_>>());
        assert_eq!(back.into_inner(), (150..350).collect::<Vec<_>>(), "with all that follows");
    }
}
