//! Queued requests: how many there are, and in which order they arrive at the upstream.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::client::Client;
use super::config::Config;
use super::gateway::Weir;
use super::stores::TestStore;
use super::upstream::{Upstream, ok};
use super::{get_with, wait_until};

/// An upstream that records in which order and when numbered requests came.
#[derive(Debug)]
pub(crate) struct RecordingUpstream {
    pub(crate) upstream: Upstream,
    arrivals: Arc<Mutex<Vec<(usize, Instant)>>>,
}

impl RecordingUpstream {
    pub(crate) fn start() -> RecordingUpstream {
        let arrivals = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&arrivals);
        let upstream = Upstream::replying(move |request| {
            let number = request.all("x-number").first().map_or(0, |it| it.parse().unwrap());
            recorded.lock().unwrap().push((number, Instant::now()));
            ok("ok")
        });
        RecordingUpstream { upstream, arrivals }
    }

    /// The number of each request, and when it arrived.
    pub(crate) fn arrivals(&self) -> Vec<(usize, Instant)> {
        self.arrivals.lock().unwrap().clone()
    }

    /// A gateway with one limit that queues, and counts by `X-User`.
    pub(crate) fn queueing(&self, test_store: &TestStore, limit: &str) -> Weir {
        let limit = format!("key = \"header:x-user\"\nstrategy = \"queue\"\n{limit}");
        Weir::start(&test_store.configure(Config::to(&self.upstream).limit(&limit)))
    }
}

pub(crate) fn numbered(number: usize) -> String {
    get_with("/", &format!("X-Number: {number}\r\n"))
}

/// How many requests wait in queues.
#[track_caller]
pub(crate) fn queue_depth(weir: &Weir) -> usize {
    weir.metrics().value("weir_queue_depth", &[]).unwrap_or(0.0) as usize
}

#[track_caller]
pub(crate) fn wait_for_depth(weir: &Weir, wanted: usize) {
    wait_until(&format!("{wanted} wait"), || queue_depth(weir) == wanted);
}

/// Sends a request that has to wait behind all others.
#[track_caller]
pub(crate) fn join_queue(weir: &Weir, request: &str) -> Client {
    let before = queue_depth(weir);
    let mut client = weir.connect();
    client.send(request);
    wait_until("one more waits", || queue_depth(weir) > before);
    client
}
