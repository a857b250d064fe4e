//! Numbers that are announced before they hold.
//!
//! Gateways that share a store hear of a change at different times. One that knows only the smaller
//! numbers of a bucket clamps it to these at each look, and what others have charged by the larger ones
//! would be forgiven. So a change that lets a bucket be further from full is made in two steps: it is
//! announced, and all gateways clamp no further than both allow; and when all have had the time to hear
//! of that, it holds.

use std::sync::Arc;

use super::{RunTimeTenant, TenantChange, merge};
use crate::limit::Policy;
use crate::limit::tenants::{Tenant, TenantLimit, TenantTree};

/// The entry that announces a change, if it has to be announced.
pub fn announcement(
    file: &Arc<TenantTree>,
    limit: &TenantLimit,
    tenants: &[RunTimeTenant],
    change: &TenantChange,
) -> Option<RunTimeTenant> {
    let TenantChange::Set(entry) = change else { return None };
    // One that is new has no bucket that others look at.
    let known = tenants.iter().find(|it| it.name == entry.name)?;
    let others = tenants.iter().filter(|it| it.name != entry.name);
    let all: Vec<RunTimeTenant> = others.chain([&**entry]).cloned().collect();
    let (before, after) = (merge(file, tenants).tree, merge(file, &all).tree);
    let announced = Some(entry.tenant.clone());
    deepens(limit, &before, &after).then(|| RunTimeTenant { announced, ..known.clone() })
}

/// The tenants as they are once all that is announced holds; `None` if nothing is.
pub fn with_announced(tenants: &[RunTimeTenant]) -> Option<Vec<RunTimeTenant>> {
    let next = |it: &RunTimeTenant| {
        let tenant = it.announced.as_ref().unwrap_or(&it.tenant).clone();
        RunTimeTenant { tenant, announced: None, ..it.clone() }
    };
    let any = tenants.iter().any(|it| it.announced.is_some());
    any.then(|| tenants.iter().map(next).collect())
}

/// Whether a bucket of both trees may be further from full by the second.
fn deepens(limit: &TenantLimit, before: &TenantTree, after: &TenantTree) -> bool {
    let buckets = |it: &Tenant| [Some(it.effective), it.pool, it.guarantee];
    let deeper = |(old, new): (Option<Policy>, Option<Policy>)| {
        let both = old.zip(new).map(|(old, new)| (limit.with_debt(old), limit.with_debt(new)));
        both.is_some_and(|(old, new)| old.beside(&new) != old)
    };
    after.tenants().iter().any(|new| {
        let old = before.find(new.spec.name.as_bytes()).map(|at| &before[at]);
        old.is_some_and(|old| buckets(old).into_iter().zip(buckets(new)).any(deeper))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::tenants::TenantSpec;
    use crate::tenants::TenantBody;

    fn file() -> Arc<TenantTree> {
        let rate = crate::limit::Rate::new(1000, std::time::Duration::from_secs(1));
        let root = TenantSpec { rate: rate.ok(), ..TenantSpec::new("root") };
        Arc::new(TenantTree::build(vec![root]).expect("a tree").0)
    }

    fn entry(name: &str, parent: &str, numbers: Option<(&str, u64)>) -> RunTimeTenant {
        let (rate, burst) = numbers.map(|(rate, burst)| (rate.to_owned(), burst)).unzip();
        let tenant =
            TenantBody { parent: Some(parent.to_owned()), rate, burst, ..TenantBody::default() };
        RunTimeTenant { name: name.to_owned(), order: 1, tenant, announced: None }
    }

    #[test]
    fn only_what_lets_a_bucket_be_further_from_full_is_announced() {
        let (file, limit) = (file(), TenantLimit::default());
        let all = [entry("p", "root", Some(("10/second", 20))), entry("c", "p", None)];
        let announces = |it: RunTimeTenant| {
            let change = TenantChange::Set(Box::new(it.clone()));
            let announcement = announcement(&file, &limit, &all, &change)?;
            assert_eq!(announcement.announced, Some(it.tenant));
            Some(announcement.tenant)
        };
        let p = |rate: &str, burst: u64| announces(entry("p", "root", Some((rate, burst))));
        // Longer to fill, or slower to do so.
        for (rate, burst) in [("10/second", 21), ("9/second", 20), ("20/second", 50)] {
            assert_eq!(p(rate, burst).as_ref(), Some(&all[0].tenant), "{rate} {burst}");
        }
        for (rate, burst) in [("10/second", 20), ("10/second", 5), ("20/second", 40)] {
            assert_eq!(p(rate, burst), None, "{rate} {burst}");
        }
        // Nobody looks at the bucket of a new one, and what is removed is looked at by nobody.
        assert_eq!(announces(entry("new", "p", None)), None);
        let removal = TenantChange::Remove("c".to_owned());
        assert_eq!(announcement(&file, &limit, &all, &removal), None);
    }

    #[test]
    fn what_is_announced_takes_the_place_of_what_holds() {
        let all = [entry("p", "root", Some(("10/second", 20))), entry("c", "p", None)];
        assert_eq!(with_announced(&all), None);
        let next = entry("p", "root", Some(("10/second", 200)));
        let announced = RunTimeTenant { announced: Some(next.tenant.clone()), ..all[0].clone() };
        assert_eq!(with_announced(&[announced, all[1].clone()]), Some(vec![next, all[1].clone()]));
    }
}
