//! `Authorization` in one spelling: whatever else an upstream might read there is refused, and is
//! never nobody.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE};

use crate::support::issuer::{bearer, claims};
use crate::support::{Config, Issuer, Response, Scratch, Upstream, Weir, get_with};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// One request a day for each user or client that is known, and no limit for others, so that it
/// shows if somebody is not known. `mallory` is kept out.
fn gateway(upstream: &Upstream, identity: &str) -> Weir {
    gateway_with_keys(upstream, "secret_file", SECRET, identity)
}

/// The same with the keys of tokens in a file, which `setting` names.
fn gateway_with_keys(upstream: &Upstream, setting: &str, keys: &str, identity: &str) -> Weir {
    let once =
        |key: &str| format!("key = \"{key}\"\nrate = \"1/day\"\nburst = 1\nmissing = \"skip\"");
    let config = Config::to(upstream)
        .open()
        .add_limit("user", &once("user"))
        .add_limit("client", &once("client"))
        .route("user", "/user", &["user"])
        .route("client", "/client", &["client"])
        .route("open", "/open", &[]);
    let scratch = Scratch::new();
    let keys = scratch.file("jwt-keys", keys);
    let identity = format!(
        "[identity]\nuser = \"jwt:sub\"\nclient = [\"header:x-api-key\", \"basic:user\"]\n\
         [identity.jwt]\n{setting} = {keys:?}\n{identity}"
    );
    let text = config.also(&identity).text();
    let file = scratch.file("weir.toml", &text);
    Weir::start_from(scratch, file)
}

fn token(user: &str) -> String {
    Issuer::secret("s", SECRET.as_bytes()).token(&claims(user))
}

fn ask(weir: &Weir, target: &str, lines: impl AsRef<[u8]>) -> Response {
    let head = get_with(target, "");
    let head = head.strip_suffix("\r\n").unwrap();
    weir.ask([head.as_bytes(), lines.as_ref(), b"\r\n"].concat())
}

#[track_caller]
fn is_malformed(weir: &Weir, target: &str, lines: impl AsRef<[u8]>) {
    let lines = lines.as_ref();
    let response = ask(weir, target, lines);
    let told = (response.status, response.error());
    assert_eq!(told, (400, "bad_request".into()), "{target} {}", lines.escape_ascii());
}

#[test]
fn second_authorization_header_does_not_hide_a_denied_caller() {
    let upstream = Upstream::ok();
    let weir = gateway(&upstream, "[access]\ndeny = { user = [\"mallory\"] }");
    let mallory = bearer(&token("mallory"));
    let lines = [
        mallory.repeat(2),
        format!("Authorization: x\r\n{mallory}"),
        format!("{mallory}Authorization: x\r\n"),
        format!("{mallory}authorization:\r\n"),
        format!("{mallory}Authorization: Basic YTpi\r\n"),
    ];
    for target in ["/user", "/client", "/open"] {
        assert_eq!(ask(&weir, target, &mallory).status, 403, "{target}");
        for lines in &lines {
            is_malformed(&weir, target, lines);
        }
    }
    assert_eq!(upstream.heads(), 0);
}

#[test]
fn two_values_of_one_source_are_refused_even_where_unused() {
    let upstream = Upstream::ok();
    // Neither a token nor a client is asked for on this route.
    let weir = gateway(&upstream, "");
    is_malformed(&weir, "/open", "Authorization: Basic YTpi\r\nAuthorization: Basic YTpi\r\n");
    is_malformed(&weir, "/open", "X-Api-Key: a\r\nAuthorization: Digest a\r\nX-Api-Key: a\r\n");
    let plain = Weir::start(&Config::to(&upstream).open());
    is_malformed(&plain, "/", "Authorization: x\r\nAuthorization: y\r\n");
    assert_eq!(upstream.heads(), 0);
    // Headers that may be repeated still may.
    assert_eq!(ask(&weir, "/open", "Accept: a/b\r\nAccept: c/d\r\nCookie: a=b\r\n").status, 200);
    assert_eq!(ask(&plain, "/", "X-Api-Key: a\r\nX-Api-Key: b\r\n").status, 200);
}

#[test]
fn bearer_token_has_one_accepted_spelling() {
    let upstream = Upstream::ok();
    let weir = gateway(&upstream, "");
    for (user, scheme) in [("ann", "Bearer"), ("ben", "bearer"), ("cid", "BEARER")] {
        let line = format!("Authorization: {scheme} {}\r\n", token(user));
        let statuses = [(); 2].map(|()| ask(&weir, "/user", &line).status);
        assert_eq!(statuses, [200, 429], "{scheme}");
    }
    let before = upstream.heads();
    let token = token("eve");
    let spellings = [
        format!("Bearer\t{token}"),
        format!("Bearer  {token}"),
        format!("Bearer \t{token}"),
        format!("Bearer{token}"),
        format!("Bearer: {token}"),
        format!("Bearer={token}"),
        format!("Bearer \"{token}\""),
        format!("\"Bearer {token}\""),
        format!("Bearer {token},"),
        format!("Bearer {token} x"),
        format!("Bearer {token}\tx"),
        format!("Bearer {token};x=y"),
        format!("Bearer token={token}"),
        format!("Bearer {token}, Bearer {token}"),
        format!("Basic YTpi, Bearer {token}"),
        format!("Digest a=b,bearer {token}"),
        format!("x Bearer {token}"),
        format!(",Bearer {token}"),
        // Without its scheme, or under another: to an upstream that cuts off `Bearer`, the same.
        token.clone(),
        format!("Token {token}"),
        format!("JWT {token}"),
        format!("DPoP {token}"),
        format!("Token token=\"{token}\""),
        "Bearer".to_owned(),
        "Bearer =".to_owned(),
    ];
    for spelling in &spellings {
        is_malformed(&weir, "/user", format!("Authorization: {spelling}\r\n"));
    }
    // Blanks to an upstream that takes headers for Latin-1.
    for blank in [&b"\xa0"[..], b"\x85", b"\xc2\xa0"] {
        let line = [b"Authorization: Bearer", blank, token.as_bytes(), b"\r\n"].concat();
        is_malformed(&weir, "/user", line);
        let line = [b"Authorization: ", blank, b"Bearer ", token.as_bytes(), b"\r\n"].concat();
        is_malformed(&weir, "/user", line);
    }
    assert_eq!(upstream.heads(), before, "none has reached the upstream");
    // Other schemes, and tokens that are no JWT, name no user and are no error.
    for other in ["Basic YTpi", "Digest username=\"a.b.c\"", "Bearer opaque", "Token a.b.c", ""] {
        let line = format!("Authorization: {other}\r\n");
        assert_eq!(ask(&weir, "/user", line).status, 200, "{other}");
    }
    // Where no token is used, its spelling does not matter.
    assert_eq!(ask(&weir, "/client", format!("Authorization: Bearer\t{token}\r\n")).status, 200);
}

#[test]
fn basic_credentials_have_one_accepted_spelling() {
    let upstream = Upstream::ok();
    let weir = gateway(&upstream, "");
    // Of these both the padding and the alphabet show.
    let plain = "a?>:b\u{ff}\u{ff}x";
    let good = STANDARD.encode(plain);
    assert!(good.contains('/') && good.ends_with('='), "{good}");
    for scheme in ["Basic", "basic"] {
        let line = format!("Authorization: {scheme} {good}\r\n");
        let status = ask(&weir, "/client", line).status;
        assert_eq!(status, if scheme == "Basic" { 200 } else { 429 }, "{scheme}");
    }
    let before = upstream.heads();
    let spellings = [
        format!("Basic {}", STANDARD_NO_PAD.encode(plain)),
        format!("Basic {}", URL_SAFE.encode(plain)),
        format!("Basic {} {}", &good[..4], &good[4..]),
        format!("Basic {}\t{}", &good[..4], &good[4..]),
        format!("Basic {good}x"),
        format!("Basic {good}="),
        format!("Basic {good}, Basic {good}"),
        format!("Basic {good};"),
        format!("Basic  {good}"),
        format!("Basic\t{good}"),
        format!("Basic{good}"),
        format!("Basic \"{good}\""),
        format!("Bearer x, Basic {good}"),
        // Bits that no byte has.
        "Basic YTp=".to_owned(),
        "Basic YTpi\u{0}".replace('\u{0}', "!"),
        "Basic".to_owned(),
        format!("Basic {}", STANDARD.encode("no colon")),
        format!("Basic {}", STANDARD.encode("a\0b:c")),
        format!("Basic {}", STANDARD.encode("a\n:c")),
    ];
    for spelling in &spellings {
        is_malformed(&weir, "/client", format!("Authorization: {spelling}\r\n"));
    }
    assert_eq!(upstream.heads(), before, "none has reached the upstream");
    for other in
        ["Bearer a b", "Digest username=\"ann\"", &format!("Basic {}", STANDARD.encode(":"))]
    {
        let line = format!("Authorization: {other}\r\n");
        assert_eq!(ask(&weir, "/client", line).status, 200, "{other}");
    }
    // A request that names its client by another source needs no credentials.
    assert_eq!(ask(&weir, "/client", "X-Api-Key: k\r\nAuthorization: Basic !\r\n").status, 200);
}

#[test]
fn a_required_token_in_another_spelling_is_malformed_and_none_is_unauthorized() {
    let upstream = Upstream::ok();
    let weir = gateway(&upstream, "required = true");
    let line = bearer(&token("ann"));
    assert_eq!(ask(&weir, "/open", &line).status, 200);
    is_malformed(&weir, "/open", line.replace("Bearer ", "Bearer\t"));
    is_malformed(&weir, "/open", line.repeat(2));
    for other in ["", "Authorization: Basic YTpi\r\n", "Authorization: Bearer opaque\r\n"] {
        assert_eq!(ask(&weir, "/open", other).status, 401, "{other}");
    }
    assert_eq!(upstream.heads(), 1);
}

/// Decoders that are less strict take each of these for the same token.
#[test]
fn token_with_respelled_parts_does_not_hide_a_denied_caller() {
    let upstream = Upstream::ok();
    let weir = gateway(&upstream, "[access]\ndeny = { user = [\"mallory\"] }");
    let plain = token("mallory");
    assert_eq!(ask(&weir, "/user", bearer(&plain)).status, 403);
    for added in ["=", "==", "~~~~"] {
        is_malformed(&weir, "/user", format!("Authorization: Bearer {plain}{added}\r\n"));
    }
    let other = plain.replace('-', "+").replace('_', "/");
    if other != plain {
        is_malformed(&weir, "/user", format!("Authorization: Bearer {other}\r\n"));
    }
    // The 32 bytes of this signature leave two bits of its last letter unused.
    let (rest, last) = plain.split_at(plain.len() - 1);
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let index = LETTERS.iter().position(|it| *it == last.as_bytes()[0]).unwrap();
    let next = char::from(LETTERS[index + 1]);
    is_malformed(&weir, "/user", format!("Authorization: Bearer {rest}{next}\r\n"));
    assert_eq!(upstream.heads(), 0);
}

/// What cannot be checked may be anybody's: junk that decoders pass over makes any token so long.
#[test]
fn token_too_long_to_check_does_not_hide_a_denied_caller() {
    let upstream = Upstream::ok();
    let mallory = token("mallory");
    let long = [
        format!("{mallory}{}", "=".repeat(8400)),
        format!("{mallory}{}", "~".repeat(8400)),
        format!("{mallory}.{}", "A".repeat(8400)),
        token(&"m".repeat(8400)),
        "opaque".repeat(1400),
    ];
    let weir = gateway(&upstream, "[access]\ndeny = { user = [\"mallory\"] }");
    for token in &long {
        is_malformed(&weir, "/user", bearer(token));
    }
    for token in &long[..4] {
        is_malformed(&weir, "/user", format!("Authorization: Token {token}\r\n"));
    }
    let required = gateway(&upstream, "required = true");
    is_malformed(&required, "/open", bearer(&long[0]));
    assert_eq!(upstream.heads(), 0);
    // Where no claim is asked for, its length does not matter.
    let weir = gateway(&upstream, "");
    assert_eq!(ask(&weir, "/client", bearer(&long[0])).status, 200);
}

/// The 96 bytes of a P-384 signature fill their 128 letters. One letter more is no byte, and decoders
/// such as Node's drop it. Readers that split at dots may take the first three parts.
#[test]
fn token_with_something_behind_its_signature_does_not_hide_a_denied_caller() {
    let (upstream, issuer) = (Upstream::ok(), Issuer::p384("k"));
    let deny = "[access]\ndeny = { user = [\"mallory\"] }";
    let weir = gateway_with_keys(&upstream, "pem_file", &issuer.pem(), deny);
    let mallory = issuer.token(&claims("mallory"));
    assert_eq!(ask(&weir, "/user", bearer(&mallory)).status, 403);
    for added in ["A", "z", "=", "A=", "A===", "~A", ".", ".A", "=.A", "..", ".A.A"] {
        is_malformed(&weir, "/user", bearer(&format!("{mallory}{added}")));
        let elsewhere = format!("Authorization: Token {mallory}{added}\r\n");
        is_malformed(&weir, "/user", elsewhere);
    }
    // Three parts are a token to some readers, whatever they hold.
    for spelling in ["a.b.c", "SG.x.y"] {
        is_malformed(&weir, "/user", bearer(spelling));
    }
    assert_eq!(upstream.heads(), 0);
    // An encrypted token (RFC 7516) has five parts, and is nobody's as others that do not verify.
    let encrypted = "eyJhbGciOiJkaXIiLCJlbmMiOiJBMTI4R0NNIn0..AAAA.AAAA.AAAA";
    for nobody in [encrypted, "opaque", "one.dot", "..", "a.b.c.d"] {
        assert_eq!(ask(&weir, "/user", bearer(nobody)).status, 200, "{nobody}");
    }
}
