use super::*;

fn tcp(host: &str, port: u16) -> RedisUrl {
    RedisUrl { host: UrlHost::Tcp(Origin { host: host.to_owned(), port }), ..RedisUrl::default() }
}

#[test]
fn urls_are_a_scheme_a_login_a_place_and_a_database() {
    let good = |text| parse(text).expect(text);
    assert_eq!(good("redis://127.0.0.1:6379/0"), RedisUrl::default());
    assert_eq!(good("redis://Redis.Internal"), tcp("redis.internal", 6379));
    assert_eq!(good("REDIS://a/"), tcp("a", 6379));
    assert_eq!(good("redis://[::1]:7000/15"), RedisUrl { database: 15, ..tcp("::1", 7000) });
    assert_eq!(good("rediss://a"), RedisUrl { tls: true, ..tcp("a", 6379) });
    let user = |it: &str| Some(it.to_owned());
    let password = |it: &str| Some(Secret(it.to_owned()));
    assert_eq!(
        good("redis://me:p%40%3a%2F%25@a"),
        RedisUrl { username: user("me"), password: password("p@:/%"), ..tcp("a", 6379) }
    );
    assert_eq!(
        good("redis://:a:b@c@a"),
        RedisUrl { password: password("a:b@c"), ..tcp("a", 6379) }
    );
    assert_eq!(good("redis://me@a"), RedisUrl { username: user("me"), ..tcp("a", 6379) });
    assert_eq!(
        good("rediss://:x@/3"),
        RedisUrl {
            tls: true,
            host: UrlHost::Unnamed,
            password: password("x"),
            database: 3,
            ..tcp("", 0)
        }
    );
    let socket = |path: &str, database| RedisUrl {
        host: UrlHost::Unix(PathBuf::from(path)),
        database,
        ..RedisUrl::default()
    };
    assert_eq!(good("unix:///run/redis.sock"), socket("/run/redis.sock", 0));
    assert_eq!(good("redis+unix:///run/a%20b@c?db=7"), socket("/run/a b@c", 7));
}

#[test]
fn wrong_urls_are_refused_without_their_passwords() {
    for text in [
        "",
        "a:6379",
        "://a",
        "me:s3cret@a",
        "http://me:s3cret@a",
        "redis:/me:s3cret@a",
        "me:s3cret@x://a",
        "redis://:6379",
        "redis://me:s3cret@:6379",
        "redis://a:0",
        "redis://a:+1",
        "redis://a:s3cret",
        "redis://a:65536",
        "redis://a b",
        "redis://[::1",
        "redis://1.2.3",
        "redis://a/x",
        "redis://a/-1",
        "redis://a/+1",
        "redis://a/0/",
        "redis://a/4294967296",
        "redis://a/0?x=1",
        "redis://a/0?auth=s3cret",
        "redis://a/s3cret",
        "redis://:s3cret/0",
        "unix:///run/redis.sock?db=s3cret",
        "redis://a#0",
        "redis://me:s3cret/s3cret@a",
        "redis://me:s3cret?s3cret@a",
        "redis://me:s3cret#@a",
        "redis://me:s3cret%4@a",
        "redis://me:s3cret%zz@a",
        "redis://me:s3cret%00@a",
        "redis://me:s3cret%ff@a",
        "redis://me:@a",
        "redis://@a",
        "unix://run/redis.sock",
        "unix://me:s3cret@/run/redis.sock",
        "unix:///",
        "unix:///run/redis.sock?db=",
        "unix:///run/redis.sock?db=x",
        "unix:///run/redis.sock?database=1",
        "unix:///run/redis.sock#1",
    ] {
        let ValueError { message, help } = parse(text).expect_err(text);
        assert!(!message.contains("s3cret") && !help.contains("s3cret"), "{message}; {help}");
    }
}
