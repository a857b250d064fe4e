//! Slots that requests hold until they end, in the embedded store.

use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use weir::clock::{Clock, Micros};
use weir::limit::concurrency::Concurrency;
use weir::limit::{Policy, Retry};
use weir::store::{Check, CheckOutcome, MemoryStore};

use crate::decider::{Ask, Names};
use crate::threads::Dice;

const NOW: Micros = Micros(1_700_000_000_000_000);
const KEYS: u64 = 6;

fn slots(limit: u64) -> Policy {
    Policy::Concurrency(Concurrency::new(limit).expect("a limit"))
}

/// What a request does: takes slots of a key, or ends and releases what it has.
#[derive(Debug, Clone, Copy)]
enum Event {
    Begin { key: u64, cost: u64 },
    End { which: usize },
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        3 => (0..KEYS, 0..4_u64).prop_map(|(key, cost)| Event::Begin { key, cost }),
        2 => any::<usize>().prop_map(|which| Event::End { which }),
    ];
    prop::collection::vec(event, 1..120)
}

/// Requests in flight, as the store and as simple counting sees them.
struct World<'a> {
    store: MemoryStore,
    names: Names,
    policy: &'a Policy,
    running: Vec<(u64, Held<'a>)>,
}

/// What a request in flight holds.
type Held<'a> = (Check<'a>, CheckOutcome);

/// What the store gives to one check, if it admits it.
fn begin<'a>(store: &MemoryStore, check: Check<'a>) -> Result<Held<'a>, Option<Retry>> {
    let mut outcomes = [CheckOutcome::default()];
    let admitted = store.decide_now(&[check], &mut outcomes).admitted;
    let [outcome] = outcomes;
    assert_eq!(admitted, outcome.refused.is_none());
    if admitted { Ok((check, outcome)) } else { Err(outcome.refused) }
}

impl<'a> World<'a> {
    fn new(max_keys: usize, policy: &'a Policy) -> Self {
        let store = MemoryStore::new(max_keys, Clock::manual(NOW));
        Self { store, names: Names::new(), policy, running: Vec::new() }
    }

    fn in_flight(&self, key: u64) -> u64 {
        self.running.iter().filter(|(of, _)| *of == key).map(|(_, (check, _))| check.cost).sum()
    }

    fn begin(&mut self, key: u64, cost: u64) -> Option<Retry> {
        let check = self.names.check(&Ask { policy: self.policy, key, cost });
        match begin(&self.store, check) {
            Ok(held) => {
                self.running.push((key, held));
                None
            }
            Err(refused) => refused,
        }
    }

    fn end(&mut self, which: usize) {
        if let Some(which) = which.checked_rem(self.running.len()) {
            let (_, (check, outcome)) = self.running.swap_remove(which);
            self.store.refund(&check, &outcome);
        }
    }
}

proptest! {
    #[test]
    fn a_request_begins_if_and_only_if_its_slots_are_free(
        limit in 1..8_u64, events in events(),
    ) {
        let policy = slots(limit);
        let mut world = World::new(100, &policy);
        for event in events {
            match event {
                Event::End { which } => world.end(which),
                Event::Begin { key, cost } => {
                    let in_flight = world.in_flight(key);
                    let refused = world.begin(key, cost);
                    let expected = match in_flight + cost {
                        _ if cost > limit => Some(Retry::Never),
                        sum if sum > limit => Some(Retry::At(Micros(NOW.0 + 1_000_000))),
                        _ => None,
                    };
                    prop_assert_eq!(refused, expected);
                }
            }
        }
    }

    /// Keys move between buckets of their own and shared ones, and no slot gets lost or is returned
    /// to a bucket that it was not taken from.
    #[test]
    fn a_full_table_neither_exceeds_a_limit_nor_loses_a_slot(
        limit in 1..8_u64, max_keys in 0..4_usize, events in events(),
    ) {
        let policy = slots(limit);
        let mut world = World::new(max_keys, &policy);
        for event in events {
            match event {
                Event::End { which } => world.end(which),
                Event::Begin { key, cost } => {
                    world.begin(key, cost);
                    prop_assert!(world.in_flight(key) <= limit);
                }
            }
        }
        while !world.running.is_empty() {
            world.end(0);
        }
        for key in 0..KEYS {
            prop_assert_eq!(world.begin(key, limit), None);
            world.end(0);
        }
    }
}

#[test]
fn a_slot_of_a_shared_bucket_goes_back_there_even_if_there_is_room_by_then() {
    let policy = slots(2);
    let mut world = World::new(1, &policy);
    assert_eq!(world.begin(0, 1), None);
    assert_eq!(world.begin(1, 2), None);
    assert_eq!([false, true], [0, 1].map(|index: usize| world.running[index].1.1.shared));
    // The only entry of the table is free again, but what the second holds is not in it.
    world.end(0);
    assert!(world.begin(1, 1).is_some());
    world.end(0);
    assert_eq!(world.begin(1, 2), None);
    assert!(!world.running[0].1.1.shared);
}

#[test]
fn many_threads_never_hold_more_than_the_limit_and_leave_nothing_behind() {
    const LIMIT: u64 = 5;
    let policy = slots(LIMIT);
    // With room for all keys, for some, and for none.
    for max_keys in [100, 3, 0] {
        let store = MemoryStore::new(max_keys, Clock::system());
        let names = Names::new();
        let held = [(); KEYS as usize].map(|()| AtomicU64::new(0));
        std::thread::scope(|scope| {
            for seed in 0..8 {
                let (store, names, held, policy) = (&store, &names, &held, &policy);
                scope.spawn(move || {
                    let (mut dice, mut running) = (Dice(seed), Vec::new());
                    for _ in 0..3_000 {
                        if dice.below(2) == 0 && !running.is_empty() {
                            let (key, (check, outcome)): (u64, Held<'_>) =
                                running.swap_remove(dice.below(running.len() as u64) as usize);
                            held[key as usize].fetch_sub(check.cost, Ordering::SeqCst);
                            store.refund(&check, &outcome);
                            continue;
                        }
                        let (key, cost) = (dice.below(KEYS), 1 + dice.below(2));
                        let check = names.check(&Ask { policy, key, cost });
                        if let Ok(taken) = begin(store, check) {
                            let before = held[key as usize].fetch_add(cost, Ordering::SeqCst);
                            assert!(before + cost <= LIMIT);
                            running.push((key, taken));
                        }
                    }
                    for (key, (check, outcome)) in running {
                        held[key as usize].fetch_sub(check.cost, Ordering::SeqCst);
                        store.refund(&check, &outcome);
                    }
                });
            }
        });
        for key in 0..KEYS {
            let check = names.check(&Ask { policy: &policy, key, cost: LIMIT });
            let taken = begin(&store, check);
            let (check, outcome) = taken.unwrap_or_else(|_| panic!("a slot of {key} got lost"));
            store.refund(&check, &outcome);
        }
    }
}

/// What one of several workers does with its own idea of the time: a reply tells it how far Redis's
/// clock is from the mirror's, and replies come out of order.
#[derive(Debug, Clone, Copy)]
enum Turn {
    /// A request passes by Redis's word, with the instant of the reply, and is counted here.
    Hear {
        key: u64,
        cost: u64,
        limit: u64,
        skew: i64,
    },
    /// A request is decided here, while Redis is away.
    Alone {
        key: u64,
        cost: u64,
        limit: u64,
    },
    End {
        which: usize,
    },
    /// The clock steps, forward or back.
    Step {
        by: i64,
    },
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    const HOUR: i64 = 3_600_000_000;
    let skew = || prop_oneof![3 => -50_000..50_000_i64, 1 => -HOUR..HOUR];
    // A reload may change the limit at any time, and each request keeps the one it came by.
    let limit = || prop_oneof![Just(3_u64), Just(8), Just(50)];
    let hear = (0..KEYS, 0..4_u64, limit(), skew())
        .prop_map(|(key, cost, limit, skew)| Turn::Hear { key, cost, limit, skew });
    let alone = (0..KEYS, 0..4_u64, limit()).prop_map(|(key, cost, limit)| Turn::Alone {
        key,
        cost,
        limit,
    });
    let end = any::<usize>().prop_map(|which| Turn::End { which });
    let step = skew().prop_map(|by| Turn::Step { by });
    prop::collection::vec(prop_oneof![3 => hear, 2 => alone, 4 => end, 1 => step], 1..200)
}

proptest! {
    /// Every slot that was taken comes back exactly once and where it was taken, whatever any
    /// clock shows: in between the store counts as many as are in flight, and in the end none.
    #[test]
    fn no_clock_decides_whether_a_slot_comes_back(max_keys in 0..5_usize, turns in turns()) {
        let policies = [3, 8, 50].map(|limit| (limit, slots(limit)));
        let of = |limit: u64| &policies.iter().find(|(it, _)| *it == limit).expect("one").1;
        let clock = Clock::manual(NOW);
        let (store, names) = (MemoryStore::new(max_keys, clock.clone()), Names::new());
        let mut running: Vec<(u64, Held<'_>)> = Vec::new();
        for turn in turns {
            match turn {
                Turn::Step { by } => clock.set(Micros(clock.now().0.saturating_add_signed(by))),
                Turn::End { which } => {
                    if let Some(which) = which.checked_rem(running.len()) {
                        let (_, (check, outcome)) = running.swap_remove(which);
                        store.refund(&check, &outcome);
                    }
                }
                Turn::Hear { key, cost, limit, skew } => {
                    let heard = names.check(&Ask { policy: of(limit), key, cost });
                    let replied = Micros(clock.now().0.saturating_add_signed(skew));
                    let taken = CheckOutcome { now: replied, ..store.charge_one_after(&heard) };
                    running.push((key, (heard, taken)));
                }
                Turn::Alone { key, cost, limit } => {
                    let check = names.check(&Ask { policy: of(limit), key, cost });
                    running.extend(begin(&store, check).ok().map(|held| (key, held)));
                }
            }
            for key in 0..KEYS {
                let own = running.iter().filter(|(of, (_, outcome))| *of == key && !outcome.shared);
                let own: u64 = own.map(|(_, (check, _))| check.cost).sum();
                let bucket = names.check(&Ask { policy: of(50), key, cost: 0 }).bucket;
                let counted = store.state(bucket).map_or(0, |state| state.rest);
                prop_assert_eq!(counted, own, "in the bucket of {}", key);
            }
        }
        for (_, (check, outcome)) in running.drain(..) {
            store.refund(&check, &outcome);
        }
        for key in 0..KEYS {
            let taken = begin(&store, names.check(&Ask { policy: of(50), key, cost: 50 }));
            prop_assert!(taken.is_ok(), "slots of {} got lost", key);
            let (check, outcome) = taken.expect("it is there");
            store.refund(&check, &outcome);
        }
    }
}
