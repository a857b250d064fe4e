//! The third part of a run: no new connections, and time for what is under way.

use std::time::Duration;

use tokio::time::Instant;

use super::serve::{Ending, RunningGateway};
use super::service_manager;
use super::takeover::report_slots;
use crate::listen::worker::Worker;
use crate::shutdown::{Signal, Signals};

impl RunningGateway {
    /// Connections end first, then the store, then the admin listener, which answers `/readyz` until
    /// everything else is over. A successor has that listener already.
    pub(super) async fn drain(mut self, ending: Ending) {
        self.admin_service.drain();
        match ending {
            Ending::Signal => {
                // Before the listeners are closed: as long as anybody holds one of their sockets, the
                // kernel takes connections for it that nobody accepts.
                if let Some(offer) = self.takeover.take() {
                    offer.withdraw().await;
                }
                let _ = self.stop_accepting.send(true);
                while self.acceptors.join_next().await.is_some() {}
                self.admin_server.share_port();
            }
            Ending::TakenOver(mut successor) => {
                // What waits to be accepted is the successor's, as the sockets are.
                self.acceptors.shutdown().await;
                self.admin_server.stop_accepting();
                self.store.hand_over();
                service_manager::handed_over(successor.pid);
                tracing::info!("taken over by process {}", successor.pid);
                let held = self.store.held_slots();
                successor.confirm(held.as_ref()).await;
                if let Some(offer) = self.takeover.take() {
                    offer.leave().await;
                }
                if let Some(held) = held {
                    tokio::spawn(report_slots(successor, self.store.clone(), held));
                }
            }
        }
        let drain = self.api.settings().server.drain;
        let until = Instant::now() + drain;
        tracing::info!("draining for at most {drain:?}; a second signal ends at once");
        self.workers.iter().for_each(|worker| worker.drain(until));
        tokio::select! {
            () = workers_ended(&self.workers) => tracing::info!("drained"),
            () = second_stop(&mut self.signals) => {
                tracing::warn!("ended before everything was drained");
            }
        }
        self.store.leave().await;
        self.admin_server.stop().await;
        self.control.stop();
    }
}

async fn workers_ended(workers: &[Worker]) {
    let mut check = tokio::time::interval(Duration::from_millis(10));
    while !workers.iter().all(Worker::is_finished) {
        check.tick().await;
    }
}

async fn second_stop(signals: &mut Signals) {
    while signals.next().await != Signal::Stop {}
}
