//! Tells Redis how calls of users have ended here, and hears what all gateways have counted.
//!
//! It runs beside requests, on a connection and with deadlines of its own: nothing that goes wrong
//! here is held against decisions. What is told twice after a failure counts twice: a score may be off
//! by that, and no limit is.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::reporting::{CALL_TIMEOUT, ReportCall, ReportCalls, ReportLink, open, parsed};
use crate::store::redis::RedisShared;
use crate::store::redis::connect::failure::{Failure, Reason};
use crate::store::redis::connect::session::Session;
use crate::store::redis::wire::msgpack;
use crate::store::redis::wire::script::TRUST;
use crate::trust::{TrustReport, TrustTable};

/// How often users are reported, while there are some.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);
/// How long after a failure the next attempt is made.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);
/// How many users one round reports; what is left waits for the next.
const MOST_REPORTS: usize = 10_000;

/// One for the process.
#[derive(Debug)]
pub(crate) struct TrustReporter {
    shared: Arc<RedisShared>,
    table: Arc<TrustTable>,
    link: ReportLink,
}

impl TrustReporter {
    pub(crate) fn new(shared: Arc<RedisShared>, table: Arc<TrustTable>) -> Self {
        TrustReporter { shared, table, link: ReportLink::default() }
    }

    /// Never ends.
    pub(crate) async fn run(mut self) {
        loop {
            sleep(REPORT_INTERVAL).await;
            if self.shared.breaker.is_open() {
                self.link.close();
                continue;
            }
            let told = self.round().await;
            self.link.note(
                &told,
                "what is known of users is not shared",
                "what is known of users is shared again",
            );
            if told.is_err() {
                sleep(FAILURE_PAUSE).await;
            }
        }
    }

    async fn round(&mut self) -> Result<(), Failure> {
        let reports = self.table.take_reports(MOST_REPORTS);
        if reports.is_empty() {
            return Ok(());
        }
        match self.link.session(&self.shared).await {
            Ok(session) => report_all(&self.shared, &self.table, &session, reports).await,
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
    let told = timeout(2 * CALL_TIMEOUT, told).await.unwrap_or_else(|_| Err(Failure::timeout()));
    if let Err(failure) = told {
        tracing::warn!(%failure, "what was last counted of users is lost");
    }
}

async fn report_all(
    shared: &RedisShared,
    table: &TrustTable,
    session: &Session,
    reports: Vec<TrustReport>,
) -> Result<(), Failure> {
    let slot_of = |it: &TrustReport| shared.slot_of(&it.name);
    let put_back = |reports: &[TrustReport]| table.put_back(reports);
    let mut calls = ReportCalls::new(reports, slot_of, put_back);
    while let Some(call) = calls.next() {
        report(table, session, call).await?;
        calls.told();
    }
    Ok(())
}

async fn report(
    table: &TrustTable,
    session: &Session,
    ReportCall { slot, reports }: &ReportCall<TrustReport>,
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
    let reply = session.run(*slot, Instant::now() + CALL_TIMEOUT, call).await?;
    let texts: Vec<String> = parsed(reply)?;
    if texts.len() != reports.len() {
        return Err(Failure::new(Reason::Reply, "trust: a reply of another length"));
    }
    for (report, text) in reports.iter().zip(&texts) {
        table.merge_shared(report, text);
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
