//! A master that is replaced: the gateways follow by themselves.

use crate::support::load::{FREE, assert_prompt, assert_verdicts};
use crate::support::{Config, Load, RECOVERY, Sentinel, Weir, get, wait_at_most, wait_until};

const LIMIT: &str = "key = \"ip\"\nrate = \"20/second\"\nburst = 40";

#[test]
fn a_master_is_found_by_its_sentinel() {
    let sentinel = Sentinel::start();
    let limit = "key = \"ip\"\nrate = \"1/day\"\nburst = 5";
    let store = "timeout = \"5s\"\non_error = \"deny\"";
    let config = Config::echo().store(&sentinel.store()).store(store).limit(limit);
    let [one, two] = Weir::start_two(&config);
    let statuses = [0; 4].map(|_| (one.get("/").status, two.get("/").status));
    assert_eq!(statuses, [(200, 200), (200, 200), (200, 429), (429, 429)]);
    assert_eq!(sentinel.master.buckets().len(), 1);
    wait_until("it is copied", || sentinel.replica.buckets() == sentinel.master.buckets());
    assert_eq!(sentinel.replica.script_calls(), 0, "only the master is asked");
}

#[test]
fn a_failover_needs_no_restart() {
    let mut sentinel = Sentinel::start();
    let config = Config::echo().store(&sentinel.store()).limit(LIMIT).also(FREE);
    let weir = Weir::start(&config.store("timeout = \"300ms\"\non_error = \"local\""));
    let load = Load::start(&[weir.address()], &[get("/"), get("/free")], 4);
    load.wait_for(200);
    assert!(!weir.degraded());
    sentinel.master.kill();
    wait_until("the gateway decides without Redis", || weir.degraded());
    sentinel.wait_takeover();
    wait_at_most(RECOVERY, "the new master is in use", || !weir.degraded());
    let before = sentinel.replica.script_calls();
    wait_until("it decides", || sentinel.replica.script_calls() > before + 5);
    load.wait_for(100);
    let answers = load.finish();
    assert_verdicts(&answers);
    assert_prompt(&answers, 1);
    let begin = answers.iter().map(|it| it.sent).min().unwrap();
    let end = answers.iter().map(|it| it.sent + it.took).max().unwrap();
    // What had not been replicated is lost: one burst more at most.
    let most = 40.0 + 20.0 * (end - begin).as_secs_f64() + 40.0;
    let passed = answers.iter().filter(|it| it.request == 0 && it.status == 200).count();
    assert!(passed as f64 <= most, "{passed} passed, at most {most} may");
    for event in ["store_degraded", "store_recovered"] {
        wait_until("it is audited", || weir.output().contains(event));
        assert_eq!(weir.output().matches(&format!("\"{event}\"")).count(), 1, "{event}");
    }
}

#[test]
fn a_master_that_became_a_replica_is_left() {
    let sentinel = Sentinel::start();
    let config = Config::echo().store(&sentinel.store()).limit(LIMIT);
    let weir = Weir::start(&config.store("timeout = \"300ms\""));
    let load = Load::start(&[weir.address()], &[get("/")], 2);
    load.wait_for(100);
    // Nobody dies: the old master answers on, and must not be asked any more.
    sentinel.failover();
    sentinel.wait_failover();
    sentinel.wait_demotion();
    let before = sentinel.replica.script_calls();
    wait_at_most(RECOVERY, "the new master is in use", || {
        sentinel.replica.script_calls() > before + 5 && !weir.degraded()
    });
    assert_verdicts(&load.finish());
}

#[test]
fn unreachable_sentinel_is_reported() {
    let nobody = format!("127.0.0.1:{}", crate::support::ports::free_port());
    let store = format!(
        "kind = \"redis\"\nsentinel = {{ master = \"main\", nodes = [\"{nobody}\"] }}\n\
         timeout = \"300ms\""
    );
    let limit = "key = \"ip\"\nrate = \"1/day\"\nburst = 2";
    let weir = Weir::start(&Config::echo().store(&store).limit(limit));
    wait_until("it is told", || weir.output().contains(&nobody));
    assert!(weir.degraded());
    assert_eq!([0; 3].map(|_| weir.get("/").status), [200, 200, 429]);
}
