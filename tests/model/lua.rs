//! The Lua scripts as something that decides, on a real Redis of the test's own.
//!
//! The scripts are the product's but for this: the time is the test's, and keys are kept so
//! long that no expiry comes between. Commands and replies are the product's own.

use std::cell::RefCell;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use redis::{Connection, RedisError};
use weir::clock::Micros;
use weir::limit::lease::{LeaseReply, LeaseRequest};
use weir::limit::{Retry, Verdict};
use weir::store::Choice;
use weir::store::redis::adjustment::{self, Adjustment, Op};
use weir::store::redis::batch::{Batch, Charge, Fence};
use weir::store::redis::check_args::{CallContext, CheckReply};
use weir::store::redis::lease_call::{self, LeaseCall};
use weir::store::redis::reply::Reply;
use weir::store::redis::script::{self, Form, Script};

use crate::decider::{Answer, Ask, CheckMode, Decider, Engine, Names, Outcome};
use crate::programs::redis_server;
use crate::scratch::Scratch;

/// Far more than it ever takes.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Redis {
    process: Child,
    connection: RefCell<Connection>,
    decide: Script,
    adjust: Script,
    lease: Script,
    _directory: Scratch,
}

impl Redis {
    pub(crate) fn start() -> Self {
        let directory = Scratch::new();
        let socket = directory.path().join("redis");
        let process = redis_server()
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(&socket)
            .current_dir(directory.path())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server");
        let url = format!("unix://{}", socket.display());
        let client = redis::Client::open(url).expect("a client");
        let deadline = Instant::now() + PATIENCE;
        let connection = loop {
            match client.get_connection() {
                Ok(connection) => break connection,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let (decide, adjust) = (altered(&script::DECIDE), altered(&script::ADJUST));
        let lease = altered(&script::LEASE);
        let redis = Self {
            process,
            connection: RefCell::new(connection),
            decide,
            adjust,
            lease,
            _directory: directory,
        };
        let own = [&redis.decide, &redis.adjust, &redis.lease];
        for script in own.into_iter().chain([&*script::DECIDE, &*script::ADJUST, &*script::LEASE]) {
            let hash: String = redis.ask(redis::cmd("SCRIPT").arg("LOAD").arg(script.text()));
            assert_eq!(hash, script.hash());
        }
        redis
    }

    pub(crate) fn ask<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> T {
        self.try_ask(command).expect("an answer")
    }

    pub(crate) fn try_ask<T: redis::FromRedisValue>(
        &self,
        command: &redis::Cmd,
    ) -> Result<T, RedisError> {
        command.query(&mut *self.connection.borrow_mut())
    }

    pub(crate) fn ask_all<T: redis::FromRedisValue>(&self, commands: &redis::Pipeline) -> T {
        commands.query(&mut *self.connection.borrow_mut()).expect("answers")
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Engine for Redis {
    type Decider<'a> = Lua<'a>;
    const CASES: u32 = 128;

    fn fresh(&self) -> Lua<'_> {
        self.ask::<()>(&redis::cmd("FLUSHDB"));
        Lua {
            redis: self,
            ahead: 0,
            batch: Batch::new(),
            names: Names::new(),
            holder: 1,
            tentative: false,
        }
    }
}

/// The script with its time from further arguments.
fn altered(script: &Script) -> Script {
    let changes = [
        ("redis.call('TIME')", "{ ARGV[2], ARGV[3] }"),
        ("local MARGIN = 1000\n", "local MARGIN = 1000000000000000\n"),
        // Histories are as long as their limits.
        ("local JOURNAL_KEEPS = 1000000\n", "local JOURNAL_KEEPS = 4000000000000000\n"),
    ];
    Script::new(changes.iter().fold(script.text().to_owned(), |text, (from, to)| {
        assert_eq!(text.matches(from).count(), 1, "{from}");
        text.replace(from, to)
    }))
}

pub(crate) struct Lua<'a> {
    pub(crate) redis: &'a Redis,
    /// How far the caller's clock is ahead of Redis's, in µs.
    pub(crate) ahead: i64,
    /// One for all calls, as the product uses it.
    batch: Batch,
    names: Names,
    /// The worker that takes slots.
    pub(crate) holder: u64,
    /// Whether charges may be refunded because another hash slot refuses.
    pub(crate) tentative: bool,
}

/// An ask, and how it is meant.
type ModedAsk<'a> = (Ask<'a>, CheckMode);

impl Lua<'_> {
    /// Decides all requests in one call.
    pub(crate) fn decide_all(
        &mut self,
        at: Micros,
        requests: &[Vec<ModedAsk<'_>>],
    ) -> Vec<Outcome> {
        self.try_decide_all(at, requests, None).expect("an answer")
    }

    /// The same as a call with a number, which may be turned away.
    pub(crate) fn try_decide_all(
        &mut self,
        at: Micros,
        requests: &[Vec<ModedAsk<'_>>],
        fence: Option<Fence<'_>>,
    ) -> Result<Vec<Outcome>, RedisError> {
        self.batch.clear();
        for (place, asks) in requests.iter().enumerate() {
            let names: Vec<[u8; 16]> = asks.iter().map(|(ask, _)| self.name(ask)).collect();
            let charges = asks.iter().zip(&names).map(|((ask, mode), name)| {
                let CheckMode { waited, spends, enforced, together, choice } = *mode;
                let bound = together && !enforced;
                let bucket = self.names.check(ask).bucket;
                let charge = Charge::new(bucket, name, ask.policy, ask.cost);
                Charge { waited, spends, enforced, bound, choice, ..charge }
            });
            assert_eq!(self.batch.push(charges), place);
            if self.tentative {
                self.batch.mark_tentative(place);
            }
        }
        let mut command =
            self.batch.call(&self.redis.decide, Form::Hash, fence, self.call_context(at));
        let bytes: Vec<u8> = self.redis.try_ask(timed(&mut command, at))?;
        let reply = Reply::parse(&bytes, &self.batch).expect("a reply");
        assert_eq!(reply.now(), at);
        let outcome = |(place, asks): (usize, &Vec<ModedAsk<'_>>)| {
            let admitted = reply.admitted(place);
            assert_eq!(reply.check_replies(place).len(), asks.len());
            let mut first = None;
            let answer = |(i, check_reply): (usize, CheckReply)| {
                let (ask, mode) = asks[i];
                let told = !mode.enforced || mode.choice != Choice::Alone;
                let refuses = if told { check_reply.would_refuse } else { !admitted };
                let mut refused =
                    if refuses { refusal(at, &asks[..=i], check_reply) } else { None };
                if mode.choice == Choice::Second {
                    refused = refused.min(first.or(refused));
                }
                first = refused;
                let (skipped, withheld) = (check_reply.skipped, check_reply.withheld);
                Answer {
                    skipped,
                    withheld,
                    ..Answer::new(ask.policy, at, check_reply.state, refused)
                }
            };
            let answers: Vec<Answer> = reply.check_replies(place).enumerate().map(answer).collect();
            let enforced = asks
                .iter()
                .zip(&answers)
                .filter(|((_, mode), _)| mode.enforced && mode.choice != Choice::First);
            let all = enforced.fold(true, |all, (_, answer)| all && answer.refused.is_none());
            assert_eq!(admitted, all, "{answers:?}");
            Outcome { admitted, answers }
        };
        Ok(requests.iter().enumerate().map(outcome).collect())
    }

    pub(crate) fn adjust(&self, at: Micros, ask: &Ask<'_>, op: Op) {
        let name = self.name(ask);
        let adjustment = Adjustment { op, name: &name, policy: ask.policy, cost: ask.cost };
        let script = &self.redis.adjust;
        let mut command =
            adjustment::call(&[adjustment], script, Form::Hash, None, self.call_context(at));
        let now: u64 = self.redis.ask(timed(&mut command, at));
        assert_eq!(now, at.0);
    }

    /// Takes units in advance.
    pub(crate) fn lease(&self, at: Micros, ask: &Ask<'_>, request: &LeaseRequest) -> LeaseReply {
        let name = self.name(ask);
        let calls = [LeaseCall { name: &name, policy: ask.policy, request }];
        let mut command =
            lease_call::call(&calls, &self.redis.lease, Form::Hash, self.call_context(at));
        let bytes: Vec<u8> = self.redis.ask(timed(&mut command, at));
        let replies = lease_call::replies(&bytes, &calls).expect("a reply");
        replies.expect("it was run")[0]
    }

    /// The same by the product's own script, at Redis's own time.
    pub(crate) fn lease_now(&self, ask: &Ask<'_>, request: &LeaseRequest) -> LeaseReply {
        let name = self.name(ask);
        let calls = [LeaseCall { name: &name, policy: ask.policy, request }];
        let command =
            lease_call::call(&calls, &script::LEASE, Form::Hash, call_context(self.holder));
        let bytes: Vec<u8> = self.redis.ask(&command);
        let replies = lease_call::replies(&bytes, &calls).expect("a reply");
        replies.expect("it was run")[0]
    }

    /// Decides one request by the product's own script, at Redis's own time.
    pub(crate) fn charge_now(&mut self, ask: &Ask<'_>) {
        let name = self.name(ask);
        self.batch.clear();
        let bucket = self.names.check(ask).bucket;
        self.batch.push(std::iter::once(Charge::new(bucket, &name, ask.policy, ask.cost)));
        let context = call_context(self.holder);
        let command = self.batch.call(&script::DECIDE, Form::Hash, None, context);
        let bytes: Vec<u8> = self.redis.ask(&command);
        assert!(Reply::parse(&bytes, &self.batch).expect("a reply").admitted(0));
    }

    /// What the caller takes for Redis's time.
    fn call_context(&self, at: Micros) -> CallContext {
        CallContext {
            around: Micros(at.0.saturating_add_signed(self.ahead)),
            ..call_context(self.holder)
        }
    }

    /// Puts a text under the bucket's key.
    pub(crate) fn put(&self, ask: &Ask<'_>, text: &str) {
        self.redis.ask::<()>(redis::cmd("SET").arg(&self.name(ask)).arg(text));
    }

    /// The bucket's key in Redis.
    pub(crate) fn name(&self, ask: &Ask<'_>) -> [u8; 16] {
        self.names.check(ask).bucket.0.to_be_bytes()
    }
}

impl Decider for Lua<'_> {
    fn decide_as(&mut self, at: Micros, asks: &[ModedAsk<'_>]) -> Outcome {
        self.decide_all(at, &[asks.to_vec()]).remove(0)
    }

    fn charge_after(&mut self, at: Micros, ask: &Ask<'_>) {
        self.adjust(at, ask, Op::ChargeAfter);
    }

    fn refund(&mut self, at: Micros, ask: &Ask<'_>, charged_at: Micros) {
        self.adjust(at, ask, Op::GiveBack { charged_at });
    }
}

/// The caller with this number.
pub(crate) fn call_context(holder: u64) -> CallContext {
    CallContext { holder, around: Micros(0), deadline: None }
}

fn timed(command: &mut redis::Cmd, at: Micros) -> &redis::Cmd {
    command.arg(at.0 / 1_000_000).arg(at.0 % 1_000_000)
}

/// What the last ask of a refused request is told: all asks of its bucket up to it are one. (Of a
/// log only what all of them are told is known, so requests here ask one only once.)
fn refusal(at: Micros, asks: &[ModedAsk<'_>], check_reply: CheckReply) -> Option<Retry> {
    let (last, _) = asks.last().expect("an ask");
    if let Some(at) = check_reply.passes_at {
        return Some(Retry::At(at));
    }
    let same =
        |(ask, _): &&ModedAsk<'_>| (ask.key, ask.policy.kind()) == (last.key, last.policy.kind());
    let costs = asks.iter().filter(same).map(|(ask, _)| ask.cost);
    match last.policy.evaluate(check_reply.state, at, costs.fold(0, u64::saturating_add)) {
        Verdict::Admit(_) => None,
        Verdict::Refuse(retry) => Some(retry),
    }
}
