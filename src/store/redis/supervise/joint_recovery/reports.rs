//! What gateways say to each other while they [come back from an outage together](super): names in a set,
//! each with a word behind it.

use std::collections::HashSet;

use tokio::time::Instant;

use crate::clock::Micros;

/// It has found Redis, and pays as soon as the others have.
pub(super) const FOUND: &str = " found";
/// It pays, or is about to.
pub(super) const PAYING: &str = " paying";
/// It owes nothing, and goes on by its share until all have paid.
pub(super) const PAID: &str = " paid";
/// It decides nothing without Redis any more, and owes nothing.
pub(super) const READY: &str = " ready";
/// It owes nothing, and Redis decides: a name and nothing behind it.
pub(super) const IN_USE: &str = "";

/// Behind an instant in milliseconds, and no name: all stop then deciding without Redis.
const CUTOVER: &str = " cutover";

/// All that may stand behind a name.
const STATES: [&str; 5] = [IN_USE, FOUND, PAYING, PAID, READY];
/// Those of a node that has charged what it admitted.
const OWING_NOTHING: [&str; 3] = [IN_USE, PAID, READY];
/// Those of a node that may still go on by its share.
const RECOVERING: [&str; 3] = [FOUND, PAYING, PAID];

/// What the set may have of a node.
pub(in crate::store::redis::supervise) fn members_of(node: &str) -> impl Iterator<Item = String> {
    STATES.iter().map(move |state| format!("{node}{state}"))
}

/// What names the instant at which all stop deciding without Redis.
pub(super) fn cutover_at(time: Micros) -> String {
    format!("{}{CUTOVER}", time.0 / 1000)
}

/// What nodes have said of themselves in the set, in the order in which they last said it.
pub(super) struct Reports(pub(super) Vec<String>);

impl Reports {
    fn has(&self, node: &str, state: &str) -> bool {
        self.0.iter().any(|it| it.strip_prefix(node) == Some(state))
    }

    pub(super) fn has_any(&self, node: &str) -> bool {
        STATES.iter().any(|state| self.has(node, state))
    }

    /// Whether a node owes Redis nothing. One that has said so and then something else has lost Redis
    /// since, and owes what it has admitted.
    pub(super) fn has_paid(&self, node: &str) -> bool {
        let mut said = self.0.iter().filter_map(|it| it.strip_prefix(node));
        said.rfind(|it| STATES.contains(it)).is_some_and(|it| OWING_NOTHING.contains(&it))
    }

    /// Whether a node has still to pay.
    pub(super) fn has_yet_to_pay(&self, node: &str) -> bool {
        self.has(node, FOUND) || self.has(node, PAYING)
    }

    /// Whether any node but this one has said so.
    pub(super) fn has_other(&self, node: &str, state: &str) -> bool {
        let names = self.0.iter().filter_map(|it| it.strip_suffix(state));
        names.filter(|name| !name.contains(' ')).any(|name| name != node)
    }

    /// Whether any node but this one has owed nothing, whatever became of it since.
    pub(super) fn has_other_paid(&self, node: &str) -> bool {
        OWING_NOTHING.iter().any(|state| self.has_other(node, state))
    }

    /// The first that was named.
    pub(super) fn cutover(&self) -> Option<Micros> {
        let instants = self.0.iter().filter_map(|it| it.strip_suffix(CUTOVER)?.parse().ok());
        instants.min().map(|millis: u64| Micros(millis.saturating_mul(1000)))
    }
}

/// The gateways that may have been in the same outage, this one among them.
pub(in crate::store::redis::supervise) struct OutageGroup {
    pub(super) names: Vec<String>,
    /// What they have said before counts no longer.
    pub(super) since: Instant,
    /// Those that have said since that they come back from it, and that they are ready. They do not
    /// repeat what they have said for as long as one may have to wait for another.
    recovering: HashSet<String>,
    ready: HashSet<String>,
    /// The instant has come at which all of them stop deciding without Redis.
    pub(in crate::store::redis::supervise) is_cutover: bool,
}

impl OutageGroup {
    pub(super) fn new(names: Vec<String>, since: Instant) -> Self {
        let (recovering, ready) = (HashSet::new(), HashSet::new());
        OutageGroup { names, since, recovering, ready, is_cutover: false }
    }

    pub(super) fn note(&mut self, reports: &Reports) {
        for node in &self.names {
            if RECOVERING.iter().any(|state| reports.has(node, state)) {
                self.recovering.insert(node.clone());
            }
            if reports.has(node, READY) {
                self.ready.insert(node.clone());
            }
        }
    }

    /// Whether another than this node comes back as well.
    pub(super) fn are_recovering(&self, node: &str) -> bool {
        self.recovering.iter().any(|it| it != node)
    }

    pub(super) fn are_ready(&self) -> bool {
        self.recovering.is_subset(&self.ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reports(members: &[&str]) -> Reports {
        Reports(members.iter().map(|&it| it.to_owned()).collect())
    }

    #[test]
    fn one_that_goes_on_by_its_share_has_paid_and_is_waited_for_until_it_is_ready() {
        let names = ["this", "other"].map(str::to_owned).to_vec();
        let mut others = OutageGroup::new(names, Instant::now());
        others.note(&reports(&["this paid", "other"]));
        assert!(!others.are_recovering("this"), "Redis decides for it");
        let paid = reports(&["this paid", "other paid"]);
        assert!(paid.has_paid("other") && !paid.has_yet_to_pay("other"));
        others.note(&paid);
        assert!(others.are_recovering("this") && !others.are_ready());
        others.note(&reports(&["this ready", "other paid", "other ready"]));
        assert!(others.are_ready());
    }

    #[test]
    fn one_that_has_lost_redis_again_since_it_has_paid_is_waited_for() {
        let lost = reports(&["this paid", "other paid", "other found"]);
        assert!(!lost.has_paid("other") && lost.has_yet_to_pay("other"));
        assert!(lost.has_other_paid("this"), "what it has paid is in Redis all the same");
        for later in ["other", "other paid", "other ready"] {
            assert!(reports(&["other found", "other paying", later]).has_paid("other"));
        }
    }

    #[test]
    fn a_name_that_begins_another_is_not_taken_for_it() {
        let said = reports(&["gateway-1", "gateway-12 paying", "1789 cutover"]);
        assert!(said.has_paid("gateway-1") && !said.has_yet_to_pay("gateway-1"));
        assert!(said.has_yet_to_pay("gateway-12") && !said.has_paid("gateway-12"));
        assert!(said.has_other("gateway-1", PAYING));
        assert!(!said.has_other("gateway-12", PAYING) && !said.has_other_paid("gateway-1"));
        assert_eq!(said.cutover(), Some(Micros(1_789_000)));
        assert_eq!(cutover_at(Micros(1_789_999)), "1789 cutover");
    }

    #[test]
    fn all_that_a_node_may_have_said_is_known_as_its_own() {
        for member in members_of("this") {
            assert!(reports(&[&member]).has_any("this"), "{member}");
        }
    }
}
