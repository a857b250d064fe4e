//! The id of a request: its caller's, or a new one; told to the upstream and back.

use http::header::{HeaderMap, HeaderName, HeaderValue};

use super::random_id;
use crate::config::settings::IdSource;

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The id that a request has, if that is harmless.
pub fn request_id(headers: &HeaderMap) -> Option<&str> {
    headers.get(&X_REQUEST_ID).and_then(|id| id.to_str().ok()).filter(|id| is_harmless(id))
}

/// Gives a request its id: the one it brings, if its sender may name it and it is harmless, or a new
/// one. Whatever else it brings is gone.
pub(super) fn assign(headers: &mut HeaderMap, source: IdSource, from_trusted: bool) -> HeaderValue {
    let accepted = match source {
        IdSource::Any => true,
        IdSource::TrustedProxies => from_trusted,
    };
    let own = if accepted { request_id(headers).and_then(value) } else { None };
    let id = own.unwrap_or_else(new_id);
    headers.insert(X_REQUEST_ID, id.clone());
    id
}

/// Tells the client the id of its request.
pub(super) fn tell(headers: &mut HeaderMap, id: HeaderValue) {
    headers.insert(X_REQUEST_ID, id);
}

pub(super) fn new_id() -> HeaderValue {
    let text = format!("{:032x}", random_id::random_u128());
    value(&text).unwrap_or_else(|| HeaderValue::from_static(""))
}

fn value(text: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(text).ok()
}

fn is_harmless(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=128).contains(&id.len()) && id.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assigned(brought: &[&'static str], source: IdSource, from_trusted: bool) -> String {
        let mut headers = HeaderMap::new();
        for id in brought {
            headers.append(X_REQUEST_ID, HeaderValue::from_bytes(id.as_bytes()).unwrap());
        }
        let id = assign(&mut headers, source, from_trusted);
        let all: Vec<_> = headers.get_all(X_REQUEST_ID).iter().collect();
        assert_eq!(all, [&id], "the upstream sees the one that is told");
        id.to_str().unwrap().to_owned()
    }

    #[test]
    fn an_id_is_taken_from_whom_the_configuration_names() {
        assert_eq!(assigned(&["abc-1"], IdSource::Any, false), "abc-1");
        assert_eq!(assigned(&["abc-1"], IdSource::TrustedProxies, true), "abc-1");
        assert_ne!(assigned(&["abc-1"], IdSource::TrustedProxies, false), "abc-1");
    }

    #[test]
    fn an_id_that_could_do_harm_is_replaced() {
        for bad in ["", "a b", "a\"b", "<script>", "é"] {
            assert_eq!(assigned(&[bad], IdSource::Any, true).len(), 32, "{bad}");
        }
        assert_eq!(assigned(&[], IdSource::Any, true).len(), 32);
    }
}
