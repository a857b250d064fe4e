//! The way up: which buckets a request of a tenant has to pass.

use super::{BucketPart, TenantBucket, TenantIndex, TenantStep, TenantTree};

/// See [`TenantTree::steps`].
#[derive(Debug, Clone)]
pub struct TenantSteps<'t> {
    tree: &'t TenantTree,
    next: Option<TenantIndex>,
    /// The child that the walk has come through.
    through: Option<TenantIndex>,
}

impl<'t> TenantSteps<'t> {
    pub(super) fn new(tree: &'t TenantTree, of: TenantIndex) -> Self {
        TenantSteps { tree, next: Some(of), through: None }
    }

    fn step(&self, of: TenantIndex) -> Option<TenantStep> {
        let bucket = |part| TenantBucket { of, part };
        if !self.tree[of].spec.is_split() {
            return Some(TenantStep::One(bucket(BucketPart::Own)));
        }
        let pool = self.tree[of].pool.map(|_| bucket(BucketPart::Pool));
        let named = self.through.filter(|child| self.tree[*child].guarantee.is_some());
        match (named.map(|child| bucket(BucketPart::Guarantee(child))), pool) {
            (Some(guarantee), Some(pool)) => Some(TenantStep::FirstOf(guarantee, pool)),
            (Some(only), None) | (None, Some(only)) => Some(TenantStep::One(only)),
            // Only the tenant's own callers can get here: every child has a guarantee.
            (None, None) => None,
        }
    }
}

impl Iterator for TenantSteps<'_> {
    type Item = TenantStep;

    fn next(&mut self) -> Option<TenantStep> {
        let of = self.next.take()?;
        let step = self.step(of)?;
        let parent = self.tree[of].parent;
        self.next = parent.filter(|parent| self.tree[*parent].spec.is_charged_by_children());
        self.through = Some(of);
        Some(step)
    }
}
