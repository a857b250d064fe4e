//! Buckets that outlive the process: what was spent stays spent, whatever ended the gateway.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rustix::process::Signal;

use crate::support::{Config, Scratch, Upstream, Weir, get, wait_at_most, wait_until};

const QUOTA: &str = "key = \"ip\"\nalgorithm = \"fixed_window\"\nrate = \"5/day\"";

/// A folder that outlives the gateways that keep their snapshots in it.
struct SnapshotFolder {
    scratch: Scratch,
}

impl SnapshotFolder {
    fn new() -> SnapshotFolder {
        SnapshotFolder { scratch: Scratch::new() }
    }

    fn snapshot(&self) -> PathBuf {
        self.scratch.path().join("weir.snapshot")
    }

    fn start(&self, config: Config, interval: &str) -> Weir {
        let lines = format!("snapshot = {:?}\nsnapshot_interval = \"{interval}\"", self.snapshot());
        Weir::start(&config.store(&lines))
    }
}

fn stop(mut weir: Weir) -> String {
    weir.signal(Signal::TERM);
    assert_eq!(weir.exit().code(), Some(0));
    weir.output()
}

fn passed(weir: &Weir, asked: usize) -> usize {
    (0..asked).filter(|_| weir.get("/").status == 200).count()
}

fn written(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|it| it.modified()).ok()
}

/// Waits until a writing has begun and ended after now.
fn wait_for_snapshots(path: &Path) {
    for _ in 0..2 {
        let before = written(path);
        wait_until("a snapshot is written", || written(path) > before);
    }
}

/// A quota is not to be fresh because a new day has begun.
fn not_around_midnight() {
    let into_day = || {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        now.as_secs() % 86_400
    };
    let begun = || into_day() <= 86_400 - 60;
    wait_at_most(Duration::from_secs(90), "a new day has begun", begun);
}

#[test]
fn a_spent_quota_is_spent_after_a_restart() {
    not_around_midnight();
    let folder = SnapshotFolder::new();
    let quota = || Config::echo().limit(QUOTA);
    let weir = folder.start(quota(), "1h");
    assert!(weir.output().contains("no snapshot at"), "{}", weir.output());
    assert_eq!(passed(&weir, 3), 3);
    stop(weir);
    let weir = folder.start(quota(), "1h");
    assert!(weir.output().contains("buckets=1"), "{}", weir.output());
    assert_eq!(passed(&weir, 4), 2);
    stop(weir);
    let weir = folder.start(quota(), "1h");
    assert_eq!(passed(&weir, 2), 0);
    let mode = std::fs::metadata(folder.snapshot()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "it holds a secret");
}

#[test]
fn a_spent_quota_is_spent_after_a_crash() {
    not_around_midnight();
    let folder = SnapshotFolder::new();
    let quota = || Config::echo().limit(QUOTA);
    let mut weir = folder.start(quota(), "1s");
    assert_eq!(passed(&weir, 5), 5);
    wait_for_snapshots(&folder.snapshot());
    weir.signal(Signal::KILL);
    weir.exit();
    let weir = folder.start(quota(), "1s");
    assert_eq!(passed(&weir, 2), 0);
}

#[test]
fn a_second_signal_ends_the_drain_and_not_the_snapshot() {
    not_around_midnight();
    let folder = SnapshotFolder::new();
    let upstream = Upstream::silent();
    let quota = || Config::to(&upstream).limit(QUOTA).server("drain = \"1h\"");
    let mut weir = folder.start(quota(), "1h");
    let mut clients: Vec<_> = (0..5).map(|_| weir.connect()).collect();
    clients.iter_mut().for_each(|client| client.send(get("/")));
    wait_until("all are in flight", || upstream.heads() == 5);
    weir.signal(Signal::TERM);
    wait_until("it drains", || weir.output().contains("draining"));
    weir.signal(Signal::TERM);
    weir.exit();
    let weir = folder.start(Config::echo().limit(QUOTA), "1h");
    assert_eq!(passed(&weir, 2), 0);
}

#[test]
fn a_token_bucket_keeps_its_rate_over_restarts() {
    let folder = SnapshotFolder::new();
    // It would take twenty seconds to be full again, so that no token is lost to a full bucket.
    let limit = "key = \"ip\"\nrate = \"5/second\"\nburst = 100";
    let began = Instant::now();
    let weir = folder.start(Config::echo().limit(limit), "1h");
    let mut admitted = passed(&weir, 150);
    let drained = Instant::now();
    stop(weir);
    let mut least = 0.0;
    for _ in 0..3 {
        let weir = folder.start(Config::echo().limit(limit), "1h");
        least = 100.0 + (5.0 * drained.elapsed().as_secs_f64()).floor();
        admitted += passed(&weir, 150);
        stop(weir);
    }
    let most = 100.0 + 5.0 * began.elapsed().as_secs_f64();
    let range = least..=most;
    assert!(range.contains(&(admitted as f64)), "{admitted} passed, and not {range:?}");
}

#[test]
fn slots_are_free_after_a_crash() {
    let folder = SnapshotFolder::new();
    let upstream = Upstream::silent();
    let limit = "key = \"ip\"\nalgorithm = \"concurrency\"\nlimit = 1";
    let mut weir = folder.start(Config::to(&upstream).limit(limit), "1s");
    let mut client = weir.connect();
    client.send(get("/"));
    wait_until("it is in flight", || upstream.heads() == 1);
    wait_for_snapshots(&folder.snapshot());
    assert_eq!(weir.get("/").status, 429);
    weir.signal(Signal::KILL);
    weir.exit();
    let weir = folder.start(Config::echo().limit(limit), "1s");
    assert_eq!(weir.get("/").status, 200);
}

#[test]
fn a_damaged_snapshot_is_set_aside_and_the_gateway_serves() {
    let folder = SnapshotFolder::new();
    let weir = folder.start(Config::echo(), "1h");
    assert_eq!(passed(&weir, 1), 1);
    stop(weir);
    let whole = std::fs::read(folder.snapshot()).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    let rows = [
        (whole[..whole.len() - 1].to_vec(), "is cut off", "weir.snapshot.damaged"),
        (b"something else".to_vec(), "is not a snapshot", "weir.snapshot.damaged-2"),
        (flipped, "weir.snapshot", "weir.snapshot.damaged-3"),
        ([&*whole, b"\n"].concat(), "goes on after its end", "weir.snapshot.damaged-4"),
    ];
    for (bytes, why, aside) in rows {
        std::fs::write(folder.snapshot(), &bytes).unwrap();
        let weir = folder.start(Config::echo(), "1h");
        let said = weir.output();
        assert!(said.contains(why) && said.contains(aside), "{said}");
        assert_eq!(passed(&weir, 1), 1);
        assert_eq!(std::fs::read(folder.scratch.path().join(aside)).unwrap(), bytes);
        stop(weir);
        assert!(folder.snapshot().exists(), "and there is a new one");
    }
}

#[test]
fn a_snapshot_that_cannot_be_read_is_left_alone() {
    let folder = SnapshotFolder::new();
    std::fs::create_dir(folder.snapshot()).unwrap();
    let weir = folder.start(Config::echo(), "1s");
    let said = weir.output();
    assert!(said.contains("cannot be read") && said.contains("is left alone"), "{said}");
    assert_eq!(passed(&weir, 1), 1);
    stop(weir);
    assert!(folder.snapshot().is_dir());
}

#[test]
fn unwritable_snapshot_path_is_reported_once() {
    let folder = SnapshotFolder::new();
    let path = folder.scratch.path().join("folder/weir.snapshot");
    std::fs::create_dir(path.parent().unwrap()).unwrap();
    let lines = format!("snapshot = {path:?}\nsnapshot_interval = \"1s\"");
    let weir = Weir::start(&Config::echo().store(&lines));
    std::fs::remove_dir_all(path.parent().unwrap()).unwrap();
    wait_until("it complains", || weir.output().contains("cannot write"));
    assert_eq!(passed(&weir, 1), 1);
    std::fs::create_dir(path.parent().unwrap()).unwrap();
    wait_until("it goes on", || weir.output().contains("snapshots are written again"));
    let said = stop(weir);
    assert_eq!(said.matches("cannot write").count(), 1, "{said}");
    assert!(path.exists());
}
