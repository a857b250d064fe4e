//! `servers` of an upstream: addresses, or tables with an address and a weight.

use super::origin::{ServerUrl, server_url};
use crate::config::file::{Section, UniqueValues, Value};
use crate::config::settings::UpstreamServer;
use crate::protocol::Scheme;

const EXAMPLE: &str = "[\"http://127.0.0.1:9000\"]";
const KEY: &str = "servers";

/// The servers of an upstream, which are all spoken to in one way.
pub(super) struct Servers {
    pub(super) scheme: Scheme,
    pub(super) servers: Vec<UpstreamServer>,
}

/// The servers, if there is one and they have one scheme.
pub(super) fn servers(section: &mut Section<'_>) -> Option<Servers> {
    let value = section.require(KEY, &format!("{KEY} = {EXAMPLE}"));
    // Its keys are known, whatever the file has.
    let _ = weighted(section.entry_section(KEY, None));
    let value = value?;
    let entries = value.list(EXAMPLE)?;
    if entries.is_empty() {
        value.error("is empty: there is nobody to forward to", format!("write `{EXAMPLE}`"));
    }
    let mut seen = UniqueValues::new();
    let (mut servers, mut scheme, mut mixed) = (Vec::new(), None, false);
    for entry in &entries {
        let server = match entry.is_table() {
            true => weighted(section.entry_section(KEY, Some(entry))),
            false => server_url(entry).map(|url| (url, 1)),
        };
        let Some((url, weight)) = server else { continue };
        let first = *scheme.get_or_insert(url.scheme);
        if first != url.scheme {
            let (this, other) = (url.scheme.as_str(), first.as_str());
            mixed = true;
            entry.error(
                &format!("is an {this} server beside one of {other}"),
                "write the same scheme for all, or make two upstreams",
            );
        } else if seen.insert(url.origin.clone(), entry) {
            servers.push(UpstreamServer { origin: url.origin, weight });
        }
    }
    Some(Servers { scheme: scheme?, servers }).filter(|_| !mixed)
}

/// `{ url, weight }`.
fn weighted(mut section: Section<'_>) -> Option<(ServerUrl, u32)> {
    let url = section.require("url", "url = \"http://127.0.0.1:9000\"");
    let help = "write a number from 1 to 1000, or take the server out of `servers` if it is to get no \
                requests";
    let weight = section.get("weight");
    let weight = weight.map_or(Some(1), |value: Value<'_>| value.integer_or(1..=1000, help));
    Some((server_url(&url?)?, weight? as u32))
}
