//! `/v1/upstreams`: what is known of the servers that requests go to.

use http::StatusCode;
use serde::Serialize;

use super::api::{AdminApi, json};
use crate::config::settings;
use crate::upstream::ServerStatus;

#[derive(Debug, Serialize)]
struct UpstreamsAnswer {
    upstreams: Vec<UpstreamView>,
}

#[derive(Debug, Serialize)]
struct UpstreamView {
    name: String,
    /// Left out where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    breaker: Option<&'static str>,
    servers: Vec<ServerView>,
}

#[derive(Debug, Serialize)]
struct ServerView {
    server: String,
    weight: u32,
    /// What its probes say, where it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    healthy: Option<bool>,
    /// Left out because it has failed.
    ejected: bool,
    /// Requests that wait for a connection to it.
    pending: usize,
}

impl AdminApi {
    pub(super) fn list_upstreams(&self) -> (StatusCode, String) {
        let settings = self.settings();
        let upstreams = settings.upstreams.iter().map(|it| self.upstream(it)).collect();
        (StatusCode::OK, json(&UpstreamsAnswer { upstreams }))
    }

    fn upstream(&self, upstream: &settings::Upstream) -> UpstreamView {
        let server = |it: &settings::UpstreamServer| {
            let status = self.upstreams.server_status(upstream, &it.origin);
            let ServerStatus { name, healthy, ejected, pending } = status;
            let healthy = upstream.health.is_some().then_some(healthy);
            ServerView { server: name, weight: it.weight, healthy, ejected, pending }
        };
        let open = upstream.breaker.map(|_| self.upstreams.breaker_is_open(&upstream.name));
        UpstreamView {
            name: upstream.name.clone(),
            breaker: open.map(|open| if open { "open" } else { "closed" }),
            servers: upstream.servers.iter().map(server).collect(),
        }
    }
}
