//! The stores that a test runs on: what a limit promises does not depend on where its buckets are.

use super::config::Config;
use super::redis::Redis;

#[derive(Debug)]
pub(crate) enum Home {
    Memory,
    Redis(Redis),
}

impl Home {
    pub(crate) fn redis() -> Home {
        Home::Redis(Redis::start())
    }

    /// The configuration with this store. Redis is waited for, so that a busy machine never makes
    /// a gateway go by itself where counts must be exact; one that did would be told by its 503.
    pub(crate) fn of(&self, config: Config) -> Config {
        match self {
            Home::Memory => config,
            Home::Redis(redis) => {
                config.store(&redis.store()).store("timeout = \"5s\"\non_error = \"deny\"")
            }
        }
    }

    /// The same, apart from other cases of one test on the same store.
    pub(crate) fn apart(&self, case: usize, config: Config) -> Config {
        match self {
            Home::Memory => config,
            Home::Redis(_) => self.of(config).store(&format!("prefix = \"case-{case}\"")),
        }
    }
}

/// Makes two tests of each function that takes a [`Home`].
macro_rules! on_each_store {
    ($($name:ident),+ $(,)?) => {
        mod in_memory {
            $(
                #[test]
                fn $name() {
                    super::$name(&crate::support::Home::Memory);
                }
            )+
        }

        mod over_redis {
            $(
                #[test]
                fn $name() {
                    super::$name(&crate::support::Home::redis());
                }
            )+
        }
    };
}

pub(crate) use on_each_store;
