//! `kind = "hybrid"` around outages: what a gateway takes for its share where a lease was the last that
//! it heard of a bucket.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::fault_proxy::Link;
use crate::support::{Client, Config, FaultProxy, Redis, SetOnDrop, Weir, get, wait_until};

const BURST: f64 = 400.0;
const A_SECOND: f64 = 40.0;

/// A gateway behind a link of its own. An interval of a second keeps a dry key from being asked for
/// again for two.
fn behind(link: &FaultProxy, kind: &str) -> Weir {
    let store = link.store().replace("\"redis\"", &format!("\"{kind}\""));
    let store = format!("{store}timeout = \"1s\"\non_error = \"local\"\nsync_interval = \"1s\"");
    let limit = format!("key = \"global\"\nrate = \"{A_SECOND}/second\"\nburst = {BURST}");
    Weir::start(&Config::echo().server("workers = 1").store(&store).limit(&limit))
}

/// What was asked of a gateway.
#[derive(Debug, Default)]
struct Answers {
    passed: AtomicUsize,
    refused: AtomicUsize,
}

impl Answers {
    fn passed(&self) -> usize {
        self.passed.load(Ordering::Relaxed)
    }

    fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }

    /// Asks until told to stop.
    fn ask_until(&self, over: &AtomicBool, address: SocketAddr, pause: Duration) {
        let mut client = Client::connect(address);
        while !over.load(Ordering::Relaxed) {
            let count =
                if client.ask(get("/")).status == 200 { &self.passed } else { &self.refused };
            count.fetch_add(1, Ordering::Relaxed);
            thread::sleep(pause);
        }
    }
}

fn calls(weir: &Weir) -> f64 {
    weir.metrics().value("weir_store_calls_total", &[]).expect("weir_store_calls_total")
}

#[test]
fn what_others_took_while_a_key_was_dry_is_not_in_a_share() {
    let redis = Redis::start();
    let links = [(); 2].map(|()| FaultProxy::to(redis.address()));
    // The one looks at the bucket every two seconds, the other with each request.
    let (rarely, always) = (behind(&links[0], "hybrid"), behind(&links[1], "redis"));
    let both = [&rarely, &always];
    wait_until("they know each other", || both.iter().all(|weir| weir.nodes() == 2.0));
    let over = AtomicBool::new(false);
    let answers = [Answers::default(), Answers::default()];
    let [few, many] = &answers;
    let begun = Instant::now();
    thread::scope(|scope| {
        let end = SetOnDrop(&over);
        for ((weir, answers), pause) in both.iter().zip(&answers).zip([20, 2]) {
            let (over, pause) = (&over, Duration::from_millis(pause));
            scope.spawn(move || answers.ask_until(over, weir.address(), pause));
        }
        wait_until("the burst is spent", || few.passed() + many.passed() >= BURST as usize);
        wait_until("one has taken all for a second, and the other was dry", || {
            let (asked, had, taken) = (calls(&rarely), few.passed(), many.passed());
            let second = A_SECOND as usize;
            wait_until("what refills in a second", || many.passed() >= taken + second);
            calls(&rarely) == asked && few.passed() == had
        });
        for link in &links {
            link.set(Link::Refusing);
            link.cut();
        }
        wait_until("both decide alone", || both.iter().all(|weir| weir.degraded()));
        let had = few.passed();
        wait_until("it is not dry any more", || few.passed() > had);
        let refused = few.refused();
        wait_until("it has spent its share", || few.refused() > refused);
        drop(end);
    });
    let all = (few.passed() + many.passed()) as f64;
    let excess = all - BURST - A_SECOND * begun.elapsed().as_secs_f64();
    // The other has heard of the bucket while the last token refilled.
    assert!(excess <= 2.0, "{excess} too many of {all}");
}
