//! Listening sockets that others have opened: the service manager, or the process before this one.
//!
//! They are told apart by the address they are bound to, so nothing has to be named twice. An address
//! that the configuration has and nobody has passed is bound as usual.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;

use listenfd::ListenFd;
use socket2::{SockAddr, SockRef};

use crate::config::settings::ListenAddress;
use crate::listen::socket::ListeningSocket;

#[derive(Debug, thiserror::Error)]
pub(crate) enum InheritedError {
    #[error(
        "cannot take the socket number {0} of LISTEN_FDS: {1}; pass listening stream sockets only"
    )]
    Unusable(usize, #[source] io::Error),
    #[error(
        "LISTEN_FDS passes a socket for {0}, which is no address of this configuration; write \
         ListenStream= as server.listen or admin.listen is written"
    )]
    Unclaimed(String),
}

/// Who has opened a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    ServiceManager,
    Predecessor,
}

#[derive(Debug)]
struct InheritedSocket {
    origin: Origin,
    socket: OwnedFd,
    address: SockAddr,
}

/// The sockets that no listener has claimed yet.
#[derive(Debug, Default)]
pub(super) struct InheritedSockets(Vec<InheritedSocket>);

impl InheritedSockets {
    /// Those of `LISTEN_FDS`. Takes the variables out of the environment, so it has to be called
    /// before there are threads.
    ///
    /// # Errors
    /// If one of them does not listen.
    pub(super) fn from_service_manager() -> Result<Self, InheritedError> {
        let mut passed = ListenFd::from_env();
        let mut sockets = InheritedSockets::default();
        for index in 0..passed.len() {
            let unusable = |error| InheritedError::Unusable(index, error);
            let socket: Option<OwnedFd> = match passed.take_tcp_listener(index) {
                Ok(socket) => socket.map(OwnedFd::from),
                Err(_) => passed.take_unix_listener(index).map_err(unusable)?.map(OwnedFd::from),
            };
            if let Some(socket) = socket {
                sockets.add(Origin::ServiceManager, socket).map_err(unusable)?;
            }
        }
        Ok(sockets)
    }

    /// Adds those of the process before this one. They come before others of the same address.
    ///
    /// # Errors
    /// If one of them does not listen.
    pub(super) fn add_taken_over(&mut self, sockets: Vec<OwnedFd>) -> io::Result<()> {
        sockets.into_iter().try_for_each(|socket| self.add(Origin::Predecessor, socket))
    }

    fn add(&mut self, origin: Origin, socket: OwnedFd) -> io::Result<()> {
        let about = SockRef::from(&socket);
        if !about.is_listener()? {
            return Err(io::Error::other("it does not listen"));
        }
        about.set_nonblocking(true)?;
        let address = about.local_addr()?;
        self.0.push(InheritedSocket { origin, socket, address });
        Ok(())
    }

    /// The socket that is bound to this address, if there is one.
    pub(super) fn take_tcp(&mut self, address: SocketAddr) -> Option<TcpListener> {
        self.take_fitting(|it| it.as_socket() == Some(address)).map(TcpListener::from)
    }

    /// The same for the address of a data listener.
    pub(super) fn take(&mut self, address: &ListenAddress) -> Option<ListeningSocket> {
        match address {
            ListenAddress::Tcp(address) => self.take_tcp(*address).map(ListeningSocket::Tcp),
            ListenAddress::Unix { path, .. } => {
                let found = self.take_fitting(|it| it.as_pathname() == Some(path));
                found.map(|it| ListeningSocket::Unix(UnixListener::from(it)))
            }
        }
    }

    fn take_fitting(&mut self, fits: impl Fn(&SockAddr) -> bool) -> Option<OwnedFd> {
        // With both, the service manager's is another descriptor of the same socket.
        let mut found: Vec<_> = self.0.extract_if(.., |it| fits(&it.address)).collect();
        found.sort_by_key(|it| it.origin == Origin::ServiceManager);
        found.into_iter().next().map(|it| it.socket)
    }

    /// What is left once every listener has its socket: those of the process before are closed, since
    /// the configuration has them no more.
    ///
    /// # Errors
    /// If the service manager has passed one of them: its socket unit and the configuration differ.
    pub(super) fn close_unclaimed(self) -> Result<(), InheritedError> {
        for left in self.0 {
            let address = name(&left.address);
            match left.origin {
                Origin::ServiceManager => return Err(InheritedError::Unclaimed(address)),
                Origin::Predecessor => tracing::info!("no longer listening on {address}"),
            }
        }
        Ok(())
    }
}

impl InheritedSockets {
    /// Why an address is in use, if that is because of a socket that the service manager has passed for
    /// another address of the same port. `configured` are all addresses there are.
    pub(super) fn in_the_way(
        &self,
        address: SocketAddr,
        configured: &[SocketAddr],
    ) -> Option<InheritedError> {
        let passed = self.0.iter().filter(|it| it.origin == Origin::ServiceManager);
        let mut others = passed.filter_map(|it| it.address.as_socket());
        let other = others.find(|it| it.port() == address.port() && !configured.contains(it))?;
        Some(InheritedError::Unclaimed(other.to_string()))
    }
}

fn name(address: &SockAddr) -> String {
    match (address.as_socket(), address.as_pathname()) {
        (Some(address), _) => address.to_string(),
        (_, Some(path)) => path.display().to_string(),
        _ => "an address without a name".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener() -> (OwnedFd, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        (listener.into(), address)
    }

    #[test]
    fn a_socket_is_found_by_its_address_and_once() {
        let ((one, first), (other, second)) = (listener(), listener());
        let mut sockets = InheritedSockets::default();
        sockets.add_taken_over(vec![one, other]).unwrap();
        assert_eq!(sockets.take_tcp(second).unwrap().local_addr().unwrap(), second);
        assert!(sockets.take_tcp(second).is_none());
        assert!(sockets.take_tcp(first).is_some());
        assert!(sockets.close_unclaimed().is_ok());
    }

    #[test]
    fn a_unix_socket_is_found_by_its_path() {
        let folder = crate::test_folder::TestFolder::new();
        let path = folder.join("s");
        let address = ListenAddress::Unix { path: path.clone(), mode: 0o600 };
        let ListeningSocket::Unix(bound) = ListeningSocket::bind(&address).unwrap() else {
            panic!("a Unix socket");
        };
        let mut sockets = InheritedSockets::default();
        sockets.add_taken_over(vec![bound.into()]).unwrap();
        let other = ListenAddress::Unix { path: folder.join("t"), mode: 0o600 };
        assert!(sockets.take(&other).is_none());
        assert!(sockets.take(&address).is_some());
    }

    #[test]
    fn what_the_service_manager_passes_has_to_be_configured() {
        let (socket, address) = listener();
        let mut sockets = InheritedSockets::default();
        sockets.add(Origin::ServiceManager, socket).unwrap();
        let error = sockets.close_unclaimed().unwrap_err().to_string();
        assert!(error.contains(&address.to_string()), "{error}");
    }

    #[test]
    fn a_socket_for_another_address_of_the_port_is_in_the_way() {
        let (socket, passed) = listener();
        let mut sockets = InheritedSockets::default();
        sockets.add(Origin::ServiceManager, socket).unwrap();
        let all = SocketAddr::new(std::net::Ipv4Addr::UNSPECIFIED.into(), passed.port());
        let error = sockets.in_the_way(all, &[all]).unwrap().to_string();
        assert!(error.contains(&format!("a socket for {passed}, which is no address")), "{error}");
        assert!(sockets.in_the_way(all, &[all, passed]).is_none(), "it is one");
        let other = SocketAddr::new(all.ip(), passed.port() ^ 1);
        assert!(sockets.in_the_way(other, &[other]).is_none(), "another port");
    }

    #[test]
    fn a_socket_that_does_not_listen_is_refused() {
        let (_listener, address) = listener();
        let connected = std::net::TcpStream::connect(address).unwrap();
        let mut sockets = InheritedSockets::default();
        assert!(sockets.add_taken_over(vec![connected.into()]).is_err());
    }
}
