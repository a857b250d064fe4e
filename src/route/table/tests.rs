use super::*;
use crate::config::settings::{EncodedSlash, ForwardPath, HeaderEdits, PathPattern, Target};
use crate::limit::{Source, ValuePattern, What};

fn route(host: &str, path: &str, methods: &[Method]) -> Route {
    let host = match (host, host.strip_prefix("*.")) {
        ("", _) => HostPattern::Any,
        (_, Some(suffix)) => HostPattern::Below(suffix.into()),
        (name, None) => HostPattern::Exact(name.into()),
    };
    let (path, prefix) = match path.strip_suffix("/*") {
        Some(path) => (path, true),
        None => (path, false),
    };
    let segments = path.split('/').skip(1).filter(|segment| !segment.is_empty());
    let segments = segments
        .map(|segment| match segment.strip_prefix('{') {
            Some(name) => Segment::Parameter(name.trim_end_matches('}').into()),
            None => Segment::Literal(segment.into()),
        })
        .collect();
    Route {
        name: "r".into(),
        host,
        path: PathPattern { segments, prefix },
        methods: methods.to_vec(),
        conditions: vec![],
        target: Target::Echo,
        limits: vec![],
        tenants: false,
        guards: vec![],
        strip_prefix: None,
        rewrite: None,
        encoded_slash: EncodedSlash::Reject,
        forward_path: ForwardPath::Normalized,
        max_body: None,
        request_headers: HeaderEdits::default(),
        response_headers: HeaderEdits::default(),
        timeout: None,
        cost: None,
        degrade: None,
    }
}

/// What a request without headers finds.
fn look_up(table: &RouteTable, host: &str, path: &[u8], method: &Method) -> RouteLookup {
    let headers = HeaderMap::new();
    table.find(LookupKey { host, path, method, headers: &headers, query: None })
}

fn find(table: &RouteTable, host: &str, path: &str) -> Option<usize> {
    match look_up(table, host, path.as_bytes(), &Method::GET) {
        RouteLookup::Route(route) => Some(route),
        _ => None,
    }
}

#[test]
fn the_most_specific_path_wins() {
    let paths = ["/*", "/a/*", "/a/b", "/a/{id}", "/a/{id}/c", "/a/b/d", "/"];
    let table = RouteTable::new(&paths.map(|path| route("", path, &[])));
    for (path, expected) in [
        ("", 6),
        ("/x", 0),
        ("/x/y/z", 0),
        ("/a", 1),
        ("/a/b", 2),
        ("/a/z", 3),
        ("/a/z/c", 4),
        ("/a/b/c", 4),
        ("/a/b/d", 5),
        ("/a/b/e", 1),
        ("/a/z/c/d", 1),
        ("/ab", 0),
    ] {
        assert_eq!(find(&table, "h", path), Some(expected), "{path}");
    }
}

#[test]
fn the_most_specific_host_wins_and_gives_way_to_less_specific_ones() {
    let table = RouteTable::new(&[
        route("", "/*", &[]),
        route("a.example.com", "/x", &[]),
        route("*.example.com", "/*", &[]),
        route("*.b.example.com", "/x", &[]),
        route("[::1]", "/v6", &[]),
    ]);
    for (host, path, expected) in [
        ("a.example.com", "/x", 1),
        ("A.Example.COM:8080", "/x", 1),
        ("a.example.com.", "/x", 1),
        ("a.example.com", "/y", 2),
        ("c.example.com", "/x", 2),
        ("d.b.example.com", "/x", 3),
        ("d.b.example.com", "/y", 2),
        ("example.com", "/x", 0),
        ("[::1]:80", "/x", 0),
        ("[::1]:80", "/v6", 4),
        ("[0:0:0:0:0:0:0:1]", "/v6", 4),
        ("", "/x", 0),
    ] {
        assert_eq!(find(&table, host, path), Some(expected), "{host}{path}");
    }
}

#[test]
fn a_route_for_other_methods_gives_way_to_a_less_specific_one() {
    let table = RouteTable::new(&[route("", "/a/b", &[Method::GET]), route("", "/a/*", &[])]);
    assert_eq!(look_up(&table, "", b"/a/b", &Method::GET), RouteLookup::Route(0));
    assert_eq!(look_up(&table, "", b"/a/b", &Method::POST), RouteLookup::Route(1));
}

#[test]
fn a_path_without_a_route_for_the_method_names_the_methods_it_has() {
    let table = RouteTable::new(&[
        route("", "/a", &[Method::POST, Method::GET]),
        route("", "/{x}", &[Method::GET]),
    ]);
    let methods = vec![Method::GET, Method::POST];
    assert_eq!(look_up(&table, "", b"/a", &Method::PUT), RouteLookup::OtherMethods(methods));
    assert_eq!(look_up(&table, "", b"/a/b", &Method::PUT), RouteLookup::Nothing);
}

#[test]
fn head_goes_where_get_goes_unless_it_has_a_route_of_its_own() {
    let get = || route("", "/a", &[Method::GET]);
    let table = RouteTable::new(&[route("", "/*", &[]), get()]);
    assert_eq!(look_up(&table, "", b"/a", &Method::HEAD), RouteLookup::Route(1));
    let own = || route("", "/a", &[Method::HEAD]);
    for (routes, expected) in [([get(), own()], 1), ([own(), get()], 0)] {
        assert_eq!(
            look_up(&RouteTable::new(&routes), "", b"/a", &Method::HEAD),
            RouteLookup::Route(expected)
        );
    }
}

/// A route for `/a` that asks for headers (`x-a: 1`) and parameters (`?b=2`).
fn asking(methods: &[Method], conditions: &[&str]) -> Route {
    let condition = |text: &&str| {
        let (source, value) = match text.strip_prefix('?') {
            Some(pair) => pair.split_once('=').map(|(name, it)| (Source::Query(name.into()), it)),
            None => text
                .split_once(": ")
                .map(|(name, it)| (Source::Header(name.parse().expect("a header")), it)),
        }
        .expect("a condition");
        Condition { what: What::Source(source), values: vec![ValuePattern::new(value)] }
    };
    Route { conditions: conditions.iter().map(condition).collect(), ..route("", "/a", methods) }
}

/// What a request for `/a` finds.
fn ask(table: &RouteTable, method: Method, fields: &[(&str, &str)], query: &str) -> RouteLookup {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        let name: http::HeaderName = name.parse().expect("a name");
        headers.append(name, value.parse().expect("a value"));
    }
    let query = Some(query).filter(|query| !query.is_empty());
    table.find(LookupKey { host: "", path: b"/a", method: &method, headers: &headers, query })
}

#[test]
fn more_conditions_are_more_specific_and_headers_come_first() {
    let table = RouteTable::new(&[
        asking(&[], &[]),
        asking(&[], &["?b=2"]),
        asking(&[], &["x-a: 1"]),
        asking(&[], &["x-a: 1", "?b=2"]),
        asking(&[], &["x-a: v*"]),
        asking(&[Method::POST], &[]),
        asking(&[Method::POST], &["x-a: 1"]),
    ]);
    for (fields, query, get, post) in [
        (&[][..], "", 0, 5),
        (&[], "b=2", 1, 5),
        (&[], "%62=%32", 1, 5),
        (&[("x-a", "1")], "", 2, 6),
        (&[("X-A", "1")], "b=2", 3, 6),
        (&[("x-a", "v7")], "b=2", 4, 5),
        (&[("x-a", "")], "b=", 0, 5),
        (&[("x_a", "1")], "b=3", 0, 5),
    ] {
        assert_eq!(ask(&table, Method::GET, fields, query), RouteLookup::Route(get), "{fields:?}");
        assert_eq!(ask(&table, Method::HEAD, fields, query), RouteLookup::Route(get), "{fields:?}");
        assert_eq!(
            ask(&table, Method::POST, fields, query),
            RouteLookup::Route(post),
            "{fields:?}"
        );
    }
}

#[test]
fn what_is_said_twice_where_a_route_asks_is_ambiguous() {
    let table = RouteTable::new(&[
        asking(&[], &["x-a: 1"]),
        asking(&[], &["?b=2", "?c=3"]),
        route("", "/*", &[]),
        asking(&[Method::PUT], &["x-p: 1"]),
    ]);
    let header = |name: &str| Source::Header(name.parse().expect("a header"));
    let ambiguous = |source| RouteLookup::Ambiguous(KeyError::Ambiguous(source));
    let get = |fields: &[(&str, &str)], query: &str| ask(&table, Method::GET, fields, query);
    assert_eq!(get(&[("x-a", "1"), ("x-a", "2")], ""), ambiguous(header("x-a")));
    assert_eq!(get(&[], "b=2&b=3"), ambiguous(Source::Query("b".into())));
    assert_eq!(get(&[], "b=2;b=3"), ambiguous(Source::Query("b".into())));
    assert_eq!(get(&[], "b=2&%62=2"), ambiguous(Source::Query("b".into())));
    // Nobody asks for these, or not of this method.
    assert_eq!(get(&[("x-z", "1"), ("x-z", "2")], "d=1&d=2"), RouteLookup::Route(2));
    assert_eq!(get(&[("x-p", "1"), ("x-p", "2")], ""), RouteLookup::Route(2));
}

#[test]
fn methods_are_those_of_routes_whose_conditions_hold() {
    let table =
        RouteTable::new(&[asking(&[Method::PUT], &["x-a: 1"]), asking(&[Method::POST], &[])]);
    let others = |fields: &[(&str, &str)]| ask(&table, Method::GET, fields, "");
    assert_eq!(others(&[]), RouteLookup::OtherMethods(vec![Method::POST]));
    let both = vec![Method::POST, Method::PUT];
    assert_eq!(others(&[("x-a", "1")]), RouteLookup::OtherMethods(both));
    let table = RouteTable::new(&[asking(&[Method::PUT], &["x-a: 1"])]);
    assert_eq!(ask(&table, Method::GET, &[], ""), RouteLookup::Nothing);
}
