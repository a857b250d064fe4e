//! What has to be found out about a request on a route before its limits can be planned.

use std::sync::Arc;

use crate::caller::identity::WantedNames;
use crate::caller::{AccessLists, Identity};
use crate::config::settings::{ForwardedIdentity, IdentityName, Trust};
use crate::limit::guard::Guard;
use crate::limit::{Condition, Key, Limit, Source, What};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RouteNeeds {
    /// Which names of the caller a limit or an access list asks for.
    pub names: WantedNames,
    /// Claims of the token, if the request has one.
    pub token: bool,
    /// The beginning of the body, if that is a form.
    pub form: bool,
    /// How far the caller is trusted.
    pub trust: bool,
}

impl RouteNeeds {
    pub(super) fn of<'a>(
        limits: impl Iterator<Item = &'a Limit>,
        guards: impl Iterator<Item = &'a Guard>,
        identity: &Identity,
        trust: &Trust,
        access: &[Arc<AccessLists>],
    ) -> Self {
        let mut needs = RouteNeeds::default();
        for limit in limits {
            needs.add_all(&limit.key, &limit.when, identity);
            if !limit.plans.is_empty() {
                needs.add_plan(identity);
            }
            if limit.adaptive {
                needs.add_trust(identity, trust);
            }
        }
        for guard in guards {
            needs.add_all(&guard.key, &guard.when, identity);
        }
        for access in access {
            if access.names_users() {
                needs.add(&Source::User, identity);
            }
            if access.names_clients() {
                needs.add(&Source::Client, identity);
            }
        }
        needs
    }

    /// What upstreams are told of the caller.
    pub(super) fn add_forwarded(&mut self, forward: &ForwardedIdentity, identity: &Identity) {
        for (name, _) in &forward.headers {
            let source = match name {
                IdentityName::User => Source::User,
                IdentityName::Client => Source::Client,
                IdentityName::Tenant => Source::Tenant,
                IdentityName::Plan => Source::Plan,
                IdentityName::Ip => continue,
            };
            self.add_all(&Key(vec![source]), &[], identity);
        }
    }

    /// The same where the caller's tenant is asked for, too.
    pub(super) fn with_tenant(self, identity: &Identity) -> Self {
        self.with_key(&Key(vec![Source::Tenant]), identity)
    }

    /// The same where something else asks for a key, too.
    pub(super) fn with_key(mut self, key: &Key, identity: &Identity) -> Self {
        self.add_all(key, &[], identity);
        self
    }

    /// What a key and conditions read.
    fn add_all(&mut self, key: &Key, when: &[Condition], identity: &Identity) {
        for source in key.0.iter().chain(condition_sources(when)) {
            self.add(source, identity);
            if matches!(source, Source::Tenant | Source::Plan) {
                self.add_plan(identity);
            }
        }
    }

    fn add(&mut self, source: &Source, identity: &Identity) {
        match source {
            Source::User => self.names.user = true,
            Source::Client => self.names.client = true,
            Source::Tenant => self.names.tenant = true,
            Source::Plan => self.names.plan = true,
            _ => {}
        }
        for source in identity.sources(source) {
            self.token |= matches!(source, Source::Jwt(_));
            self.form |= matches!(source, Source::Form(_));
        }
    }

    /// What the score of a caller is made of.
    fn add_trust(&mut self, identity: &Identity, trust: &Trust) {
        self.trust = true;
        self.add(&Source::User, identity);
        if identity.has_trusted_clients() {
            self.names.trust = true;
            self.add(&Source::Client, identity);
        }
        let Trust { account_created, email_verified, score, .. } = trust;
        self.token |= [account_created, email_verified, score].into_iter().any(Option::is_some);
    }

    /// A plan or tenant may be that of a client.
    fn add_plan(&mut self, identity: &Identity) {
        for source in [Source::Plan, Source::Client] {
            self.add(&source, identity);
        }
    }
}

/// What conditions read.
pub(in crate::gateway) fn condition_sources<'a>(
    conditions: impl IntoIterator<Item = &'a Condition>,
) -> impl Iterator<Item = &'a Source> {
    conditions.into_iter().filter_map(|condition| match &condition.what {
        What::Source(source) => Some(source),
        What::Method => None,
    })
}
