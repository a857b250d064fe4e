//! A worker: one thread, one runtime, one gateway, and the connections assigned to it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::address_count::AddressCounts;
use super::connection::{ConnectionContext, ServerSettings, serve};
use super::control::ConnectionControl;
use super::listener::Listener;
use super::opening::{OpenedConnection, Opening};
use super::service::ConnectionService;
use super::socket::Accepted;
use super::tls::PendingHandshakes;
use crate::config::settings;
use crate::gateway::{Compiled, Gateway, ServedConfig};
use crate::http1::BufferedStream;

/// How often idle upstream connections are checked for their timeout.
const TIDY_INTERVAL: Duration = Duration::from_secs(5);
/// The last moment of a drain, in which tunnels are closed in order.
const CLOSE_TIME: Duration = Duration::from_millis(100);

/// What other threads ask of a worker.
enum WorkerCommand {
    Serve(Accepted, Arc<Listener>),
    Configure(ServedConfig),
    /// Add what was counted to the shared metrics, and acknowledge it.
    Flush(oneshot::Sender<()>),
    /// Finish what is under way by then, and end.
    Drain(Instant),
}

/// A worker, as other threads see it.
#[derive(Debug)]
pub(crate) struct Worker {
    commands: UnboundedSender<WorkerCommand>,
    connections: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

impl Worker {
    /// Starts a worker. `gateway` is made on its runtime, where it stays.
    ///
    /// # Errors
    /// If the thread or its runtime cannot be started.
    pub(crate) fn start(
        index: usize,
        gateway: impl FnOnce() -> Gateway + Send + 'static,
        compiled: Arc<Compiled>,
        counts: Arc<AddressCounts>,
    ) -> io::Result<Self> {
        let (commands, received) = unbounded_channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let counter = connections.clone();
        let (ready, started) = std::sync::mpsc::sync_channel(1);
        let thread =
            std::thread::Builder::new().name(format!("weir-{index}")).spawn(move || {
                match Builder::new_current_thread()
                    .enable_all()
                    .build_local(LocalOptions::default())
                {
                    Ok(runtime) => {
                        let _ = ready.send(Ok(()));
                        runtime.block_on(async {
                            let worker = WorkerLoop {
                                gateway: Rc::new(gateway()),
                                settings: Rc::new(RefCell::new(server_settings(&compiled))),
                                next_id: 0,
                                connections: counter,
                                controls: Rc::default(),
                                lingering: Rc::default(),
                                handshakes: Rc::default(),
                                counts,
                            };
                            worker.run(received).await;
                        });
                        // A thread may still be resolving a name.
                        runtime.shutdown_background();
                    }
                    Err(error) => {
                        let _ = ready.send(Err(error));
                    }
                }
            })?;
        started.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))?;
        Ok(Worker { commands, connections, thread })
    }

    /// Connections it has now.
    pub(crate) fn load(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    pub(crate) fn assign(&self, accepted: Accepted, listener: Arc<Listener>) {
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.send(WorkerCommand::Serve(accepted, listener));
    }

    pub(crate) fn configure(&self, served: ServedConfig) {
        self.send(WorkerCommand::Configure(served));
    }

    /// Resolves when everything the worker has counted is in the shared metrics.
    pub(crate) fn flush(&self) -> oneshot::Receiver<()> {
        let (done, flushed) = oneshot::channel();
        self.send(WorkerCommand::Flush(done));
        flushed
    }

    pub(crate) fn drain(&self, until: Instant) {
        self.send(WorkerCommand::Drain(until));
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    fn send(&self, command: WorkerCommand) {
        // A worker only ever ends by draining, and takes no more commands then.
        let _ = self.commands.send(command);
    }
}

/// The state of a worker on its own thread.
struct WorkerLoop {
    gateway: Rc<Gateway>,
    settings: Rc<ServerSettings>,
    next_id: u64,
    connections: Arc<AtomicUsize>,
    controls: Rc<RefCell<HashMap<u64, Rc<ConnectionControl>>>>,
    lingering: Rc<Cell<usize>>,
    handshakes: Rc<PendingHandshakes>,
    /// Shared by all workers.
    counts: Arc<AddressCounts>,
}

impl WorkerLoop {
    async fn run(mut self, mut commands: UnboundedReceiver<WorkerCommand>) {
        let mut tidy = tokio::time::interval(TIDY_INTERVAL);
        loop {
            tokio::select! {
                command = commands.recv() => match command {
                    Some(WorkerCommand::Drain(until)) => return self.drain(until, commands).await,
                    Some(command) => self.handle_command(command),
                    None => return,
                },
                _ = tidy.tick() => {
                    self.gateway.tidy();
                    self.gateway.flush_meters();
                }
            }
        }
    }

    fn handle_command(&mut self, command: WorkerCommand) {
        match command {
            WorkerCommand::Serve(accepted, listener) => self.serve(accepted, &listener),
            WorkerCommand::Configure(served) => {
                *self.settings.borrow_mut() = server_settings(&served.compiled);
                self.gateway.configure(served);
            }
            WorkerCommand::Flush(done) => {
                self.gateway.flush_meters();
                let _ = done.send(());
            }
            // Already draining: the first deadline stands.
            WorkerCommand::Drain(_) => {}
        }
    }

    fn serve(&mut self, accepted: Accepted, listener: &Listener) {
        self.next_id += 1;
        let id = self.next_id;
        let control = Rc::new(ConnectionControl::new(&self.lingering));
        self.controls.borrow_mut().insert(id, control.clone());
        let guard = ConnectionGuard {
            id,
            connections: self.connections.clone(),
            controls: self.controls.clone(),
        };
        let gateway = self.gateway.clone();
        let settings = self.settings.clone();
        let (handshakes, counts) = (self.handshakes.clone(), self.counts.clone());
        let listener = listener.current().clone();
        let served = control.clone();
        let task = tokio::task::spawn_local(async move {
            let _guard = guard;
            let Accepted { socket, peer } = accepted;
            let stream = match socket.into_stream() {
                Ok(stream) => stream,
                Err(error) => {
                    return tracing::warn!(%error, "cannot register a connection with the runtime");
                }
            };
            control.register_waker().await;
            let context = ConnectionContext { settings, control };
            let opening = Opening {
                gateway: &gateway,
                context: &context,
                handshakes: &handshakes,
                counts: &counts,
            };
            // On the heap for as long as it takes: connections that are open should not pay for it.
            let opened = Box::pin(opening.open(BufferedStream::new(stream), peer, listener)).await;
            let Some(OpenedConnection { io, peer, _slot }) = opened else { return };
            let service = ConnectionService::new(gateway, peer, io.scheme());
            serve(io, context, service).await;
        });
        served.set_task(task.abort_handle());
    }

    /// Lets what is under way finish until `until`, then closes what is left. Connections that
    /// were assigned before the listeners closed still get their answers.
    async fn drain(mut self, until: Instant, mut commands: UnboundedReceiver<WorkerCommand>) {
        while let Ok(command) = commands.try_recv() {
            self.handle_command(command);
        }
        self.gateway.drain();
        self.for_each(ConnectionControl::drain);
        let closing = until.checked_sub(CLOSE_TIME).unwrap_or(until);
        let mut tunnels_closed = false;
        let mut check = tokio::time::interval(Duration::from_millis(10));
        while !self.controls.borrow().is_empty() && Instant::now() < until {
            tokio::select! {
                _ = check.tick() => {}
                Some(command) = commands.recv() => self.handle_command(command),
            }
            if !tunnels_closed && Instant::now() >= closing {
                tunnels_closed = true;
                self.for_each(ConnectionControl::close);
            }
        }
        self.for_each(ConnectionControl::abort);
        let flushed = async {
            // Aborted requests still have their slots to release.
            while !self.controls.borrow().is_empty() {
                tokio::task::yield_now().await;
            }
            self.gateway.flush().await;
        };
        let _ = tokio::time::timeout(CLOSE_TIME, flushed).await;
        self.gateway.flush_meters();
    }

    fn for_each(&self, apply: impl Fn(&ConnectionControl)) {
        for control in self.controls.borrow().values() {
            apply(control);
        }
    }
}

fn server_settings(compiled: &Compiled) -> Rc<settings::Server> {
    Rc::new(compiled.settings.server.clone())
}

/// Removes a connection from its worker, however it ends.
struct ConnectionGuard {
    id: u64,
    connections: Arc<AtomicUsize>,
    controls: Rc<RefCell<HashMap<u64, Rc<ConnectionControl>>>>,
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
        self.controls.borrow_mut().remove(&self.id);
    }
}
