//! `weir health`.
//!
//! Containers run it every few seconds, so it starts no runtime and has a short timeout. The state of
//! the gateway does not depend on its file, which may be being edited: only `admin.listen` is read.

use std::io::{self, Write as _};
use std::time::Duration;

use clap::Args;
use http::StatusCode;
use serde_json::Value;

use super::FAILED;
use super::admin_client::{AdminAnswer, AdminError, AdminRequest, AdminTarget};

/// What connecting, asking and hearing the answer may take together.
const TIMEOUT: Duration = Duration::from_secs(2);
/// What is longer is no answer of Weir.
const MOST: usize = 64 << 10;

/// Ask a running gateway whether it takes traffic.
///
/// Asks /readyz of the admin listener and prints what it says. This is what the HEALTHCHECK of a
/// container runs: it takes 2 seconds at most, and what is wrong with the file meanwhile, or not
/// set in this environment, does not matter, as long as the file still says where to ask.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct HealthCommand {
    #[command(flatten)]
    target: AdminTarget,
    /// Print the answer as it came
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  weir health                          ask the gateway that serves config/config.toml
  weir health --admin 127.0.0.1:9191   ask another

In a Dockerfile:
  HEALTHCHECK --interval=10s --timeout=3s CMD [\"weir\", \"health\"]

Exit codes: 0 it takes traffic, if need be without its store; 1 it does not, or does not answer;
2 bad usage.";

impl HealthCommand {
    pub(super) fn main(self) -> u8 {
        let (at, address) = self.target.find();
        let request = AdminRequest { path: "/readyz", token: None, timeout: TIMEOUT, most: MOST };
        let answer = match request.send(at) {
            Ok(answer) => answer,
            Err(why) => return unhealthy(&why.describe(&address)),
        };
        let said = Readiness::of(&answer);
        if self.json && said.is_some() {
            print(&String::from_utf8_lossy(&answer.body));
        }
        let code = answer.status.as_u16();
        match said {
            Some(Readiness::Ready(text)) => {
                if !self.json {
                    print(&text);
                }
                0
            }
            Some(Readiness::NotReady(word)) => {
                unhealthy(&format!("{address} answered {code} {word}"))
            }
            None => unhealthy(&AdminError::unexpected("/readyz", answer.status).describe(&address)),
        }
    }
}

/// A closed pipe is not an error: the reader has read enough.
fn print(text: &str) {
    let _ = writeln!(io::stdout(), "{}", text.trim_end());
}

/// The exit code counts, even if the line cannot be written.
fn unhealthy(why: &str) -> u8 {
    let _ = writeln!(io::stderr(), "weir: {why}");
    FAILED
}

/// What an answer means, if it is one of Weir.
enum Readiness {
    /// It takes traffic; how, as people read it.
    Ready(String),
    NotReady(&'static str),
}

impl Readiness {
    fn of(answer: &AdminAnswer) -> Option<Self> {
        let said: Value = serde_json::from_slice(&answer.body).ok()?;
        let word = |key| said.get(key).and_then(Value::as_str);
        if answer.status == StatusCode::SERVICE_UNAVAILABLE && word("error") == Some("overloaded") {
            return Some(Readiness::NotReady("overloaded"));
        }
        let is_name = |it: &&str| it.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let store = word("store").filter(is_name)?;
        match (answer.status, word("status")?) {
            (StatusCode::OK, "ready") => Some(Readiness::Ready(format!("ready, store {store}"))),
            (StatusCode::OK, "degraded") => {
                let reason = word("reason").filter(is_name).map(|why| format!(" ({why})"));
                let reason = reason.unwrap_or_default();
                let how = format!("it fails{reason}, and on_error decides");
                Some(Readiness::Ready(format!("degraded, store {store}: {how}")))
            }
            (StatusCode::SERVICE_UNAVAILABLE, "draining") => Some(Readiness::NotReady("draining")),
            _ => None,
        }
    }
}
