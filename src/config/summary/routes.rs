//! What becomes of requests: a row for each route.

use http::Method;

use super::{limits, table};
use crate::config::settings::{
    EncodedSlash, ForwardPath, HostPattern, PathPattern, Route, Segment, Settings, Target,
};
use crate::config::suggest::shown;
use crate::config::units::{show_duration, show_size};
use crate::limit::Cost;
use crate::limit::tenants::TENANTS;
use crate::route::{Encoding, PathTemplate, TemplatePart, TemplatePiece};

pub(super) fn routes(settings: &Settings) -> String {
    table(settings.routes.iter().map(|route| row(route, settings)).collect())
}

fn row(route: &Route, settings: &Settings) -> Vec<String> {
    let methods: Vec<&str> = route.methods.iter().map(Method::as_str).collect();
    let names = route.limits.iter().map(|index| settings.limits[*index].name.as_str());
    let names: Vec<&str> = names.chain(route.tenants.then_some(TENANTS)).collect();
    vec![
        route.name.clone(),
        host(&route.host),
        route.path.to_string(),
        if methods.is_empty() { "any method".to_owned() } else { methods.join(" ") },
        format!("→ {}", target(&route.target, &route.path, settings)),
        if names.is_empty() { "no limits".to_owned() } else { names.join(", ") },
        remarks(route, settings).join("; "),
    ]
}

fn target(target: &Target, path: &PathPattern, settings: &Settings) -> String {
    match target {
        Target::Echo => "echo".to_owned(),
        Target::Upstream(index) => settings.upstreams[*index].name.clone(),
        Target::Redirect(redirect) => {
            format!("redirect {} to {}", redirect.status.as_u16(), template(&redirect.to, path))
        }
        Target::Respond(response) if response.body.is_empty() => {
            format!("respond {}", response.status.as_u16())
        }
        Target::Respond(response) => {
            let body = shown(&String::from_utf8_lossy(&response.body));
            format!("respond {} \"{body}\"", response.status.as_u16())
        }
    }
}

/// Whatever not every route has.
fn remarks(route: &Route, settings: &Settings) -> Vec<String> {
    let mut remarks = Vec::new();
    let conditions: Vec<String> = route.conditions.iter().map(limits::condition).collect();
    if !conditions.is_empty() {
        remarks.push(format!("when {}", conditions.join(", ")));
    }
    if route.target.is_upstream() {
        remarks.extend(route.strip_prefix.as_ref().map(|it| format!("without {it}")));
        let rewrite = route.rewrite.as_ref().map(|it| template(it, &route.path));
        remarks.extend(rewrite.map(|it| format!("as {it}")));
    }
    if route.encoded_slash == EncodedSlash::Keep {
        remarks.push("with %2F".to_owned());
    }
    if route.target.is_upstream() && route.forward_path == ForwardPath::AsReceived {
        remarks.push("path as received".to_owned());
    }
    if route.max_body != settings.server.max_body {
        remarks.push(match route.max_body {
            Some(bytes) => format!("bodies up to {}", show_size(bytes)),
            None => "bodies of any size".to_owned(),
        });
    }
    if let Some(timeout) = route.timeout.filter(|_| route.target.is_upstream()) {
        remarks.push(format!("timeout {}", show_duration(timeout)));
    }
    remarks.extend(route.cost.as_ref().map(|cost| match cost {
        Cost::Fixed(cost) => format!("cost {cost}"),
        Cost::Dynamic { from, default, max } => {
            let most = max.map_or("what each limit holds".to_owned(), |max| max.to_string());
            format!("cost by {}, else {default}, up to {most}", limits::source(from))
        }
    }));
    let degraded = route.degrade.as_ref().map(|it| target(it, &route.path, settings));
    remarks.extend(degraded.map(|it| format!("degraded → {it}")));
    let guards: Vec<&str> =
        route.guards.iter().map(|index| settings.guards[*index].name.as_str()).collect();
    if !guards.is_empty() {
        remarks.push(format!("guarded by {}", guards.join(", ")));
    }
    remarks
}

/// As a configuration has it.
fn template(template: &PathTemplate, path: &PathPattern) -> String {
    let part = |part: TemplatePart, encoding: Encoding| match part {
        TemplatePart::Segment(at) => match path.segments.get(at) {
            Some(Segment::Parameter(name)) => format!("{{{name}}}"),
            _ => String::new(),
        },
        TemplatePart::Rest { .. } if encoding == Encoding::QueryValue => "{*}".to_owned(),
        TemplatePart::Rest { .. } => "/{*}".to_owned(),
        TemplatePart::Path => "{path}".to_owned(),
        TemplatePart::Query { mark } => format!("{mark}{{query}}"),
        TemplatePart::Host => "{host}".to_owned(),
    };
    let piece = |piece: &TemplatePiece| match piece {
        TemplatePiece::Literal(text) => text.clone(),
        TemplatePiece::Part(found, encoding) => part(*found, *encoding),
    };
    template.pieces.iter().map(piece).collect()
}

fn host(host: &HostPattern) -> String {
    match host {
        HostPattern::Any => "any host".to_owned(),
        HostPattern::Exact(name) => name.clone(),
        HostPattern::Below(name) => format!("*.{name}"),
    }
}
