//! A worker: one thread, one runtime, one gateway, and the connections it was dealt.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::connection::{Control, ServerSettings, serve};
use super::proxy_protocol;
use crate::caller::Peer;
use crate::config::settings;
use crate::gateway::{Compiled, Gateway};
use crate::http1::Wire;
use crate::respond::Fault;

/// How often idle upstream connections are looked through.
const TIDY: Duration = Duration::from_secs(5);
/// The last moment of a drain, in which tunnels are closed in order.
const CLOSING: Duration = Duration::from_millis(100);

/// What a worker is told.
enum Order {
    Serve(TcpStream, SocketAddr),
    Configure(Arc<Compiled>),
    /// Add what was counted to the shared metrics, and say so.
    Flush(oneshot::Sender<()>),
    /// Finish what is under way by then, and end.
    Drain(Instant),
}

/// The other threads' hold on a worker.
#[derive(Debug)]
pub struct Worker {
    orders: UnboundedSender<Order>,
    connections: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

impl Worker {
    /// Starts a worker. `gateway` is made on its runtime, where it stays.
    ///
    /// # Errors
    /// If the thread or its runtime cannot be had.
    pub fn start(
        index: usize,
        gateway: impl FnOnce() -> Gateway + Send + 'static,
        compiled: Arc<Compiled>,
    ) -> io::Result<Self> {
        let (orders, received) = unbounded_channel();
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
                            let crew = Crew {
                                gateway: Rc::new(gateway()),
                                settings: Rc::new(RefCell::new(server_settings(&compiled))),
                                next_id: 0,
                                connections: counter,
                                controls: Rc::default(),
                                lingering: Rc::default(),
                            };
                            crew.work(received).await;
                        });
                        // Somebody may still be asking for the address of a name.
                        runtime.shutdown_background();
                    }
                    Err(error) => {
                        let _ = ready.send(Err(error));
                    }
                }
            })?;
        started.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()))?;
        Ok(Worker { orders, connections, thread })
    }

    /// Connections it has now.
    #[must_use]
    pub fn load(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    pub fn deal(&self, stream: TcpStream, peer: SocketAddr) {
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.order(Order::Serve(stream, peer));
    }

    pub fn configure(&self, compiled: Arc<Compiled>) {
        self.order(Order::Configure(compiled));
    }

    /// Resolves when everything the worker has counted is in the shared metrics.
    pub fn flush(&self) -> oneshot::Receiver<()> {
        let (done, flushed) = oneshot::channel();
        self.order(Order::Flush(done));
        flushed
    }

    pub fn drain(&self, until: Instant) {
        self.order(Order::Drain(until));
    }

    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    fn order(&self, order: Order) {
        // A worker only ever ends by draining, and then takes no more orders.
        let _ = self.orders.send(order);
    }
}

/// A worker from within.
struct Crew {
    gateway: Rc<Gateway>,
    settings: Rc<ServerSettings>,
    next_id: u64,
    connections: Arc<AtomicUsize>,
    controls: Rc<RefCell<HashMap<u64, Rc<Control>>>>,
    lingering: Rc<Cell<usize>>,
}

impl Crew {
    async fn work(mut self, mut orders: UnboundedReceiver<Order>) {
        let mut tidy = tokio::time::interval(TIDY);
        loop {
            tokio::select! {
                order = orders.recv() => match order {
                    Some(Order::Drain(until)) => return self.drain(until, orders).await,
                    Some(order) => self.obey(order),
                    None => return,
                },
                _ = tidy.tick() => {
                    self.gateway.tidy();
                    self.gateway.flush_meters();
                }
            }
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Serve(stream, peer) => self.serve(stream, peer),
            Order::Configure(compiled) => {
                *self.settings.borrow_mut() = server_settings(&compiled);
                self.gateway.configure(compiled);
            }
            Order::Flush(done) => {
                self.gateway.flush_meters();
                let _ = done.send(());
            }
            // Draining already: the first word stands.
            Order::Drain(_) => {}
        }
    }

    fn serve(&mut self, stream: TcpStream, peer: SocketAddr) {
        self.next_id += 1;
        let id = self.next_id;
        let control = Rc::new(Control::new(&self.lingering));
        self.controls.borrow_mut().insert(id, control.clone());
        let place =
            Place { id, connections: self.connections.clone(), controls: self.controls.clone() };
        let gateway = self.gateway.clone();
        let settings = self.settings.clone();
        let served = control.clone();
        let task = tokio::task::spawn_local(async move {
            let _place = place;
            let stream = match tokio::net::TcpStream::from_std(stream) {
                Ok(stream) => stream,
                Err(error) => return tracing::warn!(%error, "a connection could not be taken"),
            };
            control.attend().await;
            let mut wire = Wire::new(stream);
            let mut speaks_for = peer;
            if gateway.awaits_proxy_header(peer.ip()) {
                let server = settings.borrow().clone();
                match proxy_protocol::read(&mut wire, &server, &control).await {
                    Ok(Some(header)) => speaks_for = header.source.unwrap_or(peer),
                    Ok(None) => return,
                    Err(error) => return gateway.note_unintroduced(peer, &error),
                }
            }
            let peer = Rc::new(Peer::new(speaks_for));
            let service =
                tower::service_fn(|request| gateway.clone().handle(peer.clone(), request));
            let complained = |fault: &Fault| gateway.note_unread(&peer, fault);
            serve(wire, &settings, (&control, &peer), service, complained).await;
        });
        served.is_served_by(task.abort_handle());
    }

    /// Lets what is under way finish until `until`, then closes what is left. Connections that
    /// were dealt before the listeners closed still get their answers.
    async fn drain(mut self, until: Instant, mut orders: UnboundedReceiver<Order>) {
        while let Ok(order) = orders.try_recv() {
            self.obey(order);
        }
        self.gateway.drain();
        self.each(Control::drain);
        let closing = until.checked_sub(CLOSING).unwrap_or(until);
        let mut tunnels_told = false;
        let mut check = tokio::time::interval(Duration::from_millis(10));
        while !self.controls.borrow().is_empty() && Instant::now() < until {
            tokio::select! {
                _ = check.tick() => {}
                Some(order) = orders.recv() => self.obey(order),
            }
            if !tunnels_told && Instant::now() >= closing {
                tunnels_told = true;
                self.each(Control::close);
            }
        }
        self.each(Control::abort);
        let settled = async {
            // What is cut off leaves its places to be given back.
            while !self.controls.borrow().is_empty() {
                tokio::task::yield_now().await;
            }
            self.gateway.settle().await;
        };
        let _ = tokio::time::timeout(CLOSING, settled).await;
        self.gateway.flush_meters();
    }

    fn each(&self, tell: impl Fn(&Control)) {
        for control in self.controls.borrow().values() {
            tell(control);
        }
    }
}

fn server_settings(compiled: &Compiled) -> Rc<settings::Server> {
    Rc::new(compiled.settings.server.clone())
}

/// A connection's place in its worker, given up however the connection ends.
struct Place {
    id: u64,
    connections: Arc<AtomicUsize>,
    controls: Rc<RefCell<HashMap<u64, Rc<Control>>>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
        self.controls.borrow_mut().remove(&self.id);
    }
}
