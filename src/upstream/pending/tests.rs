use http::Method;
use tokio::runtime::Builder;

use super::*;
use crate::config::parse;
use crate::gateway::RequestSignals;
use crate::upstream::connect::ServerProtocol;
use crate::upstream::link::ConnectionSharing;
use crate::upstream::shared::SharedServer;

const CLIENT: std::net::IpAddr = std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
/// Longer than any test takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// The server as several workers see it.
fn workers<const N: usize>(max_connections: usize) -> [Rc<Server>; N] {
    let text = format!(
        "[upstreams.api]\nservers = [\"http://127.0.0.1:1\"]\nmax_connections = {max_connections}\n\
         [[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"api\""
    );
    let upstream = parse("test", &text).unwrap().settings.upstreams.remove(0);
    let origin = &upstream.servers[0].origin;
    let shared = SharedServer::alone(&upstream, origin);
    [(); N].map(|()| Rc::new(Server::new(origin, ServerProtocol::default(), shared.clone())))
}

fn server(max_connections: usize) -> Rc<Server> {
    let [server] = workers(max_connections);
    server
}

fn waiting(signals: &RequestSignals) -> Waiting<'_> {
    let sharing = ConnectionSharing::Shared;
    Waiting {
        link: LinkRequest {
            method: &Method::GET,
            client: CLIENT,
            has_body: false,
            sharing,
            signals,
        },
        max_pending: 10,
        deadline: Instant::now() + PATIENCE,
        takes_streams: false,
    }
}

#[test]
fn a_request_that_comes_does_not_put_off_those_for_which_it_is_urgent() {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let signals = [(); 2].map(|()| RequestSignals::default());
        let server = server(1);
        let slots = &server.shared.slots;
        let _taken = slots.try_take();
        // Of another worker, which would look what is asked for a little later.
        let asked = Arc::new(Notify::new());
        slots.add_worker(&asked);
        let mut actives = [(); 2].map(|()| server.begin_request(Instant::now()));
        let [first, second] = &mut actives;
        let mut first = pin!(acquire(first, &server, None, waiting(&signals[0])));
        let mut second = pin!(acquire(second, &server, None, waiting(&signals[1])));
        for _ in ["when it comes", "when it has waited for long"] {
            tokio::select! {
                biased;
                _ = &mut first => panic!("there is no slot"),
                () = asked.notified() => {}
            }
        }
        tokio::select! {
            biased;
            _ = &mut second => panic!("there is no slot"),
            () = std::future::ready(()) => {}
        }
        assert_eq!(slots.pending(), 2);
        assert!(signals.iter().all(RequestSignals::is_waiting));
        assert!(slots.claim_urgent().is_some());
    });
}

#[test]
fn no_connection_in_use_is_given_up_for_who_waits_in_the_same_worker() {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let signals = [(); 2].map(|()| RequestSignals::default());
        let [server, other] = workers(1);
        let slots = &server.shared.slots;
        let _taken = slots.try_take();
        let asked = Arc::new(Notify::new());
        slots.add_worker(&asked);
        // Such as a tunnel, for which it becomes urgent, and a large head.
        let mut active = server.begin_request(Instant::now());
        let mut tunnel = pin!(acquire(&mut active, &server, None, waiting(&signals[0])));
        for _ in ["when it comes", "when it has waited for long"] {
            tokio::select! {
                biased;
                _ = &mut tunnel => panic!("there is no slot"),
                () = asked.notified() => {}
            }
        }
        let mut large = pin!(acquire_alone(&server, waiting(&signals[1])));
        tokio::select! {
            biased;
            _ = &mut large => panic!("there is no slot"),
            () = std::future::ready(()) => {}
        }
        assert_eq!(slots.pending(), 2);
        assert!(server.claim_for_others().is_none());
        assert!(other.claim_for_others().is_some(), "another worker gives up one");
    });
}

#[test]
fn what_was_urgent_for_who_has_left_is_not_so_for_a_large_head_that_waits() {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let signals = [(); 2].map(|()| RequestSignals::default());
        let server = server(1);
        let slots = &server.shared.slots;
        let _taken = slots.try_take();
        let asked = Arc::new(Notify::new());
        slots.add_worker(&asked);
        let mut large = pin!(acquire_alone(&server, waiting(&signals[0])));
        tokio::select! {
            biased;
            _ = &mut large => panic!("there is no slot"),
            () = asked.notified() => {}
        }
        let mut active = server.begin_request(Instant::now());
        {
            let mut shared = pin!(acquire(&mut active, &server, None, waiting(&signals[1])));
            for _ in ["when it comes", "when it has waited for long"] {
                tokio::select! {
                    biased;
                    _ = &mut shared => panic!("there is no slot"),
                    () = asked.notified() => {}
                }
            }
        }
        assert_eq!(slots.pending(), 1);
        assert!(slots.claim_urgent().is_none());
    });
}

#[test]
fn it_becomes_urgent_also_for_who_is_woken_often_and_in_vain() {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let signals = RequestSignals::default();
        let server = server(1);
        let slots = &server.shared.slots;
        let _taken = slots.try_take();
        let mut active = server.begin_request(Instant::now());
        let request = Waiting { takes_streams: true, ..waiting(&signals) };
        let waits = pin!(acquire(&mut active, &server, None, request));
        // Streams of a connection that takes no further ones end.
        let freed = server.http2.connect_alone().freed();
        let wake = async {
            loop {
                sleep(REQUEST_INTERVAL / 10).await;
                freed.notify_one();
            }
        };
        tokio::select! {
            biased;
            _ = waits => panic!("there is no slot"),
            () = wake => {}
            () = sleep(REQUEST_INTERVAL * 3) => {}
        }
        assert!(slots.claim_urgent().is_some());
    });
}
