use super::*;
use crate::route::TemplateInput;

fn pattern(prefix: bool) -> PathPattern {
    let segments = vec![Segment::Literal("a".into()), Segment::Parameter("id".into())];
    PathPattern { segments, prefix }
}

fn location(text: &str) -> Result<PathTemplate, ValueError> {
    let pattern = pattern(true);
    Builder::new(&pattern, Encoding::Uri, &["path", "query", "host"]).location(text)
}

fn rewrite(text: &str) -> Result<PathTemplate, ValueError> {
    Builder::new(&pattern(true), Encoding::AsIs, &[]).rewrite(text)
}

#[test]
fn a_location_has_parts_of_the_request() {
    let lead = |to: &str, path: &str, query: Option<&str>| {
        let template = location(to).unwrap_or_else(|error| panic!("{to}: {error:?}"));
        template.render(&TemplateInput { path, query, host: "api.example" })
    };
    for (to, expected) in [
        ("https://x.example{path}", "https://x.example/a/7/b/c"),
        ("https://x.example{path}?{query}", "https://x.example/a/7/b/c?q=1&r=%20"),
        (
            "https://x.example:8443/v2{path}?a=b&{query}",
            "https://x.example:8443/v2/a/7/b/c?a=b&q=1&r=%20",
        ),
        ("https://{host}{path}", "https://api.example/a/7/b/c"),
        ("https://{host}:8443/{*}", "https://api.example:8443/b/c"),
        ("http://[::1]:80/{id}", "http://[::1]:80/7"),
        ("https://x.example/?next={path}&id={id}", "https://x.example/?next=/a/7/b/c&id=7"),
        ("/login?to={*}#{id}", "/login?to=b/c#7"),
        ("/users/{id}", "/users/7"),
        ("/{*}", "/b/c"),
        ("{path}/x", "/a/7/b/c/x"),
        ("/fixed", "/fixed"),
        ("https://x.example", "https://x.example"),
    ] {
        assert_eq!(lead(to, "/a/7/b/c", Some("q=1&r=%20")), expected, "{to}");
    }
    assert_eq!(lead("https://x.example{path}?{query}", "/a/7", None), "https://x.example/a/7");
    assert_eq!(lead("/x?a=b&{query}", "/a/7", None), "/x?a=b");
    assert_eq!(lead("/{*}", "/a/7", None), "/");
    assert_eq!(lead("https://x.example/{*}", "/a/7", None), "https://x.example/");
    assert_eq!(lead("https://x.example/y/{*}", "/a/7", None), "https://x.example/y");
    assert_eq!(lead("https://x.example/y/{*}", "/a/7/", None), "https://x.example/y/");
}

#[test]
fn no_request_chooses_the_host_of_a_location() {
    for (to, expected) in [
        ("{id}", "is neither a URL nor a path"),
        ("{*}", "is neither a URL nor a path"),
        ("//{id}", "is neither a URL nor a path"),
        ("//x.example", "is neither a URL nor a path"),
        ("ftp://x.example", "is neither a URL nor a path"),
        ("{host}{path}", "is neither a URL nor a path"),
        ("https://{id}/", "has no host that is written out"),
        ("https://{id}.example/", "has no host that is written out"),
        ("https://x.example{id}", "has no host that is written out"),
        ("https://x.example{*}", "has no host that is written out"),
        ("https://{host}{id}", "has no host that is written out"),
        ("https://{host}.evil.example/", "has no host that is written out"),
        ("https://user@x.example/", "has no host that is written out"),
        ("https://x.example:0/", "has no host that is written out"),
        ("https:///x", "has no host that is written out"),
        ("/{path}", "has `{path}` behind a `/`"),
        ("https://x.example/{path}", "has `{path}` behind a `/`"),
        ("/{query}", "has `{query}` without a `?` before it"),
        ("/x{query}", "has `{query}` without a `?` before it"),
        ("/a{*}", "has `{*}` within a segment"),
        ("/{*}/b", "has `{*}` within a segment"),
        ("/{no}", "has a part that there is not: `{no}`"),
        ("/{", "has a brace without its partner"),
        ("/a}", "has a brace without its partner"),
        ("/{{id}}", "has a brace without its partner"),
        ("/a b", "holds ` `, which no URI may hold"),
        ("/a\r\nx: y", "which no URI may hold"),
        ("/\\x.example", "which no URI may hold"),
        ("/a%2", "has a bad percent-encoding"),
        ("/a/../b", "has an empty segment or one of dots"),
        ("/a//b", "has an empty segment or one of dots"),
    ] {
        let error = location(to).expect_err(to);
        assert!(error.message.contains(expected), "{to}: {error:?}");
    }
}

#[test]
fn a_rewrite_is_a_path_with_parameters() {
    let rewritten = |to: &str, path: &str| {
        let template = rewrite(to).unwrap_or_else(|error| panic!("{to}: {error:?}"));
        template.render(&TemplateInput { path, query: None, host: "" })
    };
    assert_eq!(rewritten("/v2/{id}", "/A/x%20y;v=1/b"), "/v2/x%20y;v=1");
    assert_eq!(rewritten("/v2/{id}/{*}", "/a/7/b/c/"), "/v2/7/b/c/");
    assert_eq!(rewritten("/v2/{id}/{*}", "/a/7"), "/v2/7");
    assert_eq!(rewritten("/{*}", "/a/7"), "/");
    assert_eq!(rewritten("/{*}", "/a/7/b"), "/b");
    assert_eq!(rewritten("/", "/a/7/b"), "/");
    assert_eq!(rewritten("/x-{id}.json", "/a/7/b"), "/x-7.json");
    for (to, expected) in [
        ("v2", "does not begin with one `/`"),
        ("//v2", "does not begin with one `/`"),
        ("/v2?x=1", "has a query or a fragment"),
        ("/v2/{path}", "has a part that there is not: `{path}`"),
        ("/v2/../x", "has an empty segment or one of dots"),
        ("/v2/{*}/x", "has `{*}` within a segment"),
    ] {
        let error = rewrite(to).expect_err(to);
        assert!(error.message.contains(expected), "{to}: {error:?}");
    }
    let exact = pattern(false);
    let error = Builder::new(&exact, Encoding::AsIs, &[]).rewrite("/{*}").expect_err("no rest");
    assert!(error.help.contains("`/*` at the end of `path`"), "{error:?}");
}
