//! Files that a configuration names: a password, certificates, a key.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

static NEXT: AtomicUsize = AtomicUsize::new(0);

/// A folder of one test's own, with the files that the reference names.
pub(super) struct Files(PathBuf);

impl Files {
    pub(super) fn new() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("weir-config-{}-{number}", std::process::id());
        let files = Files(std::env::temp_dir().join(name));
        std::fs::create_dir_all(&files.0).unwrap();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        files.write("redis-password", b"from a file\n");
        files.write("redis-ca.pem", made.cert.pem().as_bytes());
        files.write("redis.pem", made.cert.pem().as_bytes());
        files.write("redis.key", made.signing_key.serialize_pem().as_bytes());
        files
    }

    pub(super) fn folder(&self) -> &str {
        self.0.to_str().unwrap()
    }

    pub(super) fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.0.join(name), bytes).unwrap();
    }

    pub(super) fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join(name)).unwrap()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
