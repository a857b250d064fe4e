//! Weir's own answers as gRPC clients read them: a status of gRPC's own and a message, as fields.
//!
//! Over HTTP/1.1 they stand beside the usual answer. Over HTTP/2, where gRPC is at home, the connection
//! makes of them an answer that consists of trailers only.

use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};

use super::fault::sentence;
use super::{Fault, FieldName, Fields};

/// RESOURCE_EXHAUSTED: what a limit refuses.
pub(crate) const RESOURCE_EXHAUSTED: u8 = 8;

const MEDIA_TYPE: &[u8] = b"application/grpc";

/// Whether a request is a call of gRPC. gRPC-Web is not: its clients read answers in another form.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let kind = kind.and_then(|kind| kind.split_at_checked(MEDIA_TYPE.len()));
    // Nothing behind it, the format of its messages, or parameters.
    kind.is_some_and(|(kind, rest)| {
        kind.eq_ignore_ascii_case(MEDIA_TYPE)
            && matches!(rest.trim_ascii_start().first(), None | Some(b'+' | b';'))
    })
}

/// The code for an answer of this status.
fn code(status: StatusCode) -> u8 {
    match status.as_u16() {
        // INVALID_ARGUMENT
        400 | 415 | 431 | 505 => 3,
        // UNAUTHENTICATED
        401 => 16,
        // PERMISSION_DENIED
        403 => 7,
        // UNIMPLEMENTED
        404 | 405 | 501 => 12,
        // DEADLINE_EXCEEDED: the client was too slow.
        408 => 4,
        413 | 429 => RESOURCE_EXHAUSTED,
        // INTERNAL
        500 => 13,
        // UNAVAILABLE: it may be tried again.
        502..=504 => 14,
        // UNKNOWN
        _ => 2,
    }
}

/// Adds what a gRPC client has to know of a fault.
pub(crate) fn describe(fault: &Fault, fields: &mut Fields) {
    add(code(fault.status()), &sentence(&fault.to_string()), fields);
}

/// Adds a code and a message.
pub(crate) fn add(code: u8, message: &str, fields: &mut Fields) {
    fields.add_number(FieldName::GrpcStatus, code.into());
    fields.add_with(FieldName::GrpcMessage, |value| {
        for byte in message.bytes() {
            match byte {
                b'%' => value.text(b"%25"),
                b' '..=b'~' => value.text(&[byte]),
                other => {
                    let digit = |it: u8| b"0123456789ABCDEF"[usize::from(it)];
                    value.text(&[b'%', digit(other >> 4), digit(other & 15)])
                }
            };
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::HeadError;
    use crate::upstream::ExchangeError;

    fn told(fault: &Fault) -> (String, String) {
        let (mut fields, mut headers) = (Fields::default(), HeaderMap::new());
        describe(fault, &mut fields);
        fields.append_to(&mut headers);
        let text = |name: &str| headers[name].to_str().unwrap().to_owned();
        (text("grpc-status"), text("grpc-message"))
    }

    #[test]
    fn calls_are_told_by_their_media_type() {
        let is_call = |kind: &'static str| {
            is_grpc(&HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]))
        };
        for call in [
            "application/grpc",
            "Application/GRPC",
            "application/grpc+proto",
            "application/grpc;x=y",
            "application/grpc ; x=y",
        ] {
            assert!(is_call(call), "{call}");
        }
        for other in [
            "application/grpc-web",
            "application/grpc-web-text+proto",
            "application/grpcfoo",
            "application/grpc, text/plain",
            "application/json",
            "",
        ] {
            assert!(!is_call(other), "{other}");
        }
        assert!(!is_grpc(&HeaderMap::new()));
    }

    #[test]
    fn each_kind_of_fault_has_the_code_that_clients_act_on() {
        for (fault, code) in [
            (Fault::Head(HeadError::Field), "3"),
            (Fault::TooSlow, "4"),
            (Fault::Denied, "7"),
            (Fault::NoRoute, "12"),
            (Fault::Method(Vec::new()), "12"),
            (Fault::Internal, "13"),
            (Fault::Exchange(ExchangeError::Truncated), "14"),
            (Fault::Exchange(ExchangeError::TimedOut), "14"),
            (Fault::Overloaded, "14"),
            (Fault::Unauthorized, "16"),
        ] {
            assert_eq!(told(&fault).0, code, "{fault:?}");
        }
        assert_eq!(told(&Fault::NoRoute).1, "No route matches the request.");
    }

    #[test]
    fn messages_are_escaped_as_grpc_asks_for() {
        let (mut fields, mut headers) = (Fields::default(), HeaderMap::new());
        add(8, "100% für alle\n", &mut fields);
        fields.append_to(&mut headers);
        assert_eq!(headers["grpc-message"], "100%25 f%C3%BCr alle%0A");
    }
}
