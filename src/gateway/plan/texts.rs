//! What a plan says of a request in words: names, and the keys of limits. Made on demand, for those
//! who read plans; serving a request needs none of it.

use std::fmt::Write as _;
use std::net::IpAddr;

use super::{AcceptedInputs, Planner, RequestHead, RequestInputs, RequestPlan, facts};
use crate::limit::key::Part;
use crate::limit::source::{KeyInput, SourceValue};
use crate::limit::{Key, Missing};
use crate::respond::Fault;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanTexts {
    pub user: Option<String>,
    pub client: Option<String>,
    pub tenant: Option<String>,
    pub plan: Option<String>,
    /// The key of each planned limit, its parts with `, ` between them.
    pub keys: Vec<String>,
}

impl PlanTexts {
    /// The texts of a plan that was made from the same inputs.
    ///
    /// # Errors
    /// None that [`RequestPlan::of`] would not have had.
    pub fn of(
        planner: Planner<'_>,
        plan: &RequestPlan<'_>,
        head: RequestHead<'_, '_>,
        inputs: RequestInputs<'_>,
    ) -> Result<Self, Fault> {
        let RequestPlan { route, caller, limits, .. } = plan;
        let inputs: AcceptedInputs<'_> =
            planner.accept(route, &caller.address, head.headers, inputs)?;
        let host = planner.counted_host(route);
        let facts = facts(head, &host, inputs);
        let found = planner.names(route, &facts)?;
        let key = planner.key_input(route, &caller.address, facts, &found.names);
        let keys = limits.limits.iter().map(|it| key_text(&it.limit.key, it.limit.missing, &key));
        Ok(PlanTexts {
            user: text(&found.names.user),
            client: text(&found.names.client),
            tenant: text(&found.names.tenant),
            plan: text(&found.names.plan),
            keys: keys.collect(),
        })
    }
}

pub(super) fn key_text(key: &Key, missing: Missing, input: &KeyInput<'_>) -> String {
    let mut text = String::new();
    // A limit was planned only if it has a key.
    let _ = key.parts(input, missing, |part, bytes| {
        if !text.is_empty() {
            text.push_str(", ");
        }
        let address = if part == Part::Ip { address(bytes) } else { None };
        let _ = match address {
            Some(ip) => write!(text, "{ip}"),
            None => write!(text, "{}", String::from_utf8_lossy(bytes)),
        };
    });
    text
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

pub(super) fn text(name: &SourceValue<'_>) -> Option<String> {
    name.as_deref().map(|name| String::from_utf8_lossy(name).into_owned())
}
