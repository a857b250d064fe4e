//! The old file or the new one, and nobody's file lost.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use super::*;
use crate::clock::Micros;
use crate::limit::token_bucket::TokenBucket;
use crate::limit::{Policy, Rate};
use crate::store::memory::snapshot::Damage;
use crate::store::{BucketHasher, Check, CheckOutcome};
use crate::test_folder::TestFolder;

const SECRET: [u8; 16] = [7; 16];
const EXTRAS: SnapshotExtras<'static> = SnapshotExtras { secret: &SECRET, overrides: b"[]" };

/// Where snapshots of one test lie.
struct Folder(TestFolder);

impl Folder {
    fn new() -> Self {
        Folder(TestFolder::new())
    }

    fn snapshot(&self) -> PathBuf {
        self.0.join("weir.snapshot")
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).expect("the folder");
        let name = |entry: io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
        let mut names: Vec<_> = entries.map(|it| name(it).to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

/// A store with so many buckets.
fn store(buckets: u64) -> MemoryStore {
    let rate = Rate::new(1, Duration::from_secs(3600)).expect("a rate");
    let policy = Policy::TokenBucket(TokenBucket::new(rate, 5).expect("a bucket"));
    let store = MemoryStore::new(100, clock());
    let hasher = BucketHasher::with_secret(&SECRET);
    for key in 0..buckets {
        let mut name = hasher.start(1);
        name.part(0, &key.to_be_bytes());
        assert!(
            store
                .decide_now(
                    &[Check::new(&policy, 1, name.finish(), 1)],
                    &mut [CheckOutcome::default()]
                )
                .admitted
        );
    }
    store
}

fn clock() -> Clock {
    Clock::manual(Micros(1_700_000_000_000_000))
}

fn buckets(path: &Path) -> Option<usize> {
    let restored = load(path, 100, clock()).expect("a snapshot that can be read");
    restored.map(|it| it.store.buckets().own)
}

#[test]
fn a_new_snapshot_takes_the_place_of_the_old_one() {
    let folder = Folder::new();
    let path = folder.snapshot();
    assert_eq!(buckets(&path), None, "the first start finds none");
    for count in [3, 5, 0] {
        assert_eq!(save(&store(count), EXTRAS, &path).expect("it is written"), count as usize);
        assert_eq!(buckets(&path), Some(count as usize));
        assert_eq!(folder.names(), ["weir.snapshot"]);
    }
}

#[test]
fn nobody_else_can_read_a_snapshot() {
    let folder = Folder::new();
    let path = folder.snapshot();
    // What a crash has left, and a file that somebody has opened up.
    for name in [folder.0.join("weir.snapshot.new"), path.clone()] {
        fs::write(&name, "anything").expect("a file");
        fs::set_permissions(&name, fs::Permissions::from_mode(0o666)).expect("it is ours");
    }
    save(&store(1), EXTRAS, &path).expect("it is written");
    let mode = fs::metadata(&path).expect("the file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(folder.names(), ["weir.snapshot"]);
}

#[test]
fn an_error_on_the_way_leaves_the_old_snapshot() {
    let folder = Folder::new();
    let path = folder.snapshot();
    save(&store(3), EXTRAS, &path).expect("it is written");
    let full = replace(&path, |file| {
        file.write_all(&[1; 3 * BUFFER_BYTES])?;
        Err::<(), _>(io::Error::from(io::ErrorKind::StorageFull))
    });
    assert_eq!(full.expect_err("it fails").kind(), io::ErrorKind::StorageFull);
    assert_eq!(buckets(&path), Some(3));
    assert_eq!(folder.names(), ["weir.snapshot"]);
}

#[test]
fn until_it_is_whole_a_new_snapshot_has_another_name() {
    let folder = Folder::new();
    let path = folder.snapshot();
    save(&store(3), EXTRAS, &path).expect("it is written");
    replace(&path, |file| {
        assert_eq!(buckets(&path), Some(3));
        encode::encode(&store(5), EXTRAS, file)?;
        file.flush()?;
        assert_eq!(buckets(&path), Some(3));
        assert_eq!(folder.names(), ["weir.snapshot", "weir.snapshot.new"]);
        Ok(())
    })
    .expect("it is written");
    assert_eq!(buckets(&path), Some(5));
}

#[test]
fn a_folder_that_is_not_there_is_an_error_that_names_the_file() {
    let folder = Folder::new();
    let path = folder.0.join("missing/weir.snapshot");
    let error = save(&store(1), EXTRAS, &path).expect_err("no folder").to_string();
    assert!(error.contains("missing/weir.snapshot: No such file"), "{error}");
}

#[test]
fn what_is_no_plain_file_is_neither_read_nor_taken_for_damage() {
    let folder = Folder::new();
    let error = load(folder.0.path(), 100, clock()).expect_err("a folder");
    assert!(matches!(error, LoadError::Unreadable(_)), "{error}");
    assert!(error.to_string().contains("not a plain file"), "{error}");
}

#[test]
fn damaged_files_are_set_aside_and_none_is_written_over() {
    let folder = Folder::new();
    let path = folder.snapshot();
    for (text, name) in [
        ("one", "weir.snapshot.damaged"),
        ("two", "weir.snapshot.damaged-2"),
        ("three", "weir.snapshot.damaged-3"),
    ] {
        fs::write(&path, text).expect("a file");
        let error = load(&path, 100, clock()).expect_err("no snapshot");
        assert!(matches!(error, LoadError::Damaged(Damage::CutOff)), "{error}");
        assert_eq!(set_aside(&path).expect("another name"), folder.0.join(name));
        assert_eq!(fs::read_to_string(folder.0.join(name)).expect("the file"), text);
        assert!(!path.exists());
    }
}
