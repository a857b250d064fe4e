//! The names of a caller: user, client, tenant and plan, each from the first of its sources that has
//! one.

use std::borrow::Cow;

use http::{HeaderName, header};

use super::clients::{Client, Clients};
use super::jwt;
use crate::config::settings;
use crate::limit::Source;
use crate::limit::key::KeyError;
use crate::limit::source::{Claims, Identities, RequestFacts, SourceValue};
use crate::limit::trust::Score;

/// Where identities are found, and the clients that are known by their keys.
#[derive(Debug)]
pub struct Identity {
    pub user: Vec<Source>,
    pub client: Vec<Source>,
    pub tenant: Vec<Source>,
    pub plan: Vec<Source>,
    /// If there are any, only their keys identify a client, or names that were verified.
    pub clients: Option<Clients>,
}

/// Which names of a caller are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WantedNames {
    pub user: bool,
    pub client: bool,
    pub tenant: bool,
    pub plan: bool,
    /// How far it is trusted, if its record says that.
    pub trust: bool,
}

impl Identity {
    pub fn new(settings: &settings::Identity) -> Self {
        Identity {
            user: settings.user.clone(),
            client: settings.client.clone(),
            tenant: settings.tenant.clone(),
            plan: settings.plan.clone(),
            clients: settings.clients.clone().map(Clients::new),
        }
    }

    /// Whether the record of some client says how far it is trusted.
    pub fn has_trusted_clients(&self) -> bool {
        self.clients.as_ref().is_some_and(Clients::has_trust)
    }

    /// The sources that one of a limit's stands for: its own, or those of the identity it names.
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

    /// The caller's names, as far as the request says them.
    ///
    /// # Errors
    /// If it says several things in one place.
    pub fn find<'i: 'r, 'r>(
        &'i self,
        facts: &RequestFacts<'r>,
        wanted: WantedNames,
    ) -> Result<FoundNames<'i, 'r>, KeyError> {
        let mut found = FoundNames::default();
        if wanted == WantedNames::default() {
            return Ok(found);
        }
        let (names, sources) = (&mut found.names, &mut found.sources);
        // A tenant, a plan or a score may be that of a client.
        let of_client = self.clients.is_some() && (wanted.tenant || wanted.plan || wanted.trust);
        let mut record = None;
        if wanted.client || of_client {
            let client = self.find_client(facts)?;
            record = client.record;
            sources.client = client.source;
            names.client = client.name;
            names.unknown_key = client.unknown_key;
            let trust = record.filter(|_| wanted.trust).and_then(|it| it.trust);
            // Clients have thousandths.
            found.trust = trust.map(|trust| Score::of_hundredths(u64::from(trust) / 10));
        }
        if wanted.user {
            (names.user, sources.user) = first(&self.user, facts)?;
        }
        // The client's record holds where the request itself says nothing.
        if wanted.tenant {
            (names.tenant, sources.tenant) = first(&self.tenant, facts)?;
        }
        if names.tenant.is_none() {
            let text = record.and_then(|it| it.tenant.as_deref());
            (names.tenant, sources.tenant) = of_record(text);
        }
        if wanted.plan {
            (names.plan, sources.plan) = first(&self.plan, facts)?;
        }
        if names.plan.is_none() {
            let text = record.and_then(|it| it.plan.as_deref());
            (names.plan, sources.plan) = of_record(text);
        }
        Ok(found)
    }

    fn find_client<'i: 'r, 'r>(
        &'i self,
        facts: &RequestFacts<'r>,
    ) -> Result<FoundClient<'i, 'r>, KeyError> {
        let (name, source) = first(&self.client, facts)?;
        let (Some(clients), Some(key)) = (&self.clients, &name) else {
            return Ok(FoundClient { name, source, ..FoundClient::default() });
        };
        // What a token or a certificate says is a name that was verified, and no key.
        if matches!(source, Some(NameSource::Request(source)) if source.is_verified()) {
            let record = clients.named(key);
            return Ok(FoundClient { name, source, record, unknown_key: false });
        }
        let record = clients.find(key);
        let name = record.map(|client| Cow::Borrowed(client.id.as_bytes()));
        let source = source.filter(|_| record.is_some());
        Ok(FoundClient { name, source, record, unknown_key: record.is_none() })
    }
}

/// The names of a caller, as the request `'r` says them, and where each was found.
#[derive(Debug, Clone, Default)]
pub struct FoundNames<'i, 'r> {
    pub names: Identities<'r>,
    pub sources: NameSources<'i>,
    /// How far the record of the client says that it is trusted.
    pub trust: Option<Score>,
}

/// Where each name of a caller was found. `None` where it has none, or nothing asks for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NameSources<'a> {
    pub user: Option<NameSource<'a>>,
    pub client: Option<NameSource<'a>>,
    pub tenant: Option<NameSource<'a>>,
    pub plan: Option<NameSource<'a>>,
}

/// Where one name was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameSource<'a> {
    /// The request says it there, itself or by the key of a known client.
    Request(&'a Source),
    /// The record of the client says it.
    ClientRecord,
}

/// A client that is identified by its key, or not.
#[derive(Debug, Default)]
struct FoundClient<'i, 'r> {
    name: SourceValue<'r>,
    source: Option<NameSource<'i>>,
    record: Option<&'i Client>,
    unknown_key: bool,
}

/// A name, and where it was found.
type FoundName<'i, 'r> = (SourceValue<'r>, Option<NameSource<'i>>);

fn first<'i: 'r, 'r>(
    sources: &'i [Source],
    facts: &RequestFacts<'r>,
) -> Result<FoundName<'i, 'r>, KeyError> {
    for source in sources {
        if let Some(value) = source.value_in(facts)? {
            return Ok((Some(value), Some(NameSource::Request(source))));
        }
    }
    Ok((None, None))
}

fn of_record(text: Option<&str>) -> FoundName<'_, '_> {
    match text {
        Some(text) => (Some(Cow::Borrowed(text.as_bytes())), Some(NameSource::ClientRecord)),
        None => (None, None),
    }
}

impl Claims for jwt::Claims {
    fn claim(&self, name: &str) -> Option<Cow<'_, str>> {
        self.get(name)
    }

    fn any_claim(&self, name: &str) -> Option<Cow<'_, str>> {
        self.get_any(name)
    }
}
