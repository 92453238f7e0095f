//! A WebSocket client that costs next to nothing: it looks at the first bytes of each frame and counts. The load it makes
//! must not take the machine from the server it measures.

use std::{cell::RefCell, io, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

/// Of each frame this much is kept to look at.
const KEPT: usize = 1024;
/// What is read at once, into one buffer for all lines.
const READ: usize = 256 * 1024;
/// What the kernel keeps for a narrow line, on either side.
pub(crate) const NARROW: u32 = 8 * 1024;
/// Longer than anything takes that goes well.
const READ_TIMEOUT: Duration = Duration::from_secs(120);

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ]);
}

/// What a line does with what it hears.
pub(crate) enum ReadControl {
    Continue,
    Stop,
}

/// One connection.
pub(crate) struct WireConnection {
    stream: TcpStream,
    frame: PartialFrame,
    /// Bytes that came with the end of the handshake.
    early: Vec<u8>,
}

/// A frame that is being read.
#[derive(Default)]
struct PartialFrame {
    head: Vec<u8>,
    opcode: u8,
    /// Of the payload, still to come.
    left: u64,
    text: Vec<u8>,
}

impl PartialFrame {
    /// Takes bytes and passes each complete frame on. Returns the rest when the receiver stops.
    fn feed(
        &mut self,
        mut bytes: &[u8],
        received: &mut impl FnMut(u8, &[u8]) -> ReadControl,
    ) -> Option<usize> {
        loop {
            if self.left == 0 && self.opcode == 0 {
                let (&first, rest) = bytes.split_first()?;
                self.head.push(first);
                bytes = rest;
                let Some(length) = length_of(&self.head) else { continue };
                self.opcode = self.head[0] & 0x0f | 0x80;
                self.left = length;
                self.head.clear();
                self.text.clear();
            }
            let here = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
            let kept = here.min(KEPT - self.text.len());
            self.text.extend_from_slice(&bytes[..kept]);
            self.left -= here as u64;
            bytes = &bytes[here..];
            if self.left > 0 {
                return None;
            }
            let opcode = std::mem::take(&mut self.opcode) & 0x0f;
            if let ReadControl::Stop = received(opcode, &self.text) {
                return Some(bytes.len());
            }
        }
    }
}

/// The length of the payload, once the head of the frame is whole.
fn length_of(head: &[u8]) -> Option<u64> {
    match (*head.get(1)? & 0x7f, head.len()) {
        (short @ 0..126, 2) => Some(u64::from(short)),
        (126, 4) => Some(u64::from(u16::from_be_bytes([head[2], head[3]]))),
        (127, 10) => Some(u64::from_be_bytes(head[2..10].try_into().ok()?)),
        _ => None,
    }
}

impl WireConnection {
    pub(crate) async fn connect(address: SocketAddr, path: &str) -> io::Result<Self> {
        Self::over(TcpStream::connect(address).await?, address, path).await
    }

    /// A line for which the kernel keeps next to nothing.
    pub(crate) async fn narrow(address: SocketAddr, path: &str) -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(NARROW)?;
        Self::over(socket.connect(address).await?, address, path).await
    }

    async fn over(mut stream: TcpStream, address: SocketAddr, path: &str) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        let end = loop {
            let mut some = [0; 1024];
            let count = timeout(READ_TIMEOUT, stream.read(&mut some)).await??;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            answer.extend_from_slice(&some[..count]);
            if let Some(at) = answer.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
        };
        if !answer.starts_with(b"HTTP/1.1 101") {
            return Err(io::Error::other(String::from_utf8_lossy(&answer).into_owned()));
        }
        Ok(Self { stream, frame: PartialFrame::default(), early: answer.split_off(end) })
    }

    /// Sends one text frame, with a mask of zeros, which is one.
    pub(crate) async fn send(&mut self, text: &str) -> io::Result<()> {
        self.write(0x81, text.as_bytes()).await
    }

    /// Says good-bye.
    pub(crate) async fn close(&mut self) -> io::Result<()> {
        self.write(0x88, &1000_u16.to_be_bytes()).await
    }

    async fn write(&mut self, first: u8, payload: &[u8]) -> io::Result<()> {
        let mut frame = vec![first];
        match payload.len() {
            short @ 0..126 => frame.push(0x80 | short as u8),
            long => {
                frame.push(0x80 | 126);
                frame.extend((long as u16).to_be_bytes());
            }
        }
        frame.extend([0; 4]);
        frame.extend(payload);
        self.stream.write_all(&frame).await
    }

    /// Receives text frames until the receiver stops. Pings are answered.
    pub(crate) async fn read_frames(
        &mut self,
        mut received: impl FnMut(&[u8]) -> ReadControl,
    ) -> io::Result<()> {
        loop {
            let mut pings = 0;
            let mut closed = None;
            let mut look = |opcode: u8, text: &[u8]| match opcode {
                1 => received(text),
                8 => {
                    closed = Some(String::from_utf8_lossy(text).into_owned());
                    ReadControl::Stop
                }
                9 => {
                    pings += 1;
                    ReadControl::Continue
                }
                _ => ReadControl::Continue,
            };
            let rest = if self.early.is_empty() {
                timeout(READ_TIMEOUT, self.stream.readable()).await??;
                SCRATCH.with_borrow_mut(|scratch| match self.stream.try_read(scratch) {
                    Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(count) => {
                        let rest = self.frame.feed(&scratch[..count], &mut look);
                        self.early
                            .extend(rest.map_or(&[][..], |rest| &scratch[count - rest..count]));
                        Ok(rest)
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                    Err(error) => Err(error),
                })?
            } else {
                let early = std::mem::take(&mut self.early);
                let rest = self.frame.feed(&early, &mut look);
                self.early.extend(rest.map_or(&[][..], |rest| &early[early.len() - rest..]));
                rest
            };
            for _ in 0..pings {
                self.write(0x8a, &[]).await?;
            }
            if let Some(reason) = closed {
                return Err(io::Error::other(format!("closed: {reason}")));
            }
            if rest.is_some() {
                return Ok(());
            }
        }
    }

    /// The first frame that holds this text, as far as it was kept.
    pub(crate) async fn until(&mut self, text: &str) -> io::Result<String> {
        let mut found = String::new();
        self.read_frames(|frame| match holds(frame, text.as_bytes()) {
            true => {
                found = String::from_utf8_lossy(frame).into_owned();
                ReadControl::Stop
            }
            false => ReadControl::Continue,
        })
        .await?;
        Ok(found)
    }
}

/// Does a frame hold this, where it says what it is?
pub(crate) fn holds(frame: &[u8], text: &[u8]) -> bool {
    frame.windows(text.len()).any(|part| part == text)
}

/// Does a frame begin with this event?
pub(crate) fn is(frame: &[u8], event: &str) -> bool {
    holds(&frame[..frame.len().min(48)], event.as_bytes())
}
