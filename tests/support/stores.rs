//! The stores that a test runs on: limits behave the same wherever their buckets are.

use super::cluster::Cluster;
use super::config::Config;
use super::redis::Redis;

#[derive(Debug)]
pub(crate) enum TestStore {
    Memory,
    Redis(Redis),
    Cluster(Cluster),
}

const PATIENT: &str = "timeout = \"5s\"\non_error = \"deny\"";

impl TestStore {
    pub(crate) fn redis() -> TestStore {
        TestStore::Redis(Redis::start())
    }

    /// The configuration with this store. Redis is waited for, so that a busy machine never makes
    /// a gateway decide without it where counts must be exact; that would show as a 503.
    pub(crate) fn configure(&self, config: Config) -> Config {
        match self {
            TestStore::Memory => config,
            TestStore::Redis(redis) => config.store(&redis.store()).store(PATIENT),
            TestStore::Cluster(cluster) => config.store(&cluster.store()).store(PATIENT),
        }
    }

    /// The same, apart from other cases of one test on the same store.
    pub(crate) fn configure_case(&self, case: usize, config: Config) -> Config {
        match self {
            TestStore::Memory => config,
            TestStore::Redis(_) | TestStore::Cluster(_) => {
                self.configure(config).store(&format!("prefix = \"case-{case}\""))
            }
        }
    }
}

/// Makes two tests of each function that takes a [`TestStore`].
macro_rules! on_each_store {
    ($($name:ident),+ $(,)?) => {
        mod in_memory {
            $(
                #[test]
                fn $name() {
                    super::$name(&crate::support::TestStore::Memory);
                }
            )+
        }

        mod over_redis {
            $(
                #[test]
                fn $name() {
                    super::$name(&crate::support::TestStore::redis());
                }
            )+
        }
    };
}

/// The same, with a third on a cluster of three masters.
macro_rules! on_every_store {
    ($($name:ident),+ $(,)?) => {
        crate::support::on_each_store!($($name),+);

        mod over_cluster {
            $(
                #[test]
                fn $name() {
                    let cluster = crate::support::Cluster::start();
                    super::$name(&crate::support::TestStore::Cluster(cluster));
                }
            )+
        }
    };
}

pub(crate) use {on_each_store, on_every_store};
