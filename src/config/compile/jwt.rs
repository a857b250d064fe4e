//! `[identity.jwt]`: which tokens are believed.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use http::uri::PathAndQuery;

use super::server::{read, secs};
use super::told::Told;
use super::{origin, secret};
use crate::caller::jwt::{KeyError, Verifier};
use crate::config::diagnostic::Fault;
use crate::config::file::{Section, Unique, Value};
use crate::config::settings::{JwksUrl, Jwt, JwtAlgorithm, JwtKeys, Origin};
use crate::config::suggest::quote;

/// A clock that is further off is broken.
const LEEWAY: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(600);
const REFRESH: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(7 * 86_400);
/// RFC 7518 section 3.2: as long as the hash, or it is the weakest part.
const SECRET: usize = 32;

const HMAC: [JwtAlgorithm; 3] = [JwtAlgorithm::Hs256, JwtAlgorithm::Hs384, JwtAlgorithm::Hs512];

/// Where keys may be, of which a file has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    SecretEnv,
    SecretFile,
    PemFile,
    JwksFile,
    JwksUrl,
}

const PLACES: [(&str, Place); 5] = [
    ("secret_env", Place::SecretEnv),
    ("secret_file", Place::SecretFile),
    ("pem_file", Place::PemFile),
    ("jwks_file", Place::JwksFile),
    ("jwks_url", Place::JwksUrl),
];

pub(super) fn jwt(mut section: Section<'_>) -> Option<Jwt> {
    let written = PLACES.map(|(key, place)| section.get(key).map(|value| (key, place, value)));
    let refresh = Told::of(section.get("refresh"), |it| it.duration(REFRESH));
    let ca = section.get("ca");
    let algorithms = section.get("algorithms");
    let issuer = section.get("issuer").map(|it| names(&it, "https://id.example.com"));
    let audience = section.get("audience").map(|it| names(&it, "my-api"));
    let leeway = read(&mut section, "leeway", secs(60), |it| it.duration(LEEWAY));
    let required = read(&mut section, "required", false, Value::boolean);
    if !section.is_there() {
        return None;
    }
    let mut written = written.into_iter().flatten();
    let Some((key, place, value)) = written.next() else {
        section.wrong(
            "has no keys to verify tokens with",
            "add one of `secret_env`, `secret_file`, `pem_file`, `jwks_file` and `jwks_url`",
        );
        return None;
    };
    if let Some((_, _, second)) = written.next() {
        let message = format!("there are keys in `{key}` already");
        let fault = Fault::error(second.span(), message).also(value.span(), "here");
        second.fault(fault.help("keep one of the two"));
        return None;
    }
    if place != Place::JwksUrl {
        let why = "only keys behind a `jwks_url` are fetched";
        refresh.without_effect(why, "remove it");
        Told::of(ca.as_ref().map(Value::again), |_| Some(())).without_effect(why, "remove it");
    }
    let keys = match place {
        Place::SecretEnv => secret::variable(&value, "JWT_SECRET").map(JwtKeys::Secret),
        Place::SecretFile => {
            secret::file(&value, "secret", "/etc/weir/jwt-secret").map(JwtKeys::Secret)
        }
        Place::PemFile => secret::contents(&value, "/etc/weir/jwt.pem", secret::LARGEST)
            .map(|(_, pem)| JwtKeys::Pem(pem)),
        Place::JwksFile => {
            value.text("/etc/weir/jwks.json").map(|it| JwtKeys::JwksFile(PathBuf::from(it)))
        }
        Place::JwksUrl => {
            let refresh = refresh.or(secs(600));
            url(&value, ca.as_ref(), refresh).map(|it| JwtKeys::JwksUrl(Box::new(it)))
        }
    };
    let algorithms = match algorithms {
        Some(value) => self::algorithms(&value, (key, place)),
        None => Some(usual(place)),
    };
    let (keys, algorithms) = (keys?, algorithms?);
    let issuer = issuer.map_or(Some(None), |it| it.map(Some))?;
    let audience = audience.map_or(Some(None), |it| it.map(Some))?;
    let jwt = Jwt { keys, algorithms, issuer, audience, leeway, required };
    usable(&jwt, &value).then_some(jwt)
}

fn usual(place: Place) -> Vec<JwtAlgorithm> {
    match place {
        Place::SecretEnv | Place::SecretFile => vec![JwtAlgorithm::Hs256],
        // A secret that many may read is none, so these are only for signatures.
        Place::PemFile | Place::JwksFile | Place::JwksUrl => {
            let all = JwtAlgorithm::NAMES.into_iter().map(|(_, it)| it);
            all.filter(|it| !HMAC.contains(it)).collect()
        }
    }
}

fn algorithms(value: &Value<'_>, (key, place): (&str, Place)) -> Option<Vec<JwtAlgorithm>> {
    let entries = value.one_or_more();
    if entries.is_empty() {
        value.wrong(
            "is empty: no token would be believed",
            "name some such as `\"RS256\"`, or leave it out",
        );
        return None;
    }
    let mut seen = Unique::new();
    let mut found = Vec::new();
    for entry in &entries {
        let Some(algorithm) = entry.choice(&JwtAlgorithm::NAMES) else { continue };
        let hmac = HMAC.contains(&algorithm);
        let (fits, help) = match place {
            Place::SecretEnv | Place::SecretFile => (hmac, "write `HS256`, `HS384` or `HS512`"),
            Place::PemFile => (!hmac, "write one such as `RS256`, `ES256` or `EdDSA`"),
            Place::JwksFile | Place::JwksUrl => (true, ""),
        };
        if !fits {
            entry.wrong(&format!("does not go with the keys in `{key}`"), help);
        } else if seen.insert(algorithm, entry) {
            found.push(algorithm);
        }
    }
    (found.len() == entries.len()).then_some(found)
}

/// One text or several, of which a token has to name one.
fn names(value: &Value<'_>, example: &str) -> Option<Vec<String>> {
    let entries = value.one_or_more();
    if entries.is_empty() {
        value.wrong("is empty: no token would be believed", "name one, or leave it out");
        return None;
    }
    let mut seen = Unique::new();
    let mut names = Vec::new();
    for entry in &entries {
        match entry.text(example) {
            None => {}
            Some("") => entry.wrong("is empty", format!("write one such as `\"{example}\"`")),
            Some(name) if seen.insert(name, entry) => names.push(name.to_owned()),
            Some(_) => {}
        }
    }
    (names.len() == entries.len()).then_some(names)
}

/// Notes a fault if the keys are none, and a warning if they are weak.
fn usable(jwt: &Jwt, value: &Value<'_>) -> bool {
    if let JwtKeys::Secret(secret) = &jwt.keys
        && secret.0.len() < SECRET
    {
        value.doubtful(
            &format!(
                "names a secret of {} bytes: whoever has a token can find it by trying",
                secret.0.len()
            ),
            "use 32 random bytes or more, such as `openssl rand -base64 32` makes",
        );
    }
    let Err(error) = Verifier::new(jwt) else { return true };
    let named = value.text("").map(quote).unwrap_or_default();
    let (message, help) = match error {
        KeyError::Unreadable { source, .. } => (
            format!("names a file that cannot be read: {named}: {source}"),
            "see that it is there and may be read",
        ),
        KeyError::NotPem => (
            format!("names a file that is no PEM public key or certificate: {named}"),
            "name one that has `-----BEGIN PUBLIC KEY-----` or `-----BEGIN CERTIFICATE-----` in it",
        ),
        KeyError::NotASet(_) => (
            format!("names a file that is no JWK set: {named}"),
            "name one that has `{ \"keys\": [ … ] }` in it",
        ),
        KeyError::NoKey => (
            "has no key that can be used with the algorithms that are accepted".to_owned(),
            "name the algorithms of its keys in `algorithms`; RSA keys have 2048 bits or more",
        ),
    };
    value.wrong(&message, help);
    false
}

fn url(value: &Value<'_>, ca: Option<&Value<'_>>, refresh: Option<Duration>) -> Option<JwksUrl> {
    let text = value.text("https://id.example.com/.well-known/jwks.json")?;
    let parsed = parse(text);
    let authorities =
        ca.map_or(Some(None), |it| secret::certificates(it, "/etc/weir/jwks-ca.pem").map(Some));
    let (tls, origin, path) = match parsed {
        Ok(parsed) => parsed,
        Err(message) => {
            let form = "write a URL such as `\"https://id.example.com/.well-known/jwks.json\"`";
            value.wrong(&message, form);
            return None;
        }
    };
    if !tls && !is_here(&origin) {
        value.doubtful(
            "is fetched in the clear: whoever is in between can put other keys in its place",
            "write `https://`",
        );
    }
    if let Some(ca) = ca.filter(|_| !tls) {
        let help = "remove it, or write `https://` in `jwks_url`";
        ca.doubtful("has no effect: the keys are fetched in the clear", help);
    }
    Some(JwksUrl { tls, origin, path, ca: authorities?, refresh: refresh? })
}

fn is_here(origin: &Origin) -> bool {
    let address = origin.host.parse::<std::net::IpAddr>();
    origin.host == "localhost" || address.is_ok_and(|it| it.is_loopback())
}

/// Whether it is `https`, and the rest; or what is wrong, without what may be a password.
fn parse(text: &str) -> Result<(bool, Origin, PathAndQuery), String> {
    let Some((scheme, rest)) = text.split_once("://") else {
        return Err("has no scheme".to_owned());
    };
    let tls = match scheme.to_ascii_lowercase().as_str() {
        "https" => true,
        "http" => false,
        _ => return Err(format!("has an unknown scheme: {}", quote(scheme))),
    };
    if rest.contains('#') {
        return Err("has a fragment".to_owned());
    }
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if authority.contains('@') {
        return Err("carries a user or a password, which Weir does not send".to_owned());
    }
    let bad = || format!("does not name a server: {}", quote(authority));
    let lower = authority.to_ascii_lowercase();
    let (host, port) = origin::split(&lower).ok_or_else(bad)?;
    let port = match port {
        None if tls => 443,
        None => 80,
        Some(port) => origin::port(port).ok_or_else(bad)?,
    };
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let path = path.parse().map_err(|_| format!("has a bad path: {}", quote(&path)))?;
    Ok((tls, Origin { host, port }, path))
}
