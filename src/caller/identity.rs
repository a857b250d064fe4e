//! User, client, tenant and plan: who the caller is, from the first of some sources that says so.

use std::borrow::Cow;

use http::{HeaderName, header};

use super::clients::{Client, Clients};
use super::jwt;
use crate::config::settings;
use crate::limit::Source;
use crate::limit::key::KeyError;
use crate::limit::source::{Claims, Evidence, Identities, Said};

/// Where identities are found, and the clients that are known by their keys.
#[derive(Debug)]
pub struct Identity {
    pub user: Vec<Source>,
    pub client: Vec<Source>,
    pub tenant: Vec<Source>,
    pub plan: Vec<Source>,
    /// If there are any, a client is one of them, and whoever brings another key is none.
    pub clients: Option<Clients>,
}

/// What has to be known of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wanted {
    pub user: bool,
    pub client: bool,
    pub tenant: bool,
    pub plan: bool,
}

impl Identity {
    #[must_use]
    pub fn new(settings: &settings::Identity) -> Self {
        Identity {
            user: settings.user.clone(),
            client: settings.client.clone(),
            tenant: settings.tenant.clone(),
            plan: settings.plan.clone(),
            clients: settings.clients.clone().map(Clients::new),
        }
    }

    /// The sources that one of a limit's stands for: its own, or those of the identity it names.
    #[must_use]
    pub fn sources<'a>(&'a self, source: &'a Source) -> &'a [Source] {
        match source {
            Source::User => &self.user,
            Source::Client => &self.client,
            Source::Tenant => &self.tenant,
            Source::Plan => &self.plan,
            _ => std::slice::from_ref(source),
        }
    }

    /// The headers that identities are found in. `Host` has a rule of its own.
    pub fn headers(&self) -> impl Iterator<Item = &HeaderName> {
        let all = [&self.user, &self.client, &self.tenant, &self.plan];
        all.into_iter().flatten().filter_map(|source| match source {
            Source::Header(name) if *name != header::HOST => Some(name),
            _ => None,
        })
    }

    /// Who a request is from, as far as it says so.
    ///
    /// # Errors
    /// If it says several things in one place.
    pub fn of<'a>(
        &'a self,
        evidence: &Evidence<'a>,
        wanted: Wanted,
    ) -> Result<Identities<'a>, KeyError> {
        if wanted == Wanted::default() {
            return Ok(Identities::default());
        }
        // A tenant or a plan may be that of a client.
        let of_client = self.clients.is_some() && (wanted.tenant || wanted.plan);
        let found = match wanted.client || of_client {
            true => self.client(evidence)?,
            false => FoundClient::default(),
        };
        let known = found.known;
        let first = |sources: &'a [Source], wanted: bool| match wanted {
            true => first(sources, evidence),
            false => Ok(None),
        };
        // What is known of a client holds where the request itself says nothing.
        let or = |said: Said<'a>, text: Option<&'a str>| {
            said.or_else(|| text.map(|text| Cow::Borrowed(text.as_bytes())))
        };
        Ok(Identities {
            user: first(&self.user, wanted.user)?,
            client: found.name,
            unknown_key: found.unknown_key,
            tenant: or(
                first(&self.tenant, wanted.tenant)?,
                known.and_then(|it| it.tenant.as_deref()),
            ),
            plan: or(first(&self.plan, wanted.plan)?, known.and_then(|it| it.plan.as_deref())),
        })
    }

    fn client<'a>(&'a self, evidence: &Evidence<'a>) -> Result<FoundClient<'a>, KeyError> {
        let name = first(&self.client, evidence)?;
        let (Some(clients), Some(key)) = (&self.clients, &name) else {
            return Ok(FoundClient { name, ..FoundClient::default() });
        };
        let known = clients.find(key);
        let name = known.map(|client| Cow::Borrowed(client.id.as_bytes()));
        Ok(FoundClient { name, known, unknown_key: known.is_none() })
    }
}

/// Who the client is.
#[derive(Debug, Default)]
struct FoundClient<'a> {
    name: Said<'a>,
    known: Option<&'a Client>,
    unknown_key: bool,
}

fn first<'a>(sources: &'a [Source], evidence: &Evidence<'a>) -> Result<Said<'a>, KeyError> {
    for source in sources {
        if let Some(value) = source.said(evidence)? {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

impl Claims for jwt::Claims {
    fn claim(&self, name: &str) -> Option<Cow<'_, str>> {
        self.get(name)
    }
}
