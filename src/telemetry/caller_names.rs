//! What callers are called in logs: by their names, or by a hash that only tells them apart.

use std::fmt::Write as _;

use aws_lc_rs::digest::{SHA256, digest};

use crate::config::settings;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CallerNames {
    pub hashed: bool,
}

impl CallerNames {
    pub fn configured(telemetry: &settings::Telemetry) -> Self {
        CallerNames { hashed: telemetry.hash_keys }
    }

    /// 64 bits of SHA-256 in hexadecimal digits, if names are not to be shown.
    pub fn of(self, name: &str) -> String {
        if !self.hashed {
            return name.to_owned();
        }
        let mut text = "sha256:".to_owned();
        for byte in digest(&SHA256, name.as_bytes()).as_ref().iter().take(8) {
            // Writing into a string does not fail.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hashed_name_tells_callers_apart_without_naming_them() {
        let (shown, hashed) = (CallerNames { hashed: false }, CallerNames { hashed: true });
        assert_eq!(shown.of("192.0.2.1"), "192.0.2.1");
        assert_eq!(hashed.of("ann"), hashed.of("ann"));
        assert_ne!(hashed.of("ann"), hashed.of("ben"));
        assert!(!hashed.of("ann").contains("ann") && hashed.of("ann").len() == 23);
    }
}
