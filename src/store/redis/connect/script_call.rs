//! Calling a script: by its hash first, and with its text if the server does not know it.

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, ServerErrorKind, Value};
use tokio::time::Instant;

use super::session::send;
use crate::clock;
use crate::store::redis::wire::script::Form;

/// What the server that is called has to do with the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeRole {
    Owner,
    /// The node of a cluster that a hash slot is being moved to.
    Importing,
}

/// What a server answered, and when it was asked.
#[derive(Debug)]
pub(crate) struct ScriptReply {
    pub(crate) value: Value,
    pub(crate) sent: Instant,
}

/// Calls a script, which runs at most once. With its text it is sent only before the deadline: the
/// caller may have given up on it by then.
pub(crate) async fn call_script(
    connection: &mut MultiplexedConnection,
    role: NodeRole,
    deadline: Instant,
    command: impl Fn(Form) -> Cmd,
) -> Result<ScriptReply, RedisError> {
    let mut form = Form::Hash;
    loop {
        let command = command(form);
        let sent = clock::now();
        let answer = match role {
            NodeRole::Owner => send(connection, &command).await,
            // Boxed, since it is rare, and every other call would be larger by it.
            NodeRole::Importing => Box::pin(send_asking(connection, command)).await,
        };
        match answer {
            Ok(value) => return Ok(ScriptReply { value, sent }),
            Err(error)
                if form == Form::Hash && is_unknown_script(&error) && Instant::now() < deadline =>
            {
                form = Form::Text;
            }
            Err(error) => return Err(error),
        }
    }
}

pub(crate) fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == redis::ErrorKind::Server(ServerErrorKind::NoScript)
}

/// Sends a command to a node that does not own the hash slot yet.
async fn send_asking(
    connection: &mut MultiplexedConnection,
    command: Cmd,
) -> Result<Value, RedisError> {
    let mut both = redis::pipe();
    both.cmd("ASKING").ignore().add_command(command);
    let mut values = connection.send_packed_commands(&both, 1, 1).await?;
    values.pop().unwrap_or(Value::Nil).extract_error()
}
