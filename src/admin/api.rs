//! `/v1`: what operators ask for and decide while the gateway runs.
//!
//! Changes always take the token. Reading takes it unless the listener is on loopback; a listener
//! that is not, and has no token, has no `/v1` at all.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use parking_lot::Mutex;
use serde::Serialize;

use super::change::Change;
use super::hosts::Hosts;
use super::spellings::Spellings;
use super::{Answer, answer};
use crate::config::settings::{Admin, Secret};
use crate::config::{self, Settings};
use crate::respond::fault::sentence;
use crate::rulings::{self, About, Action, Book, Full, Ruling, Who, Written};
use crate::store;
use crate::telemetry::{Audit, CallerNames, Event};

/// For how long a ruling holds that does not say so.
const USUAL_SECONDS: u64 = 3_600;
const LONGEST_SECONDS: u64 = 366 * 86_400;
/// How long a change is waited for at most, until workers serve it.
const SERVED_WITHIN: Duration = Duration::from_secs(5);
/// As much of a reason as anybody reads.
const LONGEST_REASON: usize = 500;
/// The methods of what is only read, and of what is changed.
const READ: &str = "GET, HEAD";
const CHANGED: &str = "GET, HEAD, PUT, DELETE";

#[derive(Debug)]
pub struct Api {
    book: Arc<Book>,
    store: store::Shared,
    audit: Audit,
    /// As it was at the start.
    admin: Admin,
    /// The configuration in force.
    settings: Mutex<Arc<Settings>>,
}

/// Why a question has no answer.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    error: &'static str,
    description: String,
    /// What has to be told with it.
    header: Option<(HeaderName, &'static str)>,
}

impl Problem {
    pub(super) fn new(
        status: StatusCode,
        error: &'static str,
        description: impl Into<String>,
    ) -> Self {
        Problem { status, error, description: description.into(), header: None }
    }

    fn unauthorized(description: &str) -> Self {
        let problem = Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", description);
        Problem { header: Some((header::WWW_AUTHENTICATE, "Bearer")), ..problem }
    }

    fn bad(description: impl Into<String>) -> Self {
        Problem::new(StatusCode::BAD_REQUEST, "bad_request", description)
    }

    fn nothing() -> Self {
        Problem::new(StatusCode::NOT_FOUND, "no_route", "There is nothing here.")
    }
}

impl Api {
    #[must_use]
    pub fn new(
        (book, store): (Arc<Book>, store::Shared),
        audit: Audit,
        settings: Arc<Settings>,
    ) -> Self {
        let admin = settings.admin.clone();
        Api { book, store, audit, admin, settings: Mutex::new(settings) }
    }

    /// Another configuration is in force.
    pub fn configure(&self, settings: Arc<Settings>) {
        *self.settings.lock() = settings;
    }

    /// The configuration in force.
    #[must_use]
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.lock().clone()
    }

    /// Answers what is asked below `/v1/`.
    pub(super) async fn answer(&self, method: &Method, path: &str, body: Bytes) -> Answer {
        match self.ask(method, path, &body).await {
            Ok((status, text)) => answer(status, "application/json", text.into()),
            Err(problem) => complaint(&problem),
        }
    }

    /// Who may be asked for by which name.
    pub(super) fn hosts(&self) -> Hosts<'_> {
        Hosts { admin: &self.admin }
    }

    /// Whether somebody may ask this at all; if not, what it is told.
    pub(super) fn admits(&self, method: &Method, headers: &HeaderMap) -> Result<(), Box<Answer>> {
        self.knows(method, headers).map_err(|problem| Box::new(complaint(&problem)))
    }

    fn knows(&self, method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
        if !self.admin.has_api() {
            return Err(Problem::nothing());
        }
        let reading = matches!(*method, Method::GET | Method::HEAD);
        if reading && self.admin.listen.ip().is_loopback() {
            return Ok(());
        }
        let Some(Secret(token)) = &self.admin.token else {
            let say = "Changes take a token: name its variable in admin.token_env.";
            return Err(Problem::unauthorized(say));
        };
        let sent = headers.get(header::AUTHORIZATION).map(|value| value.as_bytes());
        let sent = sent.and_then(|value| value.split_at_checked(7));
        let sent = sent.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "));
        let right = |sent: &[u8]| verify_slices_are_equal(sent, token.as_bytes()).is_ok();
        match sent {
            Some((_, sent)) if right(sent) => Ok(()),
            Some(_) => Err(Problem::unauthorized("That is not the token.")),
            None => Err(Problem::unauthorized("Send the token: Authorization: Bearer TOKEN.")),
        }
    }

    async fn ask(
        &self,
        method: &Method,
        path: &str,
        body: &[u8],
    ) -> Result<(StatusCode, String), Problem> {
        let parts: Vec<&str> = path.split('/').collect();
        match (method.as_str(), &parts[..]) {
            ("GET" | "HEAD", ["overrides"]) => Ok(self.list(true)),
            ("GET" | "HEAD", ["access"]) => Ok(self.list(false)),
            (_, ["overrides", limit, key]) => {
                let settings = self.settings();
                let spellings = Spellings::new(&settings);
                let found = spellings.of_bucket(self.book.all(), limit, key);
                match method.as_str() {
                    "GET" | "HEAD" => show(found),
                    "PUT" => {
                        let change = Change::read(body).map_err(Problem::bad)?;
                        let ruling = overriding(&spellings, limit, key, change)?;
                        let (id, put) = (ruling.id(), self.put(ruling).await?);
                        // What is stored in other spellings would come back with the end of this one.
                        for (other, _) in found.iter().filter(|(other, _)| *other != id) {
                            self.forget(other).await?;
                        }
                        Ok(put)
                    }
                    "DELETE" => self.remove(found).await,
                    _ => Err(not_allowed(CHANGED)),
                }
            }
            (_, ["access", action, who, value @ ..]) if !value.is_empty() => {
                let value = unescaped(&value.join("/"))?;
                let (action, who) = (action_of(action)?, who_of(who)?);
                let value = if who == Who::Ip { spelled(&value)? } else { value };
                let about = About::Access { action, who, value };
                if method == Method::PUT {
                    return self
                        .put(admittance(about, Change::read(body).map_err(Problem::bad)?)?)
                        .await;
                }
                let id = Ruling::about(about).id();
                // One who is denied is not allowed, though both have one name.
                let found = self.book.get(&id).filter(|ruling| is_access(ruling, action));
                let found = found.map(|ruling| (id, ruling)).into_iter().collect();
                match method.as_str() {
                    "GET" | "HEAD" => show(found),
                    "DELETE" => self.remove(found).await,
                    _ => Err(not_allowed(CHANGED)),
                }
            }
            (_, ["overrides" | "access"]) => Err(not_allowed(READ)),
            _ => Err(Problem::nothing()),
        }
    }

    fn list(&self, overrides: bool) -> (StatusCode, String) {
        let mut all = self.book.all();
        if overrides {
            let settings = self.settings();
            return (StatusCode::OK, json(&Spellings::new(&settings).overrides(all)));
        }
        all.retain(|it| matches!(it.about, About::Access { .. }));
        (StatusCode::OK, json(&all))
    }

    async fn put(&self, ruling: Ruling) -> Result<(StatusCode, String), Problem> {
        self.book.has_room(&ruling.id()).map_err(full)?;
        self.store.put_ruling(&ruling).await.map_err(unavailable)?;
        self.book.put(ruling.clone()).map_err(full)?;
        self.is_served().await;
        let seconds = ruling.until.saturating_sub(rulings::now());
        let reason = ruling.reason.as_deref();
        let names = CallerNames { hashed: self.settings.lock().telemetry.hash_keys };
        match &ruling.about {
            About::Override { limit, key, .. } => {
                let key = &names.of(key);
                self.audit.record(Event::OverrideSet { limit, key, seconds, reason });
            }
            About::Access { action, value, .. } => {
                let who = &names.of(value);
                self.audit.record(match action {
                    Action::Allow => Event::WhitelistAdded { who, seconds, reason },
                    Action::Deny => Event::DenylistAdded { who, seconds, reason },
                });
            }
        }
        Ok((StatusCode::OK, json(&ruling)))
    }

    /// Takes back all that is stored about the same, and tells of the first, which is what held.
    async fn remove(&self, found: Vec<(String, Ruling)>) -> Result<(StatusCode, String), Problem> {
        for (id, _) in &found {
            self.forget(id).await?;
        }
        self.is_served().await;
        let held = found.into_iter().next().map(|(_, ruling)| ruling);
        let held = held.ok_or_else(Problem::nothing)?;
        let names = CallerNames { hashed: self.settings.lock().telemetry.hash_keys };
        let what = &held.id_with(|name| names.of(name));
        self.audit.record(Event::RulingRemoved { what });
        Ok((StatusCode::OK, json(&held)))
    }

    /// Waits until callers are held to what was decided: what comes after the answer goes by it.
    async fn is_served(&self) {
        if tokio::time::timeout(SERVED_WITHIN, self.book.is_served()).await.is_err() {
            tracing::warn!("what operators have decided takes long to be served");
        }
    }

    async fn forget(&self, id: &str) -> Result<(), Problem> {
        self.store.remove_ruling(id).await.map_err(unavailable)?;
        self.book.remove(id);
        Ok(())
    }
}

fn show(found: Vec<(String, Ruling)>) -> Result<(StatusCode, String), Problem> {
    let (_, ruling) = found.into_iter().next().ok_or_else(Problem::nothing)?;
    Ok((StatusCode::OK, json(&ruling)))
}

fn is_access(ruling: &Ruling, wanted: Action) -> bool {
    matches!(ruling.about, About::Access { action, .. } if action == wanted)
}

fn overriding(
    spellings: &Spellings<'_>,
    limit: &str,
    key: &str,
    change: Change,
) -> Result<Ruling, Problem> {
    let found = spellings.limit(limit).ok_or_else(|| {
        let why = format!("There is no limit {limit:?}.");
        Problem::new(StatusCode::NOT_FOUND, "no_route", why)
    })?;
    let (rate, burst, boost) = (change.rate.clone(), change.burst, change.boost);
    let written = Written { rate, burst, boost };
    written.suits(found).map_err(|error| Problem::bad(sentence(&error.to_string())))?;
    let key = spellings.key(limit, key).ok_or_else(|| {
        let key = &found.key;
        Problem::bad(format!("That is no key of this limit, which counts by {key}."))
    })?;
    finished(About::Override { limit: limit.to_owned(), key, written }, &change)
}

fn admittance(about: About, change: Change) -> Result<Ruling, Problem> {
    if change.rate.is_some() || change.burst.is_some() || change.boost.is_some() {
        return Err(Problem::bad("Numbers go with /v1/overrides."));
    }
    finished(about, &change)
}

/// A ruling with its end.
fn finished(about: About, change: &Change) -> Result<Ruling, Problem> {
    let seconds = match &change.ttl {
        None => USUAL_SECONDS,
        Some(text) => config::duration(text)
            .map(|ttl| ttl.as_secs())
            .filter(|seconds| (1..=LONGEST_SECONDS).contains(seconds))
            .ok_or_else(|| {
                Problem::bad("The ttl must be a duration from 1s to 366d, such as \"1h30m\".")
            })?,
    };
    let reason = change.reason.clone();
    if reason.as_ref().is_some_and(|it| it.chars().count() > LONGEST_REASON) {
        return Err(Problem::bad("The reason has more than 500 characters."));
    }
    Ok(Ruling { about, until: rulings::now() + seconds, reason })
}

fn action_of(text: &str) -> Result<Action, Problem> {
    match text {
        "allow" => Ok(Action::Allow),
        "deny" => Ok(Action::Deny),
        _ => Err(Problem::nothing()),
    }
}

fn who_of(text: &str) -> Result<Who, Problem> {
    match text {
        "ip" => Ok(Who::Ip),
        "user" => Ok(Who::User),
        "client" => Ok(Who::Client),
        _ => Err(Problem::nothing()),
    }
}

fn unescaped(text: &str) -> Result<String, Problem> {
    let bytes = crate::limit::source::unpercent(text).to_vec();
    let good = |text: &String| !text.is_empty() && !text.chars().any(char::is_control);
    String::from_utf8(bytes).ok().filter(good).ok_or_else(|| Problem::bad("That is no name."))
}

/// One spelling for each network.
fn spelled(text: &str) -> Result<String, Problem> {
    let network = rulings::network(text)
        .ok_or_else(|| Problem::bad("That is neither an address nor a network."))?;
    let single = network.prefix_len() == network.max_prefix_len();
    Ok(if single { network.addr().to_string() } else { network.to_string() })
}

fn not_allowed(allowed: &'static str) -> Problem {
    let why = "This method is not allowed here.";
    let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", why);
    Problem { header: Some((header::ALLOW, allowed)), ..problem }
}

/// What a body gets that is larger than any question.
pub(super) fn too_large() -> Answer {
    let why = "The body has more than 64 KiB.";
    complaint(&Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", why))
}

fn full(full: Full) -> Problem {
    let why = sentence(&full.to_string());
    Problem::new(StatusCode::INSUFFICIENT_STORAGE, "overloaded", why)
}

fn unavailable(why: String) -> Problem {
    let why =
        format!("The store has not confirmed it: {why}. Look whether it holds, and ask again.");
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", why)
}

pub(super) fn complaint(problem: &Problem) -> Answer {
    #[derive(Serialize)]
    struct Said<'a> {
        error: &'a str,
        error_description: &'a str,
    }
    let said = Said { error: problem.error, error_description: &problem.description };
    let mut answer = answer(problem.status, "application/json", json(&said).into());
    if let Some((name, value)) = &problem.header {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
