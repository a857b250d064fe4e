//! The gateways that share the store: a sorted set of them by the time of their last heartbeat, and
//! another of what they do about an outage ([`joint_recovery`](super::joint_recovery)).
//!
//! Plain commands, sent together, and no script: the script calls that a Redis shows are then those
//! of decisions. Commands of others may come in between. Times are those of one
//! server, in ms: every node asks it at each heartbeat, or those of one that makes no decisions would
//! seem old, or ahead, after its clock was set.

use std::time::Duration;

use redis::Pipeline;

use crate::clock::Micros;

/// For how long a heartbeat counts.
pub const LIFETIME: Duration = Duration::from_secs(4);

/// For how long a node is remembered that has said nothing since: it may be in an outage, and owe what
/// it admits there.
pub const REMEMBERED: Duration = Duration::from_secs(30);

/// How nodes that live are kept.
pub const LIVE: Retention = Retention { lifetime: REMEMBERED, max_ahead: REMEMBERED };

/// Which members of a set are kept.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// For how long one is kept.
    pub lifetime: Duration,
    /// How far ahead of the clock it may have been put there. Such a one was left by a clock that has
    /// stepped back since, or by a server with another one: its node is heard again soon, if it lives.
    pub max_ahead: Duration,
}

/// Puts a member, if there is one, into the set `name`. The answer is all that were put there within
/// `max_age`.
pub fn report(
    name: &[u8],
    member: Option<&str>,
    now: Micros,
    retention: Retention,
    max_age: Duration,
) -> Pipeline {
    let (now, life) = (now.0 / 1000, retention.lifetime.as_millis() as u64);
    let mut commands = redis::pipe();
    if let Some(member) = member {
        commands.cmd("ZADD").arg(name).arg(now).arg(member).ignore();
    }
    let dead = format!("({}", now.saturating_sub(life));
    commands.cmd("ZREMRANGEBYSCORE").arg(name).arg("-inf").arg(dead).ignore();
    let ahead = format!("({}", now + retention.max_ahead.as_millis() as u64);
    commands.cmd("ZREMRANGEBYSCORE").arg(name).arg(ahead).arg("+inf").ignore();
    commands.cmd("PEXPIRE").arg(name).arg(life).ignore();
    let since = now.saturating_sub(max_age.as_millis() as u64);
    commands.cmd("ZRANGEBYSCORE").arg(name).arg(since).arg("+inf");
    commands
}

/// Takes the members of a node out at once. The answer is how many are left.
pub fn leave(name: &[u8], members: impl Iterator<Item = String>) -> Pipeline {
    let mut commands = redis::pipe();
    commands.cmd("ZREM").arg(name);
    members.for_each(|member| {
        commands.arg(member);
    });
    commands.ignore();
    commands.cmd("ZCARD").arg(name);
    commands
}

/// The names that were heard now, and those of earlier that were not.
pub fn joined(heard: &[String], earlier: &[String]) -> Vec<String> {
    let missing = earlier.iter().filter(|name| !heard.contains(name));
    heard.iter().chain(missing).cloned().collect()
}
