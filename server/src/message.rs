//! Messages of clients: from the bytes of a body to what they say.
//!
//! | found | is | the connection |
//! |---|---|---|
//! | a body that is shorter or longer than what it says | [`Wrong::Malformed`], 08P01 | ends |
//! | a text that is not UTF-8 | [`Wrong::Text`], 22021 | goes on behind the error, as PostgreSQL's does |
//!
//! No bytes make this panic, and nothing is allocated that the body does not hold (`every_body_is_read_or_refused`).

use bytes::{Buf, Bytes};
use thermocline_sql::Error;

/// A message of a client that was let in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Query(String),
    Parse {
        name: String,
        text: String,
        /// Types of parameters by OID; 0: it is not said.
        types: Vec<u32>,
    },
    Bind(Bind),
    Describe(Target),
    Execute {
        portal: String,
        /// 0 or less: all.
        max_rows: i32,
    },
    Close(Target),
    Sync,
    Flush,
    Terminate,
    CopyData(Bytes),
    CopyDone,
    CopyFail(String),
    /// A message of this kind with a text that is not UTF-8.
    NoText(u8, Error),
    /// One that is none here: its kind.
    Unexpected(u8),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bind {
    pub(crate) portal: String,
    pub(crate) statement: String,
    pub(crate) formats: Vec<i16>,
    pub(crate) values: Vec<Option<Bytes>>,
    pub(crate) results: Vec<i16>,
}

/// A prepared statement or a portal, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Statement(String),
    Portal(String),
}

/// Why a body is no message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    Malformed(Error),
    Text(Error),
}

impl From<Wrong> for Error {
    fn from(wrong: Wrong) -> Self {
        let (Wrong::Malformed(error) | Wrong::Text(error)) = wrong;
        error
    }
}

type Read<T> = Result<T, Wrong>;

fn malformed(what: &str) -> Wrong {
    Wrong::Malformed(Error::new("08P01", what))
}

/// PostgreSQL's error of a text with the first bytes that are no sign of it.
pub(crate) fn not_utf8(bytes: &[u8]) -> Error {
    let good = match std::str::from_utf8(bytes) {
        Ok(_) => bytes.len(),
        Err(error) => error.valid_up_to(),
    };
    let rest = &bytes[good..];
    // As many bytes as the first one says that its sign has.
    let length = match rest.first() {
        Some(0xc0..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..=0xf7) => 4,
        _ => 1,
    };
    let shown: Vec<String> = rest.iter().take(length).map(|byte| format!("0x{byte:02x}")).collect();
    Error::new("22021", format!("invalid byte sequence for encoding \"UTF8\": {}", shown.join(" ")))
}

/// What is left of a body.
struct Body(Bytes);

impl Body {
    fn has(&self, count: usize) -> Read<()> {
        if self.0.remaining() < count { Err(malformed("insufficient data left in message")) } else { Ok(()) }
    }

    fn byte(&mut self) -> Read<u8> {
        self.has(1)?;
        Ok(self.0.get_u8())
    }

    fn i16(&mut self) -> Read<i16> {
        self.has(2)?;
        Ok(self.0.get_i16())
    }

    /// A count of what follows, of so many bytes each at least.
    fn count(&mut self, each: usize) -> Read<usize> {
        self.has(2)?;
        let count = usize::from(self.0.get_u16());
        self.has(count * each)?;
        Ok(count)
    }

    fn i32(&mut self) -> Read<i32> {
        self.has(4)?;
        Ok(self.0.get_i32())
    }

    /// The bytes up to the next zero.
    fn string(&mut self) -> Read<Bytes> {
        let end = self.0.iter().position(|byte| *byte == 0);
        let end = end.ok_or_else(|| malformed("invalid string in message"))?;
        let text = self.0.split_to(end);
        self.0.advance(1);
        Ok(text)
    }

    fn text(&mut self) -> Read<String> {
        let bytes = self.string()?;
        match std::str::from_utf8(&bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(Wrong::Text(not_utf8(&bytes))),
        }
    }

    /// A length and so many bytes; none where the length is -1.
    fn value(&mut self) -> Read<Option<Bytes>> {
        let length = self.i32()?;
        if length == -1 {
            return Ok(None);
        }
        let length = usize::try_from(length).map_err(|_| malformed("invalid length in message"))?;
        self.has(length)?;
        Ok(Some(self.0.split_to(length)))
    }

    fn target(&mut self, what: &str) -> Read<Target> {
        match self.byte()? {
            b'S' => Ok(Target::Statement(self.text()?)),
            b'P' => Ok(Target::Portal(self.text()?)),
            other => Err(malformed(&format!("invalid {what} message subtype {other}"))),
        }
    }

    fn end<T>(&self, message: T) -> Read<T> {
        if self.0.is_empty() { Ok(message) } else { Err(malformed("invalid message format")) }
    }
}

/// The message that a body of this kind says.
pub(crate) fn decode(kind: u8, body: Bytes) -> Read<Message> {
    let mut body = Body(body);
    let message = match kind {
        b'Q' => Message::Query(body.text()?),
        b'P' => {
            let (name, text) = (body.text()?, body.text()?);
            let count = body.count(4)?;
            let types = (0..count).map(|_| Ok(body.i32()?.cast_unsigned())).collect::<Read<_>>()?;
            Message::Parse { name, text, types }
        }
        b'B' => {
            let (portal, statement) = (body.text()?, body.text()?);
            let count = body.count(2)?;
            let formats = (0..count).map(|_| body.i16()).collect::<Read<_>>()?;
            let count = body.count(4)?;
            let values = (0..count).map(|_| body.value()).collect::<Read<_>>()?;
            let count = body.count(2)?;
            let results = (0..count).map(|_| body.i16()).collect::<Read<_>>()?;
            Message::Bind(Bind { portal, statement, formats, values, results })
        }
        b'D' => Message::Describe(body.target("DESCRIBE")?),
        b'C' => Message::Close(body.target("CLOSE")?),
        b'E' => Message::Execute { portal: body.text()?, max_rows: body.i32()? },
        b'S' => Message::Sync,
        b'H' => Message::Flush,
        b'X' => Message::Terminate,
        b'd' => Message::CopyData(std::mem::take(&mut body.0)),
        b'c' => Message::CopyDone,
        b'f' => Message::CopyFail(body.text()?),
        other => return Ok(Message::Unexpected(other)),
    };
    body.end(message)
}

/// The settings of a startup message, behind its length and version: names and values.
pub(crate) fn startup(body: Bytes) -> Read<Vec<(String, String)>> {
    let layout = || malformed("invalid startup packet layout: expected terminator as last byte");
    let mut body = Body(body);
    let mut settings = Vec::new();
    loop {
        let name =
            body.text().map_err(|wrong| if matches!(wrong, Wrong::Text(_)) { wrong } else { layout() })?;
        if name.is_empty() {
            return if body.0.is_empty() { Ok(settings) } else { Err(layout()) };
        }
        let value =
            body.text().map_err(|wrong| if matches!(wrong, Wrong::Text(_)) { wrong } else { layout() })?;
        settings.push((name, value));
    }
}

/// The first answer of a client to a request for SASL: the mechanism that it has chosen, and what that says first.
pub(crate) fn sasl_initial(body: Bytes) -> Read<(String, Bytes)> {
    let mut body = Body(body);
    let mechanism = body.text()?;
    let data = body.value()?.unwrap_or_default();
    body.end((mechanism, data))
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_base::rng::Rng;

    fn body(parts: &[&[u8]]) -> Bytes {
        Bytes::from(parts.concat())
    }

    #[test]
    fn messages_say_what_stands_in_them() {
        let parse = body(&[b"s\0select $1\0", &[0, 1, 0, 0, 0, 23]]);
        let said = Message::Parse { name: "s".to_owned(), text: "select $1".to_owned(), types: vec![23] };
        assert_eq!(decode(b'P', parse), Ok(said));
        let bind = body(&[b"\0s\0", &[0, 1, 0, 1, 0, 2, 0, 0, 0, 1, 7, 0xff, 0xff, 0xff, 0xff, 0, 0]]);
        let said = Message::Bind(Bind {
            portal: String::new(),
            statement: "s".to_owned(),
            formats: vec![1],
            values: vec![Some(Bytes::from_static(&[7])), None],
            results: Vec::new(),
        });
        assert_eq!(decode(b'B', bind), Ok(said));
        assert_eq!(decode(b'S', Bytes::new()), Ok(Message::Sync));
        assert_eq!(decode(b'D', body(&[b"Px\0"])), Ok(Message::Describe(Target::Portal("x".to_owned()))));
        assert_eq!(decode(b'?', Bytes::new()), Ok(Message::Unexpected(b'?')));
        let settings = startup(body(&[b"user\0postgres\0\0"]));
        assert_eq!(settings, Ok(vec![("user".to_owned(), "postgres".to_owned())]));
        let initial = sasl_initial(body(&[b"SCRAM-SHA-256\0", &[0, 0, 0, 2], b"n,"]));
        assert_eq!(initial, Ok(("SCRAM-SHA-256".to_owned(), Bytes::from_static(b"n,"))));
    }

    #[test]
    fn bodies_that_are_none_are_refused() {
        let code = |read: Read<Message>| match read {
            Err(Wrong::Malformed(error)) => error.code,
            other => panic!("{other:?}"),
        };
        let bad: [(u8, &[u8]); 12] = [
            (b'Q', b"no end"),
            (b'Q', b"select 1\0more"),
            (b'P', b"x"),
            (b'P', b"\0\0\x00\x02\0\0\0\x17"),
            (b'B', b"\0\0\0\x7f"),
            (b'B', b"\0\0\0\0\0\x01\x7f\xff\xff\xff"),
            (b'B', b"\0\0\0\0\0\x01\xff\xff\xff\xfe\0\0"),
            (b'D', b"Xs\0"),
            (b'D', b""),
            (b'E', b"\0\0"),
            (b'S', b"more"),
            (b'c', b"\0"),
        ];
        for (kind, bytes) in bad {
            assert_eq!(code(decode(kind, Bytes::from_static(bytes))), "08P01", "{bytes:?}");
        }
        let beyond = body(&[b"SCRAM-SHA-256\0", &[0x7f, 0xff, 0xff, 0xff], b"n,,"]);
        assert!(matches!(sasl_initial(beyond), Err(Wrong::Malformed(_))));
        assert!(matches!(startup(body(&[b"user\0postgres"])), Err(Wrong::Malformed(_))));
        assert!(matches!(startup(body(&[b"user\0postgres\0\0x"])), Err(Wrong::Malformed(_))));
    }

    #[test]
    fn texts_are_utf8() {
        let text = |read: Read<Message>| match read {
            Err(Wrong::Text(error)) => (error.code, error.message),
            other => panic!("{other:?}"),
        };
        let said = |shown: &str| ("22021", format!("invalid byte sequence for encoding \"UTF8\": {shown}"));
        assert_eq!(text(decode(b'Q', body(&[b"select '\xff'\0"]))), said("0xff"));
        assert_eq!(text(decode(b'Q', body(&[b"select '\xc3'\0"]))), said("0xc3 0x27"));
        assert_eq!(text(decode(b'Q', body(&[b"\xed\xa0\x80\0"]))), said("0xed 0xa0 0x80"));
        assert_eq!(text(decode(b'P', body(&[b"\xfe\0select 1\0\0\0"]))), said("0xfe"));
        assert_eq!(text(decode(b'B', body(&[b"\0\x80\0\0\0\0\0\0\0"]))), said("0x80"));
        assert_eq!(text(decode(b'E', body(&[b"\xe4\0\0\0\0\0"]))), said("0xe4"));
        assert_eq!(text(decode(b'C', body(&[b"S\xf0\x9f\0"]))), said("0xf0 0x9f"));
        assert_eq!(text(decode(b'f', body(&[b"\xff\0"]))), said("0xff"));
    }

    /// The entrance of the fuzz target: whatever bytes come, they are read or refused.
    #[test]
    fn every_body_is_read_or_refused() {
        let mut rng = Rng::new(1);
        for _ in 0..20_000 {
            let mut bytes = vec![0; rng.below(40) as usize];
            rng.fill(&mut bytes);
            // Zeros and small numbers, which counts and ends are.
            bytes.iter_mut().for_each(|byte| *byte = if *byte < 160 { *byte % 5 } else { *byte });
            crate::fuzzing::message(&bytes);
        }
    }
}
