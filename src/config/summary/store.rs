//! Where buckets live, in one line.

use crate::config::settings::{
    Origin, Redis, RedisAddress, RedisServers, Snapshot, Store, StoreKind,
};
use crate::config::units::show_duration;

/// `memory, at most 1000000 keys`, or `redis at 127.0.0.1:6379, database 0, …`.
pub fn store(store: &Store) -> String {
    let room = format!("at most {} keys", store.max_keys);
    match &store.kind {
        StoreKind::Memory => match &store.snapshot {
            None => format!("memory, {room}"),
            Some(Snapshot { path, interval }) => {
                let interval = show_duration(*interval);
                format!("memory, {room}, snapshot {} every {interval}", path.display())
            }
        },
        StoreKind::Redis(redis) => format!("redis {}", shared(store, redis, None)),
        StoreKind::Hybrid(hybrid) => {
            let leases = format!("leases every {}", show_duration(hybrid.sync_interval));
            format!("hybrid {}", shared(store, &hybrid.redis, Some(leases)))
        }
    }
}

fn shared(store: &Store, redis: &Redis, leases: Option<String>) -> String {
    let mut parts = self::redis(redis);
    parts.extend(leases);
    parts.push(format!("on error {}", store.on_error.name()));
    parts.push(format!("at most {} keys here", store.max_keys));
    parts.join(", ")
}

fn redis(redis: &Redis) -> Vec<String> {
    let mut parts = vec![servers(&redis.servers)];
    if !matches!(redis.servers, RedisServers::Cluster(_)) {
        parts.push(format!("database {}", redis.database));
    }
    match (&redis.username, &redis.password) {
        (Some(name), _) => parts.push(format!("user {name}")),
        (None, Some(_)) => parts.push("with a password".to_owned()),
        (None, None) => {}
    }
    parts.push(format!("keys {}:…", redis.prefix));
    if let Some(tls) = &redis.tls {
        let client = if tls.client.is_some() { " with a certificate" } else { "" };
        parts.push(format!("TLS{client}"));
    }
    parts.push(format!("within {}", show_duration(redis.timeout)));
    parts
}

fn servers(servers: &RedisServers) -> String {
    match servers {
        RedisServers::Single(RedisAddress::Tcp(server)) => format!("at {}", server.authority()),
        RedisServers::Single(RedisAddress::Unix(path)) => format!("at {}", path.display()),
        RedisServers::Sentinel { master, nodes, .. } => {
            format!("master {master} of sentinels {}", all(nodes))
        }
        RedisServers::Cluster(nodes) => format!("cluster at {}", all(nodes)),
    }
}

fn all(nodes: &[Origin]) -> String {
    nodes.iter().map(Origin::authority).collect::<Vec<_>>().join(" ")
}
