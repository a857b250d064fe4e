//! A client that sends exactly the bytes it is given.

use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::PATIENCE;
use super::response::Response;
use super::wire::{ReadError, Transport, Wire};

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) wire: Wire,
}

impl Client {
    #[track_caller]
    pub(crate) fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)
            .unwrap_or_else(|error| panic!("connect to {address}: {error}"));
        Client { wire: Wire::new(stream) }
    }

    /// The same, if anybody listens there.
    pub(crate) fn try_connect(address: SocketAddr) -> Option<Client> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE).ok()?;
        Some(Client { wire: Wire::new(stream) })
    }

    /// Over a Unix socket.
    #[track_caller]
    pub(crate) fn connect_unix(path: &Path) -> Client {
        let stream = UnixStream::connect(path)
            .unwrap_or_else(|error| panic!("connect to {}: {error}", path.display()));
        Client { wire: Wire::over(Transport::Unix(stream)) }
    }

    /// Writes what the peer will take of it.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.wire.write(bytes.as_ref());
    }

    /// The next whole answer.
    #[track_caller]
    pub(crate) fn response(&mut self) -> Response {
        let response = self.try_response();
        let response = response.unwrap_or_else(|stop| panic!("no answer: {stop:?}"));
        assert!(!response.truncated, "cut off: {response:#?}");
        response
    }

    /// The next whole answer to a HEAD.
    #[track_caller]
    pub(crate) fn head_response(&mut self) -> Response {
        Response::read(&mut self.wire, true).unwrap_or_else(|stop| panic!("no answer: {stop:?}"))
    }

    /// The next answer, if one comes.
    pub(crate) fn try_response(&mut self) -> Result<Response, ReadError> {
        Response::read(&mut self.wire, false)
    }

    /// Sends a request and reads its answer.
    #[track_caller]
    pub(crate) fn ask(&mut self, request: impl AsRef<[u8]>) -> Response {
        self.send(request);
        self.response()
    }

    /// Sends a request and returns the answer, or why there was none.
    pub(crate) fn try_ask(&mut self, request: impl AsRef<[u8]>) -> Result<Response, ReadError> {
        self.send(request);
        self.try_response()
    }

    /// Whether nothing comes for a while and the connection stays: only for what must *not*
    /// happen, where there is no condition to wait for.
    pub(crate) fn stays_silent(&mut self) -> bool {
        self.wire.set_patience(Duration::from_millis(150));
        let silent = self.wire.fill() == Err(ReadError::Silence);
        self.wire.set_patience(PATIENCE);
        silent
    }

    /// Whether the peer closes without sending another byte.
    pub(crate) fn closes(&mut self) -> bool {
        self.wire.closes()
    }
}
