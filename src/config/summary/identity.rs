//! Who is calling, as far as a file says: a row for each way to tell.

use ipnet::IpNet;

use crate::caller::address::UNIX_PEER;
use crate::config::compile::UNIX;
use crate::config::settings::{
    AccessEntries, Identity, Jwt, JwtAlgorithm, JwtKeys, Settings, Trust,
};
use crate::config::units::show_duration;
use crate::limit::Source;

use super::{count, table};

/// Nothing if callers are told apart by the addresses of their connections only.
pub(super) fn identity(settings: &Settings) -> String {
    let Identity {
        trusted_proxies,
        address_header,
        user,
        client,
        tenant,
        plan,
        jwt,
        clients,
        clients_files,
        forward,
        ..
    } = &settings.identity;
    let sources = [("user", user), ("client", client), ("tenant", tenant), ("plan", plan)];
    let sources = sources.into_iter().filter(|(_, it)| !it.is_empty());
    let mut rows: Vec<[String; 2]> = sources.map(|(name, it)| [name.to_owned(), all(it)]).collect();
    if !trusted_proxies.is_empty() {
        let networks: Vec<String> = trusted_proxies.iter().map(network).collect();
        rows.insert(0, ["proxies".to_owned(), networks.join(", ")]);
        let header = address_header.iter().map(|it| ["address_header".to_owned(), it.to_string()]);
        rows.splice(1..1, header);
    }
    if let Some(jwt) = jwt {
        rows.push(["tokens".to_owned(), tokens(jwt)]);
    }
    if let Some(clients) = clients {
        let files = clients_files.iter().map(|path| path.display().to_string());
        let files = files.collect::<Vec<_>>().join(", ");
        let from = if files.is_empty() { String::new() } else { format!(", some from {files}") };
        rows.push(["clients".to_owned(), format!("{} with a key{from}", clients.len())]);
    }
    if !forward.is_empty() {
        let told =
            forward.headers.iter().map(|(name, header)| format!("{} as {header}", name.word()));
        rows.push(["forward".to_owned(), told.collect::<Vec<_>>().join(", ")]);
    }
    if let Some(trust) = trust(settings) {
        rows.push(["trust".to_owned(), trust]);
    }
    for (name, entries) in [("allow", &settings.access.allow), ("deny", &settings.access.deny)] {
        let listed = listed(entries);
        if !listed.is_empty() {
            rows.push([name.to_owned(), listed.join(", ")]);
        }
    }
    table(rows.into_iter().map(Vec::from).collect())
}

/// As a configuration has it.
fn network(network: &IpNet) -> String {
    if *network == IpNet::from(UNIX_PEER) { UNIX.to_owned() } else { network.to_string() }
}

/// What scores are made of, if a limit goes by them.
fn trust(settings: &Settings) -> Option<String> {
    let Trust { account_created, email_verified, score, .. } = &settings.trust;
    settings.limits.iter().find(|limit| limit.adaptive)?;
    let parts = [("score", score), ("age", account_created), ("e-mail", email_verified)];
    let parts = parts.into_iter().filter_map(|(what, claim)| Some((what, claim.as_ref()?)));
    let parts: Vec<String> = parts.map(|(what, claim)| format!("{what} by jwt:{claim}")).collect();
    Some(if parts.is_empty() { "by calls alone".to_owned() } else { parts.join(", ") })
}

fn all(sources: &[Source]) -> String {
    sources.iter().map(ToString::to_string).collect::<Vec<_>>().join(", else ")
}

fn tokens(jwt: &Jwt) -> String {
    let mut parts = vec![match &jwt.keys {
        JwtKeys::Secret(_) => "by a secret".to_owned(),
        JwtKeys::Pem(_) => "by keys in PEM".to_owned(),
        JwtKeys::JwksFile(path) => format!("by the keys in {}", path.display()),
        JwtKeys::JwksUrl(url) => {
            format!("by the keys at {url}, every {}", show_duration(url.refresh))
        }
    }];
    let names = JwtAlgorithm::NAMES.into_iter().filter(|(_, it)| jwt.algorithms.contains(it));
    parts.push(names.map(|(name, _)| name).collect::<Vec<_>>().join(" "));
    for (what, names) in [("issuer", &jwt.issuer), ("audience", &jwt.audience)] {
        parts.extend(names.as_ref().map(|names| format!("{what} {}", names.join(" or "))));
    }
    parts.push(format!("leeway {}", show_duration(jwt.leeway)));
    if jwt.required {
        parts.push("required".to_owned());
    }
    parts.join(", ")
}

fn listed(entries: &AccessEntries) -> Vec<String> {
    let AccessEntries { ip, user, client, files } = entries;
    let counts = [(ip.len(), "network"), (user.len(), "user"), (client.len(), "client")];
    let counts = counts.into_iter().filter(|(number, _)| *number > 0);
    let files = files.iter().map(|path| path.display().to_string());
    counts.map(|(number, what)| count(number, what)).chain(files).collect()
}
