//! The gateways that share the store: a sorted set of them by the time of their last heartbeat, and
//! another of those that owe Redis nothing from an outage.
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

/// Puts a member, if there is one, into the set `name`, for `lifetime`. The answer is all that were put
/// there within `max_age`.
pub fn report(
    name: &[u8],
    member: Option<&str>,
    now: Micros,
    lifetime: Duration,
    max_age: Duration,
) -> Pipeline {
    let (now, life) = (now.0 / 1000, lifetime.as_millis() as u64);
    let mut commands = redis::pipe();
    if let Some(member) = member {
        commands.cmd("ZADD").arg(name).arg(now).arg(member).ignore();
    }
    let dead = format!("({}", now.saturating_sub(life));
    commands.cmd("ZREMRANGEBYSCORE").arg(name).arg("-inf").arg(dead).ignore();
    // Left by a clock that has stepped back since: its node is heard again soon, if it lives.
    let ahead = format!("({}", now + life);
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
