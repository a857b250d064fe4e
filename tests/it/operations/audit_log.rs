//! The audit log: one JSON line for each event that somebody may have to account for.

use std::process::{Command, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Config, Scratch, Weir, get_with, wait_until};

/// A gateway whose standard output goes into a file, so that its output here is standard error.
fn start(config: &Config) -> Weir {
    let scratch = Scratch::new();
    let file = scratch.file("weir.toml", &config.text());
    let mut command = Command::new("sh");
    command.arg("-c").arg("exec \"$0\" \"$@\" > stdout").arg(env!("CARGO_BIN_EXE_weir"));
    command.env_remove("WEIR_CONFIG").env_remove("RUST_LOG").stdin(Stdio::null());
    Weir::start_with(command, scratch, file)
}

fn to(target: &str) -> Config {
    Config::echo().also(&format!("[telemetry]\naudit_log = \"{target}\""))
}

/// The events among whole lines.
fn events(text: &str) -> Vec<Value> {
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let told = whole.lines().filter(|line| line.contains("\"event\""));
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|it| panic!("{it} in {line:?}"));
    told.map(parse).collect()
}

fn file_of(weir: &Weir, name: &str) -> String {
    std::fs::read_to_string(weir.directory().join(name)).unwrap_or_default()
}

fn hang_up(weir: &Weir) {
    let before = weir.reloads("ok");
    weir.signal(Signal::HUP);
    wait_until("it has reloaded", || weir.reloads("ok") > before);
}

#[test]
fn reload_is_audited_on_standard_error_by_default() {
    let weir = start(&Config::echo());
    assert!(events(&weir.output()).is_empty(), "a start is no reload");
    weir.reload(&Config::echo().open());
    wait_until("it is told", || events(&weir.output()).len() == 1);
    let event = events(&weir.output()).remove(0);
    assert_eq!(event["event"], "rate_limit_config_updated");
    assert_eq!((&event["routes"], &event["limits"]), (&Value::from(1), &Value::from(0)));
    let time = event["time"].as_f64().expect("seconds since 1970");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    assert!((now - 60.0..=now + 1.0).contains(&time), "{time} at {now}");
    assert_eq!(file_of(&weir, "stdout"), "");
}

#[test]
fn audit_events_go_to_the_configured_target() {
    for (target, file) in [("stdout", "stdout"), ("audit.log", "audit.log")] {
        let weir = start(&to(target));
        hang_up(&weir);
        wait_until("it is written", || events(&file_of(&weir, file)).len() == 1);
        let event = events(&file_of(&weir, file)).remove(0);
        assert_eq!((&event["routes"], &event["limits"]), (&Value::from(1), &Value::from(1)));
        assert!(events(&weir.output()).is_empty(), "{}", weir.output());
    }
}

#[test]
fn rejected_configuration_is_not_audited() {
    let weir = start(&to("audit.log"));
    weir.replace_file("not toml at all [");
    wait_until("it is refused", || weir.reloads("failed") > 0.0);
    weir.replace_file(&to("audit.log").open().text());
    wait_until("a good one is told", || !file_of(&weir, "audit.log").is_empty());
    wait_until("the line is whole", || events(&file_of(&weir, "audit.log")).len() == 1);
    assert_eq!(events(&file_of(&weir, "audit.log"))[0]["limits"], 0);
}

#[test]
fn audit_log_is_reopened_after_rename_and_follows_the_configuration() {
    let weir = start(&to("audit.log"));
    hang_up(&weir);
    wait_until("it is written", || events(&file_of(&weir, "audit.log")).len() == 1);
    let at = |name: &str| weir.directory().join(name);
    std::fs::rename(at("audit.log"), at("audit.old")).unwrap();
    hang_up(&weir);
    wait_until("there is a new file", || events(&file_of(&weir, "audit.log")).len() == 1);
    assert_eq!(events(&file_of(&weir, "audit.old")).len(), 1);
    weir.reload(&to("./other"));
    wait_until("it is in the other file", || events(&file_of(&weir, "other")).len() == 1);
    assert_eq!(events(&file_of(&weir, "audit.log")).len(), 1);
    weir.reload(&to("off"));
    hang_up(&weir);
    weir.reload(&to("stderr"));
    wait_until("it is told again", || events(&weir.output()).len() == 1);
    assert_eq!(events(&file_of(&weir, "other")).len(), 1, "off is off");
}

#[test]
fn audit_log_that_cannot_be_opened_changes_nothing() {
    let logs = |audit: &str, access: &str| {
        let log = format!("[telemetry]\naudit_log = \"{audit}\"\naccess_log = \"{access}\"");
        Config::echo().also(&log)
    };
    let weir = start(&logs("audit.log", "access.log"));
    std::fs::create_dir(weir.directory().join("folder.log")).unwrap();
    weir.replace_file(&logs("folder.log", "off").text());
    wait_until("it is refused", || weir.reloads("failed") > 0.0);
    wait_until("it says why", || weir.output().contains("cannot open the audit log"));
    weir.reload(&logs("audit.log", "access.log").open());
    wait_until("events go where they went", || events(&file_of(&weir, "audit.log")).len() == 1);
    weir.get("/after");
    wait_until("and so do requests", || file_of(&weir, "access.log").contains("/after"));
}

/// Refuses every request: none is worth less than the bucket holds.
fn refusing(target: &str) -> Config {
    let limit = "key = \"header:x-user\"\nrate = \"1/day\"\nburst = 1\ncost = 2";
    to(target).limit(limit)
}

/// Sends requests that are all refused, many at a time.
fn attack(weir: &Weir, requests: usize, user: impl Fn(usize) -> String) {
    let mut client = weir.connect();
    for batch in (0..requests).collect::<Vec<_>>().chunks(100) {
        let request = |number: &usize| get_with("/", &format!("X-User: {}\r\n", user(*number)));
        client.send(batch.iter().map(request).collect::<String>());
        batch.iter().for_each(|_| assert_eq!(client.response().status, 429));
    }
}

/// How many refusals a log tells of.
fn told(text: &str) -> u64 {
    let told = |event: &Value| event["repeated"].as_u64().unwrap_or(1);
    events(text).iter().filter(|it| it["event"] == "rate_limit_exceeded").map(told).sum()
}

fn dropped(weir: &Weir) -> u64 {
    weir.metrics().value("weir_audit_dropped_total", &[]).expect("it is always there") as u64
}

#[test]
fn refusals_of_one_caller_are_summed_up() {
    const REQUESTS: usize = 5_000;
    let mut weir = start(&refusing("audit.log"));
    let began = Instant::now();
    attack(&weir, REQUESTS, |_| "eve".to_owned());
    let windows = began.elapsed().as_secs() / 10 + 1;
    assert_eq!(dropped(&weir), 0);
    weir.signal(Signal::TERM);
    weir.exit();
    let text = file_of(&weir, "audit.log");
    assert_eq!(told(&text), REQUESTS as u64, "{text}");
    let lines = text.lines().count() as u64;
    assert!(lines <= 4 * (windows + 1), "{lines} lines in {windows} windows");
    let sum = events(&text).pop().expect("the sum");
    assert_eq!((&sum["identifier"], &sum["user"]), (&"eve".into(), &Value::Null));
    assert_eq!((sum.get("tokens"), sum.get("request_id")), (None, None), "of no single request");
}

#[test]
fn refusals_of_many_callers_fill_no_log_and_none_goes_uncounted() {
    const REQUESTS: usize = 20_000;
    let weir = start(&refusing("audit.log"));
    let began = Instant::now();
    attack(&weir, REQUESTS, |number| format!("{number:0>200}"));
    wait_until("all are written or dropped", || {
        // What is repeated within a window is told with its end: here nothing is.
        let told = told(&file_of(&weir, "audit.log"));
        told + dropped(&weir) >= REQUESTS as u64 - 1024 * 2
    });
    let seconds = began.elapsed().as_secs() + 2;
    let size = file_of(&weir, "audit.log").len() as u64;
    assert!(size <= seconds * 85_000, "{size} bytes in {seconds} seconds");
    assert!(dropped(&weir) > 0);
}

#[test]
fn audit_events_go_to_several_targets_and_full_files_are_moved_aside() {
    let telemetry = "[telemetry]\naudit_log = [\"stdout\", \"audit.log\"]\n\
                     audit_max_size = \"64KiB\"\naudit_keep = 1";
    let limit = "key = \"header:x-user\"\nrate = \"1/day\"\nburst = 1\ncost = 2";
    let mut weir = start(&Config::echo().limit(limit).also(telemetry));
    // More than two files take, whatever the budget of a second is.
    let mut users = 0;
    wait_until("files are moved", || {
        attack(&weir, 100, |number| format!("user-{}-{number}", users));
        users += 1;
        file_of(&weir, "stdout").len() > 150_000
    });
    weir.signal(Signal::TERM);
    weir.exit();
    let (new, old) = (file_of(&weir, "audit.log"), file_of(&weir, "audit.log.1"));
    assert!(!new.is_empty() && new.len() <= 64 << 10, "{}", new.len());
    assert!((60 << 10..=64 << 10).contains(&old.len()), "{}", old.len());
    assert!(!weir.directory().join("audit.log.2").exists(), "one is kept");
    let both = format!("{old}{new}");
    assert!(file_of(&weir, "stdout").ends_with(&both), "no line is lost on the way");
}
