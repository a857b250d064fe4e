//! What operators have decided, as gateways that share a Redis share it: a hash of rulings, and a mark
//! in it that is another one after every change, so that nothing else has to be read.
//!
//! The hash ends with the last of its rulings. See `lua/rulings.lua`.

use std::collections::HashMap;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::{Instant, timeout};

use super::Shared;
use super::failure::{Failure, Reason};
use super::script::RULINGS;
use super::session::Session;
use super::slot::slot;
use crate::rulings::{self, Book, Ruling};

/// No ruling is called so: their names have a slash in them.
const MARK: &str = "mark";
/// Ended rulings that are cleared away at a time.
const CLEARED: usize = 100;
/// How long a change may take. An operator waits for it.
const PATIENCE: Duration = Duration::from_secs(2);
/// For how many seconds more than its rulings the hash lives: clocks differ.
const GRACE: u64 = 60;

/// Takes over what has changed since the mark that was last seen.
pub(super) async fn hear(
    shared: &Shared,
    session: &Session,
    seen: &mut Option<String>,
    book: &Book,
) -> Result<(), Failure> {
    let name = shared.name("rulings");
    let heard = match ask(session, &name, |cmd| cmd.arg(MARK), "HGET").await {
        Err(failure) if failure.to_string().contains("WRONGTYPE") => {
            ask(session, &name, |cmd| cmd, "DEL").await?;
            Value::Nil
        }
        heard => heard?,
    };
    let mark: Option<String> = read(heard)?;
    if mark == *seen {
        return Ok(());
    }
    let all: HashMap<String, String> = read(ask(session, &name, |cmd| cmd, "HGETALL").await?)?;
    let rulings = all.iter().filter(|(id, _)| *id != MARK);
    // One that this version cannot read is another version's.
    let rulings = rulings.filter_map(|(_, text)| serde_json::from_str::<Ruling>(text).ok());
    let rulings: Vec<Ruling> = rulings.collect();
    // Whoever sees them first clears away those that have ended. If it cannot, the next one does.
    let ended = rulings.iter().filter(|it| it.until + 60 < rulings::now()).map(Ruling::id);
    for id in ended.take(CLEARED) {
        let _ = ask(session, &name, |cmd| cmd.arg(id.as_str()), "HDEL").await;
    }
    book.replace(rulings);
    *seen = mark;
    Ok(())
}

/// Makes a ruling known to all.
///
/// # Errors
/// If Redis does not take it.
pub(super) async fn put(shared: &Shared, ruling: &Ruling) -> Result<(), Failure> {
    let text = serde_json::to_string(ruling)
        .map_err(|error| Failure::new(Reason::Other, error.to_string()))?;
    change(shared, &ruling.id(), &text, ruling.until.saturating_sub(rulings::now())).await
}

/// Takes one back.
///
/// # Errors
/// If Redis does not take it.
pub(super) async fn remove(shared: &Shared, id: &str) -> Result<(), Failure> {
    change(shared, id, "", 0).await
}

async fn change(shared: &Shared, id: &str, text: &str, seconds: u64) -> Result<(), Failure> {
    let changed = async {
        let session = Session::open(&shared.dialer).await?;
        let name = shared.name("rulings");
        let mark = format!("{} {}", shared.node, shared.clock.now().0);
        let call = |form| {
            let mut call = RULINGS.call(form, 6, name.len() + id.len() + text.len());
            call.arg(1).arg(&name).arg(id).arg(text).arg(mark.as_str()).arg(seconds + GRACE);
            call
        };
        session.run(slot(&name), Instant::now() + PATIENCE, call).await.map(|_| ())
    };
    timeout(PATIENCE, changed).await.unwrap_or_else(|_| Err(Failure::timeout()))
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
    session.run(slot(name), Instant::now() + PATIENCE, command).await
}

fn read<T: redis::FromRedisValue>(value: Value) -> Result<T, Failure> {
    T::from_redis_value(value).map_err(|error| Failure::new(Reason::Reply, error.to_string()))
}
