//! The HTTP/1.1 codec, strict: one for the client's side and the upstream's.
//!
//! Two parsers that read the same bytes differently are how requests are smuggled, so both sides
//! of the gateway share this one, and it refuses whatever RFC 9112 leaves open to interpretation:
//! bare line feeds, repeated lengths, a length beside a transfer coding, obsolete folding.
//! Everything runs inside the request's own task; there are no channels and no extra wake-ups.

mod body_pace;
mod buffered_stream;
mod chunked;
mod decode;
pub(crate) mod encode;
mod framing;
pub(crate) mod head;
mod head_search;
mod inbound;

pub(crate) use body_pace::BodyPace;
pub(crate) use buffered_stream::{BufferedStream, IdleEvent};
pub(crate) use decode::{BodyError, Decoder, PollData};
pub(crate) use framing::{Framing, FramingError};
pub(crate) use head::{HeadError, HeadFlags, StatusLine};
pub(crate) use head_search::HeadSearch;
pub(crate) use inbound::{BodyLimits, Inbound};
