//! One table of the file, read key by key.
//!
//! There is no list of known keys beside the code that reads them: a key is known if the reader
//! asked for it, and a section that goes out of scope reports the ones nobody asked for. So a
//! reader asks for all keys of its section, whatever the others say.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::foreign_keys::{self, Replacement};
use super::{Reporter, Value};
use crate::config::diagnostic::Diagnostic;
use crate::config::mask::mask;
use crate::config::suggest::{list, nearest, one_of, quote, shown};

/// A table, or the place where one could be.
pub(in crate::config) struct Section<'a> {
    /// As known keys are listed: `limits.NAME`.
    path: String,
    /// As messages call it: `[limits.per-ip]`.
    title: String,
    /// Where to point for what is missing.
    span: Range<usize>,
    /// None if the file leaves the section out.
    table: Option<&'a DeTable<'a>>,
    known: Vec<&'static str>,
    missing: Vec<MissingKey>,
    reporter: &'a Reporter,
}

/// A key that must be there and is not.
struct MissingKey {
    /// One of these would do.
    keys: Vec<&'static str>,
    /// So would this line.
    example: String,
}

/// A table that the file gives a name, such as `[limits.per-ip]`.
pub(in crate::config) struct NamedSection<'a> {
    pub(in crate::config) name: &'a str,
    pub(in crate::config) span: Range<usize>,
    pub(in crate::config) section: Section<'a>,
}

impl<'a> Section<'a> {
    fn new(
        path: String,
        title: String,
        span: Range<usize>,
        table: Option<&'a DeTable<'a>>,
        reporter: &'a Reporter,
    ) -> Self {
        let (known, missing) = (Vec::new(), Vec::new());
        Section { path, title, span, table, known, missing, reporter }
    }

    /// The whole file.
    pub(super) fn root(table: &'a DeTable<'a>, reporter: &'a Reporter) -> Self {
        if let Some(DeValue::Table(store)) = table.get("store").map(|it| it.get_ref())
            && let Some(DeValue::String(kind)) = store.get("kind").map(|it| it.get_ref())
        {
            reporter.note_store_kind(kind);
        }
        Section::new(String::new(), "the file".to_owned(), 0..0, Some(table), reporter)
    }

    /// The value of a key, if the file has it.
    pub(in crate::config) fn get(&mut self, key: &'static str) -> Option<Value<'a>> {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        self.reporter.note_known_key(self.path_of(key));
        let (name, item) = self.table?.get_key_value(key)?;
        Some(Value::new(quote(key), name.span(), item, self.reporter))
    }

    /// The value of a key that must be there. `example` is a line that would do.
    pub(in crate::config) fn require(
        &mut self,
        key: &'static str,
        example: &str,
    ) -> Option<Value<'a>> {
        let value = self.get(key);
        if value.is_none() {
            self.report_missing(key, example);
        }
        value
    }

    /// Notes that a key is not there, which was asked for and turned out to be needed.
    pub(in crate::config) fn report_missing(&mut self, key: &'static str, example: &str) {
        self.report_none_of(&[key], example);
    }

    /// The same where one of several would have done.
    pub(in crate::config) fn report_none_of(&mut self, keys: &[&'static str], example: &str) {
        self.missing.push(MissingKey { keys: keys.to_vec(), example: example.to_owned() });
    }

    /// A table below this one; empty if the file leaves it out.
    pub(in crate::config) fn section(&mut self, key: &'static str) -> Section<'a> {
        let (value, section) = self.value_or_section(key);
        match value {
            Some(value) if self.path.is_empty() => {
                value.table_or(&format!("write its keys below `[{key}]`"))
            }
            value => value.and_then(|it| it.table()),
        };
        section
    }

    /// The same; `example` is a line that would do.
    pub(in crate::config) fn section_like(
        &mut self,
        key: &'static str,
        example: &str,
    ) -> Section<'a> {
        let (value, section) = self.value_or_section(key);
        value.map(|it| it.table_or(&format!("write `{example}`")));
        section
    }

    /// What may be a table or another value: that value, and the section that it is if it is one.
    pub(in crate::config) fn value_or_section(
        &mut self,
        key: &'static str,
    ) -> (Option<Value<'a>>, Section<'a>) {
        let value = self.get(key);
        let found = value.as_ref().filter(|value| value.is_table());
        let title = if self.path.is_empty() {
            format!("`[{key}]`")
        } else {
            format!("`{key}` of {}", self.title)
        };
        let section = Section::new(
            self.path_of(key),
            title,
            found.map_or(self.span.clone(), Value::span),
            found.and_then(Value::table),
            self.reporter,
        );
        (value, section)
    }

    /// The tables below a key, each under a name of the author's choice, in the order written.
    pub(in crate::config) fn named_sections(&mut self, key: &'static str) -> Vec<NamedSection<'a>> {
        let path = format!("{}.NAME", self.path_of(key));
        let table = self.get(key).and_then(|value| {
            let help = match name_of_first(value.item()) {
                Some(name) => format!("write `[{}.{name}]`", self.path_of(key)),
                None => format!("give each a name: `[{path}]`"),
            };
            value.table_or(&help)
        });
        let Some(table) = table else { return Vec::new() };
        let mut entries = Vec::new();
        for (name, item) in table {
            let span = name.span();
            let value = Value::new(quote(name.get_ref()), span.clone(), item, self.reporter);
            let section = Section::new(
                path.clone(),
                self.title_of(key, name.get_ref()),
                span.clone(),
                value.table(),
                self.reporter,
            );
            entries.push(NamedSection { name: name.get_ref(), span, section });
        }
        // The parser sorts tables by name.
        entries.sort_by_key(|entry| entry.span.start);
        entries
    }

    /// The tables of an array such as `[[routes]]`, in the order written; `None` if the file has
    /// something else in their place.
    pub(in crate::config) fn array_sections(
        &mut self,
        key: &'static str,
    ) -> Option<Vec<Section<'a>>> {
        let path = format!("{}[]", self.path_of(key));
        let Some(value) = self.get(key) else { return Some(Vec::new()) };
        let DeValue::Array(items) = value.item() else {
            let message = format!("`{key}` must be an array of tables, not {}", value.kind());
            self.reporter.report(
                Diagnostic::error(value.span(), message)
                    .help(format!("write `[[{key}]]` above each")),
            );
            return None;
        };
        let sections = items.iter().map(|item| {
            let value = Value::new(format!("`[[{key}]]`"), item.span(), item, self.reporter);
            Section::new(
                path.clone(),
                format!("`[[{key}]]`"),
                item.span(),
                value.table(),
                self.reporter,
            )
        });
        Some(sections.collect())
    }

    /// The table that an entry of a list is, if it is one; an empty one otherwise.
    pub(in crate::config) fn entry_section(
        &self,
        key: &'static str,
        entry: Option<&Value<'a>>,
    ) -> Section<'a> {
        Section::new(
            format!("{}[]", self.path_of(key)),
            format!("an entry of `{key}`"),
            entry.map_or(self.span.clone(), Value::span),
            entry.and_then(Value::table),
            self.reporter,
        )
    }

    /// Another table with the keys of this one, where a list of them may stand for one.
    pub(in crate::config) fn another(&self, entry: &Value<'a>) -> Section<'a> {
        let title = format!("an entry of {}", self.title);
        Section::new(self.path.clone(), title, entry.span(), entry.table(), self.reporter)
    }

    /// Every key of the table with its value, for tables whose keys are the author's own.
    pub(in crate::config) fn author_keys(
        &mut self,
        key: &'static str,
    ) -> Vec<(&'a str, Value<'a>)> {
        let Some(table) = self.get(key).and_then(|value| value.table()) else {
            return Vec::new();
        };
        let mut values: Vec<_> = table
            .iter()
            .map(|(name, item)| {
                let value = Value::new(quote(name.get_ref()), name.span(), item, self.reporter);
                (name.get_ref().as_ref(), value)
            })
            .collect();
        values.sort_by_key(|(_, value)| value.key().start);
        values
    }

    /// Whether the file has a key, which has been or will be asked for.
    pub(in crate::config) fn has(&self, key: &str) -> bool {
        self.table.is_some_and(|table| table.contains_key(key))
    }

    /// Whether the file has it, as a table.
    pub(in crate::config) fn is_present(&self) -> bool {
        self.table.is_some()
    }

    /// Whether all its keys have been asked for, so that none of them will be a fault.
    pub(in crate::config) fn has_only_known_keys(&self) -> bool {
        let known = |key: &str| self.known.contains(&key);
        self.table.is_none_or(|table| table.keys().all(|key| known(key.get_ref())))
    }

    /// Notes that the section is wrong. The message goes on where its name ends.
    pub(in crate::config) fn error(&self, message: &str, help: impl Into<String>) {
        let message = format!("{} {message}", self.title);
        self.reporter.report(Diagnostic::error(self.span.clone(), message).help(help));
    }

    /// Notes that it is allowed and probably not meant.
    pub(in crate::config) fn warning(&self, message: &str, help: impl Into<String>) {
        let message = format!("{} {message}", self.title);
        self.reporter.report(Diagnostic::warning(self.span.clone(), message).help(help));
    }

    /// Where messages about it point.
    pub(in crate::config) fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    pub(in crate::config) fn reporter(&self) -> &'a Reporter {
        self.reporter
    }

    /// As messages call a table of the author's naming.
    fn title_of(&self, key: &str, name: &str) -> String {
        match self.path.is_empty() {
            true => format!("`[{key}.{}]`", shown(name)),
            false => format!("`{key}.{}` of {}", shown(name), self.title),
        }
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}

/// The `name` of the first table of an array, where tables are to have names of their own. None that may
/// be a secret, since it is repeated.
fn name_of_first<'v>(value: &'v DeValue<'_>) -> Option<&'v str> {
    let DeValue::Array(items) = value else { return None };
    let DeValue::Table(first) = items.iter().next()?.get_ref() else { return None };
    let DeValue::String(name) = first.get("name")?.get_ref() else { return None };
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    let name = Some(name.as_ref()).filter(|it| (1..=64).contains(&it.len()));
    name.filter(|it| it.chars().all(plain) && mask(it) == *it)
}

impl Drop for Section<'_> {
    fn drop(&mut self) {
        let Some(table) = self.table else { return };
        for key in table.keys() {
            let name: &str = key.get_ref();
            if self.known.contains(&name) {
                continue;
            }
            if let Some(Replacement { key: ours, help }) = foreign_keys::replacement(
                name,
                table,
                &self.known,
                self.reporter.store_kind().as_deref(),
            ) {
                self.missing.retain(|missing| !missing.keys.contains(&ours));
                let message = format!("unknown key {}", quote(name));
                self.reporter.report(Diagnostic::error(key.span(), message).help(help));
                continue;
            }
            let near = nearest(name, self.known.iter().copied());
            let help = match near.filter(|_| !foreign_keys::is_foreign(name)) {
                // TOML takes it for a key of the table that it stands below.
                _ if name == "tenants_file" && !self.path.is_empty() => {
                    "write it above the first table".to_owned()
                }
                Some(meant) => {
                    // It is not missing: it is misspelled.
                    self.missing.retain(|missing| !missing.keys.contains(&meant));
                    format!("did you mean `{meant}`?")
                }
                None => format!("known here: {}", list(self.known.iter().copied())),
            };
            let message = format!("unknown key {}", quote(name));
            self.reporter.report(Diagnostic::error(key.span(), message).help(help));
        }
        for MissingKey { keys, example } in &self.missing {
            let message = format!("{} has no {}", self.title, one_of(keys.iter().copied()));
            let help = format!("add a line such as `{example}`");
            self.reporter
                .report(Diagnostic::error(self.span.clone(), message).help(help).absence());
        }
    }
}
