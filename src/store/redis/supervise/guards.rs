//! Tells Redis what this gateway's guards have counted, and hears of penalties elsewhere.
//!
//! It runs beside requests, on a connection and with deadlines of its own: nothing that goes wrong
//! here is held against decisions. Counts are reported some twenty times a second and added up by
//! `lua/guard.lua`. Warnings and blocks that follow from it are announced in the
//! [stream](super::penalty_stream) that every gateway reads.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::penalty_stream::{StreamPosition, announce_all};
use super::reporting::{CALL_TIMEOUT, ReportCall, ReportCalls, ReportLink, parsed};
use crate::clock::Micros;
use crate::guards::{GuardReport, GuardSharing, Penalty, PenaltyNotice, is_overtaken};
use crate::limit::guard::{GuardStage, GuardState};
use crate::store::redis::RedisShared;
use crate::store::redis::connect::failure::{Failure, Reason};
use crate::store::redis::connect::session::Session;
use crate::store::redis::wire::msgpack;
use crate::store::redis::wire::script::GUARD;

/// How often counts are reported, while there are some.
const REPORT_INTERVAL: Duration = Duration::from_millis(50);
/// How often the stream is read.
const READ_INTERVAL: Duration = Duration::from_millis(250);
/// How long after a failure the next attempt is made.
const FAILURE_PAUSE: Duration = Duration::from_millis(250);
/// How many keys one round reports; what is left waits for the next.
const MOST_REPORTS: usize = 2_000;
/// The numbers that a reply has for each key.
const REPLY_NUMBERS: usize = 8;

/// One for the process.
#[derive(Debug)]
pub(crate) struct GuardReporter {
    shared: Arc<RedisShared>,
    sharing: GuardSharing,
    link: ReportLink,
    position: StreamPosition,
    read_at: Option<Instant>,
}

impl GuardReporter {
    pub(crate) fn new(shared: Arc<RedisShared>, sharing: GuardSharing) -> Self {
        let (link, position) = Default::default();
        GuardReporter { shared, sharing, link, position, read_at: None }
    }

    /// Reads who is blocked, before the first request comes.
    pub(crate) async fn start(&mut self) {
        if self.sharing.table.has_guards() {
            self.round().await;
        }
    }

    /// Never ends.
    pub(crate) async fn run(mut self) {
        loop {
            sleep(REPORT_INTERVAL).await;
            if self.sharing.table.has_guards() {
                self.round().await;
            }
        }
    }

    async fn round(&mut self) {
        if self.shared.breaker.is_open() {
            self.count_alone();
            self.link.close();
            return;
        }
        let exchanged = self.exchange().await;
        self.link.note(
            &exchanged,
            "guards: Redis takes no counts, each gateway counts by itself until it does",
            "guards: Redis takes counts again, gateways count together",
        );
        match exchanged {
            Ok(()) => {
                self.sharing.table.set_alone(false);
            }
            Err(failure) => {
                // A Redis that lets guards share nothing is as good as none to them.
                if failure.reason.needs_operator() {
                    self.count_alone();
                }
                sleep(FAILURE_PAUSE).await;
            }
        }
    }

    /// Nobody says from now on whether others have noticed the same.
    fn count_alone(&self) {
        if self.sharing.table.set_alone(true) {
            self.sharing.note_pending(self.shared.clock.now());
        }
    }

    async fn exchange(&mut self) -> Result<(), Failure> {
        let table = self.sharing.table.clone();
        let is_new = !self.link.is_open();
        let session = self.link.session(&self.shared).await?;
        if is_new {
            // It may be another server, or an empty one.
            table.report_penalties_again();
        }
        if self.read_at.is_none_or(|at| at.elapsed() >= READ_INTERVAL) {
            self.read_at = Some(Instant::now());
            // For the time alone: penalties that are read are of Redis's clock, which may have been set
            // while there was nothing to report.
            let slot = self.shared.slot_of(&self.shared.reserved_key("penalties"));
            tell(&self.shared, &session, slot, &[]).await?;
            self.position.read(&self.shared, &session, &self.sharing).await?;
        }
        let mut unannounced = table.unannounced.lock().await;
        // Before Redis is told more, so that there are never many.
        announce_all(&self.shared, &session, &table, &mut unannounced).await?;
        let slot_of = |it: &GuardReport| self.shared.slot_of(&it.subject.shared_key);
        let put_back = |reports: &[GuardReport]| table.put_back(reports);
        let mut calls = ReportCalls::new(table.take_reports(MOST_REPORTS), slot_of, put_back);
        while let Some(call) = calls.next() {
            self.report(&session, call, &mut unannounced).await?;
            calls.told();
        }
        announce_all(&self.shared, &session, &table, &mut unannounced).await
    }

    async fn report(
        &self,
        session: &Session,
        ReportCall { slot, reports }: &ReportCall<GuardReport>,
        unannounced: &mut Vec<PenaltyNotice>,
    ) -> Result<(), Failure> {
        let replies = tell(&self.shared, session, *slot, reports).await?;
        let now = self.shared.clock.now();
        for (report, ReportReply { heard, changed }) in reports.iter().zip(replies) {
            self.sharing.table.merge_shared(report, heard, now);
            if changed && heard.stage != GuardStage::Clean {
                let penalty = penalty_of(report, &heard);
                match report.pending.as_deref() {
                    Some(noticed) if is_overtaken(noticed, report.state.stage) => {
                        self.sharing.note_overtaken(&penalty, noticed.clone());
                    }
                    // What this gateway knew of before has been counted: it only tells of it again.
                    None if heard.stage <= report.state.stage => {}
                    noticed => self.sharing.note_detection(&penalty, noticed.cloned(), now),
                }
                unannounced.push(penalty.notice());
            }
        }
        Ok(())
    }
}

/// What Redis knows of a key that it was told about, and whether that has changed its stage.
#[derive(Debug)]
pub(crate) struct ReportReply {
    heard: GuardState,
    changed: bool,
}

/// Tells Redis what is known of some keys of one hash slot, and hears what all gateways know.
pub(crate) async fn tell(
    shared: &RedisShared,
    session: &Session,
    slot: u16,
    reports: &[GuardReport],
) -> Result<Vec<ReportReply>, Failure> {
    let mut argument = Vec::new();
    msgpack::array(&mut argument, reports.len());
    for report in reports {
        let numbers = wire_numbers(report);
        msgpack::array(&mut argument, numbers.len());
        numbers.into_iter().for_each(|it| msgpack::number(&mut argument, it));
    }
    let bytes = argument.len() + reports.len() * 64;
    let call = |form| {
        let mut call = GUARD.call(form, reports.len() + 2, bytes);
        call.arg(reports.len());
        reports.iter().for_each(|it| {
            call.arg(&*it.subject.shared_key);
        });
        call.arg(argument.as_slice());
        call
    };
    let sent = Instant::now();
    let reply = session.run(slot, sent + CALL_TIMEOUT, call).await?;
    let numbers: Vec<u64> = parsed(reply)?;
    let (replies, unread) = numbers.get(1..).unwrap_or_default().as_chunks::<REPLY_NUMBERS>();
    let is_whole = replies.len() == reports.len() && unread.is_empty();
    let (Some(time), true) = (numbers.first(), is_whole) else {
        return Err(Failure::new(Reason::Reply, "guards: a reply of another length".to_owned()));
    };
    // Where no limit is decided, nothing else tells that Redis's clock was set. On a cluster it is that
    // of the master which has these keys.
    if !shared.is_cluster() {
        shared.clock.steer(Micros(*time), sent, Instant::now());
    }
    replies.iter().map(ReportReply::parse).collect()
}

impl ReportReply {
    fn parse(numbers: &[u64; REPLY_NUMBERS]) -> Result<Self, Failure> {
        let [window_end, count, stage, until, offence, offence_count, lifted, changed] = *numbers;
        let stage = GuardStage::of_number(stage)
            .ok_or_else(|| Failure::new(Reason::Reply, format!("guards: no stage {stage}")))?;
        let [window_end, until, offence, lifted] = [window_end, until, offence, lifted].map(Micros);
        let heard = GuardState { window_end, count, stage, until, offence, offence_count, lifted };
        Ok(ReportReply { heard, changed: changed == 1 })
    }
}

/// In the order in which `lua/guard.lua` takes them.
fn wire_numbers(report: &GuardReport) -> [u64; 10] {
    let GuardReport { numbers, requests, state, .. } = report;
    [
        numbers.window_us,
        numbers.threshold,
        numbers.penalty_us,
        *requests,
        state.window_end.0,
        state.stage as u64,
        state.until.0,
        state.offence.0,
        state.offence_count,
        state.lifted.0,
    ]
}

fn penalty_of(report: &GuardReport, heard: &GuardState) -> Penalty {
    Penalty {
        id: report.id,
        guard: report.subject.guard.to_string(),
        mode: report.subject.mode,
        key: report.subject.key.clone(),
        shared_key: report.subject.shared_key.clone(),
        stage: heard.stage,
        until: heard.until,
        offence: heard.offence,
        count: heard.offence_count,
    }
}
