//! Leases of many buckets as one script call: see `lua/lease.lua`.

use redis::Cmd;

use super::check_args::{CallContext, CheckArgs};
use super::msgpack::{self, Reader};
use super::script::{Form, Script};
use crate::clock::Micros;
use crate::limit::Policy;
use crate::limit::lease::{Grant, LeaseReply, LeaseRequest, LeaseStep};
use crate::limit::wire::EXACT;

/// What is asked of one bucket.
#[derive(Debug, Clone, Copy)]
pub struct LeaseCall<'a> {
    /// The bucket's key in Redis.
    pub name: &'a [u8],
    pub policy: &'a Policy,
    pub request: &'a LeaseRequest,
}

/// The call that makes all of them. No bucket may come twice, and all must be of one hash slot.
pub fn call(leases: &[LeaseCall<'_>], script: &Script, form: Form, context: CallContext) -> Cmd {
    let mut cmd = script.call(form, leases.len() + 3, 0);
    cmd.arg(leases.len());
    let mut argument = Vec::new();
    msgpack::array(&mut argument, 1 + leases.len());
    msgpack::number(&mut argument, context.deadline.map_or(0, |it| it.0));
    for LeaseCall { name, policy, request } in leases {
        cmd.arg(*name);
        let mut numbers = Numbers::default();
        let args = CheckArgs::new(policy, 0).numbers(context);
        numbers.push([args.len() as u64]);
        numbers.0.extend_from_slice(&args);
        let released = request.released;
        let returned = policy.wire_cost(request.returned);
        let taken_at = request.wire_taken_at(policy);
        numbers.push([
            request.life,
            released.map_or(0, |it| it.until.0),
            released.map_or(0, |it| it.amount),
            policy.lease_amount(request.kept),
            returned.cost,
            returned.rest,
            taken_at.map_or(0, |it| it.0),
        ]);
        for LeaseStep { units, tested, is_enough } in &request.steps {
            let (cost, test) = (policy.wire_cost(*units), policy.wire_cost(*tested));
            let amount = policy.lease_amount(*units);
            let enough = u64::from(*is_enough);
            numbers.push([*units, amount, cost.cost, cost.rest, test.cost, test.rest, enough]);
        }
        numbers.write(&mut argument);
    }
    cmd.arg(argument);
    cmd
}

/// What the buckets replied, in the order of the call; `None` if it was run after its deadline, and did
/// nothing. `Err` if it is no reply to this call.
pub fn replies(
    bytes: &[u8],
    leases: &[LeaseCall<'_>],
) -> Result<Option<Vec<LeaseReply>>, super::reply::ReplyError> {
    read(&mut Reader(bytes), leases).ok_or(super::reply::ReplyError)
}

fn read(reader: &mut Reader<'_>, leases: &[LeaseCall<'_>]) -> Option<Option<Vec<LeaseReply>>> {
    let length = reader.array()?;
    let now = Micros(reader.number().filter(|now| *now < EXACT)?);
    if length == 1 && !leases.is_empty() {
        return reader.is_empty().then_some(None);
    }
    let mut replies = Vec::with_capacity(leases.len());
    for LeaseCall { policy, request, .. } in leases {
        let granted = reader.number()?;
        let asked: u64 = request.steps.iter().map(|step| step.units).sum();
        let until = Micros(reader.number().filter(|until| *until < EXACT)?);
        let amount = reader.number().filter(|amount| *amount < EXACT)?;
        let grant = (amount > 0).then_some(Grant { until, amount });
        let found = reader.number().filter(|found| *found < 2)? == 1;
        let mut next = |bound| reader.number().filter(|number| *number < bound);
        let state = policy.wire_state(&mut next)?.state;
        if granted > asked {
            return None;
        }
        replies.push(LeaseReply { now, granted, grant, until, found, state });
    }
    reader.is_empty().then_some(Some(replies))
}

/// The numbers of one lease, whose count goes in front of them.
#[derive(Default)]
struct Numbers(Vec<u64>);

impl Numbers {
    fn push<const N: usize>(&mut self, numbers: [u64; N]) {
        self.0.extend_from_slice(&numbers);
    }

    fn write(&self, out: &mut Vec<u8>) {
        msgpack::array(out, self.0.len());
        self.0.iter().for_each(|number| msgpack::number(out, *number));
    }
}
