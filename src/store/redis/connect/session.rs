//! A working connection to Redis: to its one master, or to all masters of a cluster.

use std::sync::Arc;

use futures_util::future::try_join_all;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, FromRedisValue, Pipeline, RedisError, Value};
use tokio::time::{Instant, timeout};

use super::dialer::{CONNECT_TIMEOUT, Dialer};
use super::failure::{Failure, Reason};
use super::hash_slot::hash_slot;
use super::nodes::Nodes;
use super::reply_deadline::reply_by;
use super::script_call::{NodeRole, call_script};
use super::server_clock::ServerClock;
use crate::clock::Micros;
use crate::store::redis::wire::script::Form;

#[derive(Debug, Clone)]
pub(crate) enum Session {
    Single(MultiplexedConnection),
    Cluster(Arc<Nodes>),
}

/// What a master says of itself.
#[derive(Debug)]
pub(crate) struct MasterInfo {
    /// Another one each time it is started.
    pub run_id: Option<String>,
    /// What it does when its memory is full.
    pub eviction_policy: Option<String>,
}

impl Session {
    pub(crate) async fn open(dialer: &Arc<Dialer>) -> Result<Session, Failure> {
        if let Some(seeds) = dialer.seeds() {
            return Ok(Session::Cluster(Arc::new(Nodes::discover(dialer.clone(), seeds).await?)));
        }
        let mut connection = dialer.master().await?;
        // A sentinel may name a master that has just been told to be a replica.
        match role(&mut connection).await {
            Ok(role) if role != "master" => {
                Err(Failure::new(Reason::ReadOnly, format!("it is a {role}, not a master")))
            }
            Err(failure) if failure.is_silence() => Err(failure),
            // Without the right to ask, the first write shows it.
            _ => Ok(Session::Single(connection)),
        }
    }

    /// Runs a script whose keys all lie in `slot`. It runs at most once: it is sent again only
    /// where the server says that it did not run it.
    pub(crate) async fn run(
        &self,
        slot: u16,
        deadline: Instant,
        command: impl Fn(Form) -> Cmd,
    ) -> Result<Value, Failure> {
        let run = async {
            match self {
                Session::Cluster(nodes) => nodes.run(slot, deadline, |form, _| command(form)).await,
                Session::Single(connection) => {
                    let (mut connection, role) = (connection.clone(), NodeRole::Owner);
                    Ok(call_script(&mut connection, role, deadline, command).await?.value)
                }
            }
        };
        reply_by(deadline, run).await.unwrap_or_else(|| Err(Failure::timeout()))
    }

    /// Runs commands on the key `name` together, and returns the answer of the last. They may be run
    /// twice. If something else lies under the key, it is removed.
    pub(crate) async fn run_together<T: FromRedisValue>(
        &self,
        name: &[u8],
        commands: &Pipeline,
    ) -> Result<T, Failure> {
        let slot = hash_slot(name);
        let mut connection = self.owner(slot).await?;
        let error = match commands.query_async::<(T,)>(&mut connection).await {
            Ok((answer,)) => return Ok(answer),
            Err(error) if error.is_io_error() || error.is_timeout() => return Err(error.into()),
            Err(error) => error,
        };
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        let run = |command: Cmd| self.run(slot, deadline, move |_| command.clone());
        if error.to_string().contains("WRONGTYPE") {
            run(redis::cmd("DEL").arg(name).clone()).await?;
        }
        // A command by itself follows a slot that has moved or is moving, which several together
        // cannot.
        let mut answer = Value::Nil;
        for command in commands.cmd_iter() {
            answer = run(command.clone()).await?;
        }
        redis::from_redis_value(answer).map_err(|it| RedisError::from(it).into())
    }

    /// What the clock of the server shows that has the key `name`.
    pub(crate) async fn time(&self, name: &[u8]) -> Result<Micros, Failure> {
        time(&mut self.owner(hash_slot(name)).await?).await
    }

    async fn owner(&self, slot: u16) -> Result<MultiplexedConnection, Failure> {
        match self {
            Session::Single(connection) => Ok(connection.clone()),
            Session::Cluster(nodes) => nodes.owner(slot).await,
        }
    }

    /// Asks every master about itself.
    pub(crate) async fn masters(&self) -> Result<Vec<MasterInfo>, Failure> {
        let connections = match self {
            Session::Single(connection) => vec![connection.clone()],
            Session::Cluster(nodes) => nodes.masters().into_iter().map(|(_, it)| it).collect(),
        };
        let asked = connections.into_iter().map(async |mut connection| {
            // Servers before version 7 take one section or all.
            let info: String = redis::cmd("INFO").query_async(&mut connection).await?;
            let field = |name| info.lines().find_map(|line| line.strip_prefix(name));
            let field = |name| field(name).map(|it| it.trim().to_owned());
            Ok(MasterInfo { run_id: field("run_id:"), eviction_policy: field("maxmemory_policy:") })
        });
        try_join_all(asked).await
    }

    /// The clock of the one master, if it tells. Those of a cluster are heard at each heartbeat
    /// ([`Nodes::hear_clocks`]) and with replies.
    pub(crate) async fn clock(&self) -> ServerClock {
        let mut clock = ServerClock::default();
        if let Session::Single(connection) = self {
            let sent = Instant::now();
            if let Ok(Ok(time)) = timeout(CONNECT_TIMEOUT, time(&mut connection.clone())).await {
                clock.update(time, sent, Instant::now());
            }
        }
        clock
    }

    /// Hears an answer from every master, asked all at once.
    pub(crate) async fn ping(&self) -> Result<(), Failure> {
        match self {
            Session::Single(connection) => {
                send(&mut connection.clone(), &redis::cmd("PING")).await?;
                Ok(())
            }
            Session::Cluster(nodes) => nodes.hear_clocks().await,
        }
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self, Session::Cluster(_))
    }
}

/// What the clock of a server shows.
pub(super) async fn time(connection: &mut MultiplexedConnection) -> Result<Micros, Failure> {
    let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(connection).await?;
    Ok(Micros(seconds.saturating_mul(1_000_000).saturating_add(micros)))
}

pub(crate) async fn send(
    connection: &mut MultiplexedConnection,
    command: &Cmd,
) -> Result<Value, RedisError> {
    connection.send_packed_command(command).await?.extract_error()
}

/// Sends a command while a session is opened, with a timeout of its own.
pub(crate) async fn question(
    connection: &mut MultiplexedConnection,
    command: &Cmd,
) -> Result<Value, Failure> {
    let answer = timeout(CONNECT_TIMEOUT, send(connection, command)).await;
    Ok(answer.map_err(|_| Failure::timeout())??)
}

async fn role(connection: &mut MultiplexedConnection) -> Result<String, Failure> {
    match question(connection, &redis::cmd("ROLE")).await? {
        Value::Array(parts) => match parts.first() {
            Some(Value::BulkString(role)) => Ok(String::from_utf8_lossy(role).into_owned()),
            other => Err(Failure::unexpected(other.unwrap_or(&Value::Nil))),
        },
        other => Err(Failure::unexpected(&other)),
    }
}
