//! The gateway's answer in the form that hyper writes as HTTP/2.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, Response, StatusCode};

use super::answer_body::AnswerBody;
use super::stream_progress::StreamProgress;
use crate::body::Body;
use crate::http1::Framing;
use crate::listen::response::needs_content_length;
use crate::respond::{Answer, Content, Fault, FieldName};

/// The type of an answer that has nothing but a status for a gRPC client.
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// The response to a request of this method. `Date` and what follows from the body are hyper's.
pub(super) fn of_answer(
    mut answer: Answer,
    method: &Method,
    progress: StreamProgress,
) -> Response<AnswerBody> {
    if let Content::Tunnel(_) = answer.response.body() {
        // HTTP/2 has no upgrades, so none is asked of an upstream.
        answer = Fault::Internal.into();
    }
    let Answer { response, fields, end } = answer;
    let (mut parts, content) = response.into_parts();
    fields.append_to(&mut parts.headers);
    let mut body = match content {
        Content::Body(body) => body,
        Content::Tunnel(_) => Body::empty(),
    };
    let is_head = *method == Method::HEAD;
    let framing = body.framing();
    if fields.iter().any(|field| field.name == FieldName::GrpcStatus) {
        trailers_only(&mut parts.status, &mut parts.headers);
        body = Body::empty();
    } else if is_head || is_bodiless(parts.status) {
        let has_length = parts.headers.contains_key(CONTENT_LENGTH);
        if let Framing::Length(length) = framing
            && needs_content_length(parts.status, is_head, has_length, framing)
        {
            parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        body = Body::empty();
    }
    Response::from_parts(parts, AnswerBody::new(body, end, progress))
}

fn is_bodiless(status: StatusCode) -> bool {
    status == StatusCode::NO_CONTENT
        || status == StatusCode::NOT_MODIFIED
        || status.is_informational()
}

/// The form in which gRPC clients read a refusal: a head that is the trailers as well, and nothing
/// behind it. The status of HTTP says only that this is gRPC.
fn trailers_only(status: &mut StatusCode, headers: &mut HeaderMap) {
    *status = StatusCode::OK;
    headers.insert(CONTENT_TYPE, GRPC);
}
