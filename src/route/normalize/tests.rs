use super::*;

#[test]
fn every_spelling_of_a_path_matches_the_same_route() {
    for (path, forward, matched) in [
        ("/", "/", ""),
        ("/login", "/login", "/login"),
        ("/login/", "/login/", "/login"),
        ("//login", "/login", "/login"),
        ("/%6cogin", "/login", "/login"),
        ("/%6Cogin", "/login", "/login"),
        ("/x/../login", "/login", "/login"),
        ("/x/%2e%2E/login", "/login", "/login"),
        ("/./login/.", "/login/", "/login"),
        ("/x/y/..", "/x/", "/x"),
        ("/login;a=b", "/login;a=b", "/login"),
        ("/login%3ba", "/login%3Ba", "/login"),
        ("/LOGIN", "/LOGIN", "/login"),
        ("/a%20b", "/a%20b", "/a b"),
        ("/a%2541", "/a%2541", "/a%41"),
        ("/%c3%a9", "/%C3%A9", "/é"),
        ("/...", "/...", "/..."),
        ("/.well-known/x", "/.well-known/x", "/.well-known/x"),
    ] {
        let normal = normalize(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(normal.forward, forward, "{path}");
        assert_eq!(normal.matched.as_bytes(), matched.as_bytes(), "{path}");
    }
}

#[test]
fn ambiguous_paths_are_refused() {
    for (path, error) in [
        ("*", PathError::NotAbsolute),
        ("", PathError::NotAbsolute),
        ("/login%2f", PathError::ForbiddenEscape),
        ("/%2Flogin", PathError::ForbiddenEscape),
        ("/a%2F%2Fb", PathError::ForbiddenEscape),
        ("/x%2f..%2flogin", PathError::ForbiddenEscape),
        ("/x%2F%2e%2E%2Flogin", PathError::ForbiddenEscape),
        ("/x%2F.", PathError::ForbiddenEscape),
        ("/x%2F..;a", PathError::ForbiddenEscape),
        ("/x;a%2Fb", PathError::ForbiddenEscape),
        ("/x%3ba%2Fb", PathError::ForbiddenEscape),
        ("/a%5cb", PathError::ForbiddenEscape),
        ("/a%00", PathError::ForbiddenEscape),
        ("/a%0d", PathError::ForbiddenEscape),
        ("/%c0%ae%c0%ae/x", PathError::ForbiddenEscape),
        ("/%e0%80%ae/x", PathError::ForbiddenEscape),
        ("/a\\b", PathError::ForbiddenCharacter),
        ("/a%", PathError::BadEscape),
        ("/a%4", PathError::BadEscape),
        ("/a%zz", PathError::BadEscape),
        ("/..", PathError::AboveRoot),
        ("/a/../../b", PathError::AboveRoot),
        ("/x/..;/login", PathError::HollowSegment),
        ("/x/%2e.;a/login", PathError::HollowSegment),
        ("/;a/login", PathError::HollowSegment),
    ] {
        assert_eq!(normalize(path), Err(error), "{path}");
    }
}

#[test]
fn a_normal_path_stays_as_it_is() {
    for path in ["/a%20b/", "/%C3%A9;x", "/A/b.c/~d"] {
        let once = normalize(path).unwrap().forward.into_owned();
        assert_eq!(normalize(&once).unwrap().forward, once);
    }
}

#[test]
fn an_escaped_slash_is_marked_and_stays_in_its_segment() {
    for (path, forward, plain) in [
        ("/@scope%2fname", "/@scope%2Fname", "/@scope/name"),
        ("/projects/Group%2FName;v=1/x", "/projects/Group%2FName;v=1/x", "/projects/group/name/x"),
        ("/a/../b%2Fc/", "/b%2Fc/", "/b/c"),
    ] {
        let normal = normalize(path).expect(path);
        assert!(normal.has_escaped_slash, "{path}");
        assert_eq!(normal.forward, forward);
        assert_eq!(normal.matched.with_plain_slashes().as_slice(), plain.as_bytes());
    }
    // What was escaped twice is no slash.
    let twice = normalize("/a%252fb").expect("a good path");
    assert!(!twice.has_escaped_slash && !twice.matched.as_bytes().contains(&ESCAPED_SLASH));
}

#[test]
fn a_path_says_whether_anything_in_it_was_resolved() {
    for (path, expected) in [
        ("/", false),
        ("/a/", false),
        ("/%61/B;c/", false),
        ("//a", true),
        ("/A//", true),
        ("/A/.", true),
        ("/./A", true),
        ("/b/../A", true),
        ("/A/%2e%2e", true),
    ] {
        assert_eq!(normalize(path).expect(path).is_resolved, expected, "{path}");
    }
}
