use http::HeaderValue;

use super::*;

fn name(text: &str) -> HeaderName {
    HeaderName::from_bytes(text.as_bytes()).unwrap()
}

fn edits(set: &str, remove: &str) -> HeaderEdits {
    HeaderEdits {
        set: vec![(name(set), HeaderValue::from_static("1"))],
        remove: vec![name(remove)],
    }
}

/// A route of a configuration that uses everything, and one of a configuration that uses nothing.
fn routes() -> [RouteFields; 2] {
    let rules = FieldRules {
        identity_names: vec![name("x-user-id"), name("x_plan")],
        address_header: Some(name("x-edge-ip")),
        key_headers: vec![name("x-api-key"), name("x_tenant_id"), name("x-edge-ip")],
        key_header_aliases: vec!["x-tenant-id".to_owned()],
        by_method: true,
        degrades: true,
        warns: true,
        has_ids: true,
    };
    let everything = RouteFields {
        rules: Arc::new(rules),
        request_edits: edits("x-tier", "x-internal"),
        response_edits: edits("x-served-by", "x-powered-by"),
    };
    [everything, RouteFields::default()]
}

/// Names that mean something to the gateway, or to one of these routes.
const NAMES: [&str; 58] = [
    "host",
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "content-length",
    "expect",
    "via",
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
    "x-forwarded-port",
    "proxy",
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "x-method",
    "authorization",
    "cookie",
    "content-type",
    "content-encoding",
    "x-request-id",
    "traceparent",
    "tracestate",
    "x-weir-degraded",
    "x-weir-warning",
    "client-ip",
    "true-client-ip",
    "cf-connecting-ip",
    "remote-user",
    "front-end-https",
    "x-real-ip",
    "x-client-ip",
    "x-original-url",
    "x-original-method",
    "x-rewrite-url",
    "x-host",
    "x-scheme",
    "x-ssl-client-cert",
    "x-user-id",
    "x-plan",
    "x-edge-ip",
    "x-api-key",
    "x-tenant-id",
    "x-tier",
    "x-internal",
    "x-served-by",
    "x-powered-by",
    "accept",
    "user-agent",
    "x-note",
    "grpc-status",
    "server-timing",
];

/// As it is, with every `-` as `_`, and with one of them.
fn spellings(text: &str) -> [HeaderName; 3] {
    [text.to_owned(), text.replace('-', "_"), text.replacen('-', "_", 1)].map(|it| name(&it))
}

fn passes_behind_body(route: &RouteFields, name: &HeaderName) -> [bool; 2] {
    let clean: [fn(&RouteFields, &mut HeaderMap); 2] =
        [RouteFields::clean_request_trailers, RouteFields::clean_response_trailers];
    clean.map(|clean| {
        let mut trailers = HeaderMap::new();
        trailers.insert(name, HeaderValue::from_static("1"));
        clean(route, &mut trailers);
        !trailers.is_empty()
    })
}

#[test]
fn what_a_route_edits_is_withheld_in_its_other_spellings() {
    let sender = HeadSender { is_trusted: true, listed: &[] };
    let route =
        RouteFields { request_edits: edits("x_source", "x-secret-key"), ..RouteFields::default() };
    for alias in ["x-source", "x_secret-key", "x_secret_key", "x-secret_key"] {
        assert!(route.is_withheld(&name(alias), sender), "{alias}");
    }
    // The edit itself replaces these.
    for own in ["x_source", "x-secret-key", "x-other"] {
        assert!(!route.is_withheld(&name(own), sender), "{own}");
    }
}

#[test]
fn what_is_withheld_in_the_head_is_withheld_behind_the_body() {
    for route in routes() {
        let (mut withheld, mut passed) = (0, 0);
        for name in NAMES.iter().flat_map(|it| spellings(it)) {
            let edits = &route.request_edits;
            let in_head = !route.is_withheld(&name, ANY_CLIENT)
                && !edits.names().any(|edited| *edited == name);
            let [of_request, _] = passes_behind_body(&route, &name);
            assert!(in_head || !of_request, "{name} passes behind the body only");
            withheld += usize::from(!in_head);
            passed += usize::from(of_request);
        }
        assert!(withheld > 60 && passed >= 5, "{withheld} and {passed}");
    }
}

#[test]
fn what_is_removed_from_the_head_of_a_response_is_removed_behind_its_body() {
    let [route, _] = routes();
    for text in ["keep-alive", "proxy-connection", "te", "trailer", "upgrade", "x-weir-warning"] {
        assert!(!passes_behind_body(&route, &name(text))[1], "{text}");
    }
    // Each direction has the edits of its own.
    for (text, passes) in [
        ("x-tier", [false, true]),
        ("x_internal", [false, true]),
        ("x-served-by", [true, false]),
        ("x_powered_by", [true, false]),
    ] {
        assert_eq!(passes_behind_body(&route, &name(text)), passes, "{text}");
    }
}

#[test]
fn what_the_gateway_says_of_a_caller_or_its_limits_is_never_a_trailer() {
    for route in routes() {
        let kept = ["grpc-status", "grpc-message", "proxy-status", "server-timing", "x-note"];
        for text in kept {
            assert_eq!(passes_behind_body(&route, &name(text)), [true; 2], "{text}");
        }
        for text in FieldName::ALL.map(|it| it.header()) {
            let passes = kept.contains(&text.as_str());
            assert_eq!(passes_behind_body(&route, &text), [passes; 2], "{text}");
        }
        for text in ["x-request-id", "traceparent", "x-weir-other", "if-match", "set-cookie"] {
            assert_eq!(passes_behind_body(&route, &name(text)), [false; 2], "{text}");
        }
    }
    let [route, _] = routes();
    for text in ["x-user-id", "x_user_id", "x-plan", "x_plan", "x-api-key", "x_tenant_id"] {
        assert_eq!(passes_behind_body(&route, &name(text)), [false; 2], "{text}");
    }
}

#[test]
fn look_alikes_of_ids_and_hop_fields_are_withheld_in_the_head() {
    let [route, plain] = routes();
    for text in ["x_request_id", "proxy_authorization", "keep_alive", "x-user_id"] {
        assert!(route.is_withheld(&name(text), ANY_CLIENT), "{text}");
    }
    // Nobody's own: then it is a name like others.
    assert!(!plain.is_withheld(&name("x_request_id"), ANY_CLIENT));
    assert!(!route.is_withheld(&name("x_tenant_id"), ANY_CLIENT), "the one that is counted");
}
