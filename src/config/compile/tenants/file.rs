//! `tenants_file`: tenants in files of their own. What is wrong in one of them is noted with its line
//! and column there, where the configuration names it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::secret;
use super::section::{WrittenTenant, tenant};
use crate::config::ConfigError;
use crate::config::diagnostic::{Diagnostic, Diagnostics, LineIndex, Severity};
use crate::config::file::{Reporter, TomlFile, UniqueValues, Value};
use crate::config::suggest::shown;
use crate::limit::tenants::TENANTS;

/// A hundred thousand tenants take a quarter of it; a larger file was named by mistake.
const MAX_BYTES: u64 = 64 << 20;
/// More faults of one file are only counted.
const MOST_SHOWN: usize = 100;

/// A file that could be read.
pub(super) struct TenantFile<'a> {
    entry: Value<'a>,
    name: String,
    path: PathBuf,
    text: Arc<str>,
    faults: Vec<Diagnostic>,
    whole: bool,
}

/// The files that a configuration in that folder names.
pub(super) fn files<'a>(value: Option<&Value<'a>>, folder: &Path) -> Vec<TenantFile<'a>> {
    let entries = value.map(Value::one_or_more).unwrap_or_default();
    if let Some(value) = value.filter(|_| entries.is_empty()) {
        value.error("is empty", "write a file such as `\"tenants.toml\"`, or leave it out");
    }
    let mut seen = UniqueValues::new();
    let mut files = Vec::new();
    for entry in entries {
        let contents = secret::contents_in(folder, &entry, "tenants.toml", MAX_BYTES);
        let Some((path, bytes)) = contents.filter(|(path, _)| seen.insert(*path, &entry)) else {
            continue;
        };
        let name = shown(path);
        match String::from_utf8(bytes) {
            Ok(text) => files.push(TenantFile {
                entry,
                name,
                path: folder.join(path),
                text: text.into(),
                faults: Vec::new(),
                whole: true,
            }),
            Err(fault) => {
                let fault = ConfigError::not_utf8(name, &fault);
                entry.error(&format!("names a file with a fault: {fault}"), "mend it there");
            }
        }
    }
    files
}

impl<'a> TenantFile<'a> {
    /// Hands on its tenants.
    pub(super) fn read(&mut self, add: impl FnMut(WrittenTenant)) {
        let text = Arc::clone(&self.text);
        let (file, reporter) = (TomlFile::parse(&text), Reporter::default());
        self.whole = file.is_whole();
        let sections = file.root(&reporter).named_sections(TENANTS);
        let is_empty = sections.is_empty();
        sections.into_iter().map(tenant).for_each(add);
        self.faults = file.merge(reporter.into_diagnostics());
        // A file that was cut off would leave all its callers without a tenant.
        if is_empty && self.whole && self.faults.is_empty() {
            let help = "add a table `[tenants.NAME]` to it, or leave the file out";
            self.entry.error(&format!("names a file without tenants: {}", self.name), help);
        }
    }

    /// Whether all of it could be read.
    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }

    pub(super) fn report(&mut self, fault: Diagnostic) {
        self.faults.push(fault);
    }

    pub(super) fn entry(&self) -> &Value<'a> {
        &self.entry
    }

    /// A place in it, as messages say it.
    pub(super) fn position(&self, at: usize) -> String {
        let (line, column) = LineIndex::of(&self.text).position(at);
        format!("{}:{line}:{column}", self.name)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Notes where the file is named what is wrong with it.
    pub(super) fn report_all(&self) {
        let (faults, warnings): (Vec<Diagnostic>, Vec<Diagnostic>) =
            self.faults.iter().cloned().partition(|it| it.severity == Severity::Error);
        for line in self.lines(faults) {
            self.entry.error(&format!("names a file with a fault: {line}"), "mend it there");
        }
        for line in self.lines(warnings) {
            let line = line.replacen("warning: ", "", 1);
            self.entry.warning(&format!("names a file to look at: {line}"), "mend it there");
        }
    }

    fn lines(&self, faults: Vec<Diagnostic>) -> Vec<String> {
        if faults.is_empty() {
            return Vec::new();
        }
        let mut lines = Diagnostics::new(&self.name, Arc::clone(&self.text), faults).lines();
        let more = lines.len().saturating_sub(MOST_SHOWN);
        if more > 0 {
            lines.truncate(MOST_SHOWN);
            lines.push(format!("{}: {more} more", self.name));
        }
        lines
    }
}
