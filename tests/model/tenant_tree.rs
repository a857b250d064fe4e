//! Random trees of tenants: effective numbers, sums, splits and steps against a naive recomputation
//! that follows the table of the engine's semantics for each tenant by itself.

use std::time::Duration;

use proptest::prelude::*;
use weir::limit::tenants::{
    BucketPart, Budget, BudgetMode, Overcommit, Sharing, TenantAlgorithm, TenantSpec, TenantStep,
    TenantTree, TenantWarningKind,
};
use weir::limit::{Policy, Rate};

use crate::strategies::cases;

/// Count and seconds of a rate, burst, and whether it is a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Numbers {
    count: u128,
    seconds: u128,
    burst: u128,
    algorithm: TenantAlgorithm,
}

impl Numbers {
    fn is_window(&self) -> bool {
        self.algorithm != TenantAlgorithm::TokenBucket
    }

    /// As a bucket has them: a window has no burst.
    fn of(policy: &Policy) -> Self {
        let (rate, burst, algorithm) = match policy {
            Policy::TokenBucket(it) => (it.rate(), Some(it.burst()), TenantAlgorithm::TokenBucket),
            Policy::SlidingWindow(it) => (it.rate(), None, TenantAlgorithm::SlidingWindow),
            Policy::FixedWindow(it) => {
                let rate = Rate::new(it.count(), Duration::from_secs(it.seconds()));
                (rate.expect("a rate"), None, TenantAlgorithm::FixedWindow)
            }
            other => panic!("{other:?}"),
        };
        let (count, seconds) = (u128::from(rate.count()), u128::from(rate.period_us() / 1_000_000));
        Numbers { count, seconds, burst: u128::from(burst.unwrap_or(0)), algorithm }
    }

    fn without_window_burst(self) -> Self {
        if self.is_window() { Numbers { burst: 0, ..self } } else { self }
    }
}

/// The tree as written, with parents by their places.
struct NaiveTree<'s>(&'s [TenantSpec]);

impl NaiveTree<'_> {
    fn parent(&self, of: usize) -> Option<usize> {
        let name = self.0[of].parent.as_ref()?;
        self.0.iter().position(|it| it.name == *name)
    }

    fn is_in_order(&self) -> bool {
        (0..self.0.len()).all(|start| {
            let mut ancestors = 0;
            let mut at = start;
            while let Some(parent) = self.parent(at) {
                (at, ancestors) = (parent, ancestors + 1);
                if ancestors > 16 {
                    return false;
                }
            }
            ancestors < 16
        })
    }

    fn algorithm(&self, of: usize) -> TenantAlgorithm {
        let above = || self.parent(of).map(|parent| self.algorithm(parent));
        self.0[of].algorithm.or_else(above).unwrap_or_default()
    }

    fn effective(&self, of: usize) -> Option<Numbers> {
        let (spec, algorithm) = (&self.0[of], self.algorithm(of));
        let window = algorithm != TenantAlgorithm::TokenBucket;
        let rate =
            spec.rate.map(|it| (u128::from(it.count()), u128::from(it.period_us() / 1_000_000)));
        let burst = match (window, spec.burst) {
            (false, Some(burst)) => Some(u128::from(burst)),
            _ => rate.map(|(count, _)| count),
        };
        let above = self.parent(of).filter(|it| self.0[*it].sharing != Sharing::Private);
        let Some(above) = above else {
            let (count, seconds) = rate?;
            return Some(Numbers { count, seconds, burst: burst?, algorithm });
        };
        let above = self.effective(above)?;
        let (count, seconds) = match rate {
            Some((count, seconds)) if count * above.seconds <= above.count * seconds => {
                (count, seconds)
            }
            // A window is never longer than it has to be to give anything.
            Some((_, seconds)) if window && seconds < above.seconds => {
                let given = |times: u128| above.count * seconds * times / above.seconds;
                let times = (1..).find(|times| given(*times) > 0)?;
                (given(times), seconds * times)
            }
            _ => (above.count, above.seconds),
        };
        let burst = if window { Some(count) } else { burst };
        let burst = burst.map_or(above.burst, |it| it.min(above.burst));
        Some(Numbers { count, seconds, burst, algorithm })
    }

    fn children(&self, of: usize) -> Vec<usize> {
        (0..self.0.len()).filter(|child| self.parent(*child) == Some(of)).collect()
    }

    /// The window of a budget, and what is in it.
    fn budget(&self, of: usize) -> Option<(u128, u128)> {
        let effective = self.effective(of)?;
        let own = self.0[of].rate;
        let count = own.map_or(effective.count, |it| u128::from(it.count()));
        let seconds = own.map_or(effective.seconds, |it| u128::from(it.period_us() / 1_000_000));
        Some((seconds, self.0[of].budget.total.map_or(count, u128::from)))
    }

    fn allocated(&self, of: usize) -> Option<u128> {
        let (seconds, _) = self.budget(of)?;
        Some(match &self.0[of].budget.mode {
            BudgetMode::Unlimited | BudgetMode::Shared => 0,
            BudgetMode::Guaranteed(guarantees) => {
                guarantees.iter().map(|(_, it)| u128::from(*it)).sum()
            }
            BudgetMode::Allocated => self
                .children(of)
                .into_iter()
                .filter_map(|child| self.0[child].rate)
                .map(|it| {
                    (u128::from(it.count()) * seconds * 1_000_000).div_ceil(it.period_us().into())
                })
                .sum(),
        })
    }

    fn is_charged(&self, of: usize) -> bool {
        let shared =
            matches!(self.0[of].budget.mode, BudgetMode::Shared | BudgetMode::Guaranteed(_));
        match self.0[of].sharing {
            Sharing::Private => false,
            Sharing::Inherit => shared,
            Sharing::Enforce => true,
        }
    }

    fn guarantees(&self, of: usize) -> Option<&[(String, u64)]> {
        match &self.0[of].budget.mode {
            BudgetMode::Guaranteed(guarantees) if self.is_charged(of) => Some(guarantees),
            _ => None,
        }
    }

    /// A guarantee, or for all guarantees together the pool, which may be nothing.
    fn part(&self, of: usize, part: u128) -> Option<Numbers> {
        let (effective, (seconds, total)) = (self.effective(of)?, self.budget(of)?);
        let total = total.min(effective.count * seconds / effective.seconds);
        if effective.is_window() {
            let count = part * effective.seconds / seconds;
            return Some(Numbers { count, burst: count, ..effective });
        }
        let burst = effective.burst * part / total.max(1);
        Some(Numbers { count: part, seconds, burst, ..effective })
    }

    fn guarantee(&self, child: usize) -> Option<Numbers> {
        let parent = self.parent(child)?;
        let named = |(name, _): &&(String, u64)| *name == self.0[child].name;
        let (_, guarantee) = self.guarantees(parent)?.iter().find(named)?;
        self.part(parent, u128::from(*guarantee))
    }

    fn pool(&self, of: usize) -> Option<Numbers> {
        let guarantees = self.guarantees(of)?;
        let (effective, (seconds, total)) = (self.effective(of)?, self.budget(of)?);
        let total = total.min(effective.count * seconds / effective.seconds);
        let sum: u128 = guarantees.iter().map(|(_, it)| u128::from(*it)).sum();
        let parts = guarantees.iter().filter_map(|(_, it)| self.part(of, u128::from(*it)));
        let (counts, bursts) =
            parts.fold((0, 0), |(counts, bursts), it| (counts + it.count, bursts + it.burst));
        if total <= sum {
            return None;
        }
        Some(match effective.is_window() {
            true => {
                let count = total * effective.seconds / seconds - counts;
                Numbers { count, burst: count, ..effective }
            }
            false => Numbers {
                count: total - sum,
                seconds,
                burst: effective.burst - bursts,
                ..effective
            },
        })
    }

    fn is_fine(&self, of: usize) -> bool {
        let (Some(effective), Some((seconds, total))) = (self.effective(of), self.budget(of))
        else {
            return false;
        };
        let Some(allocated) = self.allocated(of) else { return false };
        let budget = &self.0[of].budget;
        let fits = match &budget.mode {
            BudgetMode::Allocated => {
                allocated * 100 <= total * u128::from(budget.overcommit.hundredths())
            }
            _ => allocated <= total,
        };
        let Some(guarantees) = self.guarantees(of) else { return fits };
        let total = total.min(effective.count * seconds / effective.seconds);
        let named = |child: &usize| guarantees.iter().any(|(name, _)| *name == self.0[*child].name);
        let at_once = |guarantee: u64| {
            self.part(of, u128::from(guarantee)).is_some_and(|it| it.count > 0 && it.burst > 0)
        };
        fits && total > 0
            && allocated <= total
            && guarantees.iter().all(|(_, it)| at_once(*it))
            && (allocated < total || self.children(of).iter().all(named))
            && self.pool(of).is_none_or(|it| it.count > 0 && it.burst > 0)
    }

    /// The steps, as `name`, `name pool` or `name guarantee`.
    fn steps(&self, of: usize, through: Option<usize>) -> Vec<String> {
        let name = &self.0[of].name;
        let step = if self.guarantees(of).is_none() {
            vec![name.clone()]
        } else {
            let guarantee = through.and_then(|child| self.guarantee(child));
            let guarantee = guarantee.map(|_| format!("{name} guarantee"));
            guarantee.into_iter().chain(self.pool(of).map(|_| format!("{name} pool"))).collect()
        };
        if step.is_empty() {
            return Vec::new();
        }
        let above = self.parent(of).filter(|it| self.is_charged(*it));
        let above = above.map_or(Vec::new(), |above| self.steps(above, Some(of)));
        std::iter::once(step.join(" or ")).chain(above).collect()
    }
}

fn steps(tree: &TenantTree, name: &str) -> Vec<String> {
    let of = tree.find(name.as_bytes()).expect(name);
    let steps = tree.steps(of).map(|step| {
        let buckets = match step {
            TenantStep::One(one) => vec![one],
            TenantStep::FirstOf(one, other) => vec![one, other],
        };
        let named = buckets.iter().map(|bucket| {
            let name = &tree[bucket.of].spec.name;
            match bucket.part {
                BucketPart::Own => name.clone(),
                BucketPart::Pool => format!("{name} pool"),
                BucketPart::Guarantee(_) => format!("{name} guarantee"),
            }
        });
        named.collect::<Vec<_>>().join(" or ")
    });
    steps.collect()
}

fn rate() -> impl Strategy<Value = Rate> {
    let count = prop_oneof![1..20_u64, 20..2000_u64];
    let seconds = prop_oneof![4 => Just(60_u64), 1 => Just(1), 1 => Just(10), 1 => Just(3600)];
    (count, seconds)
        .prop_map(|(count, it)| Rate::new(count, Duration::from_secs(it)).expect("a rate"))
}

/// A tenant whose parent is the place above it by so many, and guarantees for its children in percent.
type Written = (TenantSpec, Option<usize>, Vec<u64>);

fn written() -> impl Strategy<Value = Written> {
    let sharing = prop_oneof![
        1 => Just(Sharing::Private),
        2 => Just(Sharing::Inherit),
        4 => Just(Sharing::Enforce)
    ];
    let algorithm = prop_oneof![
        8 => Just(None),
        1 => Just(Some(TenantAlgorithm::TokenBucket)),
        1 => Just(Some(TenantAlgorithm::SlidingWindow)),
        1 => Just(Some(TenantAlgorithm::FixedWindow))
    ];
    let mode = prop_oneof![
        Just(BudgetMode::Unlimited),
        Just(BudgetMode::Allocated),
        Just(BudgetMode::Shared),
        Just(BudgetMode::Guaranteed(Vec::new()))
    ];
    let budget = (mode, prop::option::weighted(0.3, 1..3000_u64), 100..=200_u16);
    let numbers = (prop::option::weighted(0.9, rate()), prop::option::weighted(0.4, 1..1500_u64));
    let parent = prop_oneof![1 => Just(None), 6 => (1..4_usize).prop_map(Some)];
    let guarantees = prop::collection::vec(prop_oneof![1 => Just(0), 2 => 1..60_u64], 12);
    (numbers, algorithm, sharing, budget, parent, guarantees).prop_map(
        |((rate, burst), algorithm, sharing, (mode, total, overcommit), parent, guarantees)| {
            let overcommit = Overcommit::of_hundredths(overcommit).expect("in range");
            let budget = Budget { mode, total, overcommit };
            let spec =
                TenantSpec { rate, burst, algorithm, sharing, budget, ..TenantSpec::new("") };
            (spec, parent, guarantees)
        },
    )
}

fn tree() -> impl Strategy<Value = Vec<TenantSpec>> {
    let written = prop::collection::vec(written(), 1..12);
    // Now and then a root gets a parent, which may close a cycle.
    (written, any::<bool>(), prop::option::weighted(0.05, 0..12_usize)).prop_map(
        |(written, reversed, closing)| {
            let name = |at: usize| format!("t{at}");
            let count = written.len();
            let mut specs = Vec::new();
            let parent = |at: usize, up: Option<usize>| up.and_then(|up| at.checked_sub(up));
            let parents: Vec<Option<usize>> =
                written.iter().enumerate().map(|(at, (_, up, _))| parent(at, *up)).collect();
            for (at, (mut spec, _, percents)) in written.into_iter().enumerate() {
                spec.name = name(at);
                spec.parent = parents[at].map(name);
                if let BudgetMode::Guaranteed(guarantees) = &mut spec.budget.mode {
                    let total = spec.budget.total.or(spec.rate.map(Rate::count)).unwrap_or(100);
                    let children = (0..count).filter(|child| parents[*child] == Some(at));
                    let some = children.filter(|child| percents[*child] > 0);
                    let guarantee = |child: usize| (total * percents[child] / 100).max(1);
                    *guarantees = some.map(|child| (name(child), guarantee(child))).collect();
                }
                specs.push(spec);
            }
            if let Some(last) = closing.filter(|last| *last < count) {
                specs[0].parent = Some(name(last));
            }
            if reversed {
                specs.reverse();
            }
            specs
        },
    )
}

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn a_tree_is_what_each_tenant_by_itself_says(specs in tree()) {
        let naive = NaiveTree(&specs);
        let fine = naive.is_in_order() && (0..specs.len()).all(|of| naive.is_fine(of));
        let built = TenantTree::build(specs.clone());
        prop_assert_eq!(fine, built.is_ok(), "{:?}", built.err());
        let Ok((tree, warnings)) = built else { return Ok(()) };
        prop_assert_eq!(tree.tenants().len(), specs.len());
        for (of, spec) in specs.iter().enumerate() {
            let found = tree.find(spec.name.as_bytes()).expect("in the tree");
            let tenant = &tree[found];
            prop_assert_eq!(&tenant.spec, spec);
            let written = |it: Option<Numbers>| it.map(Numbers::without_window_burst);
            let effective = written(naive.effective(of));
            prop_assert_eq!(Some(Numbers::of(&tenant.effective)), effective);
            prop_assert_eq!(tenant.pool.as_ref().map(Numbers::of), written(naive.pool(of)));
            prop_assert_eq!(tenant.guarantee.as_ref().map(Numbers::of), written(naive.guarantee(of)));
            prop_assert_eq!(Some(u128::from(tenant.allocated)), naive.allocated(of));
            let (_, total) = naive.budget(of).expect("a budget");
            prop_assert_eq!(u128::from(tenant.total), total);
            prop_assert_eq!(steps(&tree, &spec.name), naive.steps(of, None));
            let parent = tenant.parent.map(|parent| tree[parent].spec.name.clone());
            prop_assert_eq!(&parent, &spec.parent);
            let children: Vec<String> =
                tree.children(found).map(|child| tree[child].spec.name.clone()).collect();
            let expected: Vec<String> =
                naive.children(of).into_iter().map(|child| specs[child].name.clone()).collect();
            prop_assert_eq!(children, expected);
            let over = spec.budget.mode == BudgetMode::Allocated && u128::from(tenant.allocated) > total;
            let warned = warnings.iter().any(|it| {
                it.tenant == spec.name && matches!(it.kind, TenantWarningKind::Overcommitted(_))
            });
            prop_assert_eq!(over, warned);
        }
    }
}
