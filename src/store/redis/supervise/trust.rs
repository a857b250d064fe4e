//! Tells Redis how calls of users have ended here, and hears what all gateways have counted.
//!
//! It runs beside requests, on a connection and with deadlines of its own: nothing that goes wrong
//! here is held against decisions. A call that failed may have been run all the same; what it told is
//! then told again and counts twice. A score may be off by that, and no limit is.

use std::sync::Arc;
use std::time::Duration;

use redis::FromRedisValue as _;
use tokio::time::{Instant, sleep, timeout};

use crate::store::redis::RedisShared;
use crate::store::redis::connect::failure::{Failure, Reason};
use crate::store::redis::connect::hash_slot::{group_by_hash_slot, hash_slot};
use crate::store::redis::connect::session::Session;
use crate::store::redis::wire::msgpack;
use crate::store::redis::wire::script::TRUST;
use crate::trust::{TrustReport, TrustTable};

/// How often users are reported, while there are some.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);
/// How long one call may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long after a failure the next attempt is made.
const PAUSE: Duration = Duration::from_secs(1);
/// How many users one round reports; what is left waits for the next.
const MOST_REPORTS: usize = 10_000;
/// How many users one call reports: Redis serves nobody else meanwhile.
const REPORTS_PER_CALL: usize = 100;

/// One for the process.
#[derive(Debug)]
pub(crate) struct TrustReporter {
    shared: Arc<RedisShared>,
    table: Arc<TrustTable>,
    session: Option<Session>,
    is_failing: bool,
}

impl TrustReporter {
    pub(crate) fn new(shared: Arc<RedisShared>, table: Arc<TrustTable>) -> Self {
        TrustReporter { shared, table, session: None, is_failing: false }
    }

    /// Never ends.
    pub(crate) async fn run(mut self) {
        loop {
            sleep(REPORT_INTERVAL).await;
            if self.shared.breaker.is_open() {
                self.session = None;
                continue;
            }
            match self.round().await {
                Ok(()) => self.is_failing = false,
                Err(failure) => {
                    self.session = None;
                    if !std::mem::replace(&mut self.is_failing, true) {
                        tracing::warn!(%failure, "what is known of users is not shared");
                    }
                    sleep(PAUSE).await;
                }
            }
        }
    }

    async fn round(&mut self) -> Result<(), Failure> {
        let reports = self.table.take_reports(MOST_REPORTS);
        if reports.is_empty() {
            return Ok(());
        }
        let session = match &self.session {
            Some(session) => Ok(session.clone()),
            None => open(&self.shared).await,
        };
        match session {
            Ok(session) => {
                self.session = Some(session.clone());
                report_all(&self.shared, &self.table, &session, reports).await
            }
            Err(failure) => {
                self.table.put_back(&reports);
                Err(failure)
            }
        }
    }
}

/// The process ends: tells what has not been told yet.
pub(crate) async fn report_rest(shared: &RedisShared, table: &TrustTable) {
    let reports = table.take_reports(MOST_REPORTS);
    if reports.is_empty() {
        return;
    }
    let told = async {
        let session = open(shared).await?;
        report_all(shared, table, &session, reports).await
    };
    let told = timeout(2 * PATIENCE, told).await.unwrap_or_else(|_| Err(Failure::timeout()));
    if let Err(failure) = told {
        tracing::warn!(%failure, "what was last counted of users is lost");
    }
}

async fn open(shared: &RedisShared) -> Result<Session, Failure> {
    let opened = timeout(PATIENCE, Session::open(&shared.dialer)).await;
    opened.unwrap_or_else(|_| Err(Failure::timeout()))
}

/// What could not be told stays to be told.
async fn report_all(
    shared: &RedisShared,
    table: &TrustTable,
    session: &Session,
    reports: Vec<TrustReport>,
) -> Result<(), Failure> {
    // Without a cluster everything is in one slot.
    let slot = |it: &TrustReport| if shared.is_cluster() { hash_slot(&it.name) } else { 0 };
    let mut failed = None;
    for group in group_by_hash_slot(reports, slot) {
        for reports in group.items.chunks(REPORTS_PER_CALL) {
            if failed.is_none() {
                failed = report(table, session, group.slot, reports).await.err();
            }
            if failed.is_some() {
                table.put_back(reports);
            }
        }
    }
    failed.map_or(Ok(()), Err)
}

async fn report(
    table: &TrustTable,
    session: &Session,
    slot: u16,
    reports: &[TrustReport],
) -> Result<(), Failure> {
    let argument = argument(reports);
    let call = |form| {
        let mut call = TRUST.call(form, reports.len() + 2, argument.len() + reports.len() * 64);
        call.arg(reports.len());
        reports.iter().for_each(|it| {
            call.arg(&*it.name);
        });
        call.arg(argument.as_slice());
        call
    };
    let reply = session.run(slot, Instant::now() + PATIENCE, call).await?;
    let unreadable = |text: String| Failure::new(Reason::Reply, text);
    let texts: Vec<String> =
        Vec::from_redis_value(reply).map_err(|error| unreadable(error.to_string()))?;
    if texts.len() != reports.len() {
        return Err(unreadable("trust: a reply of another length".to_owned()));
    }
    for (report, text) in reports.iter().zip(&texts) {
        table.hear(report, text);
    }
    Ok(())
}

/// In the order in which `lua/trust.lua` takes it.
fn argument(reports: &[TrustReport]) -> Vec<u8> {
    let mut argument = Vec::new();
    msgpack::array(&mut argument, reports.len());
    for report in reports {
        msgpack::array(&mut argument, report.days.len());
        for it in &report.days {
            let numbers = [it.day, it.successes, it.failures, it.violations.into()];
            msgpack::array(&mut argument, numbers.len());
            numbers.into_iter().for_each(|it| msgpack::number(&mut argument, it.into()));
        }
    }
    argument
}
