//! Gateways that hold leases of shared buckets, in virtual time.
//!
//! The gateways' side is the product's own [`LeaseTable`], Redis's side the twin of `lua/lease.lua`. Between
//! them lies a network that delays, loses and cuts off; gateways crash and stand still; clocks differ,
//! drift, and Redis's is set back. After every step level + unspent ≤ burst, and in the end no interval
//! has admitted more than `burst + rate × t`, to the unit.
//!
//! Everything follows from a seed. `WEIR_SIMULATION_SEED` runs one, `WEIR_SIMULATION_RUNS` so many more.
//! What fails is run again with fewer gateways, fewer keys, fewer kinds of faults and less time, and the
//! smallest that still fails is shown.

mod network;
mod promise;
mod world;

use std::time::Duration;

use weir::limit::fixed_window::FixedWindow;
use weir::limit::leaky_bucket::LeakyBucket;
use weir::limit::refill_bucket::RefillBucket;
use weir::limit::token_bucket::TokenBucket;
use weir::limit::{Policy, Rate};

use network::Faults;
use promise::Violation;
use world::{Load, World, WorldReport};

/// One run.
#[derive(Debug, Clone)]
struct Scenario {
    seed: u64,
    gateways: usize,
    /// For each key the numbers that alternate on it.
    limits: Vec<Vec<Policy>>,
    /// In microseconds.
    length: u64,
    load: Load,
    faults: Faults,
}

/// Numbers that look random and follow from a seed.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// Any number.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut it = self.0;
        it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        it ^ (it >> 31)
    }

    /// A number below a bound.
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn is_one_in(&mut self, many: u64) -> bool {
        many > 0 && self.below(many) == 0
    }
}

fn rate(count: u64, period_ms: u64) -> Rate {
    Rate::new(count, Duration::from_millis(period_ms)).expect("a rate")
}

fn bucket(count: u64, period_ms: u64, burst: u64) -> Policy {
    Policy::TokenBucket(TokenBucket::new(rate(count, period_ms), burst).expect("a bucket"))
}

fn limit(random: &mut Random) -> Vec<Policy> {
    let count = [7, 50, 300, 1_000, 5_000][random.below(5) as usize];
    let burst = (count * [1, 3, 10, 20][random.below(4) as usize] / 10).max(1);
    match random.below(6) {
        0 => vec![Policy::FixedWindow(FixedWindow::new(rate(count, 1_000)))],
        1 => {
            let refill = RefillBucket::new(Duration::from_millis(100), count.div_ceil(10), burst);
            vec![Policy::RefillBucket(refill.expect("a bucket"))]
        }
        2 => {
            let bucket = LeakyBucket::new(rate(count, 1_000), burst).expect("a bucket");
            vec![Policy::LeakyBucket(bucket)]
        }
        3 => {
            let (few, many) = (bucket(count, 1_000, burst), bucket(count * 3, 1_000, burst * 2));
            vec![few.beside(&many), many.beside(&few)]
        }
        _ => vec![bucket(count, 1_000, burst)],
    }
}

impl Scenario {
    fn random(seed: u64) -> Self {
        let mut random = Random(seed);
        let keys = 1 + random.below(3) as usize;
        let limits = (0..keys).map(|_| limit(&mut random)).collect();
        Scenario {
            seed,
            gateways: 1 + random.below(5) as usize,
            limits,
            length: 2_000_000 + random.below(4_000_000),
            load: Load::random(&mut random),
            faults: Faults::random(&mut random),
        }
    }

    fn run(&self) -> Result<WorldReport, Violation> {
        World::new(self).run()
    }

    /// The same with less of something, for everything there is less of.
    fn smaller(&self) -> Vec<Scenario> {
        let mut all = Vec::new();
        if self.gateways > 1 {
            all.push(Scenario { gateways: self.gateways - 1, ..self.clone() });
        }
        if self.limits.len() > 1 {
            for left_out in 0..self.limits.len() {
                let mut limits = self.limits.clone();
                limits.remove(left_out);
                all.push(Scenario { limits, ..self.clone() });
            }
        }
        for faults in self.faults.fewer() {
            all.push(Scenario { faults, ..self.clone() });
        }
        for length in [self.length / 2, self.length * 9 / 10] {
            all.push(Scenario { length, ..self.clone() });
        }
        all
    }

    /// The smallest that still fails.
    fn shrink(self, violation: Violation) -> (Scenario, Violation) {
        let (mut smallest, mut seen) = (self, violation);
        for _ in 0..200 {
            let fails = |it: Scenario| it.run().err().map(|violation| (it, violation));
            match smallest.smaller().into_iter().find_map(fails) {
                Some(found) => (smallest, seen) = found,
                None => break,
            }
        }
        (smallest, seen)
    }
}

fn run_or_shrink(scenario: Scenario) -> WorldReport {
    match scenario.run() {
        Ok(report) => report,
        Err(violation) => {
            let seed = scenario.seed;
            let (smallest, violation) = scenario.shrink(violation);
            panic!("seed {seed}: {violation}\n{smallest:#?}");
        }
    }
}

fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn no_history_of_leases_admits_more_than_was_promised() {
    let mut total = WorldReport::default();
    let seeds = match number_of("WEIR_SIMULATION_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number_of("WEIR_SIMULATION_RUNS").unwrap_or(150),
    };
    for seed in seeds.clone() {
        total.add(&run_or_shrink(Scenario::random(seed)));
    }
    println!("seeds {seeds:?}: {total:?}");
    assert!(total.leased > 0 || seeds.end - seeds.start == 1, "no lease was ever spent: {total:?}");
}

/// Three gateways without any fault, all of which want more of one key than there is.
fn saturated(load: Load) -> Scenario {
    Scenario {
        seed: 1,
        gateways: 3,
        limits: vec![vec![bucket(1_000, 1_000, 1_000)]],
        length: 11_000_000,
        load,
        faults: Faults::none(),
    }
}

#[test]
fn three_gateways_at_a_steady_load_admit_nearly_all_that_may_pass() {
    let report = run_or_shrink(saturated(Load { a_second: 1_000, ..Load::steady() }));
    let late = report.admitted_after(1_000_000);
    println!("{late} of 10,000 admitted, {report:?}");
    assert!(late >= 9_800, "{late} of 10,000: {report:?}");
}

#[test]
fn load_that_moves_every_second_loses_little() {
    let load = Load { a_second: 3_000, moves_every: 1_000_000, ..Load::steady() };
    let report = run_or_shrink(saturated(load));
    let late = report.admitted_after(1_000_000);
    println!("{late} of 10,000 admitted, {report:?}");
    assert!(late >= 9_500, "{late} of 10,000: {report:?}");
}

#[test]
fn hot_key_takes_few_calls_whether_it_is_near_its_limit_or_not() {
    for count in [1_000, 100_000] {
        let limits = vec![vec![bucket(count, 1_000, count)]];
        let load = Load { a_second: 1_000, ..Load::steady() };
        let report = run_or_shrink(Scenario { limits, ..saturated(load) });
        println!("{count} a second: {report:?}");
        let calls = report.calls as f64 / report.requests as f64;
        assert!(calls <= 0.02, "{calls} calls a request: {report:?}");
    }
}
