//! Listens to the sentinels, apart from the traffic, and gives the master up as soon as one of them
//! begins to replace it.
//!
//! A sentinel announces a failover before it acts, and acts a tenth of a second or two later. What
//! is decided by the old master from then on is lost, for it goes on as if nothing had happened
//! until it is demoted, some ten seconds later. An announcement says only that there is something to
//! ask: the state that counts is what the sentinel answers, and it is asked once a second anyway.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use redis::aio::{MultiplexedConnection, PubSubStream};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::backoff::Backoff;
use super::dialer::{CONNECT_TIMEOUT, DisplayOrigin, Sentinel};
use super::failure::{Failure, Reason};
use super::sentinels::SentinelReport;
use super::session::question;
use crate::config::settings::Origin;
use crate::store::redis::RedisShared;

/// How often sentinels are asked that announce nothing, and while one replaces the master.
const INTERVAL: Duration = Duration::from_secs(1);
const WHILE_REPLACED: Duration = Duration::from_millis(100);

/// What sentinels announce of a failover.
const EVENTS: [&str; 7] = [
    "+try-failover",
    "+elected-leader",
    "+failover-*",
    "-failover-abort-*",
    "+promoted-slave",
    "+config-update-from",
    "+switch-master",
];

/// Follows each sentinel that is configured, for as long as the runtime lives.
pub(crate) fn start(shared: &Arc<RedisShared>) {
    let Some(nodes) = shared.dialer.sentinel_nodes() else { return };
    let has_warned = Arc::new(AtomicBool::new(false));
    for node in nodes {
        let follower =
            Follower { shared: shared.clone(), node: node.clone(), has_warned: has_warned.clone() };
        tokio::spawn(follower.follow());
    }
}

/// Follows one sentinel.
struct Follower {
    shared: Arc<RedisShared>,
    node: Origin,
    /// Whether it has been logged that rights are missing: once is enough for all of them.
    has_warned: Arc<AtomicBool>,
}

impl Follower {
    async fn follow(self) {
        let Some(sentinels) = self.shared.dialer.sentinels() else { return };
        let mut backoff = Backoff::new();
        loop {
            let Err(failure) = self.follow_session(&mut backoff).await;
            tracing::debug!(%failure, "sentinel {} is not heard", DisplayOrigin(&self.node));
            sentinels.miss(&self.node, failure);
            sleep(backoff.next()).await;
        }
    }

    /// Hears the sentinel for as long as it answers.
    async fn follow_session(
        &self,
        backoff: &mut Backoff,
    ) -> Result<std::convert::Infallible, Failure> {
        let Some(sentinel) = self.shared.dialer.sentinel(&self.node) else {
            return Err(Failure::not_asked());
        };
        let mut connection = sentinel.connect().await?;
        // Asked only after that, so that nothing is announced in between.
        let mut events = self.subscribe(&sentinel).await?;
        loop {
            let report = self.ask(&mut connection, sentinel.master).await?;
            backoff.reset();
            let pause = if report.is_replaced { WHILE_REPLACED } else { INTERVAL };
            self.record(report);
            let next = Instant::now() + pause;
            match &mut events {
                None => sleep_until(next).await,
                Some(events) => tokio::select! {
                    announced = announced(events, sentinel.master) => announced?,
                    () = sleep_until(next) => {}
                },
            }
        }
    }

    /// Its announcements; nothing if they may not be heard.
    async fn subscribe(&self, sentinel: &Sentinel<'_>) -> Result<Option<PubSubStream>, Failure> {
        let subscribed = async {
            let mut events = sentinel.events().await?;
            events.psubscribe(&EVENTS[..]).await?;
            Ok(events.into_on_message())
        };
        match timeout(CONNECT_TIMEOUT, subscribed).await {
            Ok(Ok(events)) => Ok(Some(events)),
            Ok(Err(failure)) if is_denied(&failure) => {
                self.warn(&failure);
                Ok(None)
            }
            Ok(Err(failure)) => Err(failure),
            Err(_) => Err(Failure::timeout()),
        }
    }

    async fn ask(
        &self,
        connection: &mut MultiplexedConnection,
        master: &str,
    ) -> Result<SentinelReport, Failure> {
        let state = question(connection, redis::cmd("SENTINEL").arg("MASTER").arg(master)).await;
        match state {
            Ok(state) => SentinelReport::of_state(state),
            Err(failure) if is_denied(&failure) => {
                self.warn(&failure);
                let mut command = redis::cmd("SENTINEL");
                command.arg("GET-MASTER-ADDR-BY-NAME").arg(master);
                let report = SentinelReport::of_address(question(connection, &command).await?)?;
                report.ok_or_else(|| unknown(master))
            }
            Err(failure) if failure.to_string().contains("No such master") => Err(unknown(master)),
            Err(failure) => Err(failure),
        }
    }

    fn record(&self, report: SentinelReport) {
        let Some(sentinels) = self.shared.dialer.sentinels() else { return };
        if let Err(failure) = sentinels.record(&self.node, report) {
            let breaker = &self.shared.breaker;
            breaker.count(&failure);
            breaker.distrust(&failure);
        }
    }

    fn warn(&self, failure: &Failure) {
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                %failure,
                "the user at the sentinels lacks a right: a failover is noticed late, and what the \
                 old master admits meanwhile may pass twice"
            );
        }
    }
}

/// Resolves when something is announced of this master.
async fn announced(events: &mut PubSubStream, master: &str) -> Result<(), Failure> {
    loop {
        let Some(event) = events.next().await else {
            return Err(Failure::new(Reason::Connection, "the sentinel closed the connection"));
        };
        let text = String::from_utf8_lossy(event.get_payload_bytes()).into_owned();
        if text.split(' ').any(|report| report == master) {
            return Ok(());
        }
    }
}

fn is_denied(failure: &Failure) -> bool {
    failure.reason == Reason::Denied && failure.to_string().contains("permission")
}

fn unknown(master: &str) -> Failure {
    Failure::new(Reason::Connection, format!("it knows no master {master}"))
}
