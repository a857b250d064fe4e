//! Which server is the master, as the sentinels say: one view for all workers.
//!
//! Sentinels hear of a failover one after another, and until they have, they name the old master,
//! which may go on to answer as one for many seconds, with no replica left to copy what it decides. So
//! all of them are heard (by the [`watch`](super::sentinel_watch)), and the one with the highest
//! epoch is believed: every failover raises it. While one of them is replacing the master, there
//! is none, unless others tell of a higher epoch, or of another master of the same epoch, which the
//! sentinel that leads it has from the promotion on: then that failover is over, and the sentinel has
//! not come to say so. One that was held up does nothing for half a minute (`+tilt`).

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use redis::Value;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::dialer::DisplayOrigin;
use super::failure::{Failure, Reason};
use crate::config::settings::Origin;

/// How long a sentinel's report holds. They are asked once a second.
const TRUST: Duration = Duration::from_secs(5);
/// How long a worker that wants to connect waits for the first report.
const FIRST_REPORT: Duration = Duration::from_secs(1);
/// How long it waits for a failover to end, so that all gateways find the new master at the same
/// moment. No request is decided by Redis meanwhile.
const FAILOVER: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Sentinels {
    reports: Mutex<SentinelReports>,
    /// Counts the reports, for tasks that wait for one.
    news: watch::Sender<u64>,
}

#[derive(Debug)]
struct SentinelReports {
    /// One for each sentinel.
    answers: Vec<(Origin, Answer)>,
    /// The master that connections lead to, unless it has been given up.
    in_use: Option<Origin>,
}

#[derive(Debug, Clone)]
enum Answer {
    None,
    Failed(Failure),
    Report { report: SentinelReport, received: Instant, changed: Instant },
}

/// What a sentinel says of the master.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SentinelReport {
    pub(crate) master: Origin,
    /// Higher after each failover; zero if it may not be asked for.
    pub(crate) epoch: u64,
    /// Whether it is putting another one in its place.
    pub(crate) is_replaced: bool,
}

impl SentinelReport {
    /// From the reply to `SENTINEL MASTER`, names and values.
    pub(crate) fn of_state(state: Value) -> Result<SentinelReport, Failure> {
        let fields: HashMap<String, String> = redis::from_redis_value(state)
            .map_err(|error| Failure::new(Reason::Reply, error.to_string()))?;
        let field = |name: &str| fields.get(name).map(String::as_str);
        let port = field("port").and_then(|port| port.parse().ok());
        let (Some(host), Some(port)) = (field("ip"), port) else {
            return Err(Failure::new(Reason::Reply, "the sentinel names no address"));
        };
        let mut flags = field("flags").unwrap_or_default().split(',');
        Ok(SentinelReport {
            master: Origin { host: host.to_owned(), port },
            epoch: field("config-epoch").and_then(|epoch| epoch.parse().ok()).unwrap_or(0),
            is_replaced: flags.any(|flag| flag == "failover_in_progress"),
        })
    }

    /// From the reply to `SENTINEL GET-MASTER-ADDR-BY-NAME`, which tells no more than that.
    pub(crate) fn of_address(address: Value) -> Result<Option<SentinelReport>, Failure> {
        let found: Option<(String, u16)> = redis::from_redis_value(address)
            .map_err(|error| Failure::new(Reason::Reply, error.to_string()))?;
        let report = |(host, port)| SentinelReport {
            master: Origin { host, port },
            epoch: 0,
            is_replaced: false,
        };
        Ok(found.map(report))
    }
}

impl Sentinels {
    pub(crate) fn new(nodes: &[Origin]) -> Self {
        let answers = nodes.iter().map(|node| (node.clone(), Answer::None)).collect();
        Sentinels {
            reports: Mutex::new(SentinelReports { answers, in_use: None }),
            news: watch::Sender::new(0),
        }
    }

    /// The master's address, once a sentinel has reported it.
    ///
    /// # Errors
    /// If none does, or if the master is being replaced.
    pub(crate) async fn master(&self) -> Result<Origin, Failure> {
        let mut news = self.news.subscribe();
        let settled = async {
            loop {
                news.borrow_and_update();
                if let Some(settled) = self.reports.lock().settled(Instant::now()) {
                    return settled;
                }
                // The sender is here, so it does not go away.
                let _ = news.changed().await;
            }
        };
        let replaced = self.reports.lock().named(Instant::now()).is_err_and(is_replaced);
        match timeout(if replaced { FAILOVER } else { FIRST_REPORT }, settled).await {
            Ok(settled) => settled,
            Err(_) => self.reports.lock().choose(Instant::now()),
        }
    }

    /// Records what a sentinel reports.
    ///
    /// # Errors
    /// If the master that connections lead to is none any more: they are to be given up.
    pub(crate) fn record(&self, sentinel: &Origin, report: SentinelReport) -> Result<(), Failure> {
        let now = Instant::now();
        let given_up = {
            let mut reports = self.reports.lock();
            reports.record(sentinel, report, now);
            reports.give_up(now)
        };
        self.news.send_modify(|count| *count += 1);
        given_up.map_or(Ok(()), Err)
    }

    /// A sentinel cannot be asked. What it said before holds for a while, and says nothing of the
    /// master.
    pub(crate) fn miss(&self, sentinel: &Origin, failure: Failure) {
        self.reports.lock().miss(sentinel, failure, Instant::now());
        self.news.send_modify(|count| *count += 1);
    }
}

fn is_replaced(failure: Failure) -> bool {
    failure.reason == Reason::ReadOnly
}

impl SentinelReports {
    fn record(&mut self, sentinel: &Origin, report: SentinelReport, now: Instant) {
        let Some((_, answer)) = self.answers.iter_mut().find(|(it, _)| it == sentinel) else {
            return;
        };
        let changed = match answer {
            Answer::Report { report: before, changed, .. } if before.master == report.master => {
                *changed
            }
            _ => now,
        };
        *answer = Answer::Report { report, received: now, changed };
    }

    fn miss(&mut self, sentinel: &Origin, failure: Failure, now: Instant) {
        let Some((_, answer)) = self.answers.iter_mut().find(|(it, _)| it == sentinel) else {
            return;
        };
        if !matches!(answer, Answer::Report { received, .. } if now.duration_since(*received) < TRUST)
        {
            *answer = Answer::Failed(failure);
        }
    }

    /// The master, or why there is none; nothing if that may soon be known.
    fn settled(&mut self, now: Instant) -> Option<Result<Origin, Failure>> {
        let chosen = self.choose(now);
        let waits = self.answers.iter().any(|(_, answer)| match answer {
            Answer::None => true,
            Answer::Failed(_) => false,
            Answer::Report { report, .. } => report.is_replaced,
        });
        (chosen.is_ok() || !waits).then_some(chosen)
    }

    /// The master that the sentinels name now; connections to it are in use from here on.
    fn choose(&mut self, now: Instant) -> Result<Origin, Failure> {
        let chosen = self.named(now)?;
        self.in_use = Some(chosen.clone());
        Ok(chosen)
    }

    fn named(&self, now: Instant) -> Result<Origin, Failure> {
        let reports = || {
            self.answers.iter().filter_map(|(sentinel, answer)| match answer {
                Answer::Report { report, received, changed }
                    if now.duration_since(*received) < TRUST =>
                {
                    Some((sentinel, report, changed))
                }
                _ => None,
            })
        };
        let is_over = |it: &SentinelReport, other: &SentinelReport| {
            other.epoch > it.epoch
                || (other.epoch == it.epoch && other.master != it.master && !other.is_replaced)
        };
        let under_way = |report: &SentinelReport| {
            report.is_replaced && !reports().any(|(_, other, _)| is_over(report, other))
        };
        if let Some((sentinel, report, _)) = reports().find(|(_, report, _)| under_way(report)) {
            let detail = format!(
                "master {} is being replaced, says sentinel {}",
                DisplayOrigin(&report.master),
                DisplayOrigin(sentinel)
            );
            return Err(Failure::new(Reason::ReadOnly, detail));
        }
        // One that leads a failover which is over still names the old master. Where there are no epochs,
        // the sentinel that changed its report last knows more.
        let best = reports()
            .filter(|(_, report, _)| !report.is_replaced)
            .max_by_key(|(_, report, changed)| (report.epoch, **changed));
        best.map(|(_, report, _)| report.master.clone()).ok_or_else(|| self.nobody())
    }

    fn nobody(&self) -> Failure {
        let why = |(sentinel, answer): &(Origin, Answer)| match answer {
            Answer::Failed(failure) => format!("sentinel {}: {failure}", DisplayOrigin(sentinel)),
            _ => format!("sentinel {}: no answer in time", DisplayOrigin(sentinel)),
        };
        let all: Vec<String> = self.answers.iter().map(why).collect();
        Failure::new(Reason::Connection, all.join("; "))
    }

    /// Why connections to the master in use are to be given up, reported once.
    fn give_up(&mut self, now: Instant) -> Option<Failure> {
        let used = self.in_use.as_ref()?;
        let failure = match self.named(now) {
            Ok(named) if named == *used => return None,
            Ok(named) => {
                let (old, new) = (DisplayOrigin(used), DisplayOrigin(&named));
                Failure::new(Reason::ReadOnly, format!("{new} is the master in the place of {old}"))
            }
            // That no sentinel answers says nothing of the master.
            Err(failure) if failure.reason == Reason::Connection => return None,
            Err(failure) => failure,
        };
        self.in_use = None;
        Some(failure)
    }
}

#[cfg(test)]
mod tests;
