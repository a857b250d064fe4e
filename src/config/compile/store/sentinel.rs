//! `sentinel = { master, nodes, … }`: who to ask for the Redis that is the master now.

use super::redis::{report_no_password, username};
use super::{secret, url};
use crate::config::file::{Section, UniqueValues, Value};
use crate::config::settings::{Origin, RedisServers};
use crate::config::suggest::quote;

const PORT: u16 = 26379;

/// As written, if it is.
pub(super) struct SentinelSection<'a> {
    section: Section<'a>,
    master: Option<Value<'a>>,
    nodes: Option<Value<'a>>,
    username: Option<Value<'a>>,
    password_env: Option<Value<'a>>,
}

impl<'a> SentinelSection<'a> {
    pub(super) fn of(mut section: Section<'a>) -> Self {
        SentinelSection {
            master: section.require("master", "master = \"mymaster\""),
            nodes: section.require("nodes", "nodes = [\"127.0.0.1:26379\"]"),
            username: section.get("username"),
            password_env: section.get("password_env"),
            section,
        }
    }

    pub(super) fn section(&self) -> &Section<'a> {
        &self.section
    }

    /// `None` if there is something wrong, `Some(None)` if there are no sentinels.
    pub(super) fn read(&self) -> Option<Option<RedisServers>> {
        if !self.section.is_present() {
            return Some(None);
        }
        let master = self.master.as_ref().and_then(master);
        let nodes = self.nodes.as_ref().and_then(nodes);
        let username = self.username.as_ref().map_or(Some(None), |it| username(it).map(Some));
        let password = self.password_env.as_ref();
        let password = password.map_or(Some(None), |it| secret::optional(it, "REDIS_PASSWORD"));
        if let Some(user) = self.username.as_ref().filter(|_| password == Some(None)) {
            report_no_password(user, self.password_env.as_ref(), "`password_env` beside it");
            return None;
        }
        let (master, nodes, username, password) = (master?, nodes?, username?, password?);
        Some(Some(RedisServers::Sentinel { master, nodes, username, password }))
    }
}

fn master(value: &Value<'_>) -> Option<String> {
    let text = value.text("mymaster")?;
    let good = !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic());
    if !good {
        value.error(
            &format!("is not the name of a master: {}", quote(text)),
            "write it as in `sentinel monitor NAME …`",
        );
    }
    good.then(|| text.to_owned())
}

fn nodes(value: &Value<'_>) -> Option<Vec<Origin>> {
    let entries = value.list("[\"127.0.0.1:26379\"]")?;
    if entries.is_empty() {
        value.error("is empty: there is nobody to ask", "name at least one sentinel");
        return None;
    }
    let (mut nodes, mut seen) = (Vec::new(), UniqueValues::new());
    for entry in &entries {
        let text = entry.text("127.0.0.1:26379")?;
        let Some(origin) = url::address(text, PORT) else {
            entry.error(
                &format!("is not the address of a sentinel: {}", quote(text)),
                "write a host and a port without a scheme, such as `\"127.0.0.1:26379\"`",
            );
            continue;
        };
        if seen.insert(origin.clone(), entry) {
            nodes.push(origin);
        }
    }
    (nodes.len() == entries.len()).then_some(nodes)
}
