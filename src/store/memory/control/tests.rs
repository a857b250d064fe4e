//! What a start makes of the file that it finds.

use std::fs;
use std::path::Path;

use super::*;
use crate::clock::Micros;
use crate::config::settings::{Snapshot, Store, StoreKind};
use crate::limit::OnError;
use crate::telemetry::Metrics;
use crate::test_folder::TestFolder;
use crate::violations::{Violation, ViolationEvent};

const NOW: Micros = Micros(1_700_000_000_000_000);

fn opened(path: &Path) -> Opened {
    opened_with(path, &AuditLog::nowhere(&Metrics::new()))
}

fn opened_with(path: &Path, audit: &AuditLog) -> Opened {
    let snapshot = Snapshot { path: path.to_owned(), interval: Duration::from_secs(3600) };
    let settings = Store {
        kind: StoreKind::Memory,
        max_keys: 100,
        on_error: OnError::default(),
        has_local_limits: true,
        snapshot: Some(snapshot),
    };
    open_at(&settings, audit, Clock::manual(NOW)).expect("randomness")
}

fn in_a_folder(test: impl FnOnce(&Path)) {
    let folder = TestFolder::new();
    test(&folder.join("weir.snapshot"));
}

#[test]
fn a_second_start_names_buckets_as_the_first_did() {
    in_a_folder(|path| {
        let first = opened(path);
        first.control.snapshots.expect("a place to write").writer.write_now();
        let second = opened(path);
        assert_eq!(first.hasher.secret(), second.hasher.secret());
        fs::remove_file(path).expect("the snapshot goes");
        assert_ne!(opened(path).hasher.secret(), first.hasher.secret());
    });
}

#[test]
fn violations_are_kept_with_their_ids() {
    in_a_folder(|path| {
        let audits = [(); 2].map(|()| AuditLog::nowhere(&Metrics::new()));
        let event = ViolationEvent::RateLimitExceeded;
        let violation = |key: &str| Violation::new(event, key.to_owned(), "token_bucket");
        audits[0].note_violation(violation("ann"));
        audits[0].note_violation(violation("ben"));
        audits[0].note_violation(Violation { shadow: true, ..violation("eve") });
        let first = opened_with(path, &audits[0]);
        first.control.snapshots.expect("a place to write").writer.write_now();
        opened_with(path, &audits[1]);
        let kept = |audit: &AuditLog| -> Vec<_> {
            audit.violations().iter().filter_map(KeptLine::parse).collect()
        };
        assert_eq!(kept(&audits[1]).len(), 2, "what only watches is not kept");
        assert_eq!(kept(&audits[0]), kept(&audits[1]));
    });
}

#[test]
fn a_damaged_file_is_set_aside_and_snapshots_go_on() {
    in_a_folder(|path| {
        fs::write(path, "no snapshot").expect("a file");
        let opened = opened(path);
        assert_eq!(fs::read(path.with_extension("snapshot.damaged")).expect("it"), b"no snapshot");
        opened.control.snapshots.expect("a place to write").writer.write_now();
        assert!(path.exists());
    });
}

#[test]
fn what_cannot_be_read_is_left_alone_and_nothing_is_written() {
    in_a_folder(|path| {
        fs::create_dir(path).expect("a folder in its place");
        let opened = opened(path);
        assert!(opened.control.snapshots.is_none());
        assert!(path.is_dir());
    });
}

#[test]
fn a_failure_is_logged_once_and_so_is_its_end() {
    in_a_folder(|path| {
        let opened = opened(&path.join("missing"));
        let writer = opened.control.snapshots.expect("a place to write").writer;
        writer.write_now();
        writer.write_now();
        assert!(*writer.failing.lock());
        fs::create_dir(path).expect("the folder that was missing");
        writer.write_now();
        assert!(!*writer.failing.lock());
    });
}
