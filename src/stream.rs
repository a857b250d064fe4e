//! The byte stream under a connection, to a client or to an upstream: TCP, TLS over TCP, or a Unix
//! socket.
//!
//! Everything that reads or writes goes through [`Stream`]. The HTTP/1.1 codec calls the methods
//! below; hyper uses it as an [`AsyncRead`] and [`AsyncWrite`].

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::BytesMut;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsStream;

use crate::protocol::Scheme;

#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    /// After its handshake, which may also have chosen a protocol.
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Self {
        Stream::Tcp(stream)
    }
}

impl From<UnixStream> for Stream {
    fn from(stream: UnixStream) -> Self {
        Stream::Unix(stream)
    }
}

impl From<TlsStream<TcpStream>> for Stream {
    fn from(stream: TlsStream<TcpStream>) -> Self {
        Stream::Tls(Box::new(stream))
    }
}

/// Calls the same method of whichever stream there is.
macro_rules! each_stream {
    ($stream:expr, $inner:ident => $call:expr) => {
        match $stream {
            Stream::Tcp($inner) => $call,
            Stream::Tls($inner) => $call,
            Stream::Unix($inner) => $call,
        }
    };
}

impl Stream {
    /// The scheme of the requests that come over it.
    pub(crate) fn scheme(&self) -> Scheme {
        match self {
            Stream::Tcp(_) | Stream::Unix(_) => Scheme::Http,
            Stream::Tls(_) => Scheme::Https,
        }
    }

    /// The address at the other end. A Unix socket has none.
    pub(crate) fn peer_address(&self) -> Option<SocketAddr> {
        match self {
            Stream::Tcp(stream) => stream.peer_addr().ok(),
            Stream::Tls(stream) => stream.get_ref().0.peer_addr().ok(),
            Stream::Unix(_) => None,
        }
    }

    /// Whether TLS is under it, and the peer did not choose HTTP/2.
    pub(crate) fn has_declined_http2(&self) -> bool {
        match self {
            Stream::Tcp(_) | Stream::Unix(_) => false,
            Stream::Tls(stream) => stream.get_ref().1.alpn_protocol() != Some(b"h2"),
        }
    }

    /// Whether the peer has chosen HTTP/2 by ALPN: RFC 9113 section 3.2.
    pub(crate) fn has_negotiated_http2(&self) -> bool {
        matches!(self, Stream::Tls(stream) if stream.get_ref().1.alpn_protocol() == Some(b"h2"))
    }

    /// Whether the peer has chosen HTTP/1.1 by ALPN.
    pub(crate) fn has_negotiated_http1(&self) -> bool {
        let http1 = Some(&b"http/1.1"[..]);
        matches!(self, Stream::Tls(stream) if stream.get_ref().1.alpn_protocol() == http1)
    }

    #[inline]
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        each_stream!(self, stream => pin!(stream.read_buf(buffer)).poll(cx))
    }

    #[inline]
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        each_stream!(self, stream => Pin::new(stream).poll_write(cx, data))
    }

    #[inline]
    pub(crate) fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each_stream!(self, stream => Pin::new(stream).poll_write_vectored(cx, pieces))
    }

    /// Whether what was written may still be on this side: only TLS buffers anything.
    #[inline]
    pub(crate) fn holds_back(&self) -> bool {
        matches!(self, Stream::Tls(_))
    }

    /// Sends what was written and is still held back.
    #[inline]
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tcp(_) | Stream::Unix(_) => Poll::Ready(Ok(())),
        }
    }

    /// Tells the peer that nothing more will come.
    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each_stream!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }

    /// Whether the peer has finished sending, however much is still to be read before that.
    pub(crate) fn is_read_closed(&self) -> bool {
        self.is_ready(Interest::READABLE).is_some_and(|ready| ready.is_read_closed())
    }

    /// Whether the peer has reset the connection, however much is still to be read before that.
    pub(crate) fn is_reset(&self) -> bool {
        self.is_ready(Interest::WRITABLE).is_some_and(|ready| ready.is_write_closed())
    }

    /// What the runtime knows of the socket, without waiting.
    fn is_ready(&self, interest: Interest) -> Option<tokio::io::Ready> {
        let mut cx = Context::from_waker(Waker::noop());
        let ready = match self {
            Stream::Unix(stream) => pin!(stream.ready(interest)).poll(&mut cx),
            Stream::Tcp(stream) => pin!(stream.ready(interest)).poll(&mut cx),
            Stream::Tls(stream) => pin!(stream.get_ref().0.ready(interest)).poll(&mut cx),
        };
        match ready {
            Poll::Ready(Ok(ready)) => Some(ready),
            Poll::Ready(Err(_)) | Poll::Pending => None,
        }
    }

    /// Tries to read from a connection on which nothing should come. This is no system call if
    /// `polled`: the runtime has asked the kernel since the connection was last used, and knows.
    pub(crate) fn try_read_idle(&mut self, polled: bool) -> io::Result<usize> {
        let peek = |socket: SockRef<'_>| socket.peek(&mut [MaybeUninit::uninit()]);
        match self {
            Stream::Tcp(stream) if polled => stream.try_read(&mut [0]),
            Stream::Unix(stream) if polled => stream.try_read(&mut [0]),
            Stream::Tcp(stream) => peek(SockRef::from(&*stream)),
            Stream::Unix(stream) => peek(SockRef::from(&*stream)),
            // What comes may be TLS's own, such as tickets for later sessions.
            Stream::Tls(stream) => {
                let (mut cx, mut byte) = (Context::from_waker(Waker::noop()), [0]);
                let mut buffer = ReadBuf::new(&mut byte);
                match Pin::new(stream).poll_read(&mut cx, &mut buffer) {
                    Poll::Ready(read) => read.map(|()| buffer.filled().len()),
                    Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
                }
            }
        }
    }

    /// Makes dropping this connection reset it, where an orderly end would be taken for the end of
    /// the message.
    pub(crate) fn reset_on_close(&self) {
        let reset = |socket: &TcpStream| SockRef::from(socket).set_linger(Some(Duration::ZERO));
        // If it cannot be set the connection merely ends in order.
        let _ = match self {
            Stream::Tcp(stream) => reset(stream),
            Stream::Tls(stream) => reset(stream.get_ref().0),
            Stream::Unix(_) => Ok(()),
        };
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        each_stream!(self.get_mut(), stream => Pin::new(stream).poll_read(cx, buffer))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_write(cx, data)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        each_stream!(self, stream => stream.is_write_vectored())
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_shutdown(cx)
    }
}

/// Writes to a type as to its field `stream`, for those that only look at what is read.
macro_rules! write_through_stream {
    ($wrapper:ty) => {
        impl tokio::io::AsyncWrite for $wrapper {
            fn poll_write(
                mut self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                data: &[u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.stream.poll_write(cx, data)
            }

            fn poll_write_vectored(
                mut self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                pieces: &[std::io::IoSlice<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.stream.poll_write_vectored(cx, pieces)
            }

            fn is_write_vectored(&self) -> bool {
                tokio::io::AsyncWrite::is_write_vectored(&self.stream)
            }

            fn poll_flush(
                mut self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                self.stream.poll_flush(cx)
            }

            fn poll_shutdown(
                mut self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
            ) -> std::task::Poll<std::io::Result<()>> {
                self.stream.poll_shutdown(cx)
            }
        }
    };
}
pub(crate) use write_through_stream;

/// Has the kernel find out about peers that vanished: a tunnel may be silent for an hour, and holds
/// slots meanwhile.
pub(crate) fn enable_keepalive(socket: &impl std::os::fd::AsFd) {
    let keepalive = socket2::TcpKeepalive::new().with_time(Duration::from_secs(60));
    // A socket that refuses works just as well while its peer does.
    let _ = SockRef::from(socket).set_tcp_keepalive(&keepalive);
}
