//! Gateways, Redis and what is on its way between them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::fmt;
use std::time::Duration;

use weir::clock::Micros;
use weir::limit::Policy;
use weir::limit::lease::{LeaseReply, LeaseRequest, LeasedBucket};
use weir::store::BucketId;
use weir::store::hybrid::lease::{CallSpan, Spend};
use weir::store::hybrid::lease_table::{
    Attempt, LeaseAsk, LeaseCheck, LeaseHold, LeaseTable, StrandedCost,
};
use weir::store::hybrid::timing::LeaseTiming;

use super::promise::{self, Admitted, Violation};
use super::{Faults, Random, Scenario};

/// What Redis's clock shows when the world begins: the middle of a second.
const CLOCK_START: u64 = 1_794_814_000_500_000;
/// How long a decision may wait, in microseconds.
const TIMEOUT: u64 = 20_000;

/// What gateways are asked for.
#[derive(Debug, Clone)]
pub(crate) struct Load {
    /// Requests a second for each gateway that is under load.
    pub(crate) a_second: u64,
    /// One in so many asks for two keys.
    pub(crate) two_keys: u64,
    /// One in so many costs more than one.
    pub(crate) dear: u64,
    /// The load is on one gateway at a time, and moves so often; zero if it is on all.
    pub(crate) moves_every: u64,
    /// The load of one gateway comes and goes.
    pub(crate) is_bursty: bool,
}

impl Load {
    pub(crate) fn steady() -> Self {
        Load { a_second: 1_000, two_keys: 0, dear: 0, moves_every: 0, is_bursty: false }
    }

    pub(crate) fn random(random: &mut Random) -> Self {
        Load {
            a_second: [60, 300, 1_000, 3_000][random.below(4) as usize],
            two_keys: [0, 3][random.below(2) as usize],
            dear: [0, 5][random.below(2) as usize],
            moves_every: [0, 0, 1_000_000, 300_000][random.below(4) as usize],
            is_bursty: random.below(2) == 0,
        }
    }
}

/// What came of a run.
#[derive(Clone, Default)]
pub(crate) struct WorldReport {
    pub(crate) requests: u64,
    pub(crate) admitted: u64,
    /// Costs that were spent from leases.
    pub(crate) leased: u64,
    /// Calls to Redis.
    pub(crate) calls: u64,
    pub(crate) steps: u64,
    instants: Vec<Admitted>,
}

impl fmt::Debug for WorldReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WorldReport { requests, admitted, leased, calls, steps, .. } = self;
        write!(
            f,
            "{requests} requests, {admitted} costs admitted, {leased} of them from leases, {calls} \
             calls, {steps} steps"
        )
    }
}

impl WorldReport {
    pub(crate) fn add(&mut self, other: &WorldReport) {
        self.requests += other.requests;
        self.admitted += other.admitted;
        self.leased += other.leased;
        self.calls += other.calls;
        self.steps += other.steps;
    }

    /// What was admitted of the first key from an instant on.
    pub(crate) fn admitted_after(&self, from: u64) -> u64 {
        self.instants.iter().filter(|it| it.at >= from).map(|it| it.cost).sum()
    }
}

struct Gateway {
    table: LeaseTable,
    /// Its clock runs by so many millionths faster, or slower.
    drift: i64,
    offset: u64,
    stopped_until: u64,
    cut_off_until: u64,
    /// How often it was started.
    life: u64,
}

/// One check of a request: a key, which of its numbers, a cost.
#[derive(Debug, Clone, Copy)]
struct Ask {
    key: usize,
    numbers: usize,
    cost: u64,
}

enum Event {
    Request {
        gateway: usize,
    },
    /// A request that has waited for a lease.
    Again {
        gateway: usize,
        life: u64,
        asks: Vec<Ask>,
        tries: u32,
    },
    Tick {
        gateway: usize,
        life: u64,
    },
    /// A request is there at Redis.
    Decide {
        question: u64,
    },
    /// Its answer is back, or there will be none.
    Decided {
        question: u64,
        admitted: bool,
    },
    Lease {
        call: u64,
        gateway: usize,
        deadline: u64,
        sent: Vec<SentAsk>,
    },
    Leased {
        call: u64,
        replies: Vec<LeaseReply>,
    },
    LeaseLost {
        call: u64,
    },
    Refund {
        key: usize,
        stranded: StrandedCost,
    },
}

/// What of a lease's call is on its way.
struct SentAsk {
    key: usize,
    policy: Policy,
    request: LeaseRequest,
}

struct Question {
    gateway: usize,
    life: u64,
    asks: Vec<Ask>,
    held: Vec<Ask>,
    hold: LeaseHold,
}

struct Call {
    gateway: usize,
    life: u64,
    asks: Vec<LeaseAsk>,
    sent: Micros,
}

pub(crate) struct World<'a> {
    scenario: &'a Scenario,
    random: Random,
    timing: LeaseTiming,
    now: u64,
    /// By how much Redis's clock was set back.
    set_back: u64,
    buckets: Vec<LeasedBucket>,
    gateways: Vec<Gateway>,
    events: BinaryHeap<Reverse<(u64, u64)>>,
    waiting: HashMap<u64, Event>,
    questions: HashMap<u64, Question>,
    calls: HashMap<u64, Call>,
    last: u64,
    /// By key and numbers.
    history: Vec<Vec<Vec<Admitted>>>,
    report: WorldReport,
}

impl<'a> World<'a> {
    pub(crate) fn new(scenario: &'a Scenario) -> Self {
        let timing = LeaseTiming::new(Duration::from_millis(100));
        let mut random = Random(scenario.seed ^ 0xabcd);
        let drift = scenario.faults.drift;
        let gateway = |_| Gateway {
            table: LeaseTable::new(timing, 1_000),
            drift: random.below(2 * drift + 1).cast_signed() - drift.cast_signed(),
            offset: random.below(1 << 40),
            stopped_until: 0,
            cut_off_until: 0,
            life: 0,
        };
        let gateways = (0..scenario.gateways).map(gateway).collect();
        let mut world = World {
            scenario,
            random,
            timing,
            now: 0,
            set_back: 0,
            buckets: vec![LeasedBucket::default(); scenario.limits.len()],
            gateways,
            events: BinaryHeap::new(),
            waiting: HashMap::new(),
            questions: HashMap::new(),
            calls: HashMap::new(),
            last: 0,
            history: scenario.limits.iter().map(|it| vec![Vec::new(); it.len()]).collect(),
            report: WorldReport::default(),
        };
        for gateway in 0..scenario.gateways {
            world.after(gateway as u64, Event::Request { gateway });
            world.after(1 + gateway as u64, Event::Tick { gateway, life: 0 });
        }
        world
    }

    pub(crate) fn run(mut self) -> Result<WorldReport, Violation> {
        while let Some(Reverse((at, id))) = self.events.pop() {
            if at > self.scenario.length {
                break;
            }
            self.now = at;
            self.report.steps += 1;
            let Some(event) = self.waiting.remove(&id) else { continue };
            self.handle(event)?;
        }
        for (key, histories) in self.history.iter_mut().enumerate() {
            for (policy, history) in self.scenario.limits[key].iter().zip(histories) {
                history.sort_by_key(|it| it.at);
                if self.set_back == 0 || !is_repeated(policy) {
                    promise::check(key, policy, history, CLOCK_START)?;
                }
            }
        }
        self.report.instants = self.history[0].concat();
        Ok(self.report)
    }

    fn after(&mut self, delay: u64, event: Event) {
        self.last += 1;
        self.events.push(Reverse((self.now + delay, self.last)));
        self.waiting.insert(self.last, event);
    }

    fn faults(&self) -> &'a Faults {
        &self.scenario.faults
    }

    fn redis_time(&self) -> Micros {
        Micros(CLOCK_START + self.now - self.set_back)
    }

    fn local_time(&self, gateway: usize) -> Micros {
        let Gateway { drift, offset, .. } = self.gateways[gateway];
        let ahead = self.now.cast_signed() * drift / 1_000_000;
        Micros((offset + self.now).saturating_add_signed(ahead))
    }

    fn policy(&self, ask: Ask) -> &'a Policy {
        &self.scenario.limits[ask.key][ask.numbers]
    }

    fn lease_check(&self, ask: Ask) -> LeaseCheck<'a> {
        LeaseCheck { bucket: bucket_id(ask.key), policy: self.policy(ask), cost: ask.cost }
    }

    /// Whether a gateway runs, and is the one that is meant. If it stands still, the event waits.
    fn is_running(&mut self, gateway: usize, life: u64, event: impl FnOnce() -> Event) -> bool {
        let it = &self.gateways[gateway];
        if it.life != life {
            return false;
        }
        if it.stopped_until > self.now {
            let delay = it.stopped_until - self.now;
            self.after(delay, event());
            return false;
        }
        true
    }

    fn handle(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Request { gateway } => {
                self.next_request(gateway);
                let life = self.gateways[gateway].life;
                let asks = self.new_request(gateway);
                if !asks.is_empty() {
                    self.report.requests += 1;
                    self.request(gateway, life, asks, 0);
                }
            }
            Event::Again { gateway, life, asks, tries } => self.request(gateway, life, asks, tries),
            Event::Tick { gateway, life } => self.tick(gateway, life),
            Event::Decide { question } => self.decide(question)?,
            Event::Decided { question, admitted } => self.decided(question, admitted),
            Event::Lease { call, gateway, deadline, sent } => {
                self.lease(call, gateway, deadline, &sent)?;
            }
            Event::Leased { call, replies } => self.leased(call, replies),
            Event::LeaseLost { call } => self.lease_lost(call),
            Event::Refund { key, stranded } => {
                let now = self.redis_time();
                let bucket = &mut self.buckets[key];
                let StrandedCost { policy, cost, charged_at, .. } = stranded;
                if !bucket.advance(&policy, now) {
                    bucket.state = policy.refund(bucket.state, now, cost, charged_at);
                }
                self.check(key)?;
            }
        }
        Ok(())
    }

    fn next_request(&mut self, gateway: usize) {
        let mean = 1_000_000 / self.scenario.load.a_second;
        let delay = 1 + self.random.below(2 * mean);
        self.after(delay, Event::Request { gateway });
    }

    /// Nothing if the load is elsewhere.
    fn new_request(&mut self, gateway: usize) -> Vec<Ask> {
        let load = &self.scenario.load;
        let is_elsewhere = load.moves_every > 0
            && self.now / load.moves_every % self.gateways.len() as u64 != gateway as u64;
        let is_quiet = load.is_bursty && self.now / 350_000 % 3 == gateway as u64 % 3;
        if is_elsewhere || is_quiet {
            return Vec::new();
        }
        let keys = self.scenario.limits.len();
        let first = self.random.below(keys as u64) as usize;
        let count = if keys > 1 && self.random.is_one_in(load.two_keys) { 2 } else { 1 };
        (first..first + count)
            .map(|key| {
                let key = key % keys;
                let numbers = self.random.below(self.scenario.limits[key].len() as u64) as usize;
                let is_dear = self.random.is_one_in(load.dear);
                let cost = if is_dear { 1 + self.random.below(5) } else { 1 };
                Ask { key, numbers, cost }
            })
            .collect()
    }

    /// As the store does it: what leases give, and the rest from Redis.
    fn request(&mut self, gateway: usize, life: u64, asks: Vec<Ask>, tries: u32) {
        let waits = asks.clone();
        if !self.is_running(gateway, life, || Event::Again { gateway, life, asks: waits, tries }) {
            return;
        }
        let now = self.local_time(gateway);
        let attempt = if tries == 0 { Attempt::First } else { Attempt::Again };
        let checks: Vec<_> = asks.iter().map(|ask| self.lease_check(*ask)).collect();
        let table = &mut self.gateways[gateway].table;
        let (mut spent, mut rest) = (Vec::new(), Vec::new());
        let (mut is_refused, mut is_awaited) = (false, false);
        for (ask, check) in asks.iter().zip(&checks) {
            match table.spend(*check, now, attempt) {
                Spend::Spent(_) => spent.push(*ask),
                Spend::Refused(..) => is_refused = true,
                Spend::Awaited if tries < 3 => is_awaited = true,
                Spend::Awaited => rest.push(*ask),
                Spend::Unleased => {
                    table.count_unleased(*check, || b"key".to_vec(), now);
                    rest.push(*ask);
                }
            }
            if is_refused || is_awaited {
                break;
            }
        }
        let is_urgent = table.take_urgent();
        if is_refused || is_awaited {
            spent.iter().for_each(|ask| {
                let check = checks[asks.iter().position(|it| it.key == ask.key).expect("it")];
                table.unspend(check);
            });
        }
        if is_awaited {
            self.after(400, Event::Again { gateway, life, asks, tries: tries + 1 });
        } else if rest.is_empty() && !is_refused {
            spent.iter().for_each(|ask| self.admit(*ask));
            self.report.leased += spent.len() as u64;
        } else if !is_refused {
            self.send(gateway, rest, spent, now);
        }
        // What was spent is held by now, as in the store, where the task that asks runs later.
        if is_urgent {
            self.ask(gateway);
        }
    }

    /// Asks Redis about a request, while what leases gave is held.
    fn send(&mut self, gateway: usize, asks: Vec<Ask>, held: Vec<Ask>, now: Micros) {
        let mut hold = LeaseHold::default();
        for ask in &held {
            let check = self.lease_check(*ask);
            self.gateways[gateway].table.hold(check, &mut hold, now);
        }
        let life = self.gateways[gateway].life;
        self.last += 1;
        let question = self.last;
        self.questions.insert(question, Question { gateway, life, asks, held, hold });
        self.report.calls += 1;
        if let Some(way) = self.way(gateway) {
            self.after(way, Event::Decide { question });
        }
        self.after(TIMEOUT, Event::Decided { question, admitted: false });
    }

    fn way(&mut self, gateway: usize) -> Option<u64> {
        let way = self.faults().way(&mut self.random);
        way.filter(|_| self.gateways[gateway].cut_off_until <= self.now)
    }

    fn decide(&mut self, question: u64) -> Result<(), Violation> {
        let now = self.redis_time();
        let Some(it) = self.questions.get(&question) else {
            // It has given up waiting. Its charge would be refunded: here it is never made.
            return Ok(());
        };
        let (gateway, asks) = (it.gateway, it.asks.clone());
        let mut buckets = self.buckets.clone();
        let admitted =
            asks.iter().all(|ask| buckets[ask.key].decide(self.policy(*ask), now, ask.cost));
        if admitted {
            self.buckets = buckets;
        }
        for ask in &asks {
            self.check(ask.key)?;
        }
        match self.way(gateway) {
            Some(way) => self.after(way, Event::Decided { question, admitted }),
            // Nobody hears of it: it was charged and does not pass.
            None => return Ok(()),
        }
        if admitted {
            // Its units are gone from now on, whenever the gateway hears of it.
            asks.iter().for_each(|ask| self.admit(*ask));
        }
        Ok(())
    }

    fn decided(&mut self, question: u64, admitted: bool) {
        let Some(Question { gateway, life, .. }) = self.questions.get(&question) else { return };
        let (gateway, life) = (*gateway, *life);
        if !self.is_running(gateway, life, || Event::Decided { question, admitted }) {
            return;
        }
        let Some(it) = self.questions.remove(&question) else { return };
        let now = self.local_time(gateway);
        let stranded = self.gateways[gateway].table.conclude(&it.hold, admitted, now);
        for stranded in stranded {
            let key = it.held.iter().find(|ask| *self.policy(**ask) == stranded.policy);
            let key = key.map_or(0, |ask| ask.key);
            let delay = 1 + self.random.below(50_000);
            self.after(delay, Event::Refund { key, stranded });
        }
        if admitted {
            it.held.iter().for_each(|ask| self.admit(*ask));
        }
    }

    fn tick(&mut self, gateway: usize, life: u64) {
        if !self.is_running(gateway, life, || Event::Tick { gateway, life }) {
            return;
        }
        self.after(self.timing.tick, Event::Tick { gateway, life });
        let now = self.local_time(gateway);
        self.gateways[gateway].table.tick(now);
        self.ask(gateway);
        self.hurt(gateway);
    }

    fn hurt(&mut self, gateway: usize) {
        let faults = self.faults();
        let random = &mut self.random;
        let it = &mut self.gateways[gateway];
        if random.is_one_in(faults.set_back) {
            self.set_back += random.below(1_000_000).min(self.now);
        }
        if random.is_one_in(faults.stop) {
            it.stopped_until = self.now + random.below(3_000_000);
        }
        if random.is_one_in(faults.partition) {
            it.cut_off_until = self.now + random.below(2_000_000);
        }
        if random.is_one_in(faults.crash) {
            it.life += 1;
            it.table = LeaseTable::new(self.timing, 1_000);
            let life = it.life;
            self.after(1_000, Event::Tick { gateway, life });
        }
    }

    /// Sends what is due.
    fn ask(&mut self, gateway: usize) {
        let now = self.local_time(gateway);
        let asks = self.gateways[gateway].table.take_due(64, now);
        if asks.is_empty() {
            return;
        }
        let (life, sent) = (self.gateways[gateway].life, self.local_time(gateway));
        self.last += 1;
        let call = self.last;
        let sent_asks = asks.iter().map(|ask| SentAsk {
            key: ask.bucket.0 as usize,
            policy: ask.policy,
            request: ask.request.clone(),
        });
        let sent_asks = sent_asks.collect();
        self.calls.insert(call, Call { gateway, life, asks, sent });
        self.report.calls += 1;
        let patience = self.timing.sync;
        // Half of the calls carry a deadline: on a cluster they have none.
        let deadline = if self.random.is_one_in(2) { self.now + patience } else { u64::MAX };
        if let Some(way) = self.way(gateway) {
            self.after(way, Event::Lease { call, gateway, deadline, sent: sent_asks });
        }
        self.after(patience, Event::LeaseLost { call });
    }

    /// A call is run, though its gateway may have given up on it, or is gone.
    fn lease(
        &mut self,
        call: u64,
        gateway: usize,
        deadline: u64,
        sent: &[SentAsk],
    ) -> Result<(), Violation> {
        let now = self.redis_time();
        if self.now > deadline {
            return Ok(());
        }
        let mut replies = Vec::new();
        for SentAsk { key, policy, request } in sent {
            replies.push(self.buckets[*key].exchange(policy, now, request));
            self.check(*key)?;
        }
        if let Some(way) = self.way(gateway) {
            self.after(way, Event::Leased { call, replies });
        }
        Ok(())
    }

    fn leased(&mut self, call: u64, replies: Vec<LeaseReply>) {
        let Some(Call { gateway, life, .. }) = self.calls.get(&call) else { return };
        let (gateway, life) = (*gateway, *life);
        let waits = replies.clone();
        if !self.is_running(gateway, life, || Event::Leased { call, replies: waits }) {
            return;
        }
        let received = self.local_time(gateway);
        let Some(Call { asks, sent, .. }) = self.calls.remove(&call) else { return };
        let times = CallSpan { sent, received };
        for (ask, reply) in asks.iter().zip(&replies) {
            self.gateways[gateway].table.apply(ask, reply, times);
        }
    }

    fn lease_lost(&mut self, call: u64) {
        let Some(Call { gateway, life, .. }) = self.calls.get(&call) else { return };
        let (gateway, life) = (*gateway, *life);
        if !self.is_running(gateway, life, || Event::LeaseLost { call }) {
            return;
        }
        if let Some(Call { asks, .. }) = self.calls.remove(&call) {
            let now = self.local_time(gateway);
            asks.iter().for_each(|ask| self.gateways[gateway].table.lose(ask, now));
        }
    }

    fn admit(&mut self, ask: Ask) {
        let admitted = Admitted { at: self.now, cost: ask.cost };
        self.history[ask.key][ask.numbers].push(admitted);
        self.report.admitted += 1;
    }

    /// What is left and what gateways may still spend is never more than the bucket holds.
    fn check(&mut self, key: usize) -> Result<(), Violation> {
        let [policy] = &self.scenario.limits[key][..] else { return Ok(()) };
        if self.set_back > 0 && is_repeated(policy) {
            return Ok(());
        }
        let (now, gateways) = (self.redis_time(), 0..self.gateways.len());
        let unspent = gateways.map(|gateway| {
            self.gateways[gateway].table.unspent(bucket_id(key), self.local_time(gateway))
        });
        let unspent = unspent.sum();
        let bucket = &mut self.buckets[key];
        bucket.advance(policy, now);
        let left = policy.report(bucket.state, now).remaining;
        let quota = policy.quota();
        if left + unspent > quota {
            return Err(Violation::TooMuchAround { key, at: self.now, left, unspent, quota });
        }
        Ok(())
    }
}

/// Whether a clock that is set back repeats a window or a refill, so that one more may pass.
fn is_repeated(policy: &Policy) -> bool {
    matches!(policy, Policy::FixedWindow(_) | Policy::RefillBucket(_))
}

fn bucket_id(key: usize) -> BucketId {
    BucketId(key as u128)
}
