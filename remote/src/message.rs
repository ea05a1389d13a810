//! The messages between holder and server, and their bytes.
//!
//! ```text
//!   length u32 │ lease u64 │ number u64 │ kind u8 │ fields          little-endian; the length counts what stands behind it
//! ```
//!
//! A request has a number; its answer has the same, and both name the lease. Numbers of a lease begin with 1 and rise
//! by 1; the request that opens it has a number that is drawn. A page is named by its index in the server's export: segment × pages of a segment + page of the segment.

use std::fmt;

/// Of the protocol; another one is refused.
pub const VERSION: u16 = 1;

/// The longest message that is read: a run of 64 pages of 4 KiB and what stands before it.
pub const MESSAGE_MAX: usize = (64 * 4096) + 64;

/// A request of a holder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ask {
    /// A lease, for pages of this length.
    Open {
        /// [`VERSION`].
        version: u16,
        /// Bytes of a page.
        page_bytes: u32,
    },
    /// Number of segments that it wants more; fewer may be granted.
    Grant(u32),
    /// Read neighbouring pages.
    Read {
        /// The first.
        page: u64,
        /// Number of pages.
        pages: u32,
    },
    /// Write neighbouring pages.
    Write {
        /// The first.
        page: u64,
        /// Their bytes.
        bytes: Vec<u8>,
    },
    /// Nothing but that the holder lives.
    Renew,
    /// The lease is over; its segments go back.
    Close,
    /// State and counts of the server; needs no lease.
    Status,
}

/// An answer of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Told {
    /// The lease is granted.
    Opened {
        /// Milliseconds without a request after which the lease ends.
        grace_ms: u32,
        /// Pages of a segment.
        segment_pages: u32,
        /// Segments that are free.
        free_segments: u32,
    },
    /// These segments are the lease's now.
    Granted(Vec<u32>),
    /// The bytes that were read.
    Pages(Vec<u8>),
    /// It was done.
    Done {
        /// Segments that are free.
        free_segments: u32,
        /// Does the server want its memory back?
        draining: bool,
    },
    /// It was not done.
    Refused(Refusal),
    /// The status, as lines for people.
    Status(String),
}

/// Why a server does not do what it was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Refusal {
    /// There is no such lease, or it has ended.
    NoLease = 1,
    /// The segment is not the lease's.
    NotOwner,
    /// The request is not younger than one that was seen already.
    OutOfOrder,
    /// The other side speaks another version of the protocol.
    Version,
    /// Pages of this length are not served.
    PageSize,
    /// The server is being ended and grants no lease.
    Draining,
    /// The request makes no sense.
    Malformed,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoLease => "the lease has ended",
            Self::NotOwner => "the segment belongs to another lease",
            Self::OutOfOrder => "the request came out of order",
            Self::Version => {
                "the server speaks another version of the protocol; use the same release on both sides"
            }
            Self::PageSize => "the server serves pages of another length",
            Self::Draining => "the server is being ended",
            Self::Malformed => "the request makes no sense",
        })
    }
}

/// A request or an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message<T> {
    /// Of the holder; 0 for [`Ask::Open`] and [`Ask::Status`].
    pub lease: u64,
    /// Of the request.
    pub number: u64,
    /// The request or the answer.
    pub body: T,
}

/// The bytes are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("what the other side sent is no message of this protocol")
    }
}

impl std::error::Error for Malformed {}

/// Reads fields off the front.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*head)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.take().map(u64::from_le_bytes)
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

/// A body that stands in a message.
pub trait Body: Sized {
    /// Appends kind and fields.
    fn put(&self, out: &mut Vec<u8>);
    /// Reads kind and fields: all that is there.
    ///
    /// # Errors
    /// When they are none.
    fn get(bytes: &[u8]) -> Result<Self, Malformed>;
}

impl Body for Ask {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Open { version, page_bytes } => {
                out.push(1);
                out.extend(version.to_le_bytes());
                out.extend(page_bytes.to_le_bytes());
            }
            Self::Grant(segments) => {
                out.push(2);
                out.extend(segments.to_le_bytes());
            }
            Self::Read { page, pages } => {
                out.push(3);
                out.extend(page.to_le_bytes());
                out.extend(pages.to_le_bytes());
            }
            Self::Write { page, bytes } => {
                out.push(4);
                out.extend(page.to_le_bytes());
                out.extend_from_slice(bytes);
            }
            Self::Renew => out.push(5),
            Self::Close => out.push(6),
            Self::Status => out.push(7),
        }
    }

    fn get(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut fields = Fields(bytes);
        let [kind] = fields.take()?;
        let ask = match kind {
            1 => Self::Open { version: u16::from_le_bytes(fields.take()?), page_bytes: fields.u32()? },
            2 => Self::Grant(fields.u32()?),
            3 => Self::Read { page: fields.u64()?, pages: fields.u32()? },
            4 => Self::Write { page: fields.u64()?, bytes: fields.rest().to_vec() },
            5 => Self::Renew,
            6 => Self::Close,
            7 => Self::Status,
            _ => return Err(Malformed),
        };
        if fields.0.is_empty() { Ok(ask) } else { Err(Malformed) }
    }
}

impl Body for Told {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Opened { grace_ms, segment_pages, free_segments } => {
                out.push(1);
                [grace_ms, segment_pages, free_segments]
                    .iter()
                    .for_each(|field| out.extend(field.to_le_bytes()));
            }
            Self::Granted(segments) => {
                out.push(2);
                segments.iter().for_each(|segment| out.extend(segment.to_le_bytes()));
            }
            Self::Pages(bytes) => {
                out.push(3);
                out.extend_from_slice(bytes);
            }
            Self::Done { free_segments, draining } => {
                out.push(4);
                out.extend(free_segments.to_le_bytes());
                out.push(u8::from(*draining));
            }
            Self::Refused(why) => out.extend([5, *why as u8]),
            Self::Status(text) => {
                out.push(6);
                out.extend_from_slice(text.as_bytes());
            }
        }
    }

    fn get(bytes: &[u8]) -> Result<Self, Malformed> {
        use Refusal::{Draining, Malformed as Senseless, NoLease, NotOwner, OutOfOrder, PageSize, Version};
        let mut fields = Fields(bytes);
        let [kind] = fields.take()?;
        let told = match kind {
            1 => Self::Opened {
                grace_ms: fields.u32()?,
                segment_pages: fields.u32()?,
                free_segments: fields.u32()?,
            },
            2 => {
                let (segments, rest) = fields.rest().as_chunks::<4>();
                if !rest.is_empty() {
                    return Err(Malformed);
                }
                Self::Granted(segments.iter().map(|four| u32::from_le_bytes(*four)).collect())
            }
            3 => Self::Pages(fields.rest().to_vec()),
            4 => Self::Done { free_segments: fields.u32()?, draining: fields.take::<1>()? != [0] },
            5 => {
                let [code] = fields.take()?;
                let all = [NoLease, NotOwner, OutOfOrder, Version, PageSize, Draining, Senseless];
                Self::Refused(all.into_iter().find(|why| *why as u8 == code).ok_or(Malformed)?)
            }
            6 => Self::Status(String::from_utf8(fields.rest().to_vec()).map_err(|_| Malformed)?),
            _ => return Err(Malformed),
        };
        if fields.0.is_empty() { Ok(told) } else { Err(Malformed) }
    }
}

impl<T: Body> Message<T> {
    /// Appends its bytes.
    pub fn put(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend([0; 4]);
        out.extend(self.lease.to_le_bytes());
        out.extend(self.number.to_le_bytes());
        self.body.put(out);
        let len = (out.len() - start - 4) as u32;
        out[start..start + 4].copy_from_slice(&len.to_le_bytes());
    }

    /// Reads the message at the front, and how many bytes it takes. `None`: it is not there whole.
    ///
    /// # Errors
    /// When it is longer than `max`, or none.
    pub fn get(bytes: &[u8], max: usize) -> Result<Option<(Self, usize)>, Malformed> {
        let Some((head, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
        let len = u32::from_le_bytes(*head) as usize;
        if len > max {
            return Err(Malformed);
        }
        let Some(whole) = rest.get(..len) else { return Ok(None) };
        let mut fields = Fields(whole);
        let (lease, number) = (fields.u64()?, fields.u64()?);
        Ok(Some((Self { lease, number, body: T::get(fields.rest())? }, len + 4)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn comes_back<T: Body + PartialEq + fmt::Debug + Clone>(body: &T) {
        let message = Message { lease: 1 << 60, number: 77, body: body.clone() };
        let mut bytes = Vec::new();
        message.put(&mut bytes);
        for cut in 0..bytes.len() {
            assert_eq!(Message::<T>::get(&bytes[..cut], MESSAGE_MAX), Ok(None));
        }
        let len = bytes.len();
        bytes.push(9);
        assert_eq!(Message::get(&bytes, MESSAGE_MAX), Ok(Some((message, len))));
        assert_eq!(Message::<T>::get(&bytes, len - 5), Err(Malformed), "longer than is read");
    }

    #[test]
    fn messages_come_back() {
        [
            Ask::Open { version: VERSION, page_bytes: 4096 },
            Ask::Grant(7),
            Ask::Read { page: 1 << 35, pages: 64 },
            Ask::Write { page: 3, bytes: vec![5; 100] },
            Ask::Renew,
            Ask::Close,
            Ask::Status,
        ]
        .iter()
        .for_each(comes_back);
        [
            Told::Opened { grace_ms: 30_000, segment_pages: 16_384, free_segments: 9 },
            Told::Granted(vec![1, 2, 1 << 30]),
            Told::Pages(vec![1; 50]),
            Told::Done { free_segments: 3, draining: true },
            Told::Refused(Refusal::Draining),
            Told::Status("two\nlines".to_owned()),
        ]
        .iter()
        .for_each(comes_back);
    }

    proptest! {
        #[test]
        fn random_bytes_are_refused_or_read(bytes in prop::collection::vec(any::<u8>(), 0..80), short in any::<bool>()) {
            let mut bytes = bytes;
            if short && bytes.len() > 4 {
                let len = bytes.len() as u32 - 4;
                bytes[..4].copy_from_slice(&len.to_le_bytes());
            }
            let _ = Message::<Ask>::get(&bytes, MESSAGE_MAX);
            let _ = Message::<Told>::get(&bytes, MESSAGE_MAX);
        }
    }
}
