//! The overrides that gateways share through Redis: a hash, with a mark in it that changes with every
//! write, so that gateways read the rest only when it has changed.
//!
//! The hash ends with the last of its overrides. See `lua/overrides.lua`.

use std::collections::HashMap;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::{Instant, timeout};

use crate::overrides::{self, Override, OverrideTable};
use crate::store::redis::RedisShared;
use crate::store::redis::connect::failure::{Failure, Reason};
use crate::store::redis::connect::hash_slot::hash_slot;
use crate::store::redis::connect::session::Session;
use crate::store::redis::wire::script::OVERRIDES;

/// No entry is called so: their names have a slash in them.
const MARK: &str = "mark";
/// Ended overrides that are cleared away at a time.
const CLEARED: usize = 100;
/// How long a change may take. An operator waits for it.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// For how many seconds more than its overrides the hash lives: clocks differ.
const GRACE: u64 = 60;

/// Takes over what has changed since the mark that was last seen.
pub(crate) async fn sync(
    shared: &RedisShared,
    session: &Session,
    seen: &mut Option<String>,
    overrides: &OverrideTable,
) -> Result<(), Failure> {
    let name = shared.reserved_key("overrides");
    let reply = match ask(session, &name, |cmd| cmd.arg(MARK), "HGET").await {
        Err(failure) if failure.to_string().contains("WRONGTYPE") => {
            ask(session, &name, |cmd| cmd, "DEL").await?;
            Value::Nil
        }
        reply => reply?,
    };
    let mark: Option<String> = read(reply)?;
    if mark == *seen {
        return Ok(());
    }
    let all: HashMap<String, String> = read(ask(session, &name, |cmd| cmd, "HGETALL").await?)?;
    let entries = all.iter().filter(|(id, _)| *id != MARK);
    // One that this version cannot read is another version's.
    let entries = entries.filter_map(|(_, text)| serde_json::from_str::<Override>(text).ok());
    let entries: Vec<Override> = entries.collect();
    // The first gateway to see ended entries deletes them; if it fails, the next one does.
    let ended = entries.iter().filter(|it| it.until + 60 < overrides::now()).map(Override::id);
    for id in ended.take(CLEARED) {
        let _ = ask(session, &name, |cmd| cmd.arg(id.as_str()), "HDEL").await;
    }
    overrides.replace(entries);
    *seen = mark;
    Ok(())
}

/// Makes an override known to all.
///
/// # Errors
/// If Redis does not take it.
pub(crate) async fn put(shared: &RedisShared, entry: &Override) -> Result<(), Failure> {
    let text = serde_json::to_string(entry)
        .map_err(|error| Failure::new(Reason::Other, error.to_string()))?;
    change(shared, &entry.id(), &text, entry.until.saturating_sub(overrides::now())).await
}

/// Takes one back.
///
/// # Errors
/// If Redis does not take it.
pub(crate) async fn remove(shared: &RedisShared, id: &str) -> Result<(), Failure> {
    change(shared, id, "", 0).await
}

async fn change(shared: &RedisShared, id: &str, text: &str, seconds: u64) -> Result<(), Failure> {
    let changed = async {
        let session = Session::open(&shared.dialer).await?;
        let name = shared.reserved_key("overrides");
        let mark = format!("{} {}", shared.node, shared.clock.now().0);
        let call = |form| {
            let mut call = OVERRIDES.call(form, 6, name.len() + id.len() + text.len());
            call.arg(1).arg(&name).arg(id).arg(text).arg(mark.as_str()).arg(seconds + GRACE);
            call
        };
        session.run(hash_slot(&name), Instant::now() + CALL_TIMEOUT, call).await.map(|_| ())
    };
    timeout(CALL_TIMEOUT, changed).await.unwrap_or_else(|_| Err(Failure::timeout()))
}

async fn ask(
    session: &Session,
    name: &[u8],
    arguments: impl Fn(&mut Cmd) -> &mut Cmd,
    command: &str,
) -> Result<Value, Failure> {
    let command = |_| {
        let mut cmd = redis::cmd(command);
        cmd.arg(name);
        arguments(&mut cmd);
        cmd
    };
    session.run(hash_slot(name), Instant::now() + CALL_TIMEOUT, command).await
}

fn read<T: redis::FromRedisValue>(value: Value) -> Result<T, Failure> {
    T::from_redis_value(value).map_err(|error| Failure::new(Reason::Reply, error.to_string()))
}
