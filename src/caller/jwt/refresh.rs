//! Keeps the keys fresh while requests are served.
//!
//! Keys are kept until there are new ones, so an outage of the issuer, or a file that is broken or
//! gone, changes nothing for callers. A set without a single usable key counts as broken. A failure
//! is logged once, and so is its end.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::fetch::fetch;
use super::key_set::{self, KeySet};
use super::{KeyError, Verifier};
use crate::config::settings::{JwksUrl, JwtKeys};

/// How often keys are read or fetched.
#[derive(Debug, Clone, Copy)]
pub(super) struct RefreshTiming {
    /// Between two readings of a file.
    pub(super) file_interval: Duration,
    /// Between two fetches, whatever keys tokens name.
    pub(super) gap: Duration,
    /// Until a fetch that failed is tried again, at first; the time doubles up to `longest`.
    pub(super) retry: Duration,
    pub(super) longest: Duration,
}

impl Default for RefreshTiming {
    fn default() -> Self {
        RefreshTiming {
            file_interval: Duration::from_secs(2),
            gap: Duration::from_secs(10),
            retry: Duration::from_secs(1),
            longest: Duration::from_secs(60),
        }
    }
}

impl Verifier {
    /// Never ends; has to be run on a runtime, and to be aborted with the use of the verifier.
    pub async fn refresh_keys(self: Arc<Self>) {
        match &self.source {
            JwtKeys::Secret(_) | JwtKeys::Pem(_) => std::future::pending().await,
            JwtKeys::JwksFile(_) => loop {
                sleep(self.timing.file_interval).await;
                let this = self.clone();
                // On a blocking thread, as a disk may be slow. If there is none, the next round tries again.
                let _ = tokio::task::spawn_blocking(move || this.reload()).await;
            },
            JwtKeys::JwksUrl(url) => self.poll_url(url).await,
        }
    }

    /// Reads the file of the keys again, now; has keys behind a URL fetched, as soon as may be.
    pub fn reload(&self) {
        match &self.source {
            JwtKeys::Secret(_) | JwtKeys::Pem(_) => {}
            JwtKeys::JwksFile(path) => {
                let text = key_set::read(path).map_err(|error| format!("cannot be read: {error}"));
                self.replace_keys(&path.display().to_string(), text);
            }
            JwtKeys::JwksUrl(_) => self.wanted.notify_one(),
        }
    }

    async fn poll_url(&self, url: &JwksUrl) {
        let location = url.to_string();
        let mut retry = self.timing.retry;
        loop {
            let text = fetch(url).await.map_err(|error| error.to_string());
            let pause = if self.replace_keys(&location, text) {
                retry = self.timing.retry;
                url.refresh
            } else {
                let pause = retry.min(url.refresh);
                retry = (retry * 2).min(self.timing.longest);
                pause
            };
            let wanted = async {
                sleep(self.timing.gap).await;
                self.wanted.notified().await;
            };
            tokio::select! {
                () = sleep(pause) => {}
                () = wanted => {}
            }
        }
    }

    /// Takes over what was read, if anything was and if it can be used.
    fn replace_keys(&self, location: &str, text: Result<Vec<u8>, String>) -> bool {
        let mut failing = self.failing.lock();
        let taken = text.and_then(|text| {
            if self.keys.load().is_from(&text) {
                return Ok(());
            }
            let keys =
                KeySet::from_jwks(&text, &self.algorithms).map_err(|error| explain(&error))?;
            let count = keys.len();
            self.keys.store(Arc::new(keys));
            tracing::info!(keys = count, "keys for tokens read from {location}");
            Ok(())
        });
        match taken {
            Ok(()) => {
                if std::mem::take(&mut *failing) {
                    tracing::info!("the keys at {location} can be had again");
                }
                true
            }
            Err(why) => {
                if !std::mem::replace(&mut *failing, true) {
                    let known = self.keys.load().len();
                    tracing::warn!("the keys at {location}: {why}; the {known} known so far stay");
                }
                false
            }
        }
    }
}

fn explain(error: &KeyError) -> String {
    match error {
        KeyError::NotASet(source) => format!("{error}: {source}"),
        other => other.to_string(),
    }
}
