//! `[tenants.NAME]`: one tenant, and where its keys stand.

use std::collections::HashMap;
use std::ops::Range;

use super::super::limits::text;
use super::super::rate::rate;
use crate::config::file::{NamedSection, Section, Value};
use crate::limit::rate::MAX_COUNT;
use crate::limit::tenants::{Budget, BudgetMode, Overcommit, Sharing, TenantAlgorithm, TenantSpec};
use crate::limit::token_bucket::MAX_BURST;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Unlimited,
    Allocated,
    Shared,
    Guaranteed,
}

const MODES: [(&str, Mode); 4] = [
    ("unlimited", Mode::Unlimited),
    ("allocated", Mode::Allocated),
    ("shared", Mode::Shared),
    ("guaranteed", Mode::Guaranteed),
];

/// A tenant as written.
pub(super) struct WrittenTenant {
    pub(super) spec: TenantSpec,
    pub(super) places: KeyPlaces,
    /// Something is wrong with it already: what follows from that is not said.
    pub(super) faulty: bool,
}

/// Where in its text the keys of a tenant stand.
#[derive(Default)]
pub(super) struct KeyPlaces {
    pub(super) name: Range<usize>,
    keys: Vec<(&'static str, Range<usize>)>,
    guaranteed: HashMap<String, Range<usize>>,
}

impl KeyPlaces {
    /// Of a key, or one of the guarantees; the tenant itself if it is not there.
    pub(super) fn span(&self, key: &str, guaranteed: Option<&str>) -> Range<usize> {
        let child = guaranteed.and_then(|child| self.guaranteed.get(child));
        let key = || self.keys.iter().find(|(name, _)| *name == key).map(|(_, span)| span);
        child.or_else(key).unwrap_or(&self.name).clone()
    }
}

/// What is read of a tenant, with what is wrong and where.
struct TenantReader<'a> {
    section: Section<'a>,
    places: KeyPlaces,
    faulty: bool,
}

impl<'a> TenantReader<'a> {
    fn read<T>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(&Value<'a>) -> Option<T>,
    ) -> Option<T> {
        let value = self.section.get(key)?;
        self.places.keys.push((key, value.span()));
        let read = parse(&value);
        self.faulty |= read.is_none();
        read
    }
}

pub(super) fn tenant(entry: NamedSection<'_>) -> WrittenTenant {
    let NamedSection { name, span, section } = entry;
    let places = KeyPlaces { name: span, ..KeyPlaces::default() };
    let faulty = !section.is_present();
    let mut reader = TenantReader { section, places, faulty };
    let spec = TenantSpec {
        parent: reader.read("parent", |it| it.text("partner-a").map(ToOwned::to_owned)),
        rate: reader.read("rate", |it| rate(it, it.text("1000/minute")?)),
        burst: reader.read("burst", |it| it.integer(1..=MAX_BURST)),
        algorithm: reader.read("algorithm", |it| it.choice(&TenantAlgorithm::NAMES)),
        sharing: reader.read("sharing", |it| it.choice(&Sharing::NAMES)).unwrap_or_default(),
        budget: budget(&mut reader).unwrap_or_default(),
        description: reader.read("description", text),
        ..TenantSpec::new(name)
    };
    let faulty = reader.faulty || !reader.section.has_only_known_keys();
    WrittenTenant { spec, places: reader.places, faulty }
}

/// `None` if there is something wrong with it.
fn budget(reader: &mut TenantReader<'_>) -> Option<Budget> {
    let place = reader.section.get("budget").map(|value| (value.span(), value.is_table()));
    let section = reader.section.section_like("budget", "budget = { mode = \"shared\" }");
    if let Some((span, is_table)) = place {
        reader.places.keys.push(("budget", span));
        reader.faulty |= !is_table;
    }
    let places = KeyPlaces::default();
    let mut table = TenantReader { section, places, faulty: false };
    let mode = table.read("mode", |it| it.choice(&MODES));
    let total = table.read("total", |it| it.integer(1..=MAX_COUNT));
    let overcommit =
        table.read("overcommit", |it| it.hundredths(100..=200).and_then(Overcommit::of_hundredths));
    let written = table.section.has("guaranteed");
    let mut guarantees = Vec::new();
    for (child, value) in table.section.author_keys("guaranteed") {
        reader.places.guaranteed.insert(child.to_owned(), value.span());
        let guarantee = value.integer(1..=MAX_COUNT);
        table.faulty |= guarantee.is_none();
        guarantees.extend(guarantee.map(|it| (child.to_owned(), it)));
    }
    let mode = mode.unwrap_or(Mode::Unlimited);
    if !table.faulty && written && mode != Mode::Guaranteed {
        table.section.error(
            "has guarantees, and its `mode` is another",
            "write `mode = \"guaranteed\"`, or leave `guaranteed` out",
        );
        table.faulty = true;
    }
    if !written && mode == Mode::Guaranteed {
        table.section.report_missing("guaranteed", "guaranteed = { a1 = 1000, a2 = 500 }");
        table.faulty = true;
    }
    reader.faulty |= table.faulty || !table.section.has_only_known_keys();
    let mode = match mode {
        Mode::Unlimited => BudgetMode::Unlimited,
        Mode::Allocated => BudgetMode::Allocated,
        Mode::Shared => BudgetMode::Shared,
        Mode::Guaranteed => BudgetMode::Guaranteed(guarantees),
    };
    let overcommit = overcommit.unwrap_or_default();
    (!table.faulty).then_some(Budget { mode, total, overcommit })
}
