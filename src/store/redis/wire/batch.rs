//! Many requests as one script call.
//!
//! Requests that wait at the same time go to Redis together: their buckets as KEYS, each once, and
//! all else as one argument, with the pairs of policy and cost that they share said once. A batch
//! is filled, sent, cleared and filled again, and keeps its memory.

use hashbrown::{HashMap, HashTable};
use redis::Cmd;

use super::check_args::{CallContext, CheckArgs};
use super::msgpack;
use super::script::{Form, Script};
use crate::limit::Policy;
use crate::store::{BucketId, BucketKey, Choice};

/// Mostly there are no more different arguments than this, and to compare them with these costs less
/// than to hash them.
const COMPARED_ARGS: usize = 8;

/// One bucket to charge with one cost.
#[derive(Debug, Clone, Copy)]
pub struct Charge<'a> {
    pub bucket: BucketId,
    /// The bucket's key in Redis. The same bucket always has the same.
    pub name: BucketKey<'a>,
    pub policy: &'a Policy,
    pub cost: u64,
    /// See [`Policy::evaluate_waited`].
    pub waited: u64,
    /// False: it is only asked whether the cost would pass.
    pub spends: bool,
    /// False: whether it passes decides nothing for its request.
    pub enforced: bool,
    /// See [`Check::together`](crate::store::Check::together).
    pub bound: bool,
    pub choice: Choice,
}

impl<'a> Charge<'a> {
    /// A charge that counts.
    pub fn new(bucket: BucketId, name: &'a [u8], policy: &'a Policy, cost: u64) -> Self {
        let (spends, enforced, bound, choice) = (true, true, false, Choice::Alone);
        let name = BucketKey::known(name);
        Charge { bucket, name, policy, cost, waited: 0, spends, enforced, bound, choice }
    }
}

/// What keeps a call from being run once it has been given up: see `lua/fence.lua`.
#[derive(Debug, Clone, Copy)]
pub struct Fence<'a> {
    /// The caller's key in Redis.
    pub name: &'a [u8],
    /// The number of the call.
    pub call: u64,
}

#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// The names of all keys, one after another.
    names: Vec<u8>,
    keys: Vec<Key>,
    /// Positions in `keys`.
    key_positions: HashTable<usize>,
    args: Vec<CheckArgs>,
    /// Positions in `args`, of those behind the first [`COMPARED_ARGS`].
    args_positions: HashMap<CheckArgs, usize>,
    /// The requests as they are sent.
    encoded: Vec<u8>,
    pub(crate) requests: Vec<Request>,
    /// For each check of each request, the position of its arguments in `args`.
    checks: Vec<usize>,
    /// For each charge that was pushed, which of its request's checks it is part of.
    pub(crate) parts: Vec<usize>,
    /// Requests that may yet be refunded, because another hash slot refuses them.
    tentative: Vec<usize>,
    /// How many numbers the reply has after its instant.
    pub(crate) reply_length: usize,
    /// The checks of the request that is being pushed.
    merged: Vec<Merged>,
}

#[derive(Debug, Clone)]
struct Key {
    bucket: BucketId,
    /// Where the name ends.
    end: usize,
}

/// Where a request ends in [`Batch::checks`] and in [`Batch::parts`].
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Request {
    pub(crate) checks: usize,
    pub(crate) parts: usize,
    /// How many of its checks are pairs.
    pub(crate) pairs: usize,
}

/// Where a reply says what became of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VerdictPosition {
    pub(crate) verdict: usize,
    /// If there are any, what came of them stands behind the verdict.
    pub(crate) pairs: usize,
}

/// All charges of one request on the same bucket: they count as one.
#[derive(Debug, Clone)]
struct Merged {
    key: usize,
    args: CheckArgs,
}

impl Batch {
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets all requests, and keeps the memory.
    pub fn clear(&mut self) {
        self.names.clear();
        self.keys.clear();
        self.key_positions.clear();
        self.args.clear();
        self.args_positions.clear();
        self.encoded.clear();
        self.requests.clear();
        self.checks.clear();
        self.parts.clear();
        self.tentative.clear();
        self.reply_length = 0;
    }

    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// How many requests there are.
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    /// The buckets they touch.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = BucketId> {
        self.keys.iter().map(|key| key.bucket)
    }

    /// How many buckets they touch.
    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// Adds one request and returns its position.
    pub fn push<'a>(&mut self, charges: impl Iterator<Item = Charge<'a>>) -> usize {
        let mut merged = std::mem::take(&mut self.merged);
        let mut pairs = 0;
        for charge in charges {
            let key = self.key(&charge);
            let part = merged.iter().position(|other: &Merged| other.key == key);
            let mut args = CheckArgs {
                policy: *charge.policy,
                cost: charge.cost,
                waited: charge.waited,
                spends: charge.spends,
                enforced: charge.enforced,
                bound: charge.bound,
                choice: charge.choice,
            };
            pairs += usize::from(charge.choice == Choice::Second);
            debug_assert!(
                part.is_none() || charge.choice == Choice::Alone,
                "a pair shares nothing"
            );
            if let Some(part) = part {
                args.cost = args.cost.saturating_add(merged[part].args.cost);
                merged[part].args = args;
            } else {
                merged.push(Merged { key, args });
            }
            self.parts.push(part.unwrap_or(merged.len() - 1));
        }
        debug_assert!(pairs <= Choice::MOST_PAIRS);
        self.reply_length += 1 + usize::from(pairs > 0);
        msgpack::array(&mut self.encoded, 2 * merged.len());
        for check in merged.drain(..) {
            let args = self.intern_args(check.args.bounded());
            self.checks.push(args);
            self.reply_length += self.args[args].reply_numbers();
            // Lua counts from one.
            msgpack::number(&mut self.encoded, check.key as u64 + 1);
            msgpack::number(&mut self.encoded, args as u64 + 1);
        }
        self.merged = merged;
        let (checks, parts) = (self.checks.len(), self.parts.len());
        self.requests.push(Request { checks, parts, pairs });
        self.requests.len() - 1
    }

    /// A request that was pushed may be refunded, because it has checks elsewhere that may refuse:
    /// see `lua/journal.lua`.
    pub fn mark_tentative(&mut self, request: usize) {
        self.tentative.push(request);
    }

    /// The positions in a reply at which it says what became of each request.
    pub(crate) fn verdict_positions(&self) -> Vec<VerdictPosition> {
        let mut verdict = 1;
        let mut start = 0;
        let mut positions = Vec::with_capacity(self.requests.len());
        for Request { checks, pairs, .. } in self.requests.iter().copied() {
            positions.push(VerdictPosition { verdict, pairs });
            let numbers = self.args_of(start..checks).map(CheckArgs::reply_numbers);
            verdict += 1 + usize::from(pairs > 0) + numbers.sum::<usize>();
            start = checks;
        }
        positions
    }

    /// The arguments of some checks.
    pub(crate) fn args_of(
        &self,
        checks: std::ops::Range<usize>,
    ) -> impl Iterator<Item = &CheckArgs> {
        self.checks[checks].iter().map(|position| &self.args[*position])
    }

    /// The call that decides all requests.
    pub fn call(
        &self,
        script: &Script,
        form: Form,
        fence: Option<Fence<'_>>,
        context: CallContext,
    ) -> Cmd {
        let argument = self.argument(fence.map(|fence| fence.call), context);
        let mut cmd = script.call(form, self.keys.len() + 6, self.names.len() + argument.len());
        cmd.arg(self.keys.len() + usize::from(fence.is_some()));
        let mut start = 0;
        for key in &self.keys {
            cmd.arg(&self.names[start..key.end]);
            start = key.end;
        }
        if let Some(fence) = fence {
            cmd.arg(fence.name);
        }
        cmd.arg(argument);
        cmd
    }

    fn argument(&self, call: Option<u64>, context: CallContext) -> Vec<u8> {
        /// Ten numbers of nine bytes, and the head of their array.
        const ARGS_BYTES: usize = 91;
        let bytes = self.encoded.len() + ARGS_BYTES * self.args.len() + 32;
        let mut argument = Vec::with_capacity(bytes);
        let length = match (call, context.deadline, self.tentative.is_empty()) {
            (None, None, true) => 2,
            (Some(_), None, true) => 3,
            (_, Some(_), true) => 4,
            (_, _, false) => 5,
        };
        msgpack::array(&mut argument, length);
        msgpack::array(&mut argument, self.args.len());
        for args in &self.args {
            args.write(&mut argument, context);
        }
        msgpack::array(&mut argument, self.requests.len());
        argument.extend_from_slice(&self.encoded);
        // Calls are counted from one: zero is none.
        if length > 2 {
            msgpack::number(&mut argument, call.unwrap_or(0));
        }
        if length > 3 {
            msgpack::number(&mut argument, context.deadline.map_or(0, |it| it.0));
        }
        if length > 4 {
            msgpack::array(&mut argument, self.tentative.len());
            for request in &self.tentative {
                msgpack::number(&mut argument, *request as u64 + 1);
            }
        }
        argument
    }

    fn key(&mut self, charge: &Charge<'_>) -> usize {
        // The name is a keyed hash already.
        let hash = |bucket: BucketId| bucket.0 as u64;
        let is_it = |position: &usize| self.keys[*position].bucket == charge.bucket;
        if let Some(position) = self.key_positions.find(hash(charge.bucket), is_it) {
            return *position;
        }
        let position = self.keys.len();
        charge.name.write(&mut self.names);
        self.keys.push(Key { bucket: charge.bucket, end: self.names.len() });
        let keys = &self.keys;
        self.key_positions
            .insert_unique(hash(charge.bucket), position, |position| hash(keys[*position].bucket));
        position
    }

    fn intern_args(&mut self, args: CheckArgs) -> usize {
        let next = self.args.len();
        let compared = &self.args[..next.min(COMPARED_ARGS)];
        if let Some(position) = compared.iter().position(|it| *it == args) {
            return position;
        }
        if next < COMPARED_ARGS {
            self.args.push(args);
            return next;
        }
        let position = *self.args_positions.entry(args).or_insert(next);
        if position == next {
            self.args.push(args);
        }
        position
    }
}
