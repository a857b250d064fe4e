//! What the allow and deny lists say of a caller: by its address as soon as that is known, and by its
//! names once they are.

use std::net::IpAddr;
use std::sync::Arc;

use crate::caller::AccessLists;
use crate::caller::access::AccessDecision;
use crate::limit::source::{Identities, SourceValue};

/// What all lists say together. Deny wins over allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AccessVerdict {
    /// No limit applies.
    Allowed(AccessReason),
    /// The request is answered with 403.
    Denied(AccessReason),
    /// The limits decide.
    #[default]
    Neither,
}

/// Which list says so, and by what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessReason {
    /// An index into [`Compiled::access`](crate::gateway::Compiled::access).
    pub list: u16,
    pub by: AccessSubject,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessSubject {
    Address,
    User,
    Client,
}

impl AccessVerdict {
    pub fn is_denied(self) -> bool {
        matches!(self, AccessVerdict::Denied(_))
    }

    pub fn is_allowed(self) -> bool {
        matches!(self, AccessVerdict::Allowed(_))
    }

    pub(super) fn of_address(access: &[Arc<AccessLists>], ip: IpAddr) -> Self {
        let mut verdict = AccessVerdict::Neither;
        for (list, access) in (0..).zip(access) {
            verdict
                .add(access.check_address(ip), AccessReason { list, by: AccessSubject::Address });
        }
        verdict
    }

    /// The same, now that the names are known, too.
    pub(super) fn with_names(
        mut self,
        access: &[Arc<AccessLists>],
        names: &Identities<'_>,
    ) -> Self {
        for (list, access) in (0..).zip(access) {
            if let Some(user) = text(&names.user) {
                self.add(access.check_user(user), AccessReason { list, by: AccessSubject::User });
            }
            if let Some(client) = text(&names.client) {
                let reason = AccessReason { list, by: AccessSubject::Client };
                self.add(access.check_client(client), reason);
            }
        }
        self
    }

    fn add(&mut self, decision: AccessDecision, reason: AccessReason) {
        *self = match (*self, decision) {
            (AccessVerdict::Denied(first), _) => AccessVerdict::Denied(first),
            (_, AccessDecision::Denied) => AccessVerdict::Denied(reason),
            (AccessVerdict::Neither, AccessDecision::Allowed) => AccessVerdict::Allowed(reason),
            (unchanged, _) => unchanged,
        };
    }
}

/// Lists hold texts; a name that is none is in no list.
fn text<'a>(name: &'a SourceValue<'_>) -> Option<&'a str> {
    name.as_deref().and_then(|name| std::str::from_utf8(name).ok())
}
