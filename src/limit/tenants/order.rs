//! Parents before their children: the order of a tree, and what is wrong with its shape.
//!
//! A tenant whose parent is unknown takes its place as a root, so that faults below it are found as
//! well, and none that only follow from it.

use std::ops::Range;

use hashbrown::HashMap;

use super::build::Findings;
use super::fault::TenantFaultKind;
use super::{MAX_LEVELS, TenantSpec, is_tenant_name};

/// Where a tenant stands.
pub(super) struct Place {
    /// Which of the specs it is.
    pub(super) spec: usize,
    pub(super) parent: Option<u32>,
    /// Which of the specs its parent is.
    pub(super) parent_spec: Option<usize>,
    pub(super) root: u32,
    pub(super) level: usize,
    pub(super) children: Range<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parent {
    None,
    Unknown,
    At(usize),
}

/// The places of all tenants that are in no cycle nor too deep: level by level, the children of one
/// side by side.
pub(super) fn order(specs: &[TenantSpec], findings: &mut Findings) -> Vec<Place> {
    let parents = parents(specs, findings);
    let children = ChildLists::of(&parents);
    let mut reached = vec![false; specs.len()];
    let mut places: Vec<Place> = Vec::with_capacity(specs.len());
    for (spec, parent) in parents.iter().enumerate() {
        if !matches!(parent, Parent::At(_)) {
            let root = places.len() as u32;
            let (parent, parent_spec) = (None, None);
            places.push(Place { spec, parent, parent_spec, root, level: 1, children: 0..0 });
        }
    }
    let mut at = 0;
    while at < places.len() {
        let Place { spec, root, level, .. } = places[at];
        reached[spec] = true;
        let first = places.len() as u32;
        for child in children.of_parent(spec) {
            if level < MAX_LEVELS {
                let (parent, parent_spec) = (Some(at as u32), Some(spec));
                let level = level + 1;
                let child =
                    Place { spec: *child, parent, parent_spec, root, level, children: 0..0 };
                places.push(child);
            } else {
                findings.fault(&specs[*child], TenantFaultKind::TooDeep);
                children.mark_below(*child, &mut reached);
            }
        }
        places[at].children = first..places.len() as u32;
        at += 1;
    }
    find_cycles(specs, &parents, reached, findings);
    places
}

fn parents(specs: &[TenantSpec], findings: &mut Findings) -> Vec<Parent> {
    let mut by_name = HashMap::with_capacity(specs.len());
    for (at, spec) in specs.iter().enumerate() {
        if !is_tenant_name(&spec.name) {
            findings.fault(spec, TenantFaultKind::Name);
        }
        if by_name.insert(spec.name.as_str(), at).is_some() {
            findings.fault(spec, TenantFaultKind::Duplicate);
        }
    }
    let mut parent = |spec: &TenantSpec| {
        let Some(name) = &spec.parent else { return Parent::None };
        if let Some(at) = by_name.get(name.as_str()) {
            return Parent::At(*at);
        }
        findings.fault(spec, TenantFaultKind::UnknownParent { parent: name.clone() });
        Parent::Unknown
    };
    specs.iter().map(&mut parent).collect()
}

/// The children of every tenant, in the order written.
struct ChildLists {
    /// Those of one after those of the other.
    children: Vec<usize>,
    /// Where those of each begin, and the last ones end.
    starts: Vec<usize>,
}

impl ChildLists {
    fn of(parents: &[Parent]) -> Self {
        let mut starts = vec![0; parents.len() + 1];
        for parent in parents {
            if let Parent::At(parent) = parent {
                starts[parent + 1] += 1;
            }
        }
        for at in 0..parents.len() {
            starts[at + 1] += starts[at];
        }
        let mut next = starts.clone();
        let mut children = vec![0; starts[parents.len()]];
        for (child, parent) in parents.iter().enumerate() {
            if let Parent::At(parent) = parent {
                children[next[*parent]] = child;
                next[*parent] += 1;
            }
        }
        ChildLists { children, starts }
    }

    fn of_parent(&self, parent: usize) -> &[usize] {
        &self.children[self.starts[parent]..self.starts[parent + 1]]
    }

    fn mark_below(&self, top: usize, reached: &mut [bool]) {
        let mut next = vec![top];
        while let Some(at) = next.pop() {
            reached[at] = true;
            next.extend(self.of_parent(at));
        }
    }
}

/// Whatever no root leads to is in a cycle or below one. Each cycle is one fault.
fn find_cycles(
    specs: &[TenantSpec],
    parents: &[Parent],
    mut seen: Vec<bool>,
    findings: &mut Findings,
) {
    for start in 0..specs.len() {
        let mut way = Vec::new();
        let mut at = start;
        while !seen[at] {
            seen[at] = true;
            way.push(at);
            let Parent::At(parent) = parents[at] else { break };
            at = parent;
        }
        if let Some(from) = way.iter().position(|it| *it == at) {
            let cycle = &way[from..];
            // It is told from the one that is written first.
            let first = (0..cycle.len()).min_by_key(|it| cycle[*it]).unwrap_or(0);
            let names = cycle[first..].iter().chain(&cycle[..first]);
            let through = names.skip(1).map(|it| specs[*it].name.clone()).collect();
            findings.fault(&specs[cycle[first]], TenantFaultKind::Cycle { through });
        }
    }
}
