//! Passes the three standard streams of a program from the parent to its supervisor over their socket.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use rustix::{
    cmsg_space,
    io::{FdFlags, fcntl_setfd},
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
    },
};

/// The number of streams: standard input, output and error output.
const STREAMS: usize = 3;

/// The data byte that carries the descriptors.
const CARRIER: u8 = b's';

/// Sends the streams. Does not block on a new socket.
pub(super) fn send(control: &UnixStream, streams: [BorrowedFd<'_>; STREAMS]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(STREAMS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(&streams)) {
        return Err(io::Error::other("the streams do not fit into the message"));
    }
    sendmsg(control, &[IoSlice::new(&[CARRIER])], &mut ancillary, SendFlags::empty())?;
    Ok(())
}

/// Receives the streams as close-on-exec descriptors.
pub(super) fn receive(control: &UnixStream) -> io::Result<[OwnedFd; STREAMS]> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(STREAMS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut carrier = [0];
    #[cfg(target_os = "linux")]
    let flags = RecvFlags::CMSG_CLOEXEC;
    #[cfg(not(target_os = "linux"))]
    let flags = RecvFlags::empty();
    recvmsg(control, &mut [IoSliceMut::new(&mut carrier)], &mut ancillary, flags)?;
    let mut streams = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            streams.extend(received);
        }
    }
    for stream in &streams {
        fcntl_setfd(stream, FdFlags::CLOEXEC)?;
    }
    streams.try_into().map_err(|_| io::Error::other("the parent sent no streams"))
}
