//! The two kinds of sockets as one.

use std::io;

use bytes::BytesMut;
use tokio::net::{TcpStream, UnixStream};

/// A socket of a client.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A socket on its way from one runtime to another.
#[derive(Debug)]
pub(crate) enum Detached {
    Tcp(std::net::TcpStream),
    Unix(std::os::unix::net::UnixStream),
}

impl Stream {
    /// Where the client is; none at a Unix socket.
    pub(crate) fn peer_address(&self) -> Option<std::net::SocketAddr> {
        match self {
            Self::Tcp(stream) => stream.peer_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    /// The number that the system knows it by.
    pub(crate) fn number(&self) -> u64 {
        use std::os::fd::AsRawFd;
        let number = match self {
            Self::Tcp(stream) => stream.as_raw_fd(),
            Self::Unix(stream) => stream.as_raw_fd(),
        };
        u64::try_from(number).unwrap_or(0)
    }

    /// Has the client closed its side? What it has sent before may still be unread.
    pub(crate) fn is_gone(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, poll};
        #[cfg(target_os = "linux")]
        let closed = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        #[cfg(not(target_os = "linux"))]
        let closed = PollFlags::HUP | PollFlags::ERR;
        let mut fds = match self {
            Self::Tcp(stream) => [PollFd::new(stream, closed)],
            Self::Unix(stream) => [PollFd::new(stream, closed)],
        };
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).is_ok_and(|count| count > 0 && fds[0].revents().intersects(closed))
    }

    /// Writes what the socket takes at once.
    pub(crate) fn try_write(&self, bytes: &[u8]) {
        let _ = match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Unix(stream) => stream.try_write(bytes),
        };
    }

    pub(crate) fn detach(self) -> io::Result<Detached> {
        Ok(match self {
            Self::Tcp(stream) => Detached::Tcp(stream.into_std()?),
            Self::Unix(stream) => Detached::Unix(stream.into_std()?),
        })
    }

    /// Takes a socket over in the runtime of this thread.
    pub(crate) fn attach(stream: Detached) -> io::Result<Self> {
        Ok(match stream {
            Detached::Tcp(stream) => Self::Tcp(TcpStream::from_std(stream)?),
            Detached::Unix(stream) => Self::Unix(UnixStream::from_std(stream)?),
        })
    }

    /// Is the peer on this machine?
    pub(crate) fn is_local(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.peer_addr().is_ok_and(|peer| peer.ip().to_canonical().is_loopback()),
            Self::Unix(_) => true,
        }
    }

    /// Reads what is there, after waiting for something to be; 0 at the end.
    pub(crate) async fn read(&self, into: &mut BytesMut) -> io::Result<usize> {
        loop {
            let read = match self {
                Self::Tcp(stream) => {
                    stream.readable().await?;
                    stream.try_read_buf(into)
                }
                Self::Unix(stream) => {
                    stream.readable().await?;
                    stream.try_read_buf(into)
                }
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
        }
    }

    /// Writes as much as the socket takes at once.
    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Unix(stream) => stream.try_write(bytes),
        }
    }

    /// Waits until the socket takes more.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.writable().await,
            Self::Unix(stream) => stream.writable().await,
        }
    }

    /// Writes everything.
    pub(crate) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
