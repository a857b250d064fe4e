use super::*;

const SECRET: &str = "correct-horse";

fn origin(host: &str, port: u16) -> Origin {
    Origin { host: host.to_owned(), port }
}

/// Guarded by passwords wherever there can be one.
fn dialer(servers: RedisServers) -> Dialer {
    let secret = || Secret(SECRET.to_owned());
    Dialer::new(settings::Redis {
        servers,
        tls: Some(RedisTls { ca: None, client: Some((b"cert".to_vec(), secret())) }),
        username: Some("weir".to_owned()),
        password: Some(secret()),
        database: 3,
        prefix: "weir".to_owned(),
        timeout: Duration::from_millis(20),
    })
}

#[test]
fn servers_are_named_without_their_passwords() {
    let cases = [
        (RedisServers::Single(RedisAddress::Tcp(origin("cache", 6379))), "cache:6379"),
        (RedisServers::Single(RedisAddress::Tcp(origin("::1", 6379))), "[::1]:6379"),
        (RedisServers::Single(RedisAddress::Unix("/run/redis.sock".into())), "/run/redis.sock"),
        (
            RedisServers::Sentinel {
                master: "main".to_owned(),
                nodes: vec![origin("a", 26379), origin("b", 26380)],
                username: Some("watcher".to_owned()),
                password: Some(Secret(SECRET.to_owned())),
            },
            "master main, as known to a:26379, b:26380",
        ),
        (
            RedisServers::Cluster(vec![origin("a", 7000), origin("b", 7001)]),
            "cluster of a:7000, b:7001",
        ),
    ];
    for (servers, name) in cases {
        let dialer = dialer(servers);
        assert_eq!(dialer.to_string(), name);
        let all = format!("{dialer:?}");
        assert!(!all.contains(SECRET), "{all}");
    }
}

#[test]
fn a_server_that_does_not_let_anybody_in_is_no_lost_connection() {
    let failure = |line: &[u8]| {
        let value = redis::parse_redis_value(line).expect("a reply");
        unreachable(value.extract_error().expect_err("an error")).reason
    };
    assert_eq!(failure(b"-WRONGPASS invalid username-password pair\r\n"), Reason::Denied);
    assert_eq!(failure(b"-LOADING Redis is loading\r\n"), Reason::Loading);
    assert_eq!(failure(b"-ERR max number of clients reached\r\n"), Reason::Connection);
    let refused = std::io::Error::from(std::io::ErrorKind::TimedOut);
    assert_eq!(unreachable(refused.into()).reason, Reason::Connection);
}
