//! The byte stream under a connection, to a client or to an upstream.
//!
//! Everything that reads or writes goes through [`Stream`], so TLS attaches here and nowhere else: as
//! another variant around `tokio_rustls::TlsStream`, whose socket answers the questions about the
//! state of the connection. With one variant the enum costs nothing.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::BytesMut;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWrite, Interest};
use tokio::net::TcpStream;

use crate::protocol::Scheme;

#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Self {
        Stream::Tcp(stream)
    }
}

impl Stream {
    /// The scheme of the requests that come over it.
    pub(crate) fn scheme(&self) -> Scheme {
        match self {
            Stream::Tcp(_) => Scheme::Http,
        }
    }

    #[inline]
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        match self {
            Stream::Tcp(stream) => pin!(stream.read_buf(buffer)).poll(cx),
        }
    }

    #[inline]
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Stream::Tcp(stream) => Pin::new(stream).poll_write(cx, data),
        }
    }

    #[inline]
    pub(crate) fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Stream::Tcp(stream) => Pin::new(stream).poll_write_vectored(cx, pieces),
        }
    }

    /// Tells the peer that nothing more will come.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    /// Whether the peer has finished sending, however much is still to be read before that.
    pub(crate) fn is_read_closed(&self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        let ready = pin!(self.socket().ready(Interest::READABLE)).poll(&mut cx);
        matches!(ready, Poll::Ready(Ok(ready)) if ready.is_read_closed())
    }

    /// Whether the peer has reset the connection, however much is still to be read before that.
    pub(crate) fn is_reset(&self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        let ready = pin!(self.socket().ready(Interest::WRITABLE)).poll(&mut cx);
        matches!(ready, Poll::Ready(Ok(ready)) if ready.is_write_closed())
    }

    /// Tries to read from a connection on which nothing should come. This is no system call if
    /// `polled`: the runtime has asked the kernel since the connection was last used, and knows.
    pub(crate) fn try_read_idle(&self, polled: bool) -> io::Result<usize> {
        if polled {
            self.socket().try_read(&mut [0])
        } else {
            SockRef::from(self.socket()).peek(&mut [MaybeUninit::uninit()])
        }
    }

    /// Makes dropping this connection reset it, where an orderly end would be taken for the end of
    /// the message.
    pub(crate) fn reset_on_close(&self) {
        // If it cannot be set the connection merely ends in order.
        let _ = SockRef::from(self.socket()).set_linger(Some(Duration::ZERO));
    }

    fn socket(&self) -> &TcpStream {
        match self {
            Stream::Tcp(stream) => stream,
        }
    }
}

/// Has the kernel find out about peers that vanished: a tunnel may be silent for an hour, and holds
/// slots meanwhile.
pub(crate) fn enable_keepalive(socket: &impl std::os::fd::AsFd) {
    let keepalive = socket2::TcpKeepalive::new().with_time(Duration::from_secs(60));
    // A socket that refuses works just as well while its peer does.
    let _ = SockRef::from(socket).set_tcp_keepalive(&keepalive);
}
