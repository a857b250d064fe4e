//! Faults, each with its place, what is wrong and what to write instead.

use super::{good, limit, redis, refused, route, with_route};

/// Each text is refused with exactly one fault, which has the given words.
pub(super) fn each_refused(cases: &[(String, &str)]) {
    for (text, expected) in cases {
        assert_one_line(&refused(text), expected, text);
    }
}

/// Each text is accepted with exactly one warning, which has the given words.
pub(super) fn each_warned(cases: &[(String, &str)]) {
    for (text, expected) in cases {
        assert_one_line(&good(text).warnings.lines(), expected, text);
    }
}

/// Each text is accepted, and nothing is said of it.
pub(super) fn each_good(texts: &[String]) {
    for text in texts {
        let lines = good(text).warnings.lines();
        assert!(lines.is_empty(), "{lines:#?} for:\n{text}");
    }
}

fn assert_one_line(lines: &[String], expected: &str, text: &str) {
    assert!(
        lines.len() == 1 && lines[0].contains(expected),
        "expected {expected:?}, got {lines:#?} for:\n{text}"
    );
}

#[test]
fn server_faults_say_what_to_write() {
    let server = |keys: &str| with_route(&format!("[server]\n{keys}"));
    each_refused(&[
        (server("listen = []"), "6:10: `listen` is empty; write an address"),
        (server("listen = 8080"), "must be a string, not an integer; write it in quotes"),
        (server("listen = \"8080\""), "write `\"0.0.0.0:8080\"` to listen on every address"),
        (server("listen = \"::1\""), "add brackets and a port: `\"[::1]:8080\"`"),
        (server("listen = \"10.0.0.1\""), "add a port: `\"10.0.0.1:8080\"`"),
        (server("listen = \"10.0.0.1:99999\""), "is not an address to listen on"),
        (server("listen = [\"0.0.0.0:1\", \"127.0.0.1:1\"]"), "is listened on already"),
        (server("listen = \"0.0.0.0:9090\""), "`admin.listen` is `127.0.0.1:9090`; use another"),
        (server("[admin]\nlisten = \"127.0.0.1:8080\""), "`server.listen` is `0.0.0.0:8080`"),
        (server("drain = 30"), "not a plain number; write it with its unit, such as `\"30s\"`"),
        (redis("timeout = 50"), "not a plain number; write it with its unit, such as `\"50ms\"`"),
        (redis("timeout = 0"), "not a plain number; write a duration from `\"1ms\"` to"),
        (server("drain = \"30\""), "is not a duration: `30`; write `\"30s\"`"),
        (server("idle_timeout = \"0s\""), "is out of range: `0s`; write a duration from `\"1ms\"`"),
        (server("idle_timeout = \"400d\""), "is out of range: `400d`"),
        (server("max_body = \"10MB\""), "is not a size: `10MB`; write `\"10MiB\"`"),
        (server("max_body = -1"), "`max_body` is out of range: `-1`"),
        (server("max_header_bytes = 100"), "write a size from 1KiB to 1MiB"),
        (server("workers = -1"), "is out of range: `-1`; write a number from 0 to 1024"),
        (server("workers = 99999999999999999999999"), "is out of range"),
        (server("workers = 1.5"), "must be an integer, not a float"),
        (server("worker = 1"), "unknown key `worker`; did you mean `workers`?"),
        (with_route("[sever]"), "unknown key `sever`; did you mean `server`?"),
        ("server = 5\n".to_owned() + &with_route(""), "`server` must be a table, not an integer"),
    ]);
}

#[test]
fn faults_of_the_other_sections_say_what_to_write() {
    each_refused(&[
        (with_route("[store]\nkind = \"memroy\""), "did you mean `memory`?"),
        (with_route("[store]\nmax_keys = 0"), "write a number from 1 to"),
        (with_route("[respond]\nheaders = [\"drfat\"]"), "did you mean `draft`?"),
        (with_route("[respond]\nheaders = [\"x\", \"x\"]"), "repeats an earlier one: `x`"),
        (with_route("[respond]\nheaders = \"x\""), "must be an array, not a string"),
        (
            with_route("[respond]\nretry_jitter = 0.51"),
            "is out of range: `0.51`; write a number from",
        ),
        (with_route("[respond]\nretry_jitter = -0.1"), "write a number from 0.0 to 0.5"),
        (with_route("[respond]\nretry_jitter = nan"), "`retry_jitter` is out of range"),
        (with_route("[respond]\nretry_jitter = \"0.1\""), "must be a number, not a string"),
        (with_route("[identity]\ntrusted_proxies = [\"10.0.0.0/33\"]"), "is not a network"),
        (
            with_route("[identity]\ntrusted_proxies = [\"unix\"]"),
            "is not a network: `unix`; write a CIDR such as `\"10.0.0.0/8\"` or `\"fd00::/8\"`, one \
             address, or `\"unix:\"` for peers that come by a Unix socket",
        ),
        (with_route("[identity]\nipv6_prefix = 0"), "write a number from 1 to 128"),
        (with_route("[telemetry]\naccess_log = \"sdtout\""), "cannot be `sdtout`; write `off`"),
        (
            with_route("[telemetry]\naccess_log = \"no/such/folder/access.log\""),
            "6:14: `access_log` is in a folder that does not exist: `/",
        ),
        (
            with_route("[store]\nsnapshot = \"no/such/folder/weir.snapshot\""),
            "6:12: `snapshot` is in a folder that does not exist: `/",
        ),
        (with_route("[store]\nsnapshot = \"\""), "is not the path of a file: ``; write one such"),
        (with_route("[store]\nsnapshot = \"/tmp/\""), "is not the path of a file: `/tmp/`"),
        (with_route("[store]\nsnapshot = true"), "`snapshot` must be a string, not a boolean"),
        (
            with_route("[store]\nsnapshot = \"a\"\nsnapshot_interval = \"999ms\""),
            "write a duration from `\"1s\"` to `\"366d\"`",
        ),
        (
            with_route("[telemetry]\naccess_log = \"Cargo.toml/access.log\""),
            "/Cargo.toml`; create the",
        ),
    ]);
}

#[test]
fn upstream_faults_say_what_to_write() {
    let upstream = |keys: &str| {
        format!("[[routes]]\nname = \"r\"\npath = \"/*\"\nupstream = \"u\"\n[upstreams.u]\n{keys}")
    };
    let server = |server: &str| upstream(&format!("servers = [\"{server}\"]"));
    each_refused(&[
        (upstream(""), "5:12: `[upstreams.u]` has no `servers`; add a line such as `servers = ["),
        (upstream("servers = []"), "is empty: there is nobody to forward to"),
        (upstream("servers = \"http://a\""), "must be an array, not a string"),
        (server("127.0.0.1:9000"), "has no scheme; write `\"http://127.0.0.1:9000\"`"),
        (server("http://a/b"), "has a path or a query: `/b`; write `\"http://a\"`, and `rewrite"),
        (
            server("http://a/V1/"),
            "and `rewrite = \"/V1/{*}\"` in a route whose `path` ends in `/*`",
        ),
        (server("http://a?b"), "has a path or a query: `?b`; write `\"http://a\"`: requests bring"),
        (server("http://unix:/run/App.sock"), "write `\"unix:/run/App.sock\"`"),
        (server("http://unix:/run/app.sock:/v1"), "write `\"unix:/run/app.sock\"`"),
        (
            server("grpc://a:1"),
            "unknown scheme: `grpc`; write `\"http://a:1\"`, and `http2 = true`",
        ),
        (server("h2://A"), "write `\"https://a\"`, and `http2 = true` beside `servers`"),
        (server("http://u:p@a"), "carries a user or a password"),
        (server("http://a:0"), "has a bad port: `0`"),
        (upstream("servers = [\"http://a\", \"http://A:80/\"]"), "repeats an earlier one"),
        (
            upstream("servers = [\"http://a\"]\nbalance = \"round-robbin\""),
            "did you mean `round_robin`?",
        ),
        (
            with_route("[upstreams.echo]\nservers = [\"http://a\"]"),
            "`echo` is the built-in upstream; give this one another name",
        ),
        (
            route("path = \"/*\"\n[upstreams.\"a b\"]\nservers = [\"http://a\"]"),
            "`a b` cannot be a name",
        ),
    ]);
}

#[test]
fn limit_faults_say_what_to_write() {
    let key = |key: &str| limit(&format!("key = {key}\nrate = \"1/second\""));
    let rate = |rate: &str| limit(&format!("key = \"ip\"\nrate = {rate}"));
    let more = |keys: &str| limit(&format!("key = \"ip\"\nrate = \"10/second\"\n{keys}"));
    each_refused(&[
        (limit("key = \"ip\"\nrat = \"1/second\""), "8:1: unknown key `rat`; did you mean `rate`?"),
        (limit("key = \"ip\""), "6:9: `[limits.l]` has no `rate`; add a line such as `rate = "),
        (limit("rate = \"1/second\""), "`[limits.l]` has no `key`; add a line such as `key = "),
        (key("\"user\""), "cannot be `user`: `[identity]` does not say where it is found; add a"),
        (key("\"jwt:sub\""), "cannot be `jwt:sub`: nothing says which tokens to believe; add a"),
        (key("\"jwt\""), "does not say which claim; write `\"jwt:CLAIM\"`, such as `\"jwt:sub\"`"),
        (key("\"basic\""), "cannot be `basic`; write `\"basic:user\"`"),
        (key("\"form:\""), "has no valid field name: ``; write one such as `\"form:client_id\"`"),
        (key("\"header\""), "does not say which header; write `\"header:NAME\"`"),
        (key("\"header:\""), "has no valid header name"),
        (key("\"cookie:a b\""), "has no valid cookie name: `a b`"),
        (key("\"X-Api-Key\""), "did you mean `header:x-api-key`?"),
        (key("\"haeder:x\""), "did you mean `header:NAME`?"),
        (key("\"header:Forwarded\""), "any caller may write it; write `\"ip\"`, and list the"),
        (key("\"header:X-Forwarded-For\""), "cannot be `header:x-forwarded-for`"),
        (key("[\"ip\", \"header:te\"]"), "it belongs to a connection, not to a caller; count by"),
        (key("\"header:Content-Length\""), "cannot be `header:content-length`"),
        (key("\"header:Proxy-Authorization\""), "cannot be `header:proxy-authorization`"),
        (key("[]"), "`key` is empty; write `\"global\"`"),
        (key("[\"ip\", \"ip\"]"), "repeats an earlier one: `ip`"),
        (key("[\"ip\", \"global\"]"), "combines `global` with other sources"),
        (rate("5"), "must be a string, not an integer"),
        (rate("\"5\""), "is not a rate: `5`; add a period: `\"5/second\"`"),
        (rate("\"5/s\""), "is not a rate: `5/s`; write `\"5/second\"`"),
        (rate("\"5/minutes\""), "write `\"5/minute\"`"),
        (rate("\"5 / minute\""), "is not a rate: `5 / minute`; write `\"5/minute\"`"),
        (rate("\"5/1.5s\""), "write `\"5/1500ms\"`"),
        (rate("\"5 \""), "add a period: `\"5/second\"`"),
        (rate("\"5/secnod\""), "write `\"5/second\"`"),
        (rate("\"x/second\""), "is not a rate: `x/second`; write a count and a period"),
        (rate("\"0/second\""), "is out of range: `0/second`; the count must be between 1 and"),
        (rate("\"5/400d\""), "the period must be between 1ms and 366 days"),
        (more("burst = 0"), "is out of range: `0`; write a number from 1 to 1000000000"),
        (more("burst_allowance = 0"), "must be a finite number above zero"),
        (more("burst_allowance = nan"), "must be a finite number above zero"),
        (more("burst_allowance = inf"), "must be a finite number above zero"),
        (more("burst_allowance = 1e9"), "of 10000000000; the burst must be between 1 and"),
        (
            limit("key = \"ip\"\nrate = \"1/day\"\nburst = 40_000"),
            "9:9: `burst` makes a burst of 40000, which takes more than 100 years to refill at \
             this rate; the largest burst that fits is 36525",
        ),
        (
            limit("key = \"ip\"\nrate = \"1/366d\"\nburst = 60\nburst_allowance = 2"),
            "10:19: `burst_allowance` makes a burst of 120, which takes more than 100 years",
        ),
        (more("burst_allowance = \"2\""), "must be a number, not a string"),
        (more("cost = 0"), "is out of range: `0`"),
        (more("algorithm = \"token-bucket\""), "did you mean `token_bucket`?"),
        (more("algorithm = \"gcra\""), "write `token_bucket`, `sliding_window`, `sliding_log`,"),
        (more("missing = \"shard\""), "did you mean `shared`?"),
        (more("response_headers = \"no\""), "must be a boolean, not a string; write `true` or"),
        (with_route("[limits]\nx = 5"), "`x` must be a table, not an integer"),
    ]);
}

#[test]
fn a_key_is_known_only_where_it_belongs() {
    each_refused(&[
        (with_route("[respond]\nheader = []\n"), "did you mean `headers`?"),
        (with_route("[telemetry]\ntls = 1\n"), "known here: `access_log`, `audit_log`"),
    ]);
}

#[test]
fn route_faults_say_what_to_write() {
    let path = |path: &str| route(&format!("path = \"{path}\""));
    let more = |keys: &str| route(&format!("path = \"/a/*\"\n{keys}"));
    each_refused(&[
        (String::new(), "1:1: there are no routes: every request would be refused; add one"),
        ("routes = []".to_owned(), "there are no routes"),
        ("[routes]\nname = \"r\"".to_owned(), "must be an array of tables, not a table; write `[["),
        (path("api"), "does not begin with `/`: `api`; write `/api`"),
        (path("*"), "write `\"/*\"` to match every path"),
        (path("/a?b=c"), "has a query or a fragment"),
        (path("/a//b"), "has an empty segment"),
        (path("/a/../b"), "has a dot segment"),
        (path("/a*"), "has a `*` within: `a*`; write `/*` at the end only"),
        (path("/{*rest}"), "write `/*` at the end of the path for all that follows"),
        (path("/a;b"), "holds `;`"),
        (route(""), "1:1: `[[routes]]` has no `path`; add a line such as `path = \"/*\"`"),
        (more("host = \"a:80\""), "write `\"a\"`: the port plays no part in routing"),
        (more("host = \"*\""), "leave `host` out to match every host"),
        (more("methods = []"), "leave it out to match every method"),
        (more("methods = [\"get\"]"), "write `\"GET\"`: methods are told apart by case"),
        (more("methods = [\"CONNECT\"]"), "cannot be `CONNECT`: Weir answers it with 405"),
        (more("methods = [\"A B\"]"), "is not a method: `A B`"),
        (more("methods = [\"*\"]"), "name each method that is meant, or leave it out"),
        (more("methods = [\"ANY\"]"), "name each method that is meant, or leave it out"),
        (more("methods = [\"!GET\"]"), "name each method that is meant, or leave it out"),
        (more("methods = [\"GET\", \"GET\"]"), "repeats an earlier one: `GET`"),
        (more("limits = [\"x\"]"), "there is no limit `x`; add a table `[limits.x]`"),
        // It may be an API key.
        (
            more("limits = [\"weir_a-secret_0123456789\"]"),
            "there is no limit `***`; add a table `[limits.NAME]` and write its name here",
        ),
        (more("strip_prefix = true"), "must be a string, not a boolean; write one such as `\"/api"),
        (more("strip_prefix = \"/\""), "is not a plain leading part of a path: `/`"),
        (more("strip_prefix = \"/b\""), "is not how `path` begins: `/b`"),
        (more("timeout = \"0s\""), "is out of range"),
        (more("cost = 0"), "`cost` is out of range: `0`; write a number from 1 to 1000000000"),
        (more("cost = { max = 5 }"), "`cost` of `[[routes]]` has no `from`; add a line such as"),
        (more("degrade = \"spare\""), "`degrade` must be a table, not a string"),
        (more("degrade = {}"), "`degrade` of `[[routes]]` has no `upstream`; add a line such as"),
        (more("request_headers = { set = { Host = \"a\" } }"), "the header `host` cannot be"),
        (more("request_headers = { remove = [\"TE\"] }"), "the header `te` cannot be changed"),
        (more("request_headers = { set = { \"a b\" = \"a\" } }"), "cannot be the name of a header"),
        (more("request_headers = { set = { a = \"b\\nc\" } }"), "cannot be sent in a header"),
        (more("request_headers = { set = { a = 1 } }"), "`a` must be a string, not an integer"),
        (more("request_headers = { sett = { } }"), "did you mean `set`?"),
        (
            more("response_headers = { set = { A = \"b\" }, remove = [\"a\"] }"),
            "repeats an earlier one: `a`",
        ),
    ]);
}

#[test]
fn routes_that_match_the_same_requests_are_refused_naming_both() {
    let two = |one: &str, other: &str| {
        let head = |name: &str| format!("[[routes]]\nname = \"{name}\"\nupstream = \"echo\"\n");
        format!("{}{one}\n{}{other}\n", head("a"), head("b"))
    };
    let same = "route `b` matches the same requests as an earlier one";
    each_refused(&[
        (two("path = \"/X/\"", "path = \"/%78\""), same),
        (two("path = \"/u/{a}\"", "path = \"/u/{b}\""), same),
        (
            two(
                "path = \"/x\"\nmethods = [\"GET\", \"PUT\"]",
                "path = \"/x\"\nmethods = [\"PUT\"]",
            ),
            same,
        ),
        (two("path = \"/x\"\nhost = \"A\"", "path = \"/x\"\nhost = \"a\""), same),
    ]);
    // A route for certain methods is more specific than one for all.
    good(&two("path = \"/x\"", "path = \"/x\"\nmethods = [\"PUT\"]"));
}

#[test]
fn allowed_but_doubtful_things_are_warned_of() {
    each_warned(&[
        (
            limit("key = \"ip\"\nrate = \"1/second\"\nalgorithm = \"fixed_window\"\nburst = 5"),
            "config.toml:10:9: warning: `burst` has no effect",
        ),
        (
            limit("key = \"ip\"\nrate = \"10/second\"\ncost = 11"),
            "`cost` is 11, and the limit never holds more than 10: every request is refused",
        ),
        (
            limit("key = \"ip\"\nrate = \"10/minute\"\nburst = 5\ncost = 6"),
            "`cost` is 6, and the limit never holds more than 5",
        ),
        (
            with_route("[limits.idle]\nkey = \"ip\"\nrate = \"1/second\""),
            "5:9: warning: limit `idle` is used by no route; add `\"idle\"` to the `limits`",
        ),
        (
            with_route("[store]\nsnapshot_interval = \"5s\""),
            "6:21: warning: `snapshot_interval` has no effect: without `snapshot` there is nothing",
        ),
        (
            redis("snapshot = \"/no/such/folder/file\""),
            "7:12: warning: `snapshot` has no effect: Redis keeps the buckets; remove it, or write",
        ),
        (redis("snapshot_interval = \"5s\""), "`snapshot_interval` has no effect: Redis keeps"),
        (
            with_route("[upstreams.idle]\nservers = [\"http://a\"]"),
            "warning: upstream `idle` is used by no route",
        ),
        (
            with_route("[identity]\ntrusted_proxies = [\"10.1.2.3/8\"]"),
            "names an address within its network: `10.1.2.3/8`; write `\"10.0.0.0/8\"`",
        ),
        (with_route("[identity]\ntrusted_proxies = [\"0.0.0.0/0\"]"), "trusts everyone"),
        (
            limit("key = [\"ip\", \"route\"]\nrate = \"1/second\"\nmissing = \"deny\""),
            "9:11: warning: `missing` has no effect: no request is without this key; remove it",
        ),
        (
            limit("key = \"ip\"\nrate = \"3/minute\"\nburst_allowance = 0.1"),
            "warning: `burst_allowance` leaves less than one of a burst of 3",
        ),
        (
            limit("key = \"header:cookie\"\nrate = \"1/second\""),
            "counts by all cookies together, so any other cookie makes a new caller; name the one",
        ),
        (route("path = \"/u/:id\""), "takes `:id` literally; write `{id}` for a parameter"),
    ]);
}

#[test]
fn a_misspelled_reference_is_one_fault_and_what_it_meant_is_not_unused() {
    let text = "[limits.per-user]\nkey = \"ip\"\nrate = \"1/second\"\n\
                [[routes]]\nname = \"r\"\npath = \"/*\"\nupstream = \"ecoh\"\nlimits = [\"per-usr\"]\n";
    assert_eq!(
        refused(text),
        [
            "config.toml:7:12: there is no upstream `ecoh`; did you mean `echo`?",
            "config.toml:8:11: there is no limit `per-usr`; did you mean `per-user`?",
        ]
    );
}
