//! `[identity.jwt]`: which tokens are believed.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use http::uri::PathAndQuery;

use super::parsed_key::ParsedKey;
use super::server::{read, secs};
use super::{origin, secret};
use crate::caller::jwt::{KeyError, Verifier};
use crate::config::diagnostic::Diagnostic;
use crate::config::file::{Section, Value, unique_values};
use crate::config::regular_file;
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
enum KeySource {
    SecretEnv,
    SecretFile,
    PemFile,
    JwksFile,
    JwksUrl,
}

/// The key of the file that says where the JWT keys are.
struct KeyEntry<'a> {
    key: &'static str,
    source: KeySource,
    value: Value<'a>,
}

const KEY_SOURCES: [(&str, KeySource); 5] = [
    ("secret_env", KeySource::SecretEnv),
    ("secret_file", KeySource::SecretFile),
    ("pem_file", KeySource::PemFile),
    ("jwks_file", KeySource::JwksFile),
    ("jwks_url", KeySource::JwksUrl),
];

pub(super) fn jwt(mut section: Section<'_>) -> Option<Jwt> {
    let written = KEY_SOURCES
        .map(|(key, source)| section.get(key).map(|value| KeyEntry { key, source, value }));
    let refresh = ParsedKey::of(section.get("refresh"), |it| it.duration(REFRESH));
    let ca = section.get("ca");
    let algorithms = section.get("algorithms");
    let issuer = section.get("issuer").map(|it| names(&it, "https://id.example.com"));
    let audience = section.get("audience").map(|it| names(&it, "my-api"));
    let leeway = read(&mut section, "leeway", secs(60), |it| it.duration(LEEWAY));
    let required = read(&mut section, "required", false, Value::boolean);
    if !section.is_present() {
        return None;
    }
    let mut written = written.into_iter().flatten();
    let Some(entry) = written.next() else {
        section.error(
            "has no keys to verify tokens with",
            "add one of `secret_env`, `secret_file`, `pem_file`, `jwks_file` and `jwks_url`",
        );
        return None;
    };
    if let Some(KeyEntry { value: second, .. }) = written.next() {
        let message = format!("there are keys in `{}` already", entry.key);
        let fault = Diagnostic::error(second.span(), message).also(entry.value.span(), "here");
        second.report(fault.help("keep one of the two"));
        return None;
    }
    let value = &entry.value;
    if entry.source != KeySource::JwksUrl {
        let why = "only keys behind a `jwks_url` are fetched";
        refresh.warn_without_effect(why, "remove it");
        ParsedKey::of(ca.clone(), |_| Some(())).warn_without_effect(why, "remove it");
    }
    let keys = match entry.source {
        KeySource::SecretEnv => secret::variable(value, "JWT_SECRET").map(JwtKeys::Secret),
        KeySource::SecretFile => {
            secret::file(value, "secret", "/etc/weir/jwt-secret").map(JwtKeys::Secret)
        }
        KeySource::PemFile => secret::contents(value, "/etc/weir/jwt.pem", secret::LARGEST)
            .map(|(_, pem)| JwtKeys::Pem(pem)),
        KeySource::JwksFile => {
            value.path("/etc/weir/jwks.json").map(|it| JwtKeys::JwksFile(PathBuf::from(it)))
        }
        KeySource::JwksUrl => {
            let refresh = refresh.or(secs(600));
            url(value, ca.as_ref(), refresh).map(|it| JwtKeys::JwksUrl(Box::new(it)))
        }
    };
    let algorithms = match algorithms {
        Some(value) => self::algorithms(&value, &entry),
        None => Some(default_algorithms(entry.source)),
    };
    let (keys, algorithms) = (keys?, algorithms?);
    let issuer = issuer.map_or(Some(None), |it| it.map(Some))?;
    let audience = audience.map_or(Some(None), |it| it.map(Some))?;
    let jwt = Jwt { keys, algorithms, issuer, audience, leeway, required };
    usable(&jwt, value).then_some(jwt)
}

fn default_algorithms(source: KeySource) -> Vec<JwtAlgorithm> {
    match source {
        KeySource::SecretEnv | KeySource::SecretFile => vec![JwtAlgorithm::Hs256],
        // A secret that many may read is none, so these are only for signatures.
        KeySource::PemFile | KeySource::JwksFile | KeySource::JwksUrl => {
            let all = JwtAlgorithm::NAMES.into_iter().map(|(_, it)| it);
            all.filter(|it| !HMAC.contains(it)).collect()
        }
    }
}

fn algorithms(value: &Value<'_>, keys: &KeyEntry<'_>) -> Option<Vec<JwtAlgorithm>> {
    let entries = value.one_or_more();
    if entries.is_empty() {
        value.error(
            "is empty: no token would be believed",
            "name some such as `\"RS256\"`, or leave it out",
        );
        return None;
    }
    let found = unique_values(&entries, |entry| {
        let algorithm = entry.choice(&JwtAlgorithm::NAMES)?;
        let hmac = HMAC.contains(&algorithm);
        let (fits, help) = match keys.source {
            KeySource::SecretEnv | KeySource::SecretFile => {
                (hmac, "write `HS256`, `HS384` or `HS512`")
            }
            KeySource::PemFile => (!hmac, "write one such as `RS256`, `ES256` or `EdDSA`"),
            KeySource::JwksFile | KeySource::JwksUrl => (true, ""),
        };
        if !fits {
            entry.error(&format!("does not go with the keys in `{}`", keys.key), help);
        }
        fits.then_some(algorithm)
    });
    (found.len() == entries.len()).then_some(found)
}

/// One text or several, of which a token has to name one.
fn names(value: &Value<'_>, example: &str) -> Option<Vec<String>> {
    let entries = value.one_or_more();
    if entries.is_empty() {
        value.error("is empty: no token would be believed", "name one, or leave it out");
        return None;
    }
    let names = unique_values(&entries, |entry| match entry.text(example)? {
        "" => {
            entry.error("is empty", format!("write one such as `\"{example}\"`"));
            None
        }
        name => Some(name.to_owned()),
    });
    (names.len() == entries.len()).then_some(names)
}

/// Notes a fault if the keys are none, and a warning if they are weak.
fn usable(jwt: &Jwt, value: &Value<'_>) -> bool {
    if let JwtKeys::Secret(secret) = &jwt.keys
        && secret.0.len() < SECRET
    {
        value.warning(
            &format!(
                "names a secret of {} bytes: anyone who has a token can find it by trying",
                secret.0.len()
            ),
            "use 32 random bytes or more, such as `openssl rand -base64 32` makes",
        );
    }
    let Err(error) = Verifier::new(jwt) else { return true };
    let named = value.text("").map(quote).unwrap_or_default();
    let (message, help) = match error {
        KeyError::Unreadable { path, source } => (
            format!(
                "names a file that cannot be read: {}: {source}",
                quote(&regular_file::looked_up(&path).to_string_lossy())
            ),
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
    value.error(&message, help);
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
            value.error(&message, form);
            return None;
        }
    };
    if !tls && !is_here(&origin) {
        value.warning(
            "is fetched in the clear: anyone in between can put other keys in its place",
            "write `https://`",
        );
    }
    if let Some(ca) = ca.filter(|_| !tls) {
        let help = "remove it, or write `https://` in `jwks_url`";
        ca.warning("has no effect: the keys are fetched in the clear", help);
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
