//! The scripts in `lua/`, as Redis gets them: one file for each algorithm, and the script itself.

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

    pub fn text(&self) -> &str {
        &self.text
    }

    /// A call of it, to which the number of keys, the keys and the arguments are to be added: about
    /// so many, of so many bytes.
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

/// The file of an algorithm as the body of a function that makes it: see `lua/algorithms.lua`.
macro_rules! algorithm {
    ($name:literal) => {
        concat!(
            "local function make_",
            $name,
            "()\n",
            include_str!(concat!("../../../../lua/", $name, ".lua")),
            "return ",
            $name,
            "\nend\n\n",
        )
    };
}

/// The algorithms, and a script that uses them.
macro_rules! with_algorithms {
    ($script:literal) => {
        concat!(
            include_str!("../../../../lua/state.lua"),
            algorithm!("token_bucket"),
            algorithm!("sliding_window"),
            algorithm!("fixed_window"),
            algorithm!("refill_bucket"),
            algorithm!("sliding_log"),
            algorithm!("concurrency"),
            algorithm!("leaky_bucket"),
            include_str!("../../../../lua/algorithms.lua"),
            include_str!("../../../../lua/outstanding.lua"),
            include_str!("../../../../lua/journal.lua"),
            include_str!($script),
        )
    };
}

/// Decides the requests of a [`Batch`](super::batch::Batch).
pub static DECIDE: LazyLock<Script> =
    LazyLock::new(|| Script::new(with_algorithms!("../../../../lua/decide.lua")));

/// Makes [`Adjustment`](super::adjustment::Adjustment)s.
pub static ADJUST: LazyLock<Script> =
    LazyLock::new(|| Script::new(with_algorithms!("../../../../lua/adjust.lua")));

/// Makes [`LeaseCall`](super::lease_call::LeaseCall)s.
pub static LEASE: LazyLock<Script> =
    LazyLock::new(|| Script::new(with_algorithms!("../../../../lua/lease.lua")));

/// Changes what operators have decided.
pub static OVERRIDES: LazyLock<Script> =
    LazyLock::new(|| Script::new(include_str!("../../../../lua/overrides.lua")));

/// Adds up what guards have counted.
pub static GUARD: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("../../../../lua/state.lua"),
        include_str!("../../../../lua/guard.lua"),
    ))
});

/// Adds up what is known of users.
pub static TRUST: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("../../../../lua/state.lua"),
        include_str!("../../../../lua/trust.lua"),
    ))
});

/// Keeps calls that were given up from being run later.
pub static FENCE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("../../../../lua/state.lua"),
        include_str!("../../../../lua/fence.lua"),
    ))
});
