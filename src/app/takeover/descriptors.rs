//! Listening sockets on their way from one process to another (`SCM_RIGHTS`).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Goes with each socket, and after the last.
const ONE: u8 = b'+';
const END: u8 = b'\n';
/// More than any configuration has.
const MOST: usize = 4096;

/// Sends one socket, or that there are no more.
pub(super) fn send(to: impl AsFd, socket: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let sockets = socket.as_slice();
    if !sockets.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(sockets));
    }
    let mark = [if sockets.is_empty() { END } else { ONE }];
    sendmsg(to, &[IoSlice::new(&mark)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives sockets until there are no more.
pub(super) fn receive_all(from: impl AsFd) -> io::Result<Vec<OwnedFd>> {
    let mut sockets = Vec::new();
    loop {
        let (mark, socket) = receive(&from)?;
        match (mark, socket) {
            (END, None) => return Ok(sockets),
            (ONE, Some(socket)) if sockets.len() < MOST => sockets.push(socket),
            _ => return Err(io::Error::other("it does not speak as a gateway does")),
        }
    }
}

fn receive(from: impl AsFd) -> io::Result<(u8, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut mark = [0];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(from, &mut [IoSliceMut::new(&mut mark)], &mut control, flags)?;
    if got.bytes == 0 {
        return Err(io::Error::other("it has closed the connection"));
    }
    let mut socket = None;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(sockets) = message {
            socket = sockets.last();
        }
    }
    Ok((mark[0], socket))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn sockets_arrive_in_order_and_are_the_same() {
        let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let (one, other) = UnixStream::pair().unwrap();
        for listener in &listeners {
            send(&one, Some(listener.as_fd())).unwrap();
        }
        send(&one, None).unwrap();
        let received = receive_all(&other).unwrap().into_iter().map(TcpListener::from);
        let address = |it: &TcpListener| it.local_addr().unwrap();
        let received: Vec<_> = received.map(|it| address(&it)).collect();
        assert_eq!(received, listeners.each_ref().map(address));
    }

    #[test]
    fn an_end_before_the_end_is_an_error() {
        let (one, other) = UnixStream::pair().unwrap();
        drop(one);
        assert!(receive_all(&other).is_err());
    }
}
