//! The scripts in `lua/`, as Redis gets them: an algorithm a file, and the step that is called.

use std::borrow::Cow;
use std::sync::LazyLock;

use redis::Cmd;

/// A script and the name that Redis knows it by.
#[derive(Debug)]
pub struct Script {
    text: Cow<'static, str>,
    hash: String,
}

impl Script {
    pub fn new(text: impl Into<Cow<'static, str>>) -> Self {
        let text = text.into();
        let hash = redis::Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }

    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// A call of it, to which the number of keys, the keys and the arguments are to be added: about
    /// so many, of so many bytes.
    #[must_use]
    pub fn call(&self, form: Form, arguments: usize, bytes: usize) -> Cmd {
        let (command, name) = match form {
            Form::Hash => ("EVALSHA", &*self.hash),
            Form::Text => ("EVAL", &*self.text),
        };
        let mut call = Cmd::with_capacity(arguments + 3, name.len() + bytes + 64);
        call.arg(command).arg(name);
        call
    }

    /// SHA-1, in hexadecimal digits.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }
}

/// How a script is named in a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// By its hash, which fails with `NOSCRIPT` if the server does not know it.
    Hash,
    /// With its whole text, after which the server knows it.
    Text,
}

/// The algorithms, and a step that uses them.
macro_rules! with_algorithms {
    ($step:literal) => {
        concat!(
            include_str!("../../../lua/state.lua"),
            include_str!("../../../lua/token_bucket.lua"),
            include_str!("../../../lua/sliding_window.lua"),
            include_str!("../../../lua/fixed_window.lua"),
            include_str!("../../../lua/refill_bucket.lua"),
            include_str!("../../../lua/sliding_log.lua"),
            include_str!("../../../lua/concurrency.lua"),
            include_str!("../../../lua/algorithms.lua"),
            include_str!("../../../lua/journal.lua"),
            include_str!($step),
        )
    };
}

/// Decides the requests of a [`Batch`](super::batch::Batch).
pub static DECIDE: LazyLock<Script> =
    LazyLock::new(|| Script::new(with_algorithms!("../../../lua/decide.lua")));

/// Makes [`Adjustment`](super::adjustment::Adjustment)s.
pub static ADJUST: LazyLock<Script> =
    LazyLock::new(|| Script::new(with_algorithms!("../../../lua/adjust.lua")));

/// Changes what operators have decided.
pub static RULINGS: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../../../lua/rulings.lua")));

/// Keeps calls that were given up from being run later.
pub static FENCE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("../../../lua/state.lua"),
        include_str!("../../../lua/fence.lua"),
    ))
});
