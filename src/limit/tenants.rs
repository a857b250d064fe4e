//! Tenant budgets: a tree by `parent`, in which a parent caps its children.
//!
//! The tree is built once from what the configuration says of each tenant, and never changes: from
//! then on a tenant is an index, and what a request of it has to pass is a walk up. Which numbers
//! hold for a bucket is worked out here, too: see `numbers`. Nothing here reads or
//! writes a bucket.
//!
//! | the parent's `sharing` | the child's bucket holds | the parent's bucket is charged too |
//! |---|---|---|
//! | `private` | the child's own numbers | no |
//! | `inherit` | the smaller of its own and the parent's | with the budgets `shared` and `guaranteed` |
//! | `enforce` | the smaller of its own and the parent's | yes |

mod budget;
mod build;
mod fault;
mod limit;
mod numbers;
mod order;
mod steps;

use std::ops::{Index, Range};

use hashbrown::HashMap;

use super::policy::Policy;
use super::rate::Rate;
pub use fault::{Allocation, TenantFault, TenantFaultKind, TenantWarning, TenantWarningKind};
pub use limit::{TENANTS, TenantLimit};
pub use steps::TenantSteps;

/// A root is on level 1, its children on level 2.
pub const MAX_LEVELS: usize = 16;
/// Names stand in header members, paths and keys.
pub const MAX_NAME_LENGTH: usize = 128;

/// `[tenants.NAME]`, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantSpec {
    pub name: String,
    /// A root has none.
    pub parent: Option<String>,
    /// Needed unless the parent's sharing gives it one.
    pub rate: Option<Rate>,
    /// The rate's count if it is left out.
    pub burst: Option<u64>,
    /// The parent's if it is left out, and of a root the token bucket.
    pub algorithm: Option<TenantAlgorithm>,
    pub sharing: Sharing,
    pub budget: Budget,
    pub description: Option<String>,
}

impl TenantSpec {
    /// A root that leaves everything else at its default.
    pub fn new(name: &str) -> Self {
        TenantSpec {
            name: name.to_owned(),
            parent: None,
            rate: None,
            burst: None,
            algorithm: None,
            sharing: Sharing::default(),
            budget: Budget::default(),
            description: None,
        }
    }

    /// Whether a request of a child has to pass this tenant as well.
    fn is_charged_by_children(&self) -> bool {
        match self.sharing {
            Sharing::Private => false,
            Sharing::Inherit => {
                matches!(self.budget.mode, BudgetMode::Shared | BudgetMode::Guaranteed(_))
            }
            Sharing::Enforce => true,
        }
    }

    /// Whether its bucket is split into guarantees and a pool.
    fn is_split(&self) -> bool {
        matches!(self.budget.mode, BudgetMode::Guaranteed(_)) && self.is_charged_by_children()
    }
}

/// Whether a name may be that of a tenant: 1 to 128 of letters, digits and `_ . - @ : ~ +`.
pub fn is_tenant_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-@:~+".contains(&byte);
    (1..=MAX_NAME_LENGTH).contains(&name.len()) && name.bytes().all(allowed)
}

/// What a tenant's numbers mean for its children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sharing {
    /// Nothing.
    Private,
    /// They have no more than it has, each by itself.
    Inherit,
    /// They have no more than it has, all together.
    #[default]
    Enforce,
}

impl Sharing {
    /// As the configuration calls them.
    pub const NAMES: [(&'static str, Sharing); 3] = [
        ("private", Sharing::Private),
        ("inherit", Sharing::Inherit),
        ("enforce", Sharing::Enforce),
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Sharing::Private => "private",
            Sharing::Inherit => "inherit",
            Sharing::Enforce => "enforce",
        }
    }
}

/// The algorithms that a tenant's bucket can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TenantAlgorithm {
    #[default]
    TokenBucket,
    SlidingWindow,
    FixedWindow,
}

impl TenantAlgorithm {
    /// As the configuration calls them.
    pub const NAMES: [(&'static str, TenantAlgorithm); 3] = [
        ("token_bucket", TenantAlgorithm::TokenBucket),
        ("sliding_window", TenantAlgorithm::SlidingWindow),
        ("fixed_window", TenantAlgorithm::FixedWindow),
    ];

    pub const fn name(self) -> &'static str {
        match self {
            TenantAlgorithm::TokenBucket => "token_bucket",
            TenantAlgorithm::SlidingWindow => "sliding_window",
            TenantAlgorithm::FixedWindow => "fixed_window",
        }
    }

    fn is_window(self) -> bool {
        self != TenantAlgorithm::TokenBucket
    }
}

/// What a tenant has for its children.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Budget {
    pub mode: BudgetMode,
    /// In the tenant's window. The rate's count if it is left out.
    pub total: Option<u64>,
    pub overcommit: Overcommit,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum BudgetMode {
    /// Nothing is tracked.
    #[default]
    Unlimited,
    /// The children's rates together must fit into the total.
    Allocated,
    /// Children draw on the tenant's bucket, first come, first served.
    Shared,
    /// Children named here spend a bucket of their own first, then the pool of what is left; the
    /// others have the pool alone.
    Guaranteed(Vec<(String, u64)>),
}

impl BudgetMode {
    /// As the configuration calls it.
    pub const fn name(&self) -> &'static str {
        match self {
            BudgetMode::Unlimited => "unlimited",
            BudgetMode::Allocated => "allocated",
            BudgetMode::Shared => "shared",
            BudgetMode::Guaranteed(_) => "guaranteed",
        }
    }

    /// Whether it is known how much of the total is allocated.
    pub const fn is_tracked(&self) -> bool {
        matches!(self, BudgetMode::Allocated | BudgetMode::Guaranteed(_))
    }
}

/// How far the children's rates may exceed the total, in hundredths: 100 to 200.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Overcommit(u16);

impl Overcommit {
    /// `None` outside 1.0 to 2.0.
    pub const fn of_hundredths(hundredths: u16) -> Option<Self> {
        if hundredths >= 100 && hundredths <= 200 { Some(Overcommit(hundredths)) } else { None }
    }

    pub const fn hundredths(self) -> u16 {
        self.0
    }

    /// The most that may be allocated of a total.
    fn most(self, total: u64) -> u128 {
        u128::from(total) * u128::from(self.0) / 100
    }
}

impl Default for Overcommit {
    fn default() -> Self {
        Overcommit(100)
    }
}

impl std::fmt::Display for Overcommit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hundredths = self.0 % 100;
        match hundredths % 10 {
            0 => write!(f, "{}.{}", self.0 / 100, hundredths / 10),
            _ => write!(f, "{}.{hundredths:02}", self.0 / 100),
        }
    }
}

/// Which tenant of a tree. It means nothing to another tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantIndex(u32);

impl TenantIndex {
    /// Where it stands among [`TenantTree::tenants`].
    pub const fn position(self) -> usize {
        self.0 as usize
    }
}

/// A tenant with its place in the tree and the numbers that hold for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    pub spec: TenantSpec,
    pub parent: Option<TenantIndex>,
    pub root: TenantIndex,
    /// 1 for a root.
    pub level: usize,
    pub algorithm: TenantAlgorithm,
    /// Of its own bucket. Nobody is charged there if it is split into guarantees and a pool.
    pub effective: Policy,
    /// What is left of its bucket besides the guarantees, if it is split.
    pub pool: Option<Policy>,
    /// What its parent guarantees it.
    pub guarantee: Option<Policy>,
    /// How much its budget has, in its window.
    pub total: u64,
    /// How much of that is allocated or guaranteed; 0 if that is not tracked.
    pub allocated: u64,
    /// Where its children stand.
    children: Range<u32>,
}

impl Tenant {
    /// Whether its bucket is split into guarantees and a pool.
    pub fn is_split(&self) -> bool {
        self.spec.is_split()
    }

    /// What is left of its budget. An overcommitted one has nothing left.
    pub fn unallocated(&self) -> u64 {
        self.total.saturating_sub(self.allocated)
    }
}

/// All tenants, parents before their children, and the children of one side by side.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TenantTree {
    tenants: Vec<Tenant>,
    by_name: HashMap<Box<[u8]>, TenantIndex>,
}

impl TenantTree {
    /// The tree, and what in it is probably not meant.
    ///
    /// # Errors
    /// If it has faults: all of them.
    pub fn build(specs: Vec<TenantSpec>) -> Result<(Self, Vec<TenantWarning>), Vec<TenantFault>> {
        build::build(specs)
    }

    pub fn find(&self, name: &[u8]) -> Option<TenantIndex> {
        self.by_name.get(name).copied()
    }

    /// The tenant that a caller of this name is charged to. There is none if the tree does not have
    /// it, or if all it has is guaranteed to its children: such callers are as good as unknown.
    pub fn find_charged(&self, name: &[u8]) -> Option<TenantIndex> {
        self.find(name).filter(|of| self.steps(*of).next().is_some())
    }

    pub fn tenants(&self) -> &[Tenant] {
        &self.tenants
    }

    pub fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }

    pub fn roots(&self) -> impl Iterator<Item = TenantIndex> {
        let roots = self.tenants.iter().take_while(|tenant| tenant.parent.is_none());
        (0..).map(TenantIndex).zip(roots).map(|(at, _)| at)
    }

    pub fn children(
        &self,
        of: TenantIndex,
    ) -> impl DoubleEndedIterator<Item = TenantIndex> + use<> {
        self[of].children.clone().map(TenantIndex)
    }

    /// The steps that a request of this tenant has to pass, its own first, the highest ancestor last.
    pub fn steps(&self, of: TenantIndex) -> TenantSteps<'_> {
        TenantSteps::new(self, of)
    }

    /// The numbers of a bucket.
    ///
    /// # Panics
    /// If the tree has no such bucket: those of its steps it has.
    pub fn policy(&self, bucket: TenantBucket) -> &Policy {
        let policy = match bucket.part {
            BucketPart::Own => Some(&self[bucket.of].effective),
            BucketPart::Pool => self[bucket.of].pool.as_ref(),
            BucketPart::Guarantee(child) => self[child].guarantee.as_ref(),
        };
        policy.expect("a bucket of this tree")
    }

    /// The deepest level.
    pub fn levels(&self) -> usize {
        self.tenants.last().map_or(0, |tenant| tenant.level)
    }
}

impl Index<TenantIndex> for TenantTree {
    type Output = Tenant;

    fn index(&self, of: TenantIndex) -> &Tenant {
        &self.tenants[of.position()]
    }
}

/// What a request has to pass at one tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TenantStep {
    One(TenantBucket),
    /// A guarantee and the pool: the first that admits is charged.
    FirstOf(TenantBucket, TenantBucket),
}

/// A bucket of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TenantBucket {
    /// By whose name and level it is reported.
    pub of: TenantIndex,
    pub part: BucketPart,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BucketPart {
    Own,
    /// What is left besides the guarantees.
    Pool,
    /// What is guaranteed to this child.
    Guarantee(TenantIndex),
}

#[cfg(test)]
mod tests;
