//! TLS towards clients: which certificate they are shown, and the handshake.

mod handshake;
mod pending;
mod resolver;
mod session;

pub(super) use handshake::{HandshakeError, TLS_HANDSHAKE, first_byte, handshake};
pub(super) use pending::PendingHandshakes;
pub(super) use session::{SessionTickets, server_config};

use tokio_rustls::TlsStream;

use crate::limit::source::ClientCertificate;
use crate::stream::Stream;
use crate::tls::subject::CertificateSubject;

/// What the client's certificate says of it, if it has shown one. One that cannot be read names
/// nobody, as if there was none.
pub(super) fn client_certificate(stream: &Stream) -> Option<ClientCertificate> {
    let Stream::Tls(stream) = stream else { return None };
    let TlsStream::Server(stream) = &**stream else { return None };
    let shown = stream.get_ref().1.peer_certificates()?.first()?;
    let subject = CertificateSubject::of(shown)?;
    Some(ClientCertificate { names: subject.names_text(), subject: subject.subject })
}
