//! `[tenants.NAME]`, in the configuration and in files of their own, and whether all of them together
//! are a tree.

mod file;
mod limit;
mod section;

use std::cell::Cell;
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::request_source::KnownIdentities;
use crate::config::diagnostic::Diagnostic;
use crate::config::file::{Reporter, Section, Value};
use crate::config::suggest::{nearest, quote};
use crate::limit::tenants::{TENANTS, TenantFault, TenantFaultKind, TenantTree};
use file::TenantFile;
pub(super) use limit::tenant_limit;
use section::{KeyPlaces, WrittenTenant, tenant};

/// For so many unknown parents it is looked which one was meant: each takes a look at all names.
const MOST_SUGGESTIONS: usize = 20;

/// The files that some of the tree is from, and how routes refer to it.
pub(super) fn tenants(
    root: &mut Section<'_>,
    folder: &Path,
    whole: bool,
) -> (Vec<PathBuf>, TenantNames) {
    let reporter = root.reporter();
    let mut collected = CollectedTenants { whole, ..CollectedTenants::default() };
    let entries = root.named_sections(TENANTS);
    let span = entries.first().map(|entry| entry.span.clone());
    for entry in entries {
        collected.add(tenant(entry), 0);
    }
    let named = root.get("tenants_file");
    let mut files = file::files(named.as_ref(), folder);
    for (at, file) in files.iter_mut().enumerate() {
        file.read(|tenant| collected.add(tenant, at + 1));
        collected.whole &= file.is_whole();
    }
    collected.whole &= named.as_ref().is_none_or(|it| it.one_or_more().len() == files.len());
    for DoubleTenant { name, first, second } in std::mem::take(&mut collected.doubles) {
        let (name, entry) = (quote(&name), files[second.source - 1].entry());
        let again = files[second.source - 1].position(second.span.start);
        let whose = format!("{} names a file whose tenant {name}, {again},", entry.subject());
        let fault = |place: &str| {
            let message = format!("{whose} is in {place} already");
            Diagnostic::error(entry.span(), message).help("remove it in one of the two")
        };
        reporter.report(match first.source.checked_sub(1) {
            None => fault("the configuration").also(first.span, "it is here"),
            Some(at) => fault(&files[at].position(first.span.start)),
        });
    }
    let tree = collected.build(|source, fault| match source.checked_sub(1) {
        None => reporter.report(fault),
        Some(at) => files[at].report(fault),
    });
    let span = span.or_else(|| named.as_ref().map(Value::key));
    files.iter().for_each(TenantFile::report_all);
    let paths = files.iter().map(|file| file.path().to_owned()).collect();
    (paths, TenantNames { tree: Arc::new(tree), span, used: Cell::new(false) })
}

/// What all sources say, the configuration first, then file by file.
#[derive(Default)]
struct CollectedTenants {
    tenants: Vec<WrittenTenant>,
    by_name: HashMap<String, usize>,
    /// Of which source each tenant is.
    sources: Vec<usize>,
    doubles: Vec<DoubleTenant>,
    /// All sources could be read, so that what is not there was not written.
    whole: bool,
}

/// A name with two sources.
struct DoubleTenant {
    name: String,
    first: TenantPlace,
    second: TenantPlace,
}

struct TenantPlace {
    source: usize,
    span: Range<usize>,
}

impl CollectedTenants {
    fn add(&mut self, tenant: WrittenTenant, source: usize) {
        let name = &tenant.spec.name;
        if let Some(first) = self.by_name.get(name) {
            let span = self.tenants[*first].places.name.clone();
            self.doubles.push(DoubleTenant {
                name: name.clone(),
                first: TenantPlace { source: self.sources[*first], span },
                second: TenantPlace { source, span: tenant.places.name.clone() },
            });
            return;
        }
        self.by_name.insert(name.clone(), self.tenants.len());
        self.tenants.push(tenant);
        self.sources.push(source);
    }

    /// The tree; what is wrong with it is reported where it is written.
    fn build(self, mut report: impl FnMut(usize, Diagnostic)) -> TenantTree {
        let CollectedTenants { tenants, by_name, sources, whole, .. } = self;
        let (mut specs, mut written) = (Vec::new(), Vec::new());
        for WrittenTenant { spec, places, faulty } in tenants {
            specs.push(spec);
            written.push((places, faulty));
        }
        let place = |name: &str| -> Option<(usize, &KeyPlaces, bool)> {
            let at = *by_name.get(name)?;
            Some((sources[at], &written[at].0, written[at].1))
        };
        match TenantTree::build(specs) {
            Ok((tree, warnings)) => {
                for warning in warnings {
                    let Some((source, places, _)) = place(&warning.tenant) else { continue };
                    let span = places.span(warning.key(), None);
                    let found = Diagnostic::warning(span, warning.message()).help(warning.help());
                    report(source, found);
                }
                tree
            }
            Err(faults) => {
                let mut suggestions = MOST_SUGGESTIONS;
                for fault in faults {
                    let Some((source, places, faulty)) = place(&fault.tenant) else { continue };
                    if faulty || !whole && follows_from_absence(&fault) {
                        continue;
                    }
                    let span = places.span(fault.key(), fault.guaranteed_child());
                    let names = by_name.keys().map(String::as_str);
                    let help = help(&fault, names, &mut suggestions);
                    let mut found = Diagnostic::error(span, fault.message()).help(help);
                    if follows_from_absence(&fault) {
                        found = found.absence();
                    }
                    report(source, found);
                }
                TenantTree::default()
            }
        }
    }
}

/// Whether it may be that what is missing could only not be read.
fn follows_from_absence(fault: &TenantFault) -> bool {
    matches!(
        fault.kind,
        TenantFaultKind::UnknownParent { .. }
            | TenantFaultKind::Stranger { .. }
            | TenantFaultKind::NoRate { .. }
    )
}

fn help<'n>(
    fault: &TenantFault,
    names: impl Iterator<Item = &'n str>,
    suggestions: &mut usize,
) -> String {
    let wanted = match &fault.kind {
        TenantFaultKind::UnknownParent { parent } => parent,
        TenantFaultKind::Stranger { child } => child,
        _ => return fault.help(),
    };
    if *suggestions == 0 || wanted.is_empty() {
        return fault.help();
    }
    *suggestions -= 1;
    // A name that is there is no misspelling.
    match nearest(wanted, names.filter(|name| *name != fault.tenant)) {
        Some(meant) if meant != wanted => format!("did you mean `{meant}`?"),
        _ => fault.help(),
    }
}

/// How routes refer to the tree: by the limit named `tenants`.
pub(super) struct TenantNames {
    tree: Arc<TenantTree>,
    /// Where they are written, if they are.
    span: Option<Range<usize>>,
    used: Cell<bool>,
}

impl TenantNames {
    pub(super) fn tree(&self) -> &Arc<TenantTree> {
        &self.tree
    }

    pub(super) fn are_defined(&self) -> bool {
        self.span.is_some()
    }

    /// Whether an entry of a route's limits may be `tenants`; notes a fault if there are none.
    pub(super) fn resolve(&self, value: &Value<'_>, known: KnownIdentities) -> bool {
        let first = !self.used.replace(true);
        if !self.are_defined() {
            let message = "cannot be `tenants`: there are no tenants";
            let help = "add a table `[tenants.NAME]`, or a `tenants_file`";
            let message = format!("an entry of `limits` {message}");
            value.report(Diagnostic::error(value.span(), message).help(help).absence());
        } else if !known.tenant && first {
            value.error(
                "cannot be `tenants`: `[identity]` does not say where a `tenant` is found",
                "add a line such as `tenant = \"jwt:tenant\"` there",
            );
        }
        self.are_defined() && known.tenant
    }

    pub(super) fn warn_of_unused(&self, reporter: &Reporter) {
        if let Some(span) = self.span.clone().filter(|_| !self.used.get()) {
            let help = "add `\"tenants\"` to the `limits` of a route";
            let fault = Diagnostic::warning(span, "the tenants are used by no route").help(help);
            reporter.report(fault.absence());
        }
    }
}
