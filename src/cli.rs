//! The command line.

mod admin_client;
mod check;
mod hash_key;
mod health;
mod run;
mod violations;

use std::fmt::Display;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Exit codes: fine, failed at run time, bad usage or configuration.
const FAILED: u8 = 1;
const BAD_CONFIGURATION: u8 = 2;

/// Writes to standard error. If that cannot be written, because its reader has gone or its disk is full,
/// nobody is there to be told, and what was to be done is done all the same.
fn report(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// A reverse proxy that limits rates exactly.
///
/// Weir stands in front of an API, checks every limit that applies to a request in one decision,
/// and forwards the request or answers 429.
#[derive(Debug, Parser)]
#[command(name = "weir", version, after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: run::RunCommand,
}

const EXAMPLES: &str = "\
Examples:
  weir                               serve config/config.toml, or the built-in default
  weir run --config /etc/weir.toml   serve another file
  weir check config/config.toml      say what is wrong with a file, or what it means
  weir health                        ask a running gateway whether it takes traffic
  weir violations --user ann         who was refused, when and by which limit
  weir hash-key --new                make an API key and its hash

Environment:
  WEIR_CONFIG       the file to serve when --config is not given
  WEIR_LOG          what to log: error, warn, info (default), debug, trace, off
  WEIR_LOG_FORMAT   json: one object a line; text (default)

Signals: SIGHUP reloads the file, SIGTERM and SIGINT drain and end. A new process takes over with
--takeover.
Exit codes: 0 fine, 1 failed at run time, 2 bad usage or configuration.";

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve (the default)
    Run(run::RunCommand),
    /// Check a configuration and say what it means
    Check {
        /// The file; without it, the one that `weir run` would serve
        file: Option<PathBuf>,
        /// The same, said as to `weir run`
        #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
        config: Option<PathBuf>,
    },
    Health(health::HealthCommand),
    Violations(Box<violations::ViolationsCommand>),
    HashKey(hash_key::HashKeyCommand),
}

impl Cli {
    /// Parses the arguments and does what they ask for.
    #[must_use]
    pub fn main() -> ExitCode {
        let cli = Cli::parse();
        let code = match cli.command {
            None => cli.run.main(),
            Some(Command::Run(run)) => run.main(),
            Some(Command::Check { file, config }) => check::main(file.or(config)),
            Some(Command::Health(command)) => command.main(),
            Some(Command::Violations(command)) => command.main(),
            Some(Command::HashKey(command)) => command.main(),
        };
        ExitCode::from(code)
    }
}
