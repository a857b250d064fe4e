use super::*;
use crate::config::settings::{HeaderEdits, PathPattern, Target};

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
        target: Target::Echo,
        limits: vec![],
        tenants: false,
        guards: vec![],
        strip_prefix: None,
        request_headers: HeaderEdits::default(),
        response_headers: HeaderEdits::default(),
        timeout: None,
        cost: None,
        degrade: None,
    }
}

fn find(table: &RouteTable, host: &str, path: &str) -> Option<usize> {
    match table.find(host, path.as_bytes(), &Method::GET) {
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
    assert_eq!(table.find("", b"/a/b", &Method::GET), RouteLookup::Route(0));
    assert_eq!(table.find("", b"/a/b", &Method::POST), RouteLookup::Route(1));
}

#[test]
fn a_path_without_a_route_for_the_method_names_the_methods_it_has() {
    let table = RouteTable::new(&[
        route("", "/a", &[Method::POST, Method::GET]),
        route("", "/{x}", &[Method::GET]),
    ]);
    let methods = vec![Method::GET, Method::POST];
    assert_eq!(table.find("", b"/a", &Method::PUT), RouteLookup::OtherMethods(methods));
    assert_eq!(table.find("", b"/a/b", &Method::PUT), RouteLookup::Nothing);
}

#[test]
fn head_goes_where_get_goes_unless_it_has_a_route_of_its_own() {
    let get = || route("", "/a", &[Method::GET]);
    let table = RouteTable::new(&[route("", "/*", &[]), get()]);
    assert_eq!(table.find("", b"/a", &Method::HEAD), RouteLookup::Route(1));
    let own = || route("", "/a", &[Method::HEAD]);
    for (routes, expected) in [([get(), own()], 1), ([own(), get()], 0)] {
        assert_eq!(
            RouteTable::new(&routes).find("", b"/a", &Method::HEAD),
            RouteLookup::Route(expected)
        );
    }
}
