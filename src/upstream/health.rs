//! Active health: each server of an upstream is asked again and again whether it is well.
//!
//! Probes run once a process, on the main thread, whatever the number of workers; those read one
//! atomic a server. A reload keeps what is known of servers that stay.

mod probe;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use super::hashing::mix;
use super::shared::{ProbeNumber, ServerId, SharedServer, SharedUpstreams};
use crate::config::settings::{self, HealthCheck};
use crate::telemetry::Metrics;
use probe::{Probe, ProbeError};

/// The first probes go out within this, so that a fault is known soon.
const FIRST: Duration = Duration::from_secs(1);

/// The probes that are under way.
#[derive(Debug)]
pub(crate) struct HealthChecks {
    /// Where they run.
    runtime: Handle,
    shared: Arc<SharedUpstreams>,
    metrics: Metrics,
    tasks: HashMap<ServerId, ProbeTask>,
}

#[derive(Debug)]
struct ProbeTask {
    /// What it was started for.
    upstream: settings::Upstream,
    task: AbortHandle,
}

impl Drop for ProbeTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl HealthChecks {
    pub(crate) fn new(runtime: Handle, shared: Arc<SharedUpstreams>, metrics: &Metrics) -> Self {
        HealthChecks { runtime, shared, metrics: metrics.clone(), tasks: HashMap::new() }
    }

    /// Probes the servers of these upstreams, and no others. Probes that are to go on as before do.
    pub(crate) fn configure(&mut self, upstreams: &[settings::Upstream]) {
        let mut before = std::mem::take(&mut self.tasks);
        for upstream in upstreams {
            let Some(health) = &upstream.health else { continue };
            let servers = upstream.servers.iter();
            let all: Arc<[Arc<SharedServer>]> =
                servers.map(|it| self.shared.server(upstream, &it.origin)).collect();
            for (at, server) in upstream.servers.iter().enumerate() {
                let id = ServerId::new(upstream, &server.origin);
                let same = before.remove(&id).filter(|it| it.upstream == *upstream);
                let start = || {
                    let number = all[at].begin_probing(&self.metrics);
                    let checked = CheckedServer::new(upstream, health, at, all.clone(), number);
                    let task = self.runtime.spawn(checked.check()).abort_handle();
                    ProbeTask { upstream: upstream.clone(), task }
                };
                self.tasks.insert(id, same.unwrap_or_else(start));
            }
        }
    }
}

/// One server, among those of its upstream.
struct CheckedServer {
    health: HealthCheck,
    probe: Probe,
    at: usize,
    all: Arc<[Arc<SharedServer>]>,
    number: ProbeNumber,
    /// The state of the random choice of intervals.
    seed: u64,
}

/// Probes in a row that came out against what is believed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Streak(u32);

impl CheckedServer {
    fn new(
        upstream: &settings::Upstream,
        health: &HealthCheck,
        at: usize,
        all: Arc<[Arc<SharedServer>]>,
        number: ProbeNumber,
    ) -> Self {
        let origin = &upstream.servers[at].origin;
        let probe = Probe::new(upstream, health, origin, all[at].address.clone());
        // Another one in every process, so that gateways do not ask all at once.
        let seed = u64::from(std::process::id()) << 32 | at as u64;
        CheckedServer { health: health.clone(), probe, at, all, number, seed: mix(seed) }
    }

    fn server(&self) -> &SharedServer {
        &self.all[self.at]
    }

    async fn check(mut self) {
        let first = FIRST.min(self.health.interval);
        sleep(first.mul_f64(self.random())).await;
        let mut streak = Streak::default();
        loop {
            match self.probe.run().await {
                // The server was not asked, so nothing is known of it.
                Err(error) if error.is_ours() => tracing::debug!("no probe was sent: {error}"),
                result => {
                    if streak.note(result.is_ok(), self.server().is_healthy(), &self.health) {
                        self.switch(result);
                    }
                }
            }
            // A tenth more or less.
            let next = self.health.interval.mul_f64(0.9 + 0.2 * self.random());
            sleep(next).await;
        }
    }

    /// Believes what the last probes said. Every switch is logged, once.
    fn switch(&self, result: Result<(), ProbeError>) {
        let (server, upstream) = (self.server(), self.server().upstream());
        let had_healthy = self.all.iter().any(|it| it.is_healthy());
        if !server.set_healthy(self.number, result.is_ok()) {
            return;
        }
        match result {
            Ok(()) => {
                tracing::info!("upstream server {} of `{upstream}` is healthy again", server.name);
            }
            Err(error) => {
                tracing::warn!(
                    "upstream server {} of `{upstream}` is unhealthy: {error}",
                    server.name
                );
            }
        }
        if had_healthy && !self.all.iter().any(|it| it.is_healthy()) {
            tracing::error!(
                "no server of upstream `{upstream}` is healthy: requests go to all of them"
            );
        }
    }

    /// From 0 to 1.
    fn random(&mut self) -> f64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        (mix(self.seed) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

impl Streak {
    /// Whether the last probe was one too many.
    fn note(&mut self, succeeded: bool, believed: bool, health: &HealthCheck) -> bool {
        if succeeded == believed {
            self.0 = 0;
            return false;
        }
        self.0 += 1;
        let enough = if succeeded { health.healthy } else { health.unhealthy };
        let switches = self.0 >= enough;
        if switches {
            self.0 = 0;
        }
        switches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_probes_in_a_row_switch() {
        let health = HealthCheck {
            path: "/".parse().unwrap(),
            host: None,
            interval: FIRST,
            timeout: FIRST,
            healthy: 2,
            unhealthy: 3,
            status: Vec::new(),
        };
        let (mut streak, mut believed) = (Streak::default(), true);
        let mut switched = Vec::new();
        for (at, succeeded) in [false, false, true, false, false, false, true, false, true, true]
            .into_iter()
            .enumerate()
        {
            if streak.note(succeeded, believed, &health) {
                believed = succeeded;
                switched.push(at);
            }
        }
        assert_eq!((switched, believed), (vec![5, 9], true));
    }
}
