//! The handshake of a connection: bounded in time, with what was read already, and with few words for
//! what went wrong.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use rustls::{PeerIncompatible, ServerConfig, ServerConnection};
use tokio::time::Instant;
use tokio_rustls::{TlsAcceptor, TlsStream};

use crate::config::settings;
use crate::deadline::Deadline;
use crate::http1::BufferedStream;
use crate::listen::connection::DRAIN_GRACE;
use crate::listen::control::ConnectionControl;
use crate::stream::Stream;

/// What every TLS connection begins with: the type of a handshake's records.
pub(in crate::listen) const TLS_HANDSHAKE: u8 = 0x16;

/// Why a connection has not become one of TLS.
#[derive(Debug, thiserror::Error)]
pub(in crate::listen) enum HandshakeError {
    #[error("the client has sent nothing")]
    Silent,
    #[error("the client has sent a plain HTTP request")]
    PlainHttp(Box<BufferedStream>),
    #[error("the client does not speak TLS")]
    NotTls,
    #[error("the handshake takes too long")]
    TimedOut,
    #[error("the client has left")]
    Disconnected,
    #[error("{0}")]
    Failed(rustls::Error),
    #[error("too many handshakes are under way")]
    Crowded,
}

impl HandshakeError {
    /// As metrics call it; `None` for what is no error.
    pub(in crate::listen) fn reason(&self) -> Option<&'static str> {
        use rustls::Error;
        Some(match self {
            HandshakeError::Silent => return None,
            HandshakeError::PlainHttp(_) => "plain_http",
            HandshakeError::NotTls => "not_tls",
            HandshakeError::TimedOut => "timeout",
            HandshakeError::Disconnected => "disconnected",
            HandshakeError::Crowded => "crowded",
            HandshakeError::Failed(error) => match error {
                Error::NoCertificatesPresented | Error::InvalidCertificate(_) => {
                    "client_certificate"
                }
                Error::PeerIncompatible(
                    PeerIncompatible::NoCertificateRequestSignatureSchemesInCommon,
                ) => "client_certificate",
                Error::PeerIncompatible(_) | Error::NoApplicationProtocol => "incompatible",
                Error::AlertReceived(_) => "alert",
                _ => "malformed",
            },
        })
    }
}

/// Makes a connection one of TLS, whose client has begun to speak. What was read from it already is the
/// beginning of the handshake.
///
/// # Errors
/// If it does not become one.
pub(in crate::listen) async fn handshake(
    io: BufferedStream,
    config: &Arc<ServerConfig>,
    until: Instant,
    settings: &settings::Server,
    control: &ConnectionControl,
) -> Result<BufferedStream, HandshakeError> {
    match io.read_buf.first() {
        Some(&TLS_HANDSHAKE) => {}
        Some(byte) if byte.is_ascii_uppercase() => {
            return Err(HandshakeError::PlainHttp(Box::new(io)));
        }
        _ => return Err(HandshakeError::NotTls),
    }
    let (Stream::Tcp(stream), begun) = io.into_parts() else {
        return Err(HandshakeError::NotTls);
    };
    let mut failed = None;
    let accepting = TlsAcceptor::from(config.clone())
        .accept_with(stream, |connection| failed = feed(connection, begun).err());
    let mut accepting = pin!(accepting);
    if let Some(error) = failed {
        // One poll sends the alert that says why.
        poll_fn(|cx| {
            let _ = accepting.as_mut().poll(cx);
            Poll::Ready(())
        })
        .await;
        return Err(HandshakeError::Failed(error));
    }
    let mut deadline = DrainedDeadline::new(until, settings);
    let accepted = poll_fn(|cx| match accepting.as_mut().poll(cx) {
        Poll::Ready(accepted) => Poll::Ready(accepted.map_err(|error| from_io(&error))),
        Poll::Pending => deadline.poll(control, cx).map(|()| Err(HandshakeError::TimedOut)),
    })
    .await?;
    Ok(BufferedStream::new(TlsStream::Server(accepted).into()))
}

/// Waits for the client to begin.
///
/// # Errors
/// If it does not until then.
pub(in crate::listen) async fn first_byte(
    io: &mut BufferedStream,
    until: Instant,
    settings: &settings::Server,
    control: &ConnectionControl,
) -> Result<(), HandshakeError> {
    io.clear_deadline();
    let mut deadline = DrainedDeadline::new(until, settings);
    poll_fn(|cx| {
        if !io.read_buf.is_empty() {
            return Poll::Ready(Ok(()));
        }
        match io.poll_fill_no_deadline(cx, false) {
            Poll::Ready(Ok(0) | Err(_)) => Poll::Ready(Err(HandshakeError::Silent)),
            Poll::Ready(Ok(_)) => Poll::Ready(Ok(())),
            Poll::Pending => {
                ready!(deadline.poll(control, cx));
                Poll::Ready(Err(HandshakeError::Silent))
            }
        }
    })
    .await
}

/// Hands over what was read before the handshake.
fn feed(connection: &mut ServerConnection, begun: BytesMut) -> Result<(), rustls::Error> {
    let mut rest = &begun[..];
    while !rest.is_empty() {
        match connection.read_tls(&mut rest) {
            Ok(0) | Err(_) => return Err(rustls::Error::General("it begins with too much".into())),
            Ok(_) => connection.process_new_packets()?,
        };
    }
    Ok(())
}

fn from_io(error: &io::Error) -> HandshakeError {
    let tls = error.get_ref().and_then(|it| it.downcast_ref::<rustls::Error>());
    match tls {
        Some(error) => HandshakeError::Failed(error.clone()),
        None => HandshakeError::Disconnected,
    }
}

/// A deadline that a drain brings nearer.
struct DrainedDeadline<'a> {
    deadline: Deadline,
    until: Instant,
    settings: &'a settings::Server,
    leaving: bool,
}

impl<'a> DrainedDeadline<'a> {
    fn new(until: Instant, settings: &'a settings::Server) -> Self {
        let mut deadline = Deadline::default();
        deadline.set(until);
        DrainedDeadline { deadline, until, settings, leaving: false }
    }

    /// Ready once it has passed.
    fn poll(&mut self, control: &ConnectionControl, cx: &mut Context<'_>) -> Poll<()> {
        if control.draining.get() && !self.leaving {
            self.leaving = true;
            let grace = Instant::now() + DRAIN_GRACE.min(self.settings.drain);
            self.deadline.set(grace.min(self.until));
        }
        self.deadline.poll::<()>(cx).map(|_| ())
    }
}
