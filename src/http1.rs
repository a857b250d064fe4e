//! HTTP/1.1 on the wire, strictly: one codec for the client's side and the upstream's.
//!
//! Two parsers that read the same bytes differently are how requests are smuggled, so both sides
//! of the gateway share this one, and it refuses whatever RFC 9112 leaves open to interpretation:
//! bare line feeds, repeated lengths, a length beside a transfer coding, obsolete folding.
//! Everything runs inside the request's own task; there are no channels and no extra wake-ups.

pub mod chunked;
pub mod decode;
pub mod encode;
pub mod framing;
pub mod head;
pub mod inbound;
pub mod wire;

pub use chunked::Chunked;
pub use decode::{BodyError, Decoder};
pub use framing::{Framing, FramingError};
pub use head::{Head, HeadError, RequestLine, StatusLine};
pub use inbound::Inbound;
pub use wire::Wire;
