//! `weir violations`.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::Duration;

use chrono::DateTime;
use clap::Args;
use http::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use super::admin_client::{AdminError, AdminRequest, AdminTarget};
use super::{BAD_CONFIGURATION, FAILED};

/// A store in Redis may have to be searched.
const TIMEOUT: Duration = Duration::from_secs(10);
/// More than a thousand of the longest violations take.
const MOST: usize = 8 << 20;

/// Show who was refused by a limit or noticed by a guard, newest first.
///
/// Asks /v1/violations of the admin listener: of all gateways that share a Redis, or of one
/// gateway. What repeats is summed up, and TIMES says how often it happened.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ViolationsCommand {
    #[command(flatten)]
    target: AdminTarget,
    /// Of this user
    #[arg(long)]
    user: Option<String>,
    /// From this address or network
    #[arg(long, value_name = "ADDRESS")]
    ip: Option<String>,
    /// Of this client
    #[arg(long)]
    client: Option<String>,
    /// Of this key, as the table has it
    #[arg(long)]
    key: Option<String>,
    /// Of this limit or guard
    #[arg(long, value_name = "NAME")]
    limit: Option<String>,
    /// On this route
    #[arg(long, value_name = "NAME")]
    route: Option<String>,
    /// Not older than: how long ago (1h), a time of the day in UTC (14:03), a time as the table
    /// has it, or Unix seconds
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Not newer than: the same
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// How many at most: 1 to 1000, 100 if not said
    #[arg(long, value_name = "COUNT")]
    max: Option<u32>,
    /// Those before this one, which the end of the last page names
    #[arg(long, value_name = "ID")]
    before: Option<String>,
    /// The variable that has the token, which a listener that others reach asks for
    #[arg(long, value_name = "NAME", default_value = "WEIR_ADMIN_TOKEN")]
    token_env: String,
    /// Print the answer as it came
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  weir violations --since 1h                 the last hour
  weir violations --since 14:03 --until 14:10:15
                                             an incident, times in UTC
  weir violations --user ann --limit calls   what ann ran into
  weir violations --ip 192.0.2.0/24 --json   for a program

Exit codes: 0 fine, 1 no answer, 2 bad usage.";

/// What `/v1/violations` answers.
#[derive(Debug, Deserialize)]
struct Answer {
    /// Another version may know more events and fields.
    violations: Vec<Value>,
    before: Option<String>,
    hint: Option<String>,
}

impl ViolationsCommand {
    pub(super) fn main(self) -> u8 {
        let (at, address) = self.target.find();
        let token = std::env::var(&self.token_env).ok().filter(|it| !it.is_empty());
        let path = format!("/v1/violations{}", self.query());
        let (path, token) = (path.as_str(), token.as_deref());
        let answer = match (AdminRequest { path, token, timeout: TIMEOUT, most: MOST }).send(at) {
            Ok(answer) => answer,
            Err(why) => return failed(&why.describe(&address)),
        };
        if answer.status != StatusCode::OK {
            let said = serde_json::from_slice::<Value>(&answer.body).unwrap_or_default();
            let Some(why) = said.get("error_description").and_then(Value::as_str) else {
                return failed(&AdminError::unexpected(path, answer.status).describe(&address));
            };
            let (status, why) = (answer.status.as_u16(), printable(why));
            let remedy = self.remedy(answer.status, token.is_some());
            failed(&format!("{address} answered {status}: {why}{remedy}"));
            let bad_usage = answer.status == StatusCode::BAD_REQUEST;
            return if bad_usage { BAD_CONFIGURATION } else { FAILED };
        }
        if self.json {
            print(&escaped(&String::from_utf8_lossy(&answer.body)));
            return 0;
        }
        match serde_json::from_slice(&answer.body) {
            Ok(answer) => print(&table(&answer)),
            Err(_) => {
                return failed(&AdminError::unexpected(path, answer.status).describe(&address));
            }
        }
        0
    }

    /// What can be done about an answer that is none.
    fn remedy(&self, status: StatusCode, has_token: bool) -> String {
        let variable = &self.token_env;
        match status {
            StatusCode::UNAUTHORIZED if has_token => format!(" It was sent what is in {variable}."),
            StatusCode::UNAUTHORIZED => {
                format!(" Set {variable} to it, or name another variable with --token-env.")
            }
            StatusCode::NOT_FOUND => " There is no /v1 there: ask the address of admin.listen, \
                                      which needs admin.token_env if it is not loopback."
                .to_owned(),
            _ => String::new(),
        }
    }

    fn query(&self) -> String {
        let max = self.max.map(|max| max.to_string());
        let parameters = [
            ("user", &self.user),
            ("ip", &self.ip),
            ("client", &self.client),
            ("key", &self.key),
            ("limit", &self.limit),
            ("route", &self.route),
            ("since", &self.since),
            ("until", &self.until),
            ("max", &max),
            ("before", &self.before),
        ];
        let mut query = String::new();
        for (name, value) in parameters {
            if let Some(value) = value {
                let joint = if query.is_empty() { '?' } else { '&' };
                let _ = write!(query, "{joint}{name}={}", percent_encoded(value));
            }
        }
        query
    }
}

fn percent_encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        let _ = match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                write!(encoded, "{}", char::from(byte))
            }
            _ => write!(encoded, "%{byte:02x}"),
        };
    }
    encoded
}

const COLUMNS: [&str; 9] =
    ["TIME", "EVENT", "LIMIT", "KEY", "IP", "USER", "CLIENT", "ROUTE", "TIMES"];

/// Columns as wide as what is in them.
fn table(answer: &Answer) -> String {
    if answer.violations.is_empty() {
        let hint = answer.hint.as_deref().map(|hint| format!(": there is {}", printable(hint)));
        return format!("no violations{}", hint.unwrap_or_default());
    }
    let mut rows = vec![COLUMNS.map(str::to_owned)];
    rows.extend(answer.violations.iter().map(row));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..COLUMNS.len()).map(|it| width(it).unwrap_or_default()).collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:width$}  ");
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    if let Some(before) = &answer.before {
        let _ = writeln!(text, "\nthere are more: --before {}", printable(before));
    }
    text
}

fn row(it: &Value) -> [String; 9] {
    let name = |field: &str| it.get(field).and_then(Value::as_str).map(printable);
    let or_none = |name: Option<String>| name.unwrap_or_else(|| "-".to_owned());
    let seconds = it.get("time").and_then(Value::as_f64);
    let time = seconds.and_then(|seconds| DateTime::from_timestamp(seconds as i64, 0));
    let time = time.map(|time| time.naive_utc());
    let times = it.get("repeated").and_then(Value::as_u64).unwrap_or(1);
    [
        or_none(time.map(|time| format!("{}T{}Z", time.date(), time.time()))),
        or_none(name("event")),
        or_none(name("limit").or_else(|| name("guard"))),
        or_none(name("identifier")),
        or_none(name("ip")),
        or_none(name("user")),
        or_none(name("client")),
        or_none(name("route")),
        times.to_string(),
    ]
}

/// Callers choose their names: none of them is to move the cursor of a terminal, or to turn around
/// what it shows.
fn printable(name: &str) -> String {
    name.chars().map(|it| if is_harmful(it) { '\u{fffd}' } else { it }).collect()
}

/// The same for JSON, in which such characters can be written as escapes.
fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for character in json.chars() {
        if is_harmful(character) && !matches!(character, '\n' | '\t') {
            for unit in character.encode_utf16(&mut [0; 2]) {
                let _ = write!(text, "\\u{unit:04x}");
            }
        } else {
            text.push(character);
        }
    }
    text
}

/// Control characters, and those of Unicode that are not seen but change what is: separators of lines,
/// marks of direction, joiners, tags.
fn is_harmful(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}')
}

/// A closed pipe is not an error: the reader has read enough.
fn print(text: &str) {
    let _ = writeln!(io::stdout(), "{}", text.trim_end());
}

fn failed(why: &str) -> u8 {
    let _ = writeln!(io::stderr(), "weir: {why}");
    FAILED
}

#[cfg(test)]
mod tests;
