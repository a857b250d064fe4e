//! Tells Redis what this gateway's guards have counted, and hears of penalties elsewhere.
//!
//! It runs beside requests, on a connection and with deadlines of its own: nothing that goes wrong
//! here is held against decisions. Counts are reported some twenty times a second and added up by
//! `lua/guard.lua`. Warnings and blocks that follow from it are announced in the stream `@penalties`,
//! which every gateway reads; it is trimmed to the longest time that a penalty can last.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::{Instant, sleep};

use crate::clock::Micros;
use crate::guards::{GuardReport, GuardSharing, Penalty, PenaltyNotice, shared_id};
use crate::limit::guard::{GuardStage, GuardState};
use crate::store::redis::RedisShared;
use crate::store::redis::connect::failure::{Failure, Reason};
use crate::store::redis::connect::hash_slot::{group_by_hash_slot, hash_slot};
use crate::store::redis::connect::session::Session;
use crate::store::redis::wire::msgpack;
use crate::store::redis::wire::script::GUARD;

/// How often counts are reported, while there are some.
const REPORT_INTERVAL: Duration = Duration::from_millis(50);
/// How often the stream is read.
const READ_INTERVAL: Duration = Duration::from_millis(250);
/// How long one call may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// How many keys one round reports; what is left waits for the next.
const MOST_REPORTS: usize = 2_000;
/// How many keys one call reports: Redis serves nobody else meanwhile.
const REPORTS_PER_CALL: usize = 100;
/// How many announcements are read at once.
const MOST_NOTICES: usize = 1_000;
/// Longer than any block lasts, in seconds: twice the longest penalty.
const KEPT_SECONDS: u64 = 2 * 30 * 86_400;
/// The numbers that a reply has for each key.
const REPLY_NUMBERS: usize = 6;
/// The field of an announcement.
const NOTICE: &str = "penalty";

/// One for the process.
#[derive(Debug)]
pub(crate) struct GuardReporter {
    shared: Arc<RedisShared>,
    sharing: GuardSharing,
    session: Option<Session>,
    /// The announcement that was last read.
    last_read: String,
    read_at: Option<Instant>,
    is_failing: bool,
}

impl GuardReporter {
    pub(crate) fn new(shared: Arc<RedisShared>, sharing: GuardSharing) -> Self {
        let (session, read_at) = (None, None);
        let last_read = "0-0".to_owned();
        GuardReporter { shared, sharing, session, last_read, read_at, is_failing: false }
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
        let alone = self.shared.breaker.is_open();
        self.sharing.table.set_alone(alone);
        if alone {
            self.session = None;
            return;
        }
        match self.exchange().await {
            Ok(()) => self.is_failing = false,
            Err(failure) => {
                self.session = None;
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::warn!(%failure, "guards count for this gateway alone");
                }
                sleep(READ_INTERVAL).await;
            }
        }
    }

    async fn exchange(&mut self) -> Result<(), Failure> {
        let session = match &self.session {
            Some(session) => session.clone(),
            None => {
                let opened = tokio::time::timeout(PATIENCE, Session::open(&self.shared.dialer));
                let opened = opened.await.unwrap_or_else(|_| Err(Failure::timeout()))?;
                // It may be another server, or an empty one.
                self.sharing.table.report_penalties_again();
                self.session.insert(opened).clone()
            }
        };
        if self.read_at.is_none_or(|at| at.elapsed() >= READ_INTERVAL) {
            self.read_at = Some(Instant::now());
            self.read_notices(&session).await?;
        }
        let table = self.sharing.table.clone();
        let _reporting = table.reporting.lock().await;
        let reports = table.take_reports(MOST_REPORTS);
        for group in group_by_hash_slot(reports, |it| self.slot(it)) {
            for reports in group.items.chunks(REPORTS_PER_CALL) {
                if let Err(failure) = self.report(&session, group.slot, reports).await {
                    self.sharing.table.put_back(reports);
                    return Err(failure);
                }
            }
        }
        Ok(())
    }

    /// Without a cluster everything is in one.
    fn slot(&self, report: &GuardReport) -> u16 {
        if self.shared.is_cluster() { hash_slot(&report.subject.shared_key) } else { 0 }
    }

    async fn report(
        &self,
        session: &Session,
        slot: u16,
        reports: &[GuardReport],
    ) -> Result<(), Failure> {
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
        let reply = session.run(slot, Instant::now() + PATIENCE, call).await?;
        let numbers: Vec<u64> = parsed(reply)?;
        if numbers.len() != reports.len() * REPLY_NUMBERS {
            return Err(Failure::new(
                Reason::Reply,
                "guards: a reply of another length".to_owned(),
            ));
        }
        let now = self.shared.clock.now();
        for (report, numbers) in reports.iter().zip(numbers.chunks_exact(REPLY_NUMBERS)) {
            let &[window_end, count, stage, until, offence, changed] = numbers else { continue };
            let Some(stage) = GuardStage::of_number(stage) else { continue };
            let (window_end, until) = (Micros(window_end), Micros(until));
            let heard = GuardState { window_end, count, stage, until, offence: Micros(offence) };
            self.sharing.table.hear(report, heard, now);
            if changed == 1 && stage != GuardStage::Clean {
                let penalty = penalty_of(report, &heard);
                // What this gateway has not noticed by itself, all have together.
                if stage > report.state.stage {
                    self.sharing.note_detection(&penalty, now);
                }
                self.announce(session, &penalty.notice()).await?;
            }
        }
        Ok(())
    }

    async fn announce(&self, session: &Session, notice: &PenaltyNotice) -> Result<(), Failure> {
        announce(&self.shared, session, notice).await
    }

    async fn read_notices(&mut self, session: &Session) -> Result<(), Failure> {
        let name = self.shared.reserved_key("penalties");
        loop {
            let from = format!("({}", self.last_read);
            let read = |cmd: &mut Cmd| {
                cmd.arg(from.as_str()).arg("+").arg("COUNT").arg(MOST_NOTICES);
            };
            let reply = match ask(session, "XRANGE", &name, read).await {
                Err(failure) if failure.to_string().contains("WRONGTYPE") => {
                    ask(session, "DEL", &name, |_| ()).await?;
                    return Ok(());
                }
                reply => reply?,
            };
            let entries: Vec<(String, Vec<String>)> = parsed(reply)?;
            let (many, now) = (entries.len(), self.shared.clock.now());
            for (id, fields) in entries {
                self.last_read = id;
                let text = fields.chunks_exact(2).find(|it| it[0] == NOTICE).map(|it| &it[1]);
                // One that this version cannot read is another version's.
                let notice = text.and_then(|text| serde_json::from_str::<PenaltyNotice>(text).ok());
                if let Some(notice) = notice {
                    let id = shared_id(&self.sharing.hasher, notice.name.as_bytes());
                    self.sharing.table.learn(id, &notice, now);
                }
            }
            if many < MOST_NOTICES {
                return Ok(());
            }
        }
    }
}

/// Makes a key clean for all gateways.
///
/// # Errors
/// If Redis does not take it.
pub(crate) async fn lift(shared: &RedisShared, penalty: &Penalty) -> Result<(), Failure> {
    let Some(GuardSharing { table, .. }) = shared.guards.get() else { return Ok(()) };
    let lifted = async {
        let _no_report = table.reporting.lock().await;
        let session = Session::open(&shared.dialer).await?;
        ask(&session, "DEL", &penalty.shared_key, |_| ()).await?;
        table.lift(penalty.id);
        announce(shared, &session, &PenaltyNotice { stage: 0, ..penalty.notice() }).await
    };
    tokio::time::timeout(2 * PATIENCE, lifted).await.unwrap_or_else(|_| Err(Failure::timeout()))
}

async fn announce(
    shared: &RedisShared,
    session: &Session,
    notice: &PenaltyNotice,
) -> Result<(), Failure> {
    let name = shared.reserved_key("penalties");
    let text = serde_json::to_string(notice)
        .map_err(|error| Failure::new(Reason::Other, error.to_string()))?;
    let oldest = (shared.clock.now().0 / 1000).saturating_sub(KEPT_SECONDS * 1000);
    ask(session, "XADD", &name, |cmd| {
        cmd.arg("MINID").arg("~").arg(oldest).arg("*").arg(NOTICE).arg(text.as_str());
    })
    .await?;
    ask(session, "EXPIRE", &name, |cmd| {
        cmd.arg(KEPT_SECONDS);
    })
    .await?;
    Ok(())
}

async fn ask(
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
    session.run(hash_slot(name), Instant::now() + PATIENCE, command).await
}

fn parsed<T: redis::FromRedisValue>(value: Value) -> Result<T, Failure> {
    T::from_redis_value(value).map_err(|error| Failure::new(Reason::Reply, error.to_string()))
}

/// In the order in which `lua/guard.lua` takes them.
fn wire_numbers(report: &GuardReport) -> [u64; 8] {
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
    ]
}

fn penalty_of(report: &GuardReport, heard: &GuardState) -> Penalty {
    Penalty {
        id: report.id,
        guard: report.subject.guard.to_string(),
        key: report.subject.key.clone(),
        shared_key: report.subject.shared_key.clone(),
        stage: heard.stage,
        until: heard.until,
        offence: heard.offence,
        count: heard.count,
    }
}
