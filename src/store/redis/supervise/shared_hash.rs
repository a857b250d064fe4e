//! A hash in Redis that gateways share, with a mark in it that changes with every write, so that they
//! read the rest only when it has changed. See `lua/overrides.lua`.

use std::collections::HashMap;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::{Instant, timeout};

use crate::store::redis::RedisShared;
use crate::store::redis::connect::failure::{Failure, Reason};
use crate::store::redis::connect::hash_slot::hash_slot;
use crate::store::redis::connect::session::Session;
use crate::store::redis::wire::script::OVERRIDES;

/// No entry is called so: their names have a slash in them.
pub(super) const MARK: &str = "mark";
/// How long a change may take. An operator waits for it.
const CALL_TIMEOUT: Duration = Duration::from_secs(2);
/// For how many seconds more than its entries the hash lives: clocks differ.
const GRACE: u64 = 60;

/// A change of one entry.
#[derive(Debug)]
pub(super) struct HashChange<'a> {
    pub(super) hash: &'a [u8],
    pub(super) id: &'a str,
    /// Empty to remove it.
    pub(super) text: &'a str,
    /// For how long it is needed.
    pub(super) lifetime: Duration,
    /// The mark that the hash must still have, empty if it had none; `None`: whatever it has.
    pub(super) only_if: Option<&'a str>,
    /// What its new mark begins with.
    pub(super) mark_prefix: &'a str,
    /// More entries to set, with their names; only together with `only_if`.
    pub(super) more: &'a [(String, String)],
}

impl HashChange<'_> {
    /// Makes the change, and says how the hash is marked now. `None` if it had another mark than it
    /// must have.
    pub(super) async fn make(
        &self,
        shared: &RedisShared,
        session: &Session,
    ) -> Result<Option<String>, Failure> {
        let HashChange { hash, id, text, lifetime, only_if, mark_prefix, more } = *self;
        let mark = format!("{mark_prefix}{} {}", shared.node, shared.clock.now().0);
        let call = |form| {
            let bytes = more.iter().map(|(id, text)| id.len() + text.len()).sum::<usize>();
            let bytes = bytes + hash.len() + id.len() + text.len();
            let mut call = OVERRIDES.call(form, 7 + 2 * more.len(), bytes);
            call.arg(1).arg(hash).arg(id).arg(text).arg(mark.as_str());
            call.arg(lifetime.as_secs() + GRACE);
            if let Some(mark) = only_if {
                call.arg(mark);
            }
            for (id, text) in more {
                call.arg(id).arg(text);
            }
            call
        };
        match session.run(hash_slot(hash), Instant::now() + CALL_TIMEOUT, call).await? {
            Value::Int(0) => Ok(None),
            _ => Ok(Some(mark)),
        }
    }
}

pub(super) async fn open(shared: &RedisShared) -> Result<Session, Failure> {
    let opened = timeout(CALL_TIMEOUT, Session::open(&shared.dialer)).await;
    opened.unwrap_or_else(|_| Err(Failure::timeout()))
}

/// What the hash is marked with. Whatever else lies under its name is removed.
pub(super) async fn mark(session: &Session, hash: &[u8]) -> Result<Option<String>, Failure> {
    match ask(session, hash, |cmd| cmd.arg(MARK), "HGET").await {
        Err(failure) if failure.to_string().contains("WRONGTYPE") => {
            ask(session, hash, |cmd| cmd, "DEL").await?;
            Ok(None)
        }
        reply => read(reply?),
    }
}

/// All entries, and the mark.
pub(super) async fn read_all(
    session: &Session,
    hash: &[u8],
) -> Result<HashMap<String, String>, Failure> {
    read(ask(session, hash, |cmd| cmd, "HGETALL").await?)
}

/// Removes an entry without a mark: nobody needs to know.
pub(super) async fn clear(session: &Session, hash: &[u8], id: &str) -> Result<(), Failure> {
    ask(session, hash, |cmd| cmd.arg(id), "HDEL").await.map(|_| ())
}

/// Has the hash live so long from now on.
pub(super) async fn keep_alive(
    session: &Session,
    hash: &[u8],
    lifetime: Duration,
) -> Result<(), Failure> {
    ask(session, hash, |cmd| cmd.arg(lifetime.as_secs()), "EXPIRE").await.map(|_| ())
}

async fn ask(
    session: &Session,
    hash: &[u8],
    arguments: impl Fn(&mut Cmd) -> &mut Cmd,
    command: &str,
) -> Result<Value, Failure> {
    let command = |_| {
        let mut cmd = redis::cmd(command);
        cmd.arg(hash);
        arguments(&mut cmd);
        cmd
    };
    session.run(hash_slot(hash), Instant::now() + CALL_TIMEOUT, command).await
}

fn read<T: redis::FromRedisValue>(value: Value) -> Result<T, Failure> {
    T::from_redis_value(value).map_err(|error| Failure::new(Reason::Reply, error.to_string()))
}
