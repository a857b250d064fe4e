//! Listening sockets, of TCP and of Unix, and the connections that come by them.

use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::caller::address::UNIX_PEER;
use crate::config::settings::ListenAddress;
use crate::stream::{Stream, enable_keepalive};

/// How many connections the kernel may queue; it cuts this to its own limit.
const BACKLOG: i32 = 4096;

/// A socket that is bound and listens.
#[derive(Debug)]
pub(crate) enum ListeningSocket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// The client's end of a new connection, on its way to a worker.
#[derive(Debug)]
pub(crate) enum ClientSocket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connection, and where it comes from.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) socket: ClientSocket,
    pub(crate) peer: SocketAddr,
}

impl ListeningSocket {
    /// # Errors
    /// If the address is in use, not of this machine, or not allowed.
    pub(crate) fn bind(address: &ListenAddress) -> io::Result<Self> {
        match address {
            ListenAddress::Tcp(address) => bind_tcp(*address).map(ListeningSocket::Tcp),
            ListenAddress::Unix { path, mode } => bind_unix(path, *mode).map(ListeningSocket::Unix),
        }
    }

    /// The address with the port that it has got, if any would do.
    ///
    /// # Errors
    /// If the system does not say.
    pub(crate) fn bound_address(&self, configured: &ListenAddress) -> io::Result<ListenAddress> {
        match self {
            ListeningSocket::Tcp(listener) => Ok(ListenAddress::Tcp(listener.local_addr()?)),
            ListeningSocket::Unix(_) => Ok(configured.clone()),
        }
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            ListeningSocket::Tcp(listener) => listener.as_fd(),
            ListeningSocket::Unix(listener) => listener.as_fd(),
        }
    }

    /// The next connection that the kernel has queued.
    pub(super) fn try_accept(&self) -> io::Result<Accepted> {
        match self {
            ListeningSocket::Tcp(listener) => {
                listener.accept().map(|(it, peer)| Accepted::tcp(it, peer))
            }
            ListeningSocket::Unix(listener) => listener.accept().map(|(it, _)| Accepted::unix(it)),
        }
    }
}

/// The same on a runtime.
#[derive(Debug)]
pub(super) enum AsyncListener {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

impl AsyncListener {
    /// # Errors
    /// If the runtime cannot watch it.
    pub(super) fn new(socket: ListeningSocket) -> io::Result<Self> {
        Ok(match socket {
            ListeningSocket::Tcp(it) => Self::Tcp(tokio::net::TcpListener::from_std(it)?),
            ListeningSocket::Unix(it) => Self::Unix(tokio::net::UnixListener::from_std(it)?),
        })
    }

    pub(super) async fn accept(&self) -> io::Result<Accepted> {
        // Taken off this runtime, to be put on its worker's.
        match self {
            AsyncListener::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok(Accepted::tcp(stream.into_std()?, peer))
            }
            AsyncListener::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                Ok(Accepted::unix(stream.into_std()?))
            }
        }
    }

    /// # Errors
    /// If it cannot be taken off its runtime.
    pub(super) fn into_std(self) -> io::Result<ListeningSocket> {
        Ok(match self {
            AsyncListener::Tcp(it) => ListeningSocket::Tcp(it.into_std()?),
            AsyncListener::Unix(it) => ListeningSocket::Unix(it.into_std()?),
        })
    }
}

impl Accepted {
    fn tcp(stream: TcpStream, peer: SocketAddr) -> Self {
        Accepted { socket: ClientSocket::Tcp(stream), peer }
    }

    fn unix(stream: UnixStream) -> Self {
        let peer = SocketAddr::new(UNIX_PEER, 0);
        Accepted { socket: ClientSocket::Unix(stream), peer }
    }
}

impl ClientSocket {
    /// # Errors
    /// If the connection is gone already.
    pub(super) fn prepare(&self) -> io::Result<()> {
        match self {
            ClientSocket::Tcp(stream) => {
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                enable_keepalive(stream);
                Ok(())
            }
            ClientSocket::Unix(stream) => stream.set_nonblocking(true),
        }
    }

    /// Writes what the client takes at once: the connection is closed all the same.
    pub(super) fn write_once(&mut self, answer: &[u8]) {
        let _ = match self {
            ClientSocket::Tcp(stream) => io::Write::write(stream, answer),
            ClientSocket::Unix(stream) => io::Write::write(stream, answer),
        };
    }

    /// Puts it on the current runtime.
    ///
    /// # Errors
    /// If that cannot watch it.
    pub(super) fn into_stream(self) -> io::Result<Stream> {
        Ok(match self {
            ClientSocket::Tcp(stream) => tokio::net::TcpStream::from_std(stream)?.into(),
            ClientSocket::Unix(stream) => tokio::net::UnixStream::from_std(stream)?.into(),
        })
    }
}

/// # Errors
/// If the address is in use, not of this machine, or not allowed.
pub(crate) fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    bind_with(address, false)
}

/// The same for an address that a process of the same user shares.
///
/// # Errors
/// As before, and if it is in use and not shared.
pub(crate) fn bind_shared(address: SocketAddr) -> io::Result<TcpListener> {
    bind_with(address, true)
}

fn bind_with(address: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let domain = if address.is_ipv6() { Domain::IPV6 } else { Domain::IPV4 };
    let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
    // A restart must not wait for the last connections of the process before it.
    socket.set_reuse_address(true)?;
    if shared {
        socket.set_reuse_port(true)?;
    }
    if address.is_ipv6() {
        // `[::]` and `0.0.0.0` may stand side by side on one port.
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Takes the place of a socket that a process has left behind. Nobody can connect before it listens,
/// and by then it has its permissions.
fn bind_unix(path: &Path, mode: u32) -> io::Result<UnixListener> {
    // Of two processes that start at once, neither takes the other's socket for one left behind.
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    let folder = fs::File::open(folder.unwrap_or(Path::new(".")))?;
    rustix::fs::flock(&folder, rustix::fs::FlockOperation::LockExclusive)?;
    remove_abandoned(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::unix(path)?)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// A socket that somebody listens on stays, and so does a file that is none.
fn remove_abandoned(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            Err(io::Error::new(io::ErrorKind::AlreadyExists, "the file there is not a socket"))
        }
        Ok(_) => match UnixStream::connect(path) {
            Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
#[path = "socket/tests.rs"]
mod tests;
