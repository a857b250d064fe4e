//! `weir hash-key`.

use std::io::{self, IsTerminal, Read, Write as _};

use clap::Args;

use super::{BAD_CONFIGURATION, FAILED, report};
use crate::caller::clients::{hash_key, new_key};

/// A key that is longer was piped in by mistake.
const LONGEST: u64 = 8 << 10;

/// Hash an API key for `key_hash` of `[[clients]]`, or make a new one.
///
/// The key is read from standard input, never from the command line, where other users of the
/// machine and the history of the shell would see it. A line break at its end is left out. It must
/// have 16 characters or more: the hash has no salt, which is safe only for long random keys, such
/// as --new makes.
///
/// Weir keeps the hash alone. The client sends the key where `client` of `[identity]` looks for it,
/// such as the header x-api-key.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct HashKeyCommand {
    /// Make a new key that nobody can guess, and print it before its hash
    #[arg(long)]
    new: bool,
}

const EXAMPLES: &str = "\
Examples:
  weir hash-key --new            a new key, to hand over, and its hash, to keep
  weir hash-key < key.txt        the hash of a key that is there already
  pass api/billing | weir hash-key

In the configuration:
  [identity]
  client = \"header:x-api-key\"

  [[clients]]
  id = \"billing\"
  key_hash = \"sha256:…\"";

impl HashKeyCommand {
    pub(super) fn main(self) -> u8 {
        let (text, code) = match if self.new { new_key_and_hash() } else { hash_of_input() } {
            Ok(text) => (text, 0),
            Err((message, code)) => {
                report(format_args!("weir: {message}"));
                return code;
            }
        };
        match io::stdout().write_all(text.as_bytes()) {
            Ok(()) => code,
            Err(_) => FAILED,
        }
    }
}

/// A new key and its hash, a line each.
fn new_key_and_hash() -> Result<String, (String, u8)> {
    let key = new_key().map_err(|error| (format!("no randomness to be had: {error}"), FAILED))?;
    let hash = hash_key(&key).map_err(|error| (error.to_string(), FAILED))?;
    Ok(format!("{key}\n{hash}\n"))
}

/// The hash of the key on standard input.
fn hash_of_input() -> Result<String, (String, u8)> {
    let mut input = io::stdin();
    if input.is_terminal() {
        report("Type or paste the key, then Enter and Ctrl-D; it will be visible.");
    }
    let mut bytes = Vec::new();
    let read = input.by_ref().take(LONGEST + 1).read_to_end(&mut bytes);
    read.map_err(|error| (format!("cannot read the key from standard input: {error}"), FAILED))?;
    let bad = |message: &str| (message.to_owned(), BAD_CONFIGURATION);
    if bytes.len() as u64 > LONGEST {
        return Err(bad("the key is longer than 8KiB"));
    }
    let text = String::from_utf8(bytes).map_err(|_| bad("the key is not valid UTF-8"))?;
    let key = text.strip_suffix('\n').unwrap_or(&text);
    let key = key.strip_suffix('\r').unwrap_or(key);
    if key.is_empty() {
        return Err(bad("there is no key on standard input; `weir hash-key --new` makes one"));
    }
    if key.trim() != key || key.contains(char::is_control) {
        return Err(bad(
            "the key has spaces around it, or more than one line; callers could not send it so",
        ));
    }
    let hash = hash_key(key).map_err(|error| bad(&error.to_string()))?;
    Ok(format!("{hash}\n"))
}
