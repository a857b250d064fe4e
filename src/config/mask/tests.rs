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

/// Lines of one text each, and of what they must not show.
#[test]
fn the_value_of_a_secret_is_hidden_whatever_stands_before_it() {
    let below = |header: &str, line: &str| format!("{header}\n{line}");
    let lines = [
        r#"password "hunter2Zq""#,
        "password hunter2Zq",
        r#"password"hunter2Zq""#,
        r#"'password' => 'hunter2Zq',"#,
        r#"["password"] = "hunter2Zq""#,
        r#""{\"password\":\"hunter2Zq\"}""#,
        r#"--password=hunter2Zq"#,
        r#"key_hash "hunter2Zq""#,
        r#"token "hunter2Zq""#,
        r#"secret "hunter2Zq""#,
        r#"secret_env "hunter2Zq""#,
        r#"password = # "hunter2Zq""#,
        "requirepass hunter2Zq",
        "requirepass #hunter2Zq",
        "user weir on >hunter2Zq ~weir:*",
        "auth hunter2Zq",
        r#"proxy_set_header Authorization "Bearer hunter2Zq";"#,
        r#"proxy_set_header X-Api-Key "hunter2Zq";"#,
        "auth_pass: hunter2Zq",
        "masterauth: hunter2Zq",
        r#"pass = "hunter2Zq""#,
        r#"pwd = "hunter2Zq""#,
        r#"requirepass = "hunter2Zq""#,
        r#"auth = "hunter2Zq""#,
        r#"sentinel = { master = "m", auth = "hunter2Zq" }"#,
        r#"credential = "hunter2Zq""#,
        r#"credentials = "hunter2Zq""#,
        r#"passphrase = "hunter2Zq""#,
        r#"access_key = "hunter2Zq""#,
        r#"secret-key = "hunter2Zq""#,
        r#"signingKey = "hunter2Zq""#,
        r#"hmac = "hunter2Zq""#,
        r#"bearer = "hunter2Zq""#,
        r#"auth = { bearer = "hunter2Zq" }"#,
        r#"basic_auth = "me:hunter2Zq""#,
        r#"set = { "x-auth" = "hunter2Zq" }"#,
        r#"set = { "cookie" = "sid=hunter2Zq" }"#,
        r#"set = { "set-cookie" = "hunter2Zq" }"#,
        r#"clients = [{ id = "a", key = "hunter2Zq" }]"#,
        r#"hash = "hunter2Zq""#,
        r#"url = "redis://h/0?auth=hunter2Zq""#,
        r#"url = "redis://h/0?user=a&pass=hunter2Zq""#,
        r#"url = "redis://h/0?x=hunter2Zq""#,
        r#"url = "redis://h:6379/hunter2Zq""#,
        r#"url = "redis://me:hunter2Zq""#,
        r#"url = "redis://me:99hunter2Zq/0""#,
        r#"url = "redis://:hunter2Zq/0""#,
        r#"url = "rediss://[::1]:hunter2Zq/0""#,
        r#"url = ["redis://me:x@a/0", "redis://b/hunter2Zq"]"#,
        r#"url = "redis://me:x@a/hunter2Zq""#,
        r#"url = "redis://me:hunter2Zq' token: hunter2Zq@a""#,
        r#"pem_file = "-----BEGIN PRIVATE KEY-----\nhunter2Zq\n-----END PRIVATE KEY-----""#,
        r#"jwks_file = '{"keys":[{"k":"hunter2Zq"}]}'"#,
        r#"secret_file = """-----BEGIN hunter2Zq""#,
    ];
    let texts = [
        "password =\n\"hunter2Zq\"\nworkers = 3",
        "password = # mine\n\n  \"hunter2Zq\"",
        "password =\n# mine\n\"hunter2Zq\"",
        "pem_file = \"\"\"\nhunter2Zq\"\"\"",
        "secret_file = \"\"\"\nhunter2Zq\"\"\"",
        "password = \"\"\"\nhunter2Zq\nhunter2Zq\"\"\"\nworkers = 3",
        "password =\n\"\"\"\nhunter2Zq\n\"\"\"",
        "password = \"hunter2Zq\nhunter2Zq\nworkers = 3",
        "password:\n  hunter2Zq",
        "password:\nhunter2Zq==",
        "password: >\n  hunter2Zq\n  hunter2Zq\nworkers = 3",
        "password: |-\n  hunter2Zq",
        "api_keys:\n  - hunter2Zq\n  - hunter2Zq",
        "tokens = [\n \"hunter]2Zq\",\n \"hunter2Zq\",\n]\nworkers = 3",
        "auth = {\n a = { b = \"hunter2Zq\" },\n c = \"hunter2Zq\"\n}",
        "pem_file = \"\"\"-----BEGIN PRIVATE KEY-----\nhunter2Zq\n-----END PRIVATE KEY-----\"\"\"",
        "-----BEGIN PRIVATE KEY-----\nhunter2Zq",
        "clients = [\n  { id = \"a\", keys = [\"hunter2Zq\"] },\n]",
        "clients:\n  - id: a\n    key: hunter2Zq",
    ];
    let in_tables = [
        below("[admin]", r#"users = ["admin:$apr1$hunter2Zq"]"#),
        below("[identity.jwt]", r#"key = "hunter2Zq""#),
        below("[[clients]]", "key: hunter2Zq"),
        below("[[clients]]", r#"key = "hunter2Zq""#),
        below("[[clients]]", r#"keys = ["hunter2Zq"]"#),
        below("[[clients]] # mine", r#"key "hunter2Zq""#),
        below("[ \"clients\" ]", r#"key = "hunter2Zq""#),
    ];
    let lines = lines.into_iter().chain(texts).map(str::to_owned).chain(in_tables);
    for text in lines {
        let shown = mask(&text);
        assert!(!shown.contains("unter") && shown.contains(PLACEHOLDER), "{text}\n{shown}");
        assert_eq!(shown.contains("workers = 3"), text.contains("workers = 3"), "{text}\n{shown}");
    }
}

#[test]
fn what_limits_count_by_and_other_lines_without_a_secret_stay_as_they_are() {
    for same in [
        "[limits.a]\nkey = \"ip\"",
        "[limits.a]\nkey = \"header:x-api-key\"\nrate = \"1/second\"",
        "[limits.a]\nkey = \"hedaer:x\"",
        "[guards.flood]\nkey = [\"header:authorization\", \"ip\"]",
        "[limit.a]\nkey = [ \"cookie:token\", \"ip\" ]",
        "[limits]\nauth = { key = \"ip\", rate = \"1/second\" }",
        "[limits.a.plans]\ntokens = { rate = \"1/second\" }",
        "limits.per-key.key = \"ip\"",
        "[limits]\nper-key = { key = \"ipp\", rate = \"1/second\" }",
        "limits:\n  a:\n    key: ip",
        "[upstreams.auth]\nservers = [\"http://auth/\"]\nbalance = \"hash:cookie:session\"",
        "balance: hash:ip",
        "[limits.a]\nkey = \"header:x-api-key\" x",
        "[server]\ntls = [\n { cert = \"c.pem\", key = \"k.pem\" },\n]",
        "[store.tls]\nkey = \"/etc/weir/redis.key\"",
        "[upstreams.u]\ntls.key = \"k.pem\"",
        "client_auth = \"required\"",
        "max_keys = 5",
        "password_file = \"/etc/weir/redis-password\"",
        "secret_file = \"jwt-secret\"",
        "pem_file = \"jwt.pem\"",
        "clients_file = [\"a.toml\", \"b.toml\"]",
        "name = \"auth\" # the login",
        "{ name = \"token\", path = \"/auth/*\" }",
        "limits = [ \"auth\", \"token\" ]",
        "[[routes]]\nlimits = [\"api-key\"]",
        "encoded_slash = \"keep\"",
        "keepalive = 64",
        "url = \"redis://[::1]:6379/15\"",
        "url = [\"redis://a\", \"rediss:///0\"]",
        "description = \"Failed logins of one user, by address.\"",
        "# the password\nkey = \"ip\"",
        "# the tokens:\n  key = \"ip\"",
    ] {
        assert_eq!(mask(same), same);
    }
}

#[test]
fn no_live_line_of_the_reference_is_hidden() {
    let reference = include_str!("../../../config/reference.toml");
    let bare: Vec<&str> = reference.lines().filter(|it| !it.starts_with("# ")).collect();
    let text = bare.join("\n").replace("\n#", "\n");
    let shown = mask(&text);
    let hidden = text.lines().zip(shown.lines()).filter(|(line, shown)| line != shown);
    assert_eq!(hidden.collect::<Vec<_>>(), []);
}
