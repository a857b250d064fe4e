use super::*;

fn literal(text: &str) -> Segment {
    Segment::Literal(text.to_owned())
}

#[test]
fn paths_are_kept_as_they_are_compared() {
    let segments = |text| parse(text).map(|it| (it.segments, it.prefix));
    assert_eq!(segments("/"), Ok((vec![], false)));
    assert_eq!(segments("/*"), Ok((vec![], true)));
    assert_eq!(segments("/API/v1/"), Ok((vec![literal("api"), literal("v1")], false)));
    assert_eq!(segments("/api/*"), Ok((vec![literal("api")], true)));
    assert_eq!(segments("/%6cogin"), Ok((vec![literal("login")], false)));
    assert_eq!(segments("/caf%C3%A9"), Ok((vec![literal("café")], false)));
    let id = Segment::Parameter("id".to_owned());
    assert_eq!(segments("/u/{id}/x"), Ok((vec![literal("u"), id, literal("x")], false)));
}

#[test]
fn regular_expressions_are_told_what_paths_can_be() {
    for wrong in
        ["^/api/.*$", "/api/.*", "~ ^/api", "/users/[0-9]+", "/(a|b)", "/u/\\d+", "^/$", "/a$"]
    {
        let ValueError { message, help } = parse(wrong).expect_err("refused");
        assert!(message.contains("regular expression"), "{wrong}: {message}");
        assert!(!help.contains("write `\"/^"), "{help}");
    }
}

#[test]
fn what_is_suggested_is_never_another_fault() {
    for (wrong, meant) in [("api", "`/api`"), ("api/*", "`/api/*`"), ("a b", "`\"/*\"`")] {
        let ValueError { help, .. } = parse(wrong).expect_err("refused");
        assert!(help.contains(meant), "{wrong}: {help}");
    }
}

#[test]
fn paths_that_could_match_nothing_are_refused() {
    for wrong in [
        "",
        "*",
        "api",
        "//",
        "//*",
        "/a//b",
        "/a/../b",
        "/.",
        "/%2e%2e/a",
        "/a;b",
        "/a%3Bb",
        "/a?b",
        "/a#b",
        "/a%2Fb",
        "/a%5cb",
        "/a%00",
        "/a b",
        "/a*",
        "/*/a",
        "/a/*/b",
        "/{",
        "/{}",
        "/{1a}",
        "/a{b}",
        "/{a}{b}",
        "/{*rest}",
        "/{a}/{a}",
        "/%",
        "/%4",
        "/%zz",
        "/%ff",
        "/a\\b",
        "/é\u{7f}",
    ] {
        assert!(parse(wrong).is_err(), "{wrong:?}");
    }
}
