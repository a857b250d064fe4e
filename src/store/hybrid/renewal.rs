//! Asking Redis for leases, beside requests: all keys of a worker that are due share a call.
//!
//! No decision is judged by these calls: one that is late or lost is no strike against Redis, and its
//! leases simply run out.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};

use super::Leases;
use super::lease::CallSpan;
use super::lease_table::{LeaseAsk, LeaseStats};
use super::open::LeaseMetrics;
use super::timing::LeaseTiming;
use crate::store::redis::{LeaseLink, RedisStore};

/// Redis does nothing else while it runs a call, so none is to take it long.
const MOST_PER_CALL: usize = 128;

/// Calls on their way at a time. What is due beyond them waits for one of these to be back.
const MOST_CALLS: usize = 4;

/// How long the process waits at its end for leases to be returned.
const RETURN_TIMEOUT: Duration = Duration::from_millis(100);

pub(super) fn start(
    leases: Rc<Leases>,
    link: LeaseLink,
    timing: LeaseTiming,
    metrics: LeaseMetrics,
) {
    tokio::task::spawn_local(run(leases, link, timing, metrics));
}

async fn run(leases: Rc<Leases>, mut link: LeaseLink, timing: LeaseTiming, metrics: LeaseMetrics) {
    let mut ticks = interval(Duration::from_micros(timing.tick));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told = LeaseStats::default();
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                let now = leases.clock.now();
                let mut table = leases.table.borrow_mut();
                table.tick(now);
                let stats = table.stats(now);
                metrics.update(told, stats);
                told = stats;
            }
            () = leases.wanted.notified() => {}
        }
        if link.is_another() {
            leases.table.borrow_mut().orphan_all();
        }
        ask_all(&leases, &link, timing);
    }
}

/// Sends what is due.
fn ask_all(leases: &Rc<Leases>, link: &LeaseLink, timing: LeaseTiming) {
    let may_ask = || leases.calls.get() < MOST_CALLS && link.is_usable();
    while leases.table.borrow().has_due() && may_ask() {
        let asks = leases.table.borrow_mut().take_due(MOST_PER_CALL, leases.clock.now());
        let deadline = Instant::now() + Duration::from_micros(timing.sync).max(link.timeout());
        for group in link.group_by_slot(asks) {
            leases.calls.update(|calls| calls + 1);
            let (leases, link) = (leases.clone(), link.clone());
            tokio::task::spawn_local(
                async move { ask(&leases, &link, timing, group, deadline).await },
            );
        }
    }
}

async fn ask(
    leases: &Leases,
    link: &LeaseLink,
    timing: LeaseTiming,
    asks: Vec<LeaseAsk>,
    deadline: Instant,
) {
    let (began, sent) = (Instant::now(), leases.clock.now());
    let replies = link.lease(&asks, deadline).await;
    leases.calls.update(|calls| calls - 1);
    let times = CallSpan { sent, received: leases.clock.now() };
    let mut table = leases.table.borrow_mut();
    match replies {
        Some(replies) => {
            for (ask, reply) in asks.iter().zip(&replies) {
                table.apply(ask, reply, times);
                link.note(ask, reply, began, timing.max_unheard());
            }
        }
        None => asks.iter().for_each(|ask| table.lose(ask, times.received)),
    }
    if table.has_due() {
        leases.wanted.notify_one();
    }
    drop(table);
    leases.renewed.notify_waiters();
}

/// The process ends: what was not spent goes back.
pub(super) async fn return_all(leases: &Rc<Leases>, redis: &RedisStore) {
    leases.table.borrow_mut().return_all();
    leases.wanted.notify_one();
    let deadline = Instant::now() + RETURN_TIMEOUT;
    while !leases.table.borrow().is_empty() && !redis.is_degraded() && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
