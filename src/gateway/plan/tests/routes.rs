//! Which route a request takes, and what becomes of its path.

use super::*;
use crate::limit::key::KeyError;
use crate::route::PathError;

/// What is asked of the upstream or where a redirect leads, by the name of the route; or why not.
fn planned(compilation: &Compilation, uri: &str, fields: &[(&str, &str)]) -> Result<String, Fault> {
    let head = Head::new(Method::GET, uri, fields);
    let plan = head.plan(compilation.planner())?;
    Ok(format!("{} {}", plan.route.settings.name, plan.route.target))
}

/// The same as one text: a refusal by its status.
fn outcome(compilation: &Compilation, uri: &str) -> String {
    match planned(compilation, uri, &[("host", "shop.example")]) {
        Ok(text) => text,
        Err(fault) => fault.status().as_u16().to_string(),
    }
}

/// Every spelling counts as what an upstream may serve, or is refused: never anything else.
#[test]
fn no_spelling_of_a_path_finds_another_route_than_what_is_served() {
    let text = |keys: &str| {
        format!(
            "[[routes]]\nname = \"login\"\npath = \"/login\"\nupstream = \"echo\"\n{keys}\n\
             [[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"echo\"\n{keys}\n"
        )
    };
    let reject = text("");
    let keep = text("encoded_slash = \"keep\"");
    let raw = text("forward_path = \"as_received\"");
    let both = text("encoded_slash = \"keep\"\nforward_path = \"as_received\"");
    let all = [reject, keep, raw, both].map(|text| Compilation::of(&text));
    let no = "400";
    for (path, expected) in [
        ("/login", ["login /login"; 4]),
        ("/login?a=%2f", ["login /login?a=%2f"; 4]),
        ("/LOGIN", ["login /LOGIN"; 4]),
        ("/login/", ["login /login/"; 4]),
        ("/login;a", ["login /login;a"; 4]),
        ("//login", ["login /login", "login /login", no, no]),
        ("/x/../login", ["login /login", "login /login", no, no]),
        ("/./login", ["login /login", "login /login", no, no]),
        ("/login/.", ["login /login/", "login /login/", no, no]),
        ("/x/%2e%2e/login", ["login /login", "login /login", no, no]),
        ("/%6cogin", ["login /login", "login /login", "login /%6cogin", "login /%6cogin"]),
        ("/login%3Ba", ["login /login%3Ba"; 4]),
        (
            "/login%3ba",
            ["login /login%3Ba", "login /login%3Ba", "login /login%3ba", "login /login%3ba"],
        ),
        ("/login%2f", [no; 4]),
        ("/%2flogin", [no; 4]),
        ("/x%2f..%2flogin", [no; 4]),
        ("/x/..%2flogin", [no; 4]),
        ("/x%2f../login", [no; 4]),
        ("/login;%2f", [no; 4]),
        ("/login%5c", [no; 4]),
        ("/login%00", [no; 4]),
        ("/x/..;/login", [no; 4]),
        ("/..", [no; 4]),
        ("/a%2fb", [no, "all /a%2Fb", no, "all /a%2fb"]),
        ("/a%2Fb%2fc/d", [no, "all /a%2Fb%2Fc/d", no, "all /a%2Fb%2fc/d"]),
        ("/a%252fb", ["all /a%252fb"; 4]),
    ] {
        for (compilation, expected) in all.iter().zip(expected) {
            assert_eq!(outcome(compilation, path), expected, "{path}");
        }
    }
}

#[test]
fn an_escaped_slash_is_no_way_past_a_more_specific_route() {
    let text = |secret: &str| {
        format!(
            "[[routes]]\nname = \"project\"\npath = \"/projects/{{id}}\"\nupstream = \"echo\"\n\
             encoded_slash = \"keep\"\n\
             [[routes]]\nname = \"secret\"\npath = \"/projects/{{id}}/secret\"\n\
             upstream = \"echo\"\n{secret}\n\
             [[routes]]\nname = \"npm\"\npath = \"/npm/*\"\nupstream = \"echo\"\n\
             encoded_slash = \"keep\"\n\
             [[routes]]\nname = \"login\"\npath = \"/npm/api/login\"\nupstream = \"echo\"\n\
             [[routes]]\nname = \"rest\"\npath = \"/*\"\nupstream = \"echo\"\n"
        )
    };
    let compilation = Compilation::of(&text(""));
    for (path, expected) in [
        // The route for all paths is less specific, and does not matter.
        ("/projects/group%2Fname", "project /projects/group%2Fname"),
        ("/projects/group%2Fsub%2Fname", "project /projects/group%2Fsub%2Fname"),
        ("/npm/@scope%2fname", "npm /npm/@scope%2Fname"),
        ("/npm/api%2Fother", "npm /npm/api%2Fother"),
        // An upstream that decodes would serve these, which have limits of their own.
        ("/projects/1%2Fsecret", "400"),
        ("/npm/api%2Flogin", "400"),
        ("/npm/API%2fLogin", "400"),
        // Their own routes do not keep it.
        ("/projects/1%2F2/secret", "400"),
        ("/other%2Fpath", "400"),
        ("/projects%2F1", "400"),
    ] {
        assert_eq!(outcome(&compilation, path), expected, "{path}");
    }
    // If the other route keeps it as well, the upstream takes it for part of a segment everywhere.
    let compilation = Compilation::of(&text("encoded_slash = \"keep\""));
    assert_eq!(outcome(&compilation, "/projects/1%2Fsecret"), "project /projects/1%2Fsecret");
    assert_eq!(outcome(&compilation, "/projects/1%2F2/secret"), "secret /projects/1%2F2/secret");
}

#[test]
fn a_rewrite_puts_parameters_into_another_path_and_keeps_the_query() {
    let compilation = Compilation::of(
        "[[routes]]\nname = \"users\"\npath = \"/users/{id}/*\"\nupstream = \"echo\"\n\
         rewrite = \"/v2/accounts/{id}/{*}\"\nencoded_slash = \"keep\"\n",
    );
    for (path, expected) in [
        ("/users/7", "users /v2/accounts/7"),
        ("/users/7/", "users /v2/accounts/7/"),
        ("/USERS/Ann%20B/x/../Y?q=%20", "users /v2/accounts/Ann%20B/Y?q=%20"),
        ("//users//%37/a;b", "users /v2/accounts/7/a;b"),
        ("/users/a%2fb/c%2Fd", "users /v2/accounts/a%2Fb/c%2Fd"),
        ("/users/%3F%23", "users /v2/accounts/%3F%23"),
        ("/users", "404"),
    ] {
        assert_eq!(outcome(&compilation, path), expected, "{path}");
    }
}

#[test]
fn a_redirect_never_leads_to_a_host_that_the_path_names() {
    let compilation = Compilation::of(
        "[[routes]]\nname = \"all\"\npath = \"/*\"\nredirect = { to = \"{path}?{query}\" }\n\
         [[routes]]\nname = \"rest\"\npath = \"/go/*\"\nredirect = { to = \"/{*}\" }\n\
         [[routes]]\nname = \"id\"\npath = \"/id/{id}\"\nredirect = { to = \"/{id}\" }\n\
         [[routes]]\nname = \"tls\"\npath = \"/tls/*\"\n\
         redirect = { to = \"https://{host}{path}?{query}\" }\n",
    );
    for (path, expected) in [
        ("/a?b=c", "all /a?b=c"),
        ("//evil.example/x", "all /evil.example/x"),
        ("///evil.example", "all /evil.example"),
        ("/.//evil.example", "all /evil.example"),
        ("/go//evil.example", "rest /evil.example"),
        ("/go", "rest /"),
        ("/go/https://evil.example", "rest /https:/evil.example"),
        ("/id/evil.example", "id /evil.example"),
        ("/id/%0d%0ax", "400"),
        ("/id/%2Fevil.example", "400"),
        ("/tls/a%20b?x=%0d%0ay", "tls https://shop.example/tls/a%20b?x=%0d%0ay"),
    ] {
        assert_eq!(outcome(&compilation, path), expected, "{path}");
    }
    let asked = |host| planned(&compilation, "/tls/", &[("host", host)]);
    assert_eq!(asked("Shop.Example.:8080").expect("a plan"), "tls https://shop.example/tls/");
    assert!(matches!(planned(&compilation, "/tls/", &[]), Err(Fault::Target(_))));
}

#[test]
fn conditions_are_part_of_why_a_route_was_taken() {
    let compilation = Compilation::of(
        "[[routes]]\nname = \"beta\"\npath = \"/*\"\nupstream = \"echo\"\n\
         headers = { x-beta = \"*\" }\nquery = { v = [\"2\", \"3*\"] }\n\
         [[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"echo\"\n",
    );
    let head = Head::new(Method::GET, "/?v=31", &[("x-beta", "yes")]);
    let plan = head.plan(compilation.planner()).expect("a plan");
    assert_eq!(plan.route.settings.name, "beta");
    assert_eq!(plan.route.reason().conditions.len(), 2);
    for (uri, fields) in [("/?v=4", &[("x-beta", "1")][..]), ("/?v=2", &[]), ("/", &[])] {
        assert_eq!(planned(&compilation, uri, fields).expect("a plan"), format!("all {uri}"));
    }
    let doubled = planned(&compilation, "/", &[("x-beta", "1"), ("x-beta", "1")]);
    assert!(matches!(doubled, Err(Fault::Key(KeyError::Ambiguous(_)))), "{doubled:?}");
}

#[test]
fn paths_that_are_refused_say_why() {
    let compilation = Compilation::of(
        "[[routes]]\nname = \"raw\"\npath = \"/*\"\nupstream = \"echo\"\n\
         forward_path = \"as_received\"\n",
    );
    for (uri, error) in [("/a/../b", PathError::Unresolved), ("/a%2Fb", PathError::ForbiddenEscape)]
    {
        let refused = planned(&compilation, uri, &[]);
        assert!(matches!(&refused, Err(Fault::Path(it)) if *it == error), "{refused:?}");
    }
    // A target without a path has one all the same.
    assert_eq!(planned(&compilation, "http://a?b", &[]).expect("a plan"), "raw /?b");
}

#[test]
fn upstreams_are_told_of_callers_on_routes_without_limits() {
    let compilation = Compilation::of(
        "[identity]\nuser = \"header:x-user\"\nclient = \"query:key\"\ntenant = \"header:x-tenant\"\n\
         plan = \"header:x-plan\"\n\
         forward = { user = \"x-user\", client = \"x-client-id\", tenant = \"x_tenant_id\", ip = \"x-ip\" }\n\
         [[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"echo\"\n\
         [[routes]]\nname = \"own\"\npath = \"/own\"\nrespond = { status = 204 }\n",
    );
    let told = |uri: &str, fields: &[(&str, &str)]| -> Vec<String> {
        let head = Head::new(Method::GET, uri, fields);
        let plan = head.plan(compilation.planner()).expect("a plan");
        let field = |(name, value): &(HeaderName, HeaderValue)| {
            format!("{name}: {}", value.to_str().expect("a text"))
        };
        plan.caller.identity.iter().map(field).collect()
    };
    assert_eq!(told("/", &[]), ["x-ip: 10.0.0.1"]);
    assert_eq!(
        told("/?key=a%20b", &[("x-user", "ann"), ("x-plan", "pro")]),
        ["x-user: ann", "x-client-id: a%20b", "x-ip: 10.0.0.1"]
    );
    assert!(compilation.compiled.needs[0].names.user);
    assert!(!compilation.compiled.needs[1].names.user, "nobody is told there");
}
