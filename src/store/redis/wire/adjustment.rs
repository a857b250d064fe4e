//! Corrections of buckets after the fact, as one script call.

use redis::Cmd;

use super::batch::Fence;
use super::check_args::{CallContext, CheckArgs};
use super::msgpack;
use super::script::{Form, Script};
use crate::clock::Micros;
use crate::limit::Policy;

/// One bucket to put right. Several of the same bucket are made one after another.
#[derive(Debug, Clone, Copy)]
pub struct Adjustment<'a> {
    pub op: Op,
    /// The bucket's key in Redis.
    pub name: &'a [u8],
    pub policy: &'a Policy,
    pub cost: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// [`Policy::refund`] of a cost that was charged at this instant of Redis's clock.
    GiveBack { charged_at: Micros },
    /// [`Policy::charge_after`].
    ChargeAfter,
    /// The worker holds exactly as many slots as the cost says.
    Hold,
}

/// The call that makes them. All buckets must be of one slot. With a fence, it is made once however
/// often it is sent.
pub fn call(
    adjustments: &[Adjustment<'_>],
    script: &Script,
    form: Form,
    fence: Option<Fence<'_>>,
    context: CallContext,
) -> Cmd {
    let mut cmd = script.call(form, 0, 0);
    cmd.arg(adjustments.len() + usize::from(fence.is_some()));
    let mut argument = Vec::new();
    msgpack::array(&mut argument, 1 + usize::from(fence.is_some()));
    msgpack::array(&mut argument, adjustments.len());
    for Adjustment { op, name, policy, cost } in adjustments {
        cmd.arg(*name);
        msgpack::array(&mut argument, 3);
        let (op, charged_at) = match op {
            Op::GiveBack { charged_at } => (1, charged_at.0),
            Op::ChargeAfter => (2, 0),
            Op::Hold => (3, 0),
        };
        msgpack::number(&mut argument, op);
        msgpack::number(&mut argument, charged_at);
        CheckArgs::new(policy, *cost).write(&mut argument, context);
    }
    if let Some(fence) = fence {
        cmd.arg(fence.name);
        msgpack::number(&mut argument, fence.call);
    }
    cmd.arg(argument);
    cmd
}
