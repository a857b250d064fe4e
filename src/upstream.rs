//! Where admitted requests go: servers, their connections, and the choice between them.
//!
//! Each worker has its own [`Upstream`]: connections never cross threads, so nothing here is
//! locked or shared. A reload keeps the connections of every server that is still configured.

mod balance;
mod body_sender;
mod exchange;
mod pool;
mod resolve;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use prometheus::local::LocalHistogram;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

pub(crate) use exchange::{Exchange, ExchangeError, Upgraded, UpstreamBody};
pub(crate) use pool::Server;

use crate::config::settings;
use crate::http1::BufferedStream;
use crate::stream::enable_keepalive;
use crate::telemetry::{Failure, FailureMeter, Metrics};
use balance::Balancer;

/// Retries may add at most this share to an upstream's traffic, in percent.
const RETRY_SHARE: u32 = 20;
/// What a quiet upstream may retry at once, in requests.
const RETRY_BURST: u32 = 10;
/// The same shortage of the gateway itself is logged no more often than this.
const LOG_INTERVAL: Duration = Duration::from_secs(5);

/// An upstream as one worker sees it.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub connect_timeout: Duration,
    pub retries: u32,
    pub seconds: LocalHistogram,
    pub failures: Rc<FailureMeter>,
    servers: Vec<Rc<Server>>,
    balancer: Balancer,
    /// Hundredths of a retry that may still be made.
    retry_budget: Cell<u32>,
    logged: Cell<Option<Instant>>,
}

#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("the name could not be resolved")]
    Resolve(#[source] io::Error),
    #[error("the connection was refused or failed")]
    Refused(#[source] io::Error),
    #[error("no connection in time")]
    TimedOut,
    /// The gateway has run out of something: no server has been asked.
    #[error("{0}")]
    Exhausted(#[source] io::Error),
}

impl ConnectError {
    /// What it counts as, if it was the upstream's fault.
    pub fn failure(&self) -> Option<Failure> {
        match self {
            ConnectError::Resolve(_) | ConnectError::Refused(_) => Some(Failure::Unreachable),
            ConnectError::TimedOut => Some(Failure::Timeout),
            ConnectError::Exhausted(_) => None,
        }
    }

    /// Whether the gateway is at fault, so that another server would not help.
    pub fn is_ours(&self) -> bool {
        matches!(self, ConnectError::Exhausted(_))
    }

    fn of_connecting(error: io::Error) -> Self {
        if is_exhaustion(&error) {
            ConnectError::Exhausted(error)
        } else {
            ConnectError::Refused(error)
        }
    }

    fn of_resolving(error: io::Error) -> Self {
        if is_exhaustion(&error) {
            ConnectError::Exhausted(error)
        } else {
            ConnectError::Resolve(error)
        }
    }
}

/// Whether this process or machine has run out of something: file descriptors, ports, memory.
fn is_exhaustion(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let errno = Errno::from_io_error(error);
    let ours = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::ADDRNOTAVAIL];
    errno.is_some_and(|errno| ours.contains(&errno))
}

impl Upstream {
    /// Builds the worker's view, taking over the servers it already had.
    pub(crate) fn new(upstream: &settings::Upstream, known: &Servers, metrics: &Metrics) -> Self {
        let servers = upstream
            .servers
            .iter()
            .map(|origin| known.server(origin, upstream.keepalive, upstream.keepalive_timeout))
            .collect();
        Upstream {
            connect_timeout: upstream.connect_timeout,
            retries: upstream.retries,
            seconds: metrics.upstream_seconds.with_label_values(&[upstream.name.as_str()]).local(),
            failures: Rc::new(FailureMeter::new(&upstream.name, metrics)),
            servers,
            balancer: Balancer::new(upstream.balance),
            retry_budget: Cell::new(RETRY_BURST * 100),
            logged: Cell::new(None),
        }
    }

    /// Picks the server for the next attempt, leaving out the one that just failed if possible.
    pub(crate) fn pick(&self, failed: Option<&Rc<Server>>, now: Instant) -> Rc<Server> {
        self.balancer.pick(&self.servers, failed, now).clone()
    }

    /// Whether a request that failed at one server can go to another.
    pub(crate) fn has_others(&self) -> bool {
        self.servers.len() > 1
    }

    /// Counts a request towards what retries may add.
    pub(crate) fn earn_retries(&self) {
        let budget = self.retry_budget.get() + RETRY_SHARE;
        self.retry_budget.set(budget.min(RETRY_BURST * 100));
    }

    /// Takes one retry out of the budget, if there is one.
    #[must_use = "a retry needs the budget"]
    pub(crate) fn spend_retry(&self) -> bool {
        let left = self.retry_budget.get().checked_sub(100);
        if let Some(left) = left {
            self.retry_budget.set(left);
        }
        left.is_some()
    }

    /// Adds what was counted here to the metrics everybody sees.
    pub(crate) fn flush_meters(&self) {
        self.seconds.flush();
        self.failures.flush();
    }

    /// A new connection to `server`, tried at each of its addresses in turn.
    ///
    /// # Errors
    /// If none of them accepts within the connect timeout. The server is then left alone for a
    /// moment, as long as there are others.
    pub(crate) async fn connect(
        &self,
        server: &Rc<Server>,
    ) -> Result<Box<BufferedStream>, ConnectError> {
        server.note_attempt(Instant::now());
        let result = connect(server, self.connect_timeout).await;
        match &result {
            Ok(_) => server.note_recovered(),
            Err(error) if error.is_ours() => self.log_exhausted(error),
            Err(error) => server.note_failed(Instant::now(), error),
        }
        result
    }

    /// Logs what the gateway has run out of: once, and again while it lasts.
    fn log_exhausted(&self, error: &ConnectError) {
        let now = Instant::now();
        if self.logged.get().is_none_or(|last| now - last > LOG_INTERVAL) {
            self.logged.set(Some(now));
            tracing::error!(
                "the gateway cannot open connections to upstreams: {error}; raise the limit on open \
                 files if it is reached"
            );
        }
    }
}

async fn connect(server: &Server, patience: Duration) -> Result<Box<BufferedStream>, ConnectError> {
    let deadline = Instant::now() + patience;
    let lookup = timeout(patience, server.address.lookup()).await;
    let found = lookup.map_err(|_| ConnectError::TimedOut)?.map_err(ConnectError::of_resolving)?;
    if !found.stale {
        return connect_to(&found.addresses, patience).await;
    }
    // The server may have moved: keep half of the time for the answer that was just asked for.
    let last = match connect_to(&found.addresses, patience / 2).await {
        Ok(io) => return Ok(io),
        Err(error) => error,
    };
    match timeout_at(deadline, server.address.renewed()).await {
        Ok(Ok(addresses)) if addresses != found.addresses => {
            connect_to(&addresses, deadline.saturating_duration_since(Instant::now())).await
        }
        _ => Err(last),
    }
}

/// Tries each address in turn.
async fn connect_to(
    addresses: &[SocketAddr],
    patience: Duration,
) -> Result<Box<BufferedStream>, ConnectError> {
    // An address that drops every packet must not use up the time of the others.
    let share = patience / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
    let mut last = ConnectError::TimedOut;
    for &address in addresses {
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true).map_err(ConnectError::of_connecting)?;
                enable_keepalive(&stream);
                return Ok(Box::new(BufferedStream::new(stream.into())));
            }
            Ok(Err(error)) => last = ConnectError::of_connecting(error),
            Err(_) => last = ConnectError::TimedOut,
        }
    }
    Err(last)
}

/// Every server one worker knows, by origin, with its idle connections.
#[derive(Debug, Default)]
pub(crate) struct Servers(RefCell<HashMap<settings::Origin, Rc<Server>>>);

impl Servers {
    fn server(&self, origin: &settings::Origin, keep: usize, patience: Duration) -> Rc<Server> {
        let mut known = self.0.borrow_mut();
        let server = known.entry(origin.clone()).or_insert_with(|| Rc::new(Server::new(origin)));
        server.keep_idle(keep, patience);
        server.clone()
    }

    /// Closes connections that have been idle for too long, and forgets servers that are no longer configured.
    pub(crate) fn tidy(&self) {
        let now = Instant::now();
        self.0.borrow_mut().retain(|_, server| {
            server.close_idle(now);
            Rc::strong_count(server) > 1
        });
    }
}
