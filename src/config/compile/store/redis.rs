//! The keys of `[store]` that go with `kind = "redis"`.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::url::{self, RedisUrl, UrlHost};
use super::{secret, sentinel, tls};
use crate::config::file::{Section, UniqueValues, Value};
use crate::config::settings::{Origin, Redis, RedisAddress, RedisServers, Secret};
use crate::config::suggest::quote;

/// More than a caller would wait for is no deadline.
const TIMEOUT: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(10);
const LONGEST_PREFIX: usize = 64;

/// As written, whatever the kind is.
pub(super) struct RedisSection<'a> {
    url: Option<Value<'a>>,
    cluster: Option<Value<'a>>,
    sentinel: sentinel::SentinelSection<'a>,
    username: Option<Value<'a>>,
    password_env: Option<Value<'a>>,
    password_file: Option<Value<'a>>,
    tls: tls::TlsSection<'a>,
    prefix: Option<Value<'a>>,
    timeout: Option<Value<'a>>,
}

impl<'a> RedisSection<'a> {
    pub(super) fn of(section: &mut Section<'a>) -> Self {
        RedisSection {
            url: section.get("url"),
            cluster: section.get("cluster"),
            sentinel: sentinel::SentinelSection::of(section.section("sentinel")),
            username: section.get("username"),
            password_env: section.get("password_env"),
            password_file: section.get("password_file"),
            tls: tls::TlsSection::of(section.section("tls")),
            prefix: section.get("prefix"),
            timeout: section.get("timeout"),
        }
    }

    /// Beside another kind, each of them was probably meant for this one.
    pub(super) fn warn_of_all(&self) {
        const MESSAGE: &str = "has no effect: the store is in memory";
        const HELP: &str = "remove it, or write `kind = \"redis\"`";
        let plain = [
            &self.url,
            &self.cluster,
            &self.username,
            &self.password_env,
            &self.password_file,
            &self.prefix,
            &self.timeout,
        ];
        plain.into_iter().flatten().for_each(|value| value.warning(MESSAGE, HELP));
        for section in [self.sentinel.section(), self.tls.section()] {
            if section.is_present() {
                section.warning(MESSAGE, HELP);
            }
        }
    }

    pub(super) fn settings(&self) -> Option<Redis> {
        let prefix = self.prefix.as_ref().map_or(Some("weir".to_owned()), prefix);
        let timeout = self.timeout.as_ref();
        let timeout = timeout.map_or(Some(Duration::from_millis(20)), |it| it.duration(TIMEOUT));
        let cluster = self.cluster.as_ref().map_or(Some(false), Value::boolean);
        let sentinel = self.sentinel.read();
        if let Some(value) = self.cluster.as_ref().filter(|_| cluster == Some(true))
            && self.sentinel.section().is_present()
        {
            value.error(
                "stands beside `sentinel`: a cluster has no sentinels",
                "leave one of the two out",
            );
            return None;
        }
        let urls = self.urls(cluster?);
        let login = urls.as_ref().and_then(|urls| self.login(&urls[0]));
        let tls = urls.as_ref().and_then(|urls| self.tls.read(urls[0].tls));
        let (urls, sentinel) = (urls?, sentinel?);
        let database = urls[0].database;
        let servers = match sentinel {
            Some(servers) => self.accepts_host(&urls[0]).then_some(servers),
            None if cluster == Some(true) => self.cluster_of(urls),
            None => self.single(urls),
        };
        let (username, password) = login?;
        let (servers, tls, prefix, timeout) = (servers?, tls?, prefix?, timeout?);
        Some(Redis { servers, tls, username, password, database, prefix, timeout })
    }

    /// All URLs that are written, or the default. Never empty.
    fn urls(&self, cluster: bool) -> Option<Vec<RedisUrl>> {
        let Some(value) = &self.url else { return Some(vec![RedisUrl::default()]) };
        let entries = value.one_or_more();
        match entries.len() {
            0 => value.error("is empty", "write one URL or several, or leave it out"),
            2.. if !cluster => value.error(
                "has several URLs",
                "write one URL, or add `cluster = true` or `sentinel = { … }`",
            ),
            _ => {
                let read = |entry: &Value<'_>| {
                    let text = entry.text("redis://127.0.0.1:6379/0")?;
                    url::parse(text).map_err(|error| error.report(entry)).ok()
                };
                // All of them, so that each is told what is wrong with it.
                let urls: Vec<Option<RedisUrl>> = entries.iter().map(read).collect();
                return urls.into_iter().collect();
            }
        }
        None
    }

    fn single(&self, urls: Vec<RedisUrl>) -> Option<RedisServers> {
        let address = match urls.into_iter().next()?.host {
            UrlHost::Tcp(origin) => RedisAddress::Tcp(origin),
            UrlHost::Unix(path) => RedisAddress::Unix(path),
            UrlHost::Unnamed => return self.report_no_host(),
        };
        Some(RedisServers::Single(address))
    }

    fn cluster_of(&self, urls: Vec<RedisUrl>) -> Option<RedisServers> {
        let (mut nodes, mut seen) = (Vec::<Origin>::new(), UniqueValues::new());
        let entries = self.url.as_ref().map(Value::one_or_more).unwrap_or_default();
        let first = urls[0].clone();
        for (at, url) in urls.into_iter().enumerate() {
            // Without an entry it is the default, which is fine.
            let entry = entries.get(at);
            let fault = |message: &str, help: &str| {
                entry.iter().for_each(|it| it.error(message, help));
                None
            };
            let login = |url: &RedisUrl| (url.tls, url.username.clone(), url.password.clone());
            let origin = match url.host {
                _ if url.database != 0 => {
                    return fault("names a database", "a cluster has database 0 only");
                }
                UrlHost::Unix(_) => {
                    return fault("is a socket", "write the address of one of the cluster's nodes");
                }
                UrlHost::Unnamed => return self.report_no_host(),
                _ if login(&url) != login(&first) => {
                    return fault(
                        "differs from the first one in its scheme, user or password",
                        "write the same for all: Weir speaks to every node in one way",
                    );
                }
                UrlHost::Tcp(origin) => origin,
            };
            if entry.is_none_or(|it| seen.insert(origin.clone(), it)) {
                nodes.push(origin);
            }
        }
        Some(RedisServers::Cluster(nodes))
    }

    /// Whether the URL is fine beside sentinels, which know the host.
    fn accepts_host(&self, url: &RedisUrl) -> bool {
        let Some(value) = &self.url else { return true };
        match url.host {
            UrlHost::Unnamed => true,
            UrlHost::Unix(_) => {
                value.error(
                    "is a socket, and sentinels name hosts",
                    "write `\"redis:///0\"`, or leave it out",
                );
                false
            }
            UrlHost::Tcp(_) => {
                let scheme = if url.tls { "rediss" } else { "redis" };
                value.warning(
                    "names a host, which is not asked: the sentinels say who the master is",
                    format!("leave out the host and the port, as in `\"{scheme}:///0\"`"),
                );
                true
            }
        }
    }

    fn report_no_host<T>(&self) -> Option<T> {
        self.url.iter().for_each(|value| {
            value.error("has no host", "write one such as `\"redis://127.0.0.1:6379/0\"`");
        });
        None
    }

    /// User and password, each from one place.
    fn login(&self, url: &RedisUrl) -> Option<(Option<String>, Option<Secret>)> {
        if let Some(value) = self.username.as_ref().filter(|_| url.username.is_some()) {
            return report_ambiguous(value, "a user in `url`");
        }
        let password = match (&url.password, &self.password_env, &self.password_file) {
            (Some(_), Some(value), _) | (Some(_), None, Some(value)) => {
                return report_ambiguous(value, "a password in `url`");
            }
            (None, Some(_), Some(value)) => return report_ambiguous(value, "`password_env`"),
            (None, Some(value), None) => secret::optional(value, "REDIS_PASSWORD")?,
            (None, None, Some(value)) => {
                Some(secret::file(value, "password", "/etc/weir/redis-password")?)
            }
            (written, None, None) => written.clone(),
        };
        let user = match &self.username {
            Some(value) => Some(username(value)?),
            None => url.username.clone(),
        };
        if let Some(value) = self.username.as_ref().or(self.url.as_ref())
            && user.is_some()
            && password.is_none()
        {
            report_no_password(
                value,
                self.password_env.as_ref(),
                "`password_env` or `password_file`",
            );
            return None;
        }
        Some((user, password))
    }
}

/// Notes a user without a password: Redis takes the two together.
pub(super) fn report_no_password(user: &Value<'_>, variable: Option<&Value<'_>>, keys: &str) {
    const MESSAGE: &str = "names a user without a password";
    match variable.and_then(|value| value.text("REDIS_PASSWORD")) {
        Some(name) => user.error(
            &format!("{MESSAGE}: the variable {} is empty", quote(name)),
            "set it before Weir starts, or leave the user out",
        ),
        None => user.error(MESSAGE, format!("add {keys}: Redis takes the two together")),
    }
}

fn report_ambiguous<T>(value: &Value<'_>, other: &str) -> Option<T> {
    let message = format!("stands beside {other}: which of the two holds is unclear");
    value.error(&message, "leave one of them out");
    None
}

pub(super) fn username(value: &Value<'_>) -> Option<String> {
    let text = value.text("weir")?;
    let good = !text.is_empty() && !text.chars().any(|c| c.is_control() || c.is_whitespace());
    if !good {
        value.error(
            &format!("is not the name of a user: {}", quote(text)),
            "write one without spaces, as Redis has it",
        );
    }
    good.then(|| text.to_owned())
}

/// At most one pair of braces, around something: in a cluster it says which slot keys are in.
fn prefix(value: &Value<'_>) -> Option<String> {
    let text = value.text("weir")?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.-:{}".contains(c);
    if !(1..=LONGEST_PREFIX).contains(&text.len()) || !text.chars().all(plain) {
        value.error(
            &format!("cannot be {}", quote(text)),
            format!("use 1 to {LONGEST_PREFIX} letters, digits, `_`, `.`, `-`, `:`, `{{` or `}}`"),
        );
        return None;
    }
    let braces: String = text.chars().filter(|c| "{}".contains(*c)).collect();
    if !(braces.is_empty() || braces == "{}") || text.contains("{}") {
        value.error(
            &format!("has braces that are no pair around something: {}", quote(text)),
            "write one pair, as in `\"{weir}\"`, which puts all keys into one slot, or none",
        );
        return None;
    }
    Some(text.to_owned())
}
