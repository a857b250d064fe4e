//! Probes: decisions on a bucket of Weir's own, which tell whether Redis decides and writes, and
//! how long that takes.

use std::pin::pin;
use std::time::Duration;

use redis::Value;
use tokio::time::{Instant, sleep, timeout};

use super::recovery_trial::{RecoveryTrial, TrialResult, pause};
use crate::clock::Micros;
use crate::limit::token_bucket::TokenBucket;
use crate::limit::{Policy, Rate};
use crate::store::BucketId;
use crate::store::redis::RedisShared;
use crate::store::redis::connect::backoff::Backoff;
use crate::store::redis::connect::failure::{Failure, Reason};
use crate::store::redis::connect::hash_slot::hash_slot;
use crate::store::redis::connect::session::Session;
use crate::store::redis::wire::batch::{Batch, Charge};
use crate::store::redis::wire::reply::Reply;
use crate::store::redis::wire::script;

/// How long an answer is waited for, even if it is too late for a decision: operators need to know how
/// long it takes.
const PATIENCE: Duration = Duration::from_secs(1);

/// One decision: whether the script runs, writes, and makes sense. Gives what Redis's clock showed.
pub(crate) async fn decide(
    shared: &RedisShared,
    session: &Session,
    worker: usize,
) -> Result<Micros, Failure> {
    let policy =
        policy().ok_or_else(|| Failure::new(Reason::Other, "the probe has no valid policy"))?;
    let name = shared.reserved_key("probe");
    let mut batch = Batch::default();
    let charge = Charge::new(BucketId(0), &name, &policy, 1);
    let request = batch.push(std::iter::once(charge));
    let deadline = Instant::now() + PATIENCE.max(shared.timeout);
    let value = session
        .run(hash_slot(&name), deadline, |form| {
            batch.call(&script::DECIDE, form, None, shared.call_context(worker))
        })
        .await?;
    let Value::BulkString(bytes) = value else {
        return Err(Failure::new(Reason::Reply, "the script gave no text"));
    };
    let reply = Reply::parse(&bytes, &batch)?;
    // Refused or not, it has answered.
    let _ = reply.admitted(request);
    Ok(reply.now())
}

/// Resolves once Redis answers on this connection as fast as decisions need it.
///
/// # Errors
/// If it does not answer, or says that it cannot serve.
pub(crate) async fn until_fast(
    shared: &RedisShared,
    session: &Session,
    worker: usize,
) -> Result<(), Failure> {
    let breaker = &shared.breaker;
    let mut trial = RecoveryTrial::new(shared.timeout);
    let mut backoff = Backoff::new();
    loop {
        let took = round_trip(shared, session, worker).await?;
        let probation = breaker.probation();
        match trial.add(took, Instant::now(), probation) {
            TrialResult::Passed(typical) => {
                breaker.note(Failure::barely_in_time(typical, shared.timeout));
                return Ok(());
            }
            TrialResult::TooSlow(typical) => {
                breaker.too_slow(&Failure::too_slow(typical, shared.timeout));
            }
            TrialResult::Undecided => {}
        }
        if took > shared.timeout {
            breaker.count(&Failure::timeout());
            sleep(backoff.next()).await;
        } else {
            backoff.reset();
            sleep(pause(probation)).await;
        }
    }
}

/// How long an answer takes. It is in time if a decision would have it: one that has come while
/// the worker was busy elsewhere is. The clock is not steered by it: a late answer would set that
/// back, and the next one forward again.
async fn round_trip(
    shared: &RedisShared,
    session: &Session,
    worker: usize,
) -> Result<Duration, Failure> {
    let sent = Instant::now();
    let mut answer = pin!(ask(shared, session, worker));
    match timeout(shared.timeout, &mut answer).await {
        Ok(answer) => answer.map(|()| sent.elapsed().min(shared.timeout)),
        Err(_) => answer.await.map(|()| sent.elapsed()),
    }
}

/// The bucket is on one master, and on a cluster decisions need all of them.
async fn ask(shared: &RedisShared, session: &Session, worker: usize) -> Result<(), Failure> {
    if !session.is_cluster() {
        return decide(shared, session, worker).await.map(|_| ());
    }
    let reached = timeout(PATIENCE.max(shared.timeout), session.ping());
    let (decided, reached) = tokio::join!(decide(shared, session, worker), reached);
    decided?;
    reached.unwrap_or_else(|_| Err(Failure::timeout()))
}

/// Refills at once and expires soon.
fn policy() -> Option<Policy> {
    let rate = Rate::new(1_000, Duration::from_secs(1)).ok()?;
    TokenBucket::new(rate, 1_000).ok().map(Policy::TokenBucket)
}
