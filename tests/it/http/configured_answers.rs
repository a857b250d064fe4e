//! Routes that answer themselves: redirects and fixed responses. And paths that are rewritten, and the
//! size of bodies, by route.

use crate::support::{Config, Upstream, Weir, get, post};

fn routes(tables: &str) -> Config {
    Config::echo().open().routes(tables)
}

#[test]
fn a_redirect_leads_where_the_route_says() {
    let weir = Weir::start(&routes(
        "[[routes]]\nname = \"https\"\npath = \"/*\"\n\
         redirect = { to = \"https://{host}{path}?{query}\" }\n\
         [[routes]]\nname = \"old\"\npath = \"/old/{id}\"\n\
         redirect = { to = \"/new?id={id}\", status = 302 }\n",
    ));
    let mut client = weir.connect();
    for (target, status, location) in [
        ("/a/b?c=d", 308, "https://weir.test/a/b?c=d"),
        ("/a", 308, "https://weir.test/a"),
        ("//evil.example/a", 308, "https://weir.test/evil.example/a"),
        ("/%0d%0aSet-Cookie:%20a=b", 400, ""),
        ("/a?x=%0d%0aSet-Cookie:%20a=b", 308, "https://weir.test/a?x=%0d%0aSet-Cookie:%20a=b"),
        ("/old/a&b=%26", 302, "/new?id=a%26b%3D%26"),
    ] {
        let response = client.ask(get(target));
        assert_eq!(response.status, status, "{target}");
        if status != 400 {
            assert_eq!(response.one("location"), location, "{target}");
            assert_eq!(response.one("content-length"), "0");
            assert!(response.body.is_empty());
        }
        assert!(!response.has("set-cookie"));
    }
    client.send("HEAD /a HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    assert_eq!(client.head_response().status, 308);
    // The connection goes on, also behind a body that nobody reads.
    assert_eq!(client.ask(post("/a", "hello")).status, 308);
    assert_eq!(client.ask(get("/a")).status, 308);
    // Without a host there is nowhere to lead to.
    assert_eq!(weir.ask("GET /a HTTP/1.0\r\n\r\n").status, 400);
    assert_eq!(weir.ask("GET /old/1 HTTP/1.0\r\n\r\n").status, 302);
}

#[test]
fn a_fixed_response_is_limited_as_any_other() {
    let weir = Weir::start(
        &routes(
            "[[routes]]\nname = \"robots\"\npath = \"/robots.txt\"\nlimits = [\"few\"]\n\
             respond = { body = \"User-agent: *\\n\", content_type = \"text/plain\" }\n\
             response_headers = { set = { x-own = \"1\" } }\n\
             [[routes]]\nname = \"gone\"\npath = \"/gone\"\nrespond = { status = 410 }\n\
             [[routes]]\nname = \"none\"\npath = \"/none\"\nrespond = { status = 204 }\n",
        )
        .bucket("few", "global", 2),
    );
    let mut client = weir.connect();
    let response = client.ask(get("/robots.txt"));
    assert_eq!((response.status, response.text().as_str()), (200, "User-agent: *\n"));
    assert_eq!(
        (response.one("content-type"), response.one("content-length")),
        ("text/plain", "14")
    );
    assert_eq!((response.one("x-own"), response.one("x-ratelimit-remaining")), ("1", "1"));
    client.send("HEAD /robots.txt HTTP/1.1\r\nHost: weir.test\r\n\r\n");
    let response = client.head_response();
    assert_eq!((response.status, response.one("content-length")), (200, "14"));
    assert_eq!(client.ask(get("/robots.txt")).status, 429);
    let response = client.ask(get("/gone"));
    assert_eq!((response.status, response.one("content-length")), (410, "0"));
    assert!(!response.has("content-type"));
    let response = client.ask(get("/none"));
    assert_eq!((response.status, response.has("content-length")), (204, false));
    assert_eq!(client.ask(get("/robots.txt")).status, 429);
}

#[test]
fn answers_without_an_upstream_are_charged_by_their_status_too() {
    let weir = Weir::start(
        &routes(
            "[[routes]]\nname = \"all\"\npath = \"/*\"\nlimits = [\"gone\"]\n\
             respond = { status = 410 }\n",
        )
        .add_limit("gone", "key = \"global\"\nrate = \"1/day\"\nburst = 2\ncount = \"4xx\""),
    );
    assert_eq!([0; 3].map(|_| weir.get("/").status), [410, 410, 429]);
}

#[test]
fn a_rewritten_path_reaches_the_upstream() {
    let upstream = Upstream::ok();
    let config = Config::to(&upstream)
        .open()
        .route("users", "/users/{id}/*", &[])
        .route_lines("rewrite = \"/v2/{id}/{*}\"");
    let weir = Weir::start(&config);
    for (target, expected) in [
        ("/users/7?q=1", "/v2/7?q=1"),
        ("/Users/Ann%20B/x/./y", "/v2/Ann%20B/x/y"),
        ("/users/7/a/..", "/v2/7/"),
    ] {
        assert_eq!(weir.get(target).status, 200, "{target}");
        assert_eq!(upstream.last().target, expected, "{target}");
    }
}

#[test]
fn a_route_has_a_size_of_bodies_of_its_own() {
    let upstream = Upstream::ok();
    let config = Config::to(&upstream)
        .open()
        .server("max_body = 10")
        .route("all", "/*", &[])
        .route("small", "/small", &[])
        .route_lines("max_body = 3")
        .route("large", "/large", &[])
        .route_lines("max_body = \"1KiB\"")
        .route("any", "/any", &[])
        .route_lines("max_body = 0");
    let weir = Weir::start(&config);
    let chunked = |target: &str, size: usize| {
        let body = "a".repeat(size);
        format!(
            "POST {target} HTTP/1.1\r\nHost: weir.test\r\nTransfer-Encoding: chunked\r\n\r\n\
             {size:x}\r\n{body}\r\n0\r\n\r\n"
        )
    };
    for (target, most) in [("/", 10), ("/small", 3), ("/large", 1024), ("/any", 100_000)] {
        for (size, status) in [(most, 200), (most + 1, if most == 100_000 { 200 } else { 413 })] {
            assert_eq!(weir.ask(post(target, &"a".repeat(size))).status, status, "{target} {size}");
            assert_eq!(weir.ask(chunked(target, size)).status, status, "{target} {size} chunked");
        }
    }
}
