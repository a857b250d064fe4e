use super::*;
use crate::config::parse;
use crate::upstream::connect::ServerProtocol;
use crate::upstream::shared::SharedServer;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use tokio::runtime::{Builder, LocalOptions};
use tokio::time::timeout;

thread_local! {
    /// What the name server says, and how often it was asked. `None`: nothing, ever.
    static SAYS: RefCell<Option<Result<Vec<SocketAddr>, io::ErrorKind>>> = const { RefCell::new(None) };
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

fn say(answer: Option<Result<&[u8], io::ErrorKind>>) {
    let at = |last: &u8| SocketAddr::from(([127, 0, 0, *last], 80));
    SAYS.set(answer.map(|it| it.map(|addresses| addresses.iter().map(at).collect())));
}

fn named() -> ServerAddress {
    let origin = Origin { host: "api.test".into(), port: 80 };
    ServerAddress::resolved_by(&origin, |_| {
        ASKED.set(ASKED.get() + 1);
        Box::pin(async {
            match SAYS.with_borrow(Clone::clone) {
                Some(answer) => answer.map_err(io::Error::from),
                None => std::future::pending().await,
            }
        })
    })
}

fn run(test: impl Future<Output = ()>) {
    let mut runtime = Builder::new_current_thread();
    let runtime = runtime.enable_time();
    runtime.build_local(LocalOptions::default()).expect("a runtime").block_on(test);
}

fn last(found: &Resolution) -> Vec<u8> {
    let octet = |address: &SocketAddr| match address.ip() {
        IpAddr::V4(ip) => ip.octets()[3],
        IpAddr::V6(_) => 0,
    };
    found.addresses.iter().map(octet).collect()
}

/// As if the answer had been there for as long as it is used unasked.
fn grow_stale(address: &ServerAddress) {
    if let Some(known) = &*address.0.known.load() {
        let (addresses, until) = (known.addresses.clone(), Some(Instant::now()));
        address.0.known.store(Some(Arc::new(CachedAnswer { addresses, until })));
    }
}

/// What is told at once, without waiting for anybody.
fn now(address: &ServerAddress) -> Option<Resolution> {
    use futures_util::FutureExt;
    address.lookup().now_or_never().and_then(Result::ok)
}

#[test]
fn the_last_answer_serves_while_the_name_server_is_silent() {
    run(async {
        let address = named();
        say(Some(Ok(&[1, 2])));
        assert_eq!(last(&address.lookup().await.expect("an answer")), [1, 2]);
        say(None);
        for time in 0..5 {
            grow_stale(&address);
            let found = now(&address).expect("nobody waits");
            assert_eq!((last(&found), found.stale), (vec![1, 2], true), "{time}");
        }
        tokio::task::yield_now().await;
        assert_eq!(ASKED.get(), 2, "one question is out, and no more");
    });
}

#[test]
fn a_new_answer_is_used_as_soon_as_it_is_there() {
    run(async {
        let address = named();
        say(Some(Ok(&[1])));
        assert_eq!(last(&address.lookup().await.expect("an answer")), [1]);
        grow_stale(&address);
        say(Some(Ok(&[2])));
        let found = now(&address).expect("nobody waits");
        assert_eq!((last(&found), found.stale), (vec![1], true));
        assert_eq!(address.renewed().await.expect("an answer")[0].ip().to_string(), "127.0.0.2");
        let found = now(&address).expect("nobody waits");
        assert_eq!((last(&found), found.stale), (vec![2], false));
    });
}

#[test]
fn a_name_that_stops_resolving_keeps_its_addresses() {
    run(async {
        let address = named();
        say(Some(Ok(&[1])));
        assert!(address.lookup().await.is_ok());
        for failure in [Err(io::ErrorKind::NotFound), Ok(&[][..])] {
            grow_stale(&address);
            say(Some(failure));
            assert!(now(&address).is_some_and(|found| found.stale));
            tokio::task::yield_now().await;
            // It is not asked again at once.
            assert!(now(&address).is_some_and(|found| last(&found) == [1] && !found.stale));
        }
    });
}

#[test]
fn all_who_wait_for_the_first_answer_share_one_question() {
    run(async {
        let address = named();
        say(Some(Err(io::ErrorKind::NotFound)));
        let waiting: Vec<_> = (0..10)
            .map(|_| {
                let address = address.clone();
                tokio::task::spawn_local(async move { address.lookup().await.is_ok() })
            })
            .collect();
        for lookup in waiting {
            assert!(!lookup.await.expect("an end"));
        }
        assert_eq!(ASKED.get(), 1);
        say(Some(Ok(&[3])));
        assert_eq!(last(&address.lookup().await.expect("an answer")), [3]);
    });
}

#[test]
fn following_a_name_does_not_keep_a_server_that_nobody_uses() {
    run(async {
        let upstream = "[upstreams.api]\nservers = [\"http://api.test\"]\nresolve_interval = \"1ms\"\n\
                        [[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"api\"";
        let upstream = parse("test", upstream).unwrap().settings.upstreams.remove(0);
        let origin = &upstream.servers[0].origin;
        let shared = SharedServer::alone(&upstream, origin);
        let server = Rc::new(Server::new(origin, ServerProtocol::default(), shared));
        let mut following = pin!(server.address.clone().follow(Rc::downgrade(&server)));
        for _ in 0..50 {
            let followed = timeout(Duration::from_millis(1), &mut following).await;
            assert!(followed.is_err() && Rc::strong_count(&server) == 1);
        }
        drop(server);
        following.await;
    });
}
