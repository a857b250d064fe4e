//! Requests that keep coming while something happens around the gateway.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::client::Client;
use super::gateway::Weir;

/// One request and what came of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoadAnswer {
    /// Which of the load's requests it was.
    pub(crate) request: usize,
    pub(crate) status: u16,
    pub(crate) sent: Instant,
    pub(crate) took: Duration,
}

#[derive(Debug)]
pub(crate) struct Load {
    over: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<Vec<LoadAnswer>>>,
}

impl Load {
    /// For each address and each request so many clients, each of which asks a few hundred times
    /// a second at most: enough to meet every moment, and not to fill the machine.
    pub(crate) fn start(addresses: &[SocketAddr], requests: &[String], clients: usize) -> Load {
        let (over, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let mut threads = Vec::new();
        for &address in addresses {
            for (request, text) in requests.iter().enumerate() {
                for _ in 0..clients {
                    let (over, count, text) = (Arc::clone(&over), Arc::clone(&count), text.clone());
                    threads.push(thread::spawn(move || {
                        let mut client = Client::connect(address);
                        let mut answers = Vec::new();
                        while !over.load(Ordering::Relaxed) {
                            let sent = Instant::now();
                            let status = client.ask(&text).status;
                            answers.push(LoadAnswer {
                                request,
                                status,
                                sent,
                                took: sent.elapsed(),
                            });
                            count.fetch_add(1, Ordering::Relaxed);
                            // The pace of the load.
                            thread::sleep(Duration::from_millis(4));
                        }
                        answers
                    }));
                }
            }
        }
        Load { over, count, threads }
    }

    /// How many answers there are so far.
    pub(crate) fn answered(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Waits for so many answers more.
    #[track_caller]
    pub(crate) fn wait_for(&self, more: usize) {
        let goal = self.answered() + more;
        super::wait_until("more is answered", || self.answered() >= goal);
    }

    /// Ends it. Fails the test if any request got no whole answer.
    pub(crate) fn finish(mut self) -> Vec<LoadAnswer> {
        self.over.store(true, Ordering::Relaxed);
        let threads = std::mem::take(&mut self.threads);
        threads.into_iter().flat_map(|it| it.join().expect("every request is answered")).collect()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Fails the test if a request got anything but its answer or a limit's refusal.
#[track_caller]
pub(crate) fn assert_verdicts(answers: &[LoadAnswer]) {
    let odd: Vec<_> = answers.iter().filter(|it| !matches!(it.status, 200 | 429)).collect();
    assert!(odd.is_empty(), "{} of {} failed: {:?}", odd.len(), answers.len(), odd[0]);
}

/// A route `/free` without limits: what holds up its requests is the machine.
pub(crate) const FREE: &str =
    "[[routes]]\nname = \"free\"\npath = \"/free\"\nupstream = \"echo\"\nlimits = []\n";

/// Waits until a gateway of one worker has read what was sent to it before: it serves its
/// connections in turn, so a request to [`FREE`] on a new one is answered after that.
#[track_caller]
pub(crate) fn read_everything(weir: &Weir) {
    for _ in 0..3 {
        assert_eq!(weir.get("/free").status, 200);
    }
}

/// Fails the test if an answer took seconds: more than one, beside what the machine held up the
/// requests to [`FREE`], which are those of that number.
#[track_caller]
pub(crate) fn assert_prompt(answers: &[LoadAnswer], free: usize) {
    let slowest = |of_free: bool| {
        let of = answers.iter().filter(|it| (it.request == free) == of_free);
        of.map(|it| it.took).max().expect("there are such answers")
    };
    let (limited, free) = (slowest(false), slowest(true));
    let most = free + Duration::from_secs(1);
    assert!(limited < most, "an answer took {limited:?}, without a limit {free:?}");
}
