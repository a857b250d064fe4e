//! The tree of tenants as requests need it: each tenant with its buckets, their names, numbers and
//! texts.
//!
//! All buckets of a tree lie in one hash slot of a cluster, that of its root: every request of the
//! tree that passes the root goes there anyway, and so it takes one script call, in which the choice
//! between a guarantee and the pool is part of the decision.
//!
//! There may be a hundred thousand tenants, and they come and go while the gateway runs. So each is
//! made once and shared by all configurations in which it has the same numbers.

use std::sync::Arc;

use hashbrown::HashMap;

use super::scored::Numbers;
use super::variant::BucketNaming;
use crate::limit::fixed_window::FixedWindow;
use crate::limit::tenants::{
    BucketPart, TENANTS, Tenant, TenantBucket, TenantIndex, TenantLimit, TenantTree,
};
use crate::limit::{Key, Limit, Missing, Mode, Policy, Rate, Source};
use crate::respond::rate_headers::PolicyText;
use crate::store::BucketId;

#[derive(Debug, Clone, Default)]
pub struct CompiledTenants {
    tree: Arc<TenantTree>,
    /// Those of the tree, in its order. Behind them there may be some that other gateways still
    /// serve.
    tenants: Arc<Vec<Arc<CompiledTenant>>>,
}

/// A bucket by the names of its tenants, which mean the same in every tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedBucket {
    of: Box<str>,
    part: NamedPart,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum NamedPart {
    Own,
    Pool,
    Guarantee(Box<str>),
}

impl NamedBucket {
    pub fn new(tree: &TenantTree, bucket: TenantBucket) -> Self {
        let name = |of: TenantIndex| tree[of].spec.name.as_str().into();
        let part = match bucket.part {
            BucketPart::Own => NamedPart::Own,
            BucketPart::Pool => NamedPart::Pool,
            BucketPart::Guarantee(child) => NamedPart::Guarantee(name(child)),
        };
        NamedBucket { of: name(bucket.of), part }
    }

    fn find(&self, tree: &TenantTree) -> Option<TenantBucket> {
        let part = match &self.part {
            NamedPart::Own => BucketPart::Own,
            NamedPart::Pool => BucketPart::Pool,
            NamedPart::Guarantee(child) => BucketPart::Guarantee(tree.find(child.as_bytes())?),
        };
        Some(TenantBucket { of: tree.find(self.of.as_bytes())?, part })
    }
}

/// The buckets of one tenant.
#[derive(Debug, Clone)]
struct CompiledTenant {
    own: CompiledBucket,
    /// What is left of its own besides what it guarantees to its children.
    pool: Option<Box<CompiledBucket>>,
    /// What its parent guarantees it, by the parent's name.
    guarantee: Option<Box<CompiledBucket>>,
}

/// A bucket that is known before any request asks for it.
#[derive(Debug, Clone)]
pub struct CompiledBucket {
    /// No other bucket's id starts from this: tenants share no bucket, not even in a full table.
    pub prefix: u64,
    pub bucket: BucketId,
    /// Its key in a store that is shared with other gateways; empty where none is.
    pub key: Box<[u8]>,
    pub numbers: Numbers,
}

impl CompiledTenants {
    /// Takes over what is the same in a tree that was compiled before, of the same settings.
    pub(super) fn new(
        tree: Arc<TenantTree>,
        limit: &TenantLimit,
        naming: BucketNaming<'_>,
        before: Option<&CompiledTenants>,
    ) -> Self {
        let compile = TenantCompiler { tree: &tree, limit, naming };
        let known = |tenant: &Tenant| {
            let before = before?;
            let at = before.tree.find(tenant.spec.name.as_bytes())?;
            let same = has_same_buckets(&tree, tenant, &before.tree, &before.tree[at]);
            same.then(|| before.tenants[at.position()].clone())
        };
        let tenants = tree
            .tenants()
            .iter()
            .map(|tenant| known(tenant).unwrap_or_else(|| Arc::new(compile.tenant(tenant))));
        CompiledTenants { tenants: Arc::new(tenants.collect()), tree: tree.clone() }
    }

    pub fn tree(&self) -> &Arc<TenantTree> {
        &self.tree
    }

    /// A bucket of this tree's steps.
    #[inline]
    pub fn bucket(&self, bucket: TenantBucket) -> &CompiledBucket {
        let found = self.find_bucket(bucket);
        debug_assert!(found.is_some(), "a step has a bucket: {bucket:?}");
        found.unwrap_or_else(|| &self.tenants[bucket.of.position()].own)
    }

    fn find_bucket(&self, bucket: TenantBucket) -> Option<&CompiledBucket> {
        let of = |at: TenantIndex| &*self.tenants[at.position()];
        match bucket.part {
            BucketPart::Own => Some(&of(bucket.of).own),
            BucketPart::Pool => of(bucket.of).pool.as_deref(),
            BucketPart::Guarantee(child) => of(child).guarantee.as_deref(),
        }
    }

    /// The numbers that hold by now, with the tree that these are of, for a bucket that was served
    /// before.
    pub fn policy_of(
        &self,
        tree: &TenantTree,
        name: &NamedBucket,
        bucket: BucketId,
    ) -> Option<&Policy> {
        let found = self.find_bucket(name.find(tree)?)?;
        (found.bucket == bucket).then_some(&found.numbers.policy)
    }

    /// The same without the tree: for requests that are decided, and to remember which numbers were
    /// served.
    pub(super) fn without_tree(&self) -> Self {
        CompiledTenants { tree: Arc::default(), tenants: self.tenants.clone() }
    }

    /// Takes into account the numbers that other workers or gateways serve at the same time: what
    /// those still count is not clamped here.
    pub(super) fn coexist_with(&mut self, other: &CompiledTenants) {
        let at: HashMap<BucketId, usize> =
            self.tenants.iter().enumerate().map(|(at, it)| (it.own.bucket, at)).collect();
        let tenants = Arc::make_mut(&mut self.tenants);
        for theirs in other.tenants.iter() {
            match at.get(&theirs.own.bucket) {
                Some(at) if Arc::ptr_eq(&tenants[*at], theirs) => {}
                Some(at) => Arc::make_mut(&mut tenants[*at]).coexist_with(theirs),
                // What is made anew under this name meets what is served of it elsewhere.
                None => tenants.push(theirs.clone()),
            }
        }
    }
}

impl CompiledTenant {
    fn coexist_with(&mut self, other: &CompiledTenant) {
        self.own.coexist_with(&other.own);
        for (ours, theirs) in
            [(&mut self.pool, &other.pool), (&mut self.guarantee, &other.guarantee)]
        {
            if let (Some(ours), Some(theirs)) = (ours, theirs) {
                ours.coexist_with(theirs);
            }
        }
    }
}

impl CompiledBucket {
    fn coexist_with(&mut self, other: &CompiledBucket) {
        if self.bucket == other.bucket {
            self.numbers.policy = self.numbers.policy.beside(&other.numbers.policy);
        }
    }
}

/// Makes buckets of the tenants of a tree.
struct TenantCompiler<'a> {
    tree: &'a TenantTree,
    limit: &'a TenantLimit,
    naming: BucketNaming<'a>,
}

impl TenantCompiler<'_> {
    fn tenant(&self, tenant: &Tenant) -> CompiledTenant {
        let name = tenant.spec.name.as_str();
        let bucket = |of: &str, part: &str, policy: &Policy| self.bucket(tenant, of, part, policy);
        let boxed = |of: &str, part: &str, policy: Option<&Policy>| {
            policy.map(|policy| Box::new(bucket(of, part, policy)))
        };
        // No name has a slash in it.
        let parent = tenant.parent.map_or("", |parent| &self.tree[parent].spec.name);
        CompiledTenant {
            own: bucket(name, "", &tenant.effective),
            pool: boxed(name, "/pool", tenant.pool.as_ref()),
            guarantee: boxed(parent, &format!("/guaranteed/{name}"), tenant.guarantee.as_ref()),
        }
    }

    fn bucket(&self, tenant: &Tenant, of: &str, part: &str, policy: &Policy) -> CompiledBucket {
        let root = &self.tree[tenant.root].spec.name;
        // With another algorithm it starts afresh.
        let mark = match policy {
            Policy::TokenBucket(_) => String::new(),
            other => format!("/{}", other.kind()),
        };
        let path = format!("{{{root}}}:{of}{part}{mark}");
        let prefix = self.naming.hasher.limit_prefix(TENANTS, &path);
        let key = self.naming.shared.map(|start| format!("{start}:{TENANTS}:{path}"));
        let policy = self.limit.with_debt(*policy);
        let visible = self.limit.response_headers && self.limit.mode == Mode::Enforce;
        let text = PolicyText::of(visible, &format!("{TENANTS}/{of}"), &policy);
        CompiledBucket {
            prefix,
            bucket: self.naming.hasher.start(prefix).finish(),
            key: key.unwrap_or_default().into_bytes().into(),
            numbers: Numbers { policy, text },
        }
    }
}

/// Whether the buckets of a tenant are called the same and hold the same in two trees.
fn has_same_buckets(
    tree: &TenantTree,
    one: &Tenant,
    other_tree: &TenantTree,
    other: &Tenant,
) -> bool {
    let same_name =
        |one: TenantIndex, other: TenantIndex| tree[one].spec.name == other_tree[other].spec.name;
    let same_parent =
        || one.parent.zip(other.parent).is_some_and(|(it, other)| same_name(it, other));
    (one.effective, one.pool, one.guarantee) == (other.effective, other.pool, other.guarantee)
        && same_name(one.root, other.root)
        && (one.guarantee.is_none() || same_parent())
}

/// The limit named `tenants`: what holds for callers whose tenant is not in the tree.
pub(super) fn unknown_limit(limit: &TenantLimit) -> Limit {
    let counted_by = match limit.missing {
        Missing::Shared => Source::Global,
        Missing::Ip | Missing::Skip | Missing::Deny => Source::Ip,
    };
    of_tenants(limit, TENANTS.to_owned(), counted_by)
}

/// The limit of all tenants on one level, as metrics know it: no label carries a tenant's name.
pub(super) fn level_limit(limit: &TenantLimit, level: usize) -> Limit {
    of_tenants(limit, format!("{TENANTS}/{level}"), Source::Tenant)
}

fn of_tenants(limit: &TenantLimit, name: String, counted_by: Source) -> Limit {
    // Where there is none, nobody is counted by it: tenants of the tree have their own numbers.
    let unused = Policy::FixedWindow(FixedWindow::new(Rate::ONE_A_SECOND));
    let policy = limit.with_debt(limit.unknown.unwrap_or(unused));
    Limit {
        description: limit.description.clone(),
        enabled: limit.enabled,
        when: limit.when.clone(),
        cost: limit.cost.clone(),
        mode: limit.mode,
        refusal: limit.refusal.clone(),
        missing: limit.missing,
        response_headers: limit.response_headers,
        on_error: limit.on_error,
        ..Limit::new(&name, Key(vec![counted_by]), policy)
    }
}

#[cfg(test)]
mod tests;
