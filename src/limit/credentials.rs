//! `Authorization`, RFC 9110 section 11.6.2, in one spelling.
//!
//! Upstreams differ in what they take for credentials: some cut off a prefix, some split at any
//! blank, some look through a list. So one spelling is read, a scheme's name, one space and a
//! token68, and whatever else looks like credentials of the scheme that is asked for is refused. If
//! it were nobody's, a caller that is limited or denied could escape by writing it so.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, header};

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// Gateway and upstream might each believe another one.
    #[error("the request carries more than one Authorization")]
    Doubled,
    #[error("the request's Authorization is not `Bearer`, one space and a token")]
    Bearer,
    #[error("the request's token is longer than 8KiB")]
    LongToken,
    #[error(
        "the request's Authorization is not `Basic`, one space, and `user:password` in padded base64"
    )]
    Basic,
}

/// The token of `Authorization: Bearer`, RFC 6750 section 2.1, if that is what the request has.
/// `is_token` knows a token that comes without its scheme, or under another: to an upstream that
/// cuts off `Bearer` it is the same.
///
/// # Errors
/// If it is in another spelling, or there are two.
pub fn bearer(
    headers: &HeaderMap,
    is_token: impl Fn(&[u8]) -> bool,
) -> Result<Option<&[u8]>, CredentialsError> {
    let Some(value) = only(headers)? else { return Ok(None) };
    if let Some(token) = of_scheme(value, b"bearer", CredentialsError::Bearer)? {
        return Ok(Some(token));
    }
    let mut words = value.split(|byte| !is_token68(*byte));
    // Of `token=…` what is behind the sign.
    let behind = |word: &[u8]| word.rsplit(|byte| *byte == b'=').next().is_some_and(&is_token);
    if words.any(|word| is_token(word) || behind(word)) {
        return Err(CredentialsError::Bearer);
    }
    Ok(None)
}

/// The user of `Authorization: Basic`, RFC 7617 section 2: what comes before the first colon.
///
/// # Errors
/// If it is in another spelling, or there are two.
pub fn basic_user(headers: &HeaderMap) -> Result<Option<Vec<u8>>, CredentialsError> {
    let malformed = CredentialsError::Basic;
    let Some(value) = only(headers)? else { return Ok(None) };
    let Some(encoded) = of_scheme(value, b"basic", malformed)? else { return Ok(None) };
    let mut user = STANDARD.decode(encoded).map_err(|_| malformed)?;
    let colon = user.iter().position(|byte| *byte == b':').ok_or(malformed)?;
    user.truncate(colon);
    // No user has such a character, and to some readers the name ends there.
    if user.iter().any(u8::is_ascii_control) {
        return Err(malformed);
    }
    Ok(Some(user).filter(|user| !user.is_empty()))
}

/// The one value there is.
fn only(headers: &HeaderMap) -> Result<Option<&[u8]>, CredentialsError> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    match (values.next(), values.next()) {
        (_, Some(_)) => Err(CredentialsError::Doubled),
        (value, None) => Ok(value.map(|value| value.as_bytes())),
    }
}

fn of_scheme<'a>(
    value: &'a [u8],
    scheme: &[u8],
    malformed: CredentialsError,
) -> Result<Option<&'a [u8]>, CredentialsError> {
    if let Some((name, rest)) = value.split_at_checked(scheme.len())
        && name.eq_ignore_ascii_case(scheme)
    {
        let token = rest.strip_prefix(b" ").filter(|token| is_whole_token68(token));
        return token.map(Some).ok_or(malformed);
    }
    if names(value, scheme) { Err(malformed) } else { Ok(None) }
}

/// Whether a scheme's name stands anywhere but inside of a token.
fn names(value: &[u8], scheme: &[u8]) -> bool {
    let mut windows = value.windows(scheme.len()).enumerate();
    windows.any(|(at, window)| {
        let begins = at.checked_sub(1).is_none_or(|before| !is_token68(value[before]));
        begins && window.eq_ignore_ascii_case(scheme)
    })
}

/// RFC 9110 section 11.2.
fn is_whole_token68(text: &[u8]) -> bool {
    let end = text.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
    end > 0 && text[..end].iter().all(|byte| is_token68(*byte) && *byte != b'=')
}

fn is_token68(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn with(value: &[u8]) -> HeaderMap {
        let value = HeaderValue::from_bytes(value).expect("a value");
        HeaderMap::from_iter([(header::AUTHORIZATION, value)])
    }

    #[test]
    fn basic_names_its_user_in_one_spelling() {
        let user = |value: &str| basic_user(&with(value.as_bytes()));
        let encoded = |text: &str| format!("Basic {}", STANDARD.encode(text));
        assert_eq!(user(&encoded("ann:secret:x")), Ok(Some(b"ann".to_vec())));
        assert_eq!(user(&encoded("ann:").replace("Basic", "bAsIc")), Ok(Some(b"ann".to_vec())));
        for none in ["", "Bearer YTpi", "Basi YTpi", &encoded(":x")] {
            assert_eq!(user(none), Ok(None), "{none}");
        }
        for bad in ["Basic", "Basic !!!", "Basic  YTpi", "x basic YTpi", &encoded("ann")] {
            assert_eq!(user(bad), Err(CredentialsError::Basic), "{bad}");
        }
    }

    #[test]
    fn a_scheme_is_found_where_a_reader_might_look_for_it() {
        let read = |value: &[u8]| {
            let headers = with(value);
            bearer(&headers, |word| word == b"a.b.c").map(|token| token.map(<[u8]>::to_vec))
        };
        assert_eq!(read(b"Bearer a.b.c"), Ok(Some(b"a.b.c".to_vec())));
        assert_eq!(read(b"Bearer YQ=="), Ok(Some(b"YQ==".to_vec())));
        // Inside of a token it is no name.
        for none in [&b"Basic YBearer"[..], b"Basic a+bearer", b"Token a.b.cd", b""] {
            assert_eq!(read(none), Ok(None), "{}", none.escape_ascii());
        }
        let bad: [&[u8]; 7] = [
            b"Bearer a=b",
            b"Bearer =",
            b"Basic YTpi,bEARER x",
            b"\xa0Bearer x",
            b"a.b.c",
            b"Token token=a.b.c",
            b"Token token=\"a.b.c\"",
        ];
        for bad in bad {
            assert_eq!(read(bad), Err(CredentialsError::Bearer), "{}", bad.escape_ascii());
        }
        let mut twice = with(b"Bearer a.b.c");
        twice.append(header::AUTHORIZATION, HeaderValue::from_static(""));
        assert_eq!(bearer(&twice, |_| false), Err(CredentialsError::Doubled));
    }
}
