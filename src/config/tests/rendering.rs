//! How faults look.

use super::good;
use crate::config::{ConfigError, load, parse, summary};

const FAULTY: &str = r#"[server]
listen = "localhost:8080"
hedaer_timeout = "5s"

[limits.per-user]
key = "ip"
rate = "600/min"

[limits.spare]
key = "global"
rate = "1/second"

[[routes]]
name = "api"
path = "/api/*"
upstream = "echo"
limits = ["per-usr"]

[[routes]]
name = "api2"
path = "/API/*"
upstream = "echo"
timeout = 5
"#;

const RENDERED: &str = r#"error: `listen` is not an address to listen on: `localhost:8080`
 --> config.toml:2:10
  |
2 | listen = "localhost:8080"
  |          ^^^^^^^^^^^^^^^^
  |
  = help: write an address, not a name: `"127.0.0.1:8080"`

error: unknown key `hedaer_timeout`
 --> config.toml:3:1
  |
3 | hedaer_timeout = "5s"
  | ^^^^^^^^^^^^^^
  |
  = help: did you mean `header_timeout`?

error: `rate` is not a rate: `600/min`
 --> config.toml:7:8
  |
7 | rate = "600/min"
  |        ^^^^^^^^^
  |
  = help: write `"600/minute"`

warning: limit `spare` is used by no route
 --> config.toml:9:9
  |
9 | [limits.spare]
  |         ^^^^^
  |
  = help: add `"spare"` to the `limits` of a route

error: there is no limit `per-usr`
  --> config.toml:17:11
   |
17 | limits = ["per-usr"]
   |           ^^^^^^^^^
   |
   = help: did you mean `per-user`?

error: route `api2` matches the same requests as an earlier one
  --> config.toml:21:8
   |
15 | path = "/api/*"
   |        -------- route `api` is here
...
21 | path = "/API/*"
   |        ^^^^^^^^
   |
   = help: change the `host`, `path`, `methods`, `headers` or `query` of one of them

error: `timeout` must be a duration, not a plain number
  --> config.toml:23:11
   |
23 | timeout = 5
   |           ^
   |
   = help: write it with its unit, such as `"5s"`"#;

#[test]
fn all_faults_of_a_file_are_shown_in_the_order_of_their_places() {
    let error = parse("config.toml", FAULTY).expect_err("faulty");
    assert_eq!(error.to_string(), RENDERED);
    assert_eq!(error.render(false).trim_end(), RENDERED);
}

#[test]
fn a_log_is_told_of_errors_alone_why_a_file_is_refused() {
    let error = parse("config.toml", FAULTY).expect_err("faulty");
    assert_eq!((error.lines().len(), RENDERED.matches("error: ").count()), (6, 6));
    assert!(!error.lines().iter().any(|line| line.contains("warning")), "{:#?}", error.lines());
}

#[test]
fn lines_end_as_they_end_on_windows() {
    let error = parse("config.toml", &FAULTY.replace('\n', "\r\n")).expect_err("faulty");
    assert_eq!(error.to_string(), RENDERED);
}

#[test]
fn colours_are_only_for_those_who_ask() {
    let error = parse("config.toml", FAULTY).expect_err("faulty");
    assert!(!error.render(false).contains('\u{1b}'));
    assert!(error.render(true).contains('\u{1b}'));
}

#[test]
fn columns_count_characters() {
    let error = parse("c", "x = \"äöü\" # ü\n\"größe\" = 1\n").expect_err("faulty");
    let lines = error.lines();
    assert!(lines[0].starts_with("c:1:1: "), "{lines:#?}");
    let error = parse("c", "a = { \"ü\" = 1, \"ö\" = 1, \"ö\" = 2 }\n").expect_err("faulty");
    assert!(error.lines().iter().any(|line| line.starts_with("c:1:25: duplicate")), "{error}");
}

#[test]
fn control_characters_never_reach_the_terminal_or_a_log() {
    let text = "\"a\\u001b[31mb\\nc\" = 1\n[[routes]]\nname = \"a\\u0007\"\npath = \"/\\u001b\"\n";
    let error = parse("c", text).expect_err("faulty");
    for shown in error.lines() {
        assert!(!shown.chars().any(char::is_control), "{shown:?}");
    }
    assert!(!error.render(false).contains(['\u{1b}', '\u{7}']));
}

#[test]
fn too_many_faults_are_counted_not_shown() {
    let text: String = (0..300).map(|at| format!("unknown{at} = 1\n")).collect();
    let shown = parse("c", &text).expect_err("faulty").to_string();
    assert_eq!(shown.matches("error:").count(), 100);
    assert!(shown.ends_with("… and 201 more in c"), "{shown}");
}

#[test]
fn files_that_cannot_be_read_give_one_line() {
    let missing = load("no/such/file.toml".as_ref()).expect_err("there is none");
    let shown = missing.to_string();
    assert!(
        shown.starts_with("cannot read the configuration file `/")
            && shown.contains("/no/such/file.toml`: No such file"),
        "{shown}"
    );
    assert_eq!(missing.render(false), format!("error: {shown}\n"));
    assert_eq!(missing.lines(), [shown]);
}

#[test]
fn files_that_are_not_utf8_are_refused_with_the_line() {
    let fault = String::from_utf8(b"[server]\n# \xff\n".to_vec()).expect_err("not UTF-8");
    let error = ConfigError::not_utf8("c".to_owned(), &fault);
    let expected = "c:2: the configuration is not valid UTF-8; save the file as UTF-8";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn summary_lists_routes_upstreams_and_limits_in_columns() {
    let text = r#"
[server]
listen = ["0.0.0.0:80", "[::]:80"]
[upstreams.api]
servers = ["http://a", "http://[::1]:82"]
[limits.per-key]
key = ["header:x-api-key", "route"]
rate = "600/minute"
missing = "deny"
[limits.all]
key = "global"
algorithm = "fixed_window"
rate = "5/90s"
cost = 2
response_headers = false
[[routes]]
name = "users"
host = "*.example.com"
path = "/users/{id}"
methods = ["GET", "PUT"]
upstream = "api"
limits = ["per-key", "all"]
[[routes]]
name = "rest"
path = "/*"
upstream = "echo"
"#;
    let expected = "\
config.toml: 2 routes, 2 limits, 1 upstream
listen 0.0.0.0:80, [::]:80, admin 127.0.0.1:9090
store memory, at most 1000000 keys

routes
  users  *.example.com  /users/{id}  GET PUT     → api   per-key, all
  rest   any host       /*           any method  → echo  no limits

upstreams
  api  least_requests  http://a:80, http://[::1]:82

limits
  per-key  header:x-api-key + route  token_bucket  600/minute  burst 600  cost 1  missing deny
  all      global                    fixed_window  5/1m30s                cost 2                hidden
";
    assert_eq!(summary(&good(text)), expected);
}

#[test]
fn summary_tells_what_is_not_as_usual() {
    let text = r#"
[store]
snapshot = "weir.snapshot"
[limits.login]
description = "Failed logins of one address."
key = "ip"
algorithm = "sliding_window"
rate = "10/hour"
count = ["401", "5xx"]
status = 503
[limits.patient]
key = "ip"
rate = "20/second"
cost = { from = "header:x-weight", max = 5 }
strategy = "queue"
response_headers = false
[limits.spare]
key = "global"
refill = { every = "1m30s", amount = 50 }
burst = 100
strategy = "degrade"
enabled = false
mode = "enforce"
[limits.slots]
description = "Reports are slow."
key = "header:x-api-key"
algorithm = "concurrency"
limit = 3
mode = "shadow"
candidate = { limit = 5 }
[limits.even]
key = "global"
algorithm = "leaky_bucket"
rate = "2/second"
burst = 20
candidate = { algorithm = "token_bucket", rate = "3/second" }
[[routes]]
name = "login"
path = "/login"
upstream = "echo"
limits = ["login", "even"]
cost = { from = "response:x-cost", default = 0, max = 9 }
[[routes]]
name = "rest"
path = "/*"
upstream = "echo"
limits = ["patient", "spare", "slots"]
degrade = { upstream = "echo" }
"#;
    let expected = "\
config.toml: 2 routes, 5 limits, 0 upstreams
listen 0.0.0.0:8080, admin 127.0.0.1:9090
store memory, at most 1000000 keys, snapshot weir.snapshot every 1m

routes
  login  any host  /login  any method  → echo  login, even            cost by response:x-cost, else 0, up to 9
  rest   any host  /*      any method  → echo  patient, spare, slots  degraded → echo

limits
  login    ip                sliding_window  10/hour                    cost 1                    counts 401 5xx; status 503
    Failed logins of one address.
  patient  ip                token_bucket    20/second       burst 20   cost up to 5              cost by header:x-weight, else 1; queue up to 3s, 100 waiting; hidden
  spare    global            token_bucket    50 every 1m30s  burst 100  cost 1                    disabled; degrade
  slots    header:x-api-key  concurrency     3 at a time                cost 1        missing ip  shadow
    Reports are slow.
    candidate: concurrency 5 at a time
  even     global            leaky_bucket    2/second        burst 20   cost 1
    candidate: token_bucket 3/second burst 3
";
    assert_eq!(summary(&good(text)), expected);
}

/// Where a password can stand, in files that are faulty in every way.
const SECRETIVE: [&str; 8] = [
    "[store]\nulr = \"redis://me:s3cret@host/0\" # s\n",
    "[store]\nurl = \"redis://me:s3cret@host\n",
    "[store]\nurl = redis://me:s3cret@host\n",
    "[store]\nurl = redis://me:s3cret#s3cret@host\n",
    "[store]\nurl = \"redis://me:s3cret@host\" extra\n",
    "store = { url = \"redis://me:s3cret@host\", kinf = 1 }\n",
    "[store]\nkind = \"redis://me:s3cret@host\"\n",
    "[store]\npassword = \"s3cret\"\n",
];

#[test]
fn passwords_are_not_shown_whatever_is_wrong_with_a_file() {
    for text in SECRETIVE {
        let error = parse("config.toml", text).expect_err("faulty");
        for shown in [error.render(true), error.lines().join("\n"), format!("{error:?}")] {
            assert!(!shown.contains("s3cret"), "{text}\n{shown}");
        }
        assert!(error.render(false).contains("***"), "{text}\n{error}");
    }
}

#[test]
fn what_is_shown_around_a_password_keeps_its_place() {
    let error = parse("config.toml", SECRETIVE[5]).expect_err("faulty").to_string();
    let expected = r#"
1 | store = { url = "redis://me:***@host", kinf = 1 }
  |                                        ^^^^"#;
    assert!(error.contains(expected), "{error}");
}
