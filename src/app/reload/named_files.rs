//! Files that a configuration names and that have changed: read again with what is served.
//!
//! The configuration file may have a fault meanwhile, or be half edited. That holds up neither a
//! renewed certificate nor a longer `deny` list.

use std::path::PathBuf;

use super::Reloader;
use crate::app::renewal::Renewal;
use crate::app::watched_files::FileStamps;
use crate::config::{self, regular_file};

impl Reloader {
    /// Reads the watched files that have changed and come to rest.
    pub(crate) fn read_changed_files(&mut self) {
        let Some(changed) = self.external_state.files.poll() else { return };
        // Files that change while they are read are read again.
        let before = self.external_state.files.stamps();
        let renewed = self.renew_certificates(&changed.certificates, &before);
        if changed.parts {
            self.read_parts();
        } else if renewed && self.last_failure.is_some() {
            // The file may have been at fault for a certificate that was not whole.
            self.serve_file_if_good();
        }
        // Whatever is wrong with them has been logged.
        self.external_state.files.note_seen(&before);
    }

    /// Whether all of them could be read.
    fn renew_certificates(&mut self, changed: &[PathBuf], before: &FileStamps) -> bool {
        if changed.is_empty() {
            return true;
        }
        let mut settings = (*self.served).clone();
        let renewal = Renewal::of(&mut settings, changed);
        if renewal.has_changed_settings() {
            self.listeners.serve(settings.server.listen.clone());
            self.serve(settings);
            self.count_success();
        }
        renewal.log();
        self.external_state.files.note_some_read(&renewal.read, before);
        if renewal.has_failed() {
            self.count_failure();
            return false;
        }
        self.note_if_all_is_served();
        true
    }

    /// Reads lists, clients and tenants again: with the file, or with what it said before if it has
    /// faults.
    fn read_parts(&mut self) {
        if self.file_is_served() {
            // If it fails, then because of one of them.
            self.last_failure = None;
            self.attempt(true);
            return;
        }
        if self.serve_file_if_good() {
            return;
        }
        match self.source.parse(&self.current.text) {
            Ok(loaded) => {
                if self.apply(loaded) {
                    self.count_success();
                    tracing::info!(
                        "files that the configuration names were read again; the configuration \
                         file has faults, and the one before serves on"
                    );
                }
            }
            Err(error) => {
                error.lines().iter().for_each(|line| tracing::error!("{line}"));
                self.report_failure("files that the configuration names have faults");
            }
        }
    }

    /// Whether the configuration file is served now. What is wrong with it has been logged before, and
    /// would only hide what is wrong with other files.
    fn serve_file_if_good(&mut self) -> bool {
        self.source.load().is_ok() && self.attempt(true)
    }

    /// Whether the configuration file says what is served.
    pub(super) fn file_is_served(&self) -> bool {
        let served = self.current.text.as_bytes();
        self.source.path().is_none_or(|path| {
            let read = regular_file::read(path, config::MAX_CONFIG_BYTES);
            read.is_ok_and(|text| text == served)
        })
    }
}
