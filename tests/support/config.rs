//! Configurations for tests: one upstream, one limit, one route, and whatever a test adds.

use std::net::SocketAddr;

use super::upstream::Upstream;

/// Rendered as TOML. The one route `all` matches every path and has the limit `per-ip`: a token
/// bucket with `burst = 5` and `rate = "1/second"` by address.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    server: String,
    admin: String,
    store: String,
    upstream: Option<String>,
    limit: Option<String>,
    routes: Option<String>,
    rest: String,
}

impl Config {
    pub(crate) fn to(upstream: &Upstream) -> Config {
        Config::to_servers(&[upstream.address()])
    }

    pub(crate) fn to_servers(servers: &[SocketAddr]) -> Config {
        let servers: Vec<_> = servers.iter().map(|it| format!("\"http://{it}\"")).collect();
        let upstream = format!("servers = [{}]\n", servers.join(", "));
        Config { upstream: Some(upstream), ..Config::echo() }
    }

    /// The built-in upstream.
    pub(crate) fn echo() -> Config {
        let limit = "key = \"ip\"\nrate = \"1/second\"\nburst = 5\n".to_owned();
        Config {
            server: String::new(),
            admin: String::new(),
            store: String::new(),
            upstream: None,
            limit: Some(limit),
            routes: None,
            rest: String::new(),
        }
    }

    /// Without any limit.
    pub(crate) fn open(mut self) -> Config {
        self.limit = None;
        self
    }

    /// Adds lines to `[server]`.
    pub(crate) fn server(mut self, lines: &str) -> Config {
        self.server += lines;
        self.server += "\n";
        self
    }

    /// Adds lines to `[admin]`.
    pub(crate) fn admin(mut self, lines: &str) -> Config {
        self.admin += lines;
        self.admin += "\n";
        self
    }

    /// Allows overrides to operators that have [`TOKEN`](super::gateway::TOKEN).
    pub(crate) fn operated(self) -> Config {
        self.admin("token_env = \"WEIR_TEST_TOKEN\"")
    }

    /// Adds lines to `[store]`.
    pub(crate) fn store(mut self, lines: &str) -> Config {
        self.store += lines;
        self.store += "\n";
        self
    }

    /// Adds lines to `[upstreams.api]`.
    pub(crate) fn upstream(mut self, lines: &str) -> Config {
        let upstream = self.upstream.get_or_insert_default();
        *upstream += lines;
        *upstream += "\n";
        self
    }

    /// Takes the place of the lines of `[limits.per-ip]`.
    pub(crate) fn limit(mut self, lines: &str) -> Config {
        self.limit = Some(format!("{lines}\n"));
        self
    }

    /// Adds a limit of that name.
    pub(crate) fn add_limit(self, name: &str, lines: &str) -> Config {
        self.also(&format!("[limits.{name}]\n{lines}"))
    }

    /// Adds a token bucket of that name, which refills nothing while a test runs.
    pub(crate) fn bucket(self, name: &str, key: &str, burst: u32) -> Config {
        self.add_limit(name, &format!("key = \"{key}\"\nrate = \"1/day\"\nburst = {burst}"))
    }

    /// Takes the place of all routes.
    pub(crate) fn routes(mut self, tables: &str) -> Config {
        self.routes = Some(format!("{tables}\n"));
        self
    }

    /// Adds a route to the upstream. The first takes the place of the one that is there unasked.
    pub(crate) fn route(mut self, name: &str, path: &str, limits: &[&str]) -> Config {
        let target = self.target();
        let routes = self.routes.get_or_insert_default();
        *routes += &format!("[[routes]]\nname = \"{name}\"\npath = \"{path}\"\n");
        *routes += &format!("upstream = \"{target}\"\nlimits = {limits:?}\n");
        self
    }

    /// Adds lines to the route that was added last.
    pub(crate) fn route_lines(mut self, lines: &str) -> Config {
        let routes = self.routes.as_mut().expect("a route");
        *routes += lines;
        *routes += "\n";
        self
    }

    /// In place of the limit and the routes: three limits at once, for all, for each user, and a
    /// window for all. None refills while a test runs.
    pub(crate) fn mix(self, all: u32, user: u32, window: u32) -> Config {
        let window =
            format!("key = \"global\"\nalgorithm = \"fixed_window\"\nrate = \"{window}/day\"");
        Config { routes: None, ..self.open() }
            .bucket("all", "global", all)
            .bucket("user", "header:x-user", user)
            .add_limit("window", &window)
            .route("all", "/*", &["all", "user", "window"])
    }

    /// Adds whole tables.
    pub(crate) fn also(mut self, tables: &str) -> Config {
        self.rest += tables;
        self.rest += "\n";
        self
    }

    /// What routes forward to.
    fn target(&self) -> &'static str {
        if self.upstream.is_some() { "api" } else { "echo" }
    }

    pub(crate) fn text(&self) -> String {
        let listen =
            if self.server.contains("listen =") { "" } else { "listen = \"127.0.0.1:0\"\n" };
        let workers = if self.server.contains("workers") { "" } else { "workers = 2\n" };
        let mut text = format!("[server]\n{listen}{workers}{}\n", self.server);
        let listen =
            if self.admin.contains("listen =") { "" } else { "listen = \"127.0.0.1:0\"\n" };
        text += &format!("[admin]\n{listen}{}\n", self.admin);
        if !self.store.is_empty() {
            text += &format!("[store]\n{}\n", self.store);
        }
        if let Some(upstream) = &self.upstream {
            text += &format!("[upstreams.api]\n{upstream}\n");
        }
        if let Some(limit) = &self.limit {
            text += &format!("[limits.per-ip]\n{limit}\n");
        }
        let limits: &[&str] = if self.limit.is_some() { &["per-ip"] } else { &[] };
        let unasked = || self.clone().route("all", "/*", limits).routes;
        text += &self.routes.clone().or_else(unasked).unwrap_or_default();
        text += "\n";
        text + &self.rest
    }
}
