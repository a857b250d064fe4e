use super::*;

#[test]
fn passwords_are_hidden_and_the_rest_is_not() {
    for (written, shown) in [
        (r#"url = "redis://me:secret@host:1/0""#, r#"url = "redis://me:***@host:1/0""#),
        (r#"url = "redis://:secret@host""#, r#"url = "redis://:***@host""#),
        (r#"url = "redis://secret@host""#, r#"url = "redis://***@host""#),
        (r#"url = "rediss://me:se/c?r#e:t@@host""#, r#"url = "rediss://me:***@host""#),
        (r#"url = "redis://me:it's "secret"@host"#, r#"url = "redis://me:***@host"#),
        (r#"url = "redis://me:s://cret@host""#, r#"url = "redis://me:***@host""#),
        (r#"url = "redis://me:s@://cret@host""#, r#"url = "redis://me:***@host""#),
        (r#"url = redis://me:secret@host"#, r#"url = redis://me:***@host"#),
        (r#"url = "me:secret@host""#, r#"url = "me:***@host""#),
        (r#"url = "redis:/me:secret@host""#, r#"url = "redis:***@host""#),
        (
            r#"url = ["redis://a:secret@b", "redis://c:secret@d"] # redis://e:secret@f"#,
            r#"url = ["redis://a:***@b", "redis://c:***@d"] # redis://e:***@f"#,
        ),
        (r#"password = "secret""#, r#"password = "***""#),
        (r#"{ url = "x://a:secret@b", "password"='secret' }"#, {
            r#"{ url = "x://a:***@b", "password"='***"#
        }),
        (r#"secret = "secret""#, r#"secret = "***""#),
        ("password: secret", "password: ***"),
        ("PASSWORD: secret", "PASSWORD: ***"),
        (r#"token_env = "secret""#, r#"token_env = "***""#),
        ("passwd = secret", "passwd = ***"),
        ("apiKey: secret", "apiKey: ***"),
        (
            r#"request_headers = { "X-Api-Key" = "secret" }"#,
            r#"request_headers = { "X-Api-Key" = "***"#,
        ),
        (r#"  "password" : 'secret'"#, r#"  "password" : '***'"#),
        ("secret: secret # secret", "secret: ***"),
        ("key_hash: secret", "key_hash: ***"),
        (r#"token = "secret""#, r#"token = "***""#),
        (r#"key_hash = "secret""#, r#"key_hash = "***""#),
        (r#"key_hash = "sha256:secret""#, r#"key_hash = "***""#),
        (r#"{ key_hash = "sha256:0a", password = "secret" }"#, {
            r#"{ key_hash = "sha256:0a", password = "***"#
        }),
        (r#"key = "weir_a-secret_0123456789", b = 1"#, r#"key = "***", b = 1"#),
        ("http://a:weir_a-secret_0123456789@b", "http://a:***@b"),
    ] {
        assert_eq!(mask(written), shown);
        assert!(!mask(written).replace("secret =", "").replace("secret:", "").contains("secret"));
    }
    for same in [
        "",
        r#"url = "redis://host:6379/0""#,
        r#"path = "/@me/*""#,
        r#"password_env = "NAME""#,
        r#"secret_env = "NAME""#,
        r#"password = """#,
        "# the password",
        "key_hash: sha256:0aF9",
        r#"token_env = "NAME""#,
        r#"algorithm = "token_bucket""#,
        r#"client = ["header:x-token", "query:secret", "form:password"]"#,
        r#"client = ["header:x-api-key", "basic:user"]"#,
        r#"tls = { cert = "cert.pem", key = "key.pem" }"#,
        r#"key_hash = "sha256:0aF9" # mine"#,
        r#"prefix = "weir_production""#,
        "redis://@host",
    ] {
        assert_eq!(mask(same), same);
    }
}

#[test]
fn spans_follow_what_they_point_at() {
    let text = "a = 1\nurl = \"redis://me:secret@host\" # ü\nlist = [\"x://u:pw@h\", 5]\nb = 2\n";
    let mask = SecretMask::of(text);
    let shown = mask.apply(text).into_owned();
    let span = |text: &str, word: &str| {
        let start = text.find(word).expect("it is there");
        start..start + word.len()
    };
    for word in ["a = 1", "url", "@host", "# ü", "5", "b = 2", "x://u:"] {
        assert_eq!(mask.shift(&span(text, word)), span(&shown, word), "{word}");
        assert!(!mask.touches(&span(text, word)), "{word}");
    }
    // What points into a password points at what stands in for it.
    let start = shown.find(PLACEHOLDER).expect("one is hidden");
    assert_eq!(mask.shift(&span(text, "ecre")), start..start + PLACEHOLDER.len());
    assert!(mask.touches(&span(text, "ecre")) && mask.touches(&span(text, ":s")));
    let end = text.len()..text.len();
    assert_eq!(mask.shift(&end), shown.len()..shown.len());
}
