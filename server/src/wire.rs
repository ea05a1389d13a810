//! Messages to the client, written into the connection's send buffer.
//!
//! Rows are written column by column where they are sent from, without a message in between; everything else goes through the
//! messages of `pgwire`.

use bytes::{BufMut, BytesMut};
use pgwire::messages::Message;
use pgwire::messages::data::{FieldDescription, RowDescription};
use pgwire::messages::response::{ErrorResponse, NoticeResponse};
use thermocline_sql::{Column, Datum, Error, Notice, Zone};

/// Text or binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Formats {
    /// All columns in one.
    All(bool),
    /// Each column in its own.
    Each(Vec<bool>),
}

impl Formats {
    /// Text for everything.
    pub(crate) const TEXT: Self = Self::All(false);

    /// The codes of a Bind message: none (text), one for all, or one for each of `count`.
    pub(crate) fn new(codes: &[i16], count: usize) -> Option<Self> {
        let binary = |code: &i16| match code {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        };
        match codes {
            [] => Some(Self::TEXT),
            [code] => binary(code).map(Self::All),
            codes if codes.len() == count => codes.iter().map(binary).collect::<Option<_>>().map(Self::Each),
            _ => None,
        }
    }

    pub(crate) fn is_binary(&self, column: usize) -> bool {
        match self {
            Self::All(binary) => *binary,
            Self::Each(each) => each.get(column).copied().unwrap_or(false),
        }
    }
}

/// Values on their way, kept so that no value allocates, and how they are shown.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    text: String,
    bytes: Vec<u8>,
    /// The zone in which times are shown.
    pub(crate) zone: Zone,
}

/// Writes a message of `pgwire`.
pub(crate) fn put(out: &mut BytesMut, message: &impl Message) {
    message.encode(out).expect("messages of ours are shorter than the protocol's limits");
}

/// Writes a message without a body.
pub(crate) fn put_bare(out: &mut BytesMut, kind: u8) {
    out.put_u8(kind);
    out.put_i32(4);
}

/// Writes a DataRow.
pub(crate) fn put_row(
    out: &mut BytesMut,
    columns: &[Column],
    formats: &Formats,
    row: &[Datum],
    scratch: &mut Scratch,
) {
    #[cfg(test)]
    crate::panic_tests::may_panic(row);
    out.put_u8(b'D');
    let start = out.len();
    out.put_i32(0);
    out.put_i16(columns.len() as i16);
    for (place, (value, column)) in row.iter().zip(columns).enumerate() {
        if value.is_null() {
            out.put_i32(-1);
            continue;
        }
        if formats.is_binary(place) {
            scratch.bytes.clear();
            value.write_binary(column.ty, &mut scratch.bytes);
            out.put_i32(scratch.bytes.len() as i32);
            out.put_slice(&scratch.bytes);
        } else {
            scratch.text.clear();
            column.write_text(value, &scratch.zone, &mut scratch.text);
            out.put_i32(scratch.text.len() as i32);
            out.put_slice(scratch.text.as_bytes());
        }
    }
    let length = (out.len() - start) as i32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

/// Writes a CommandComplete.
pub(crate) fn put_complete(out: &mut BytesMut, tag: &str) {
    out.put_u8(b'C');
    out.put_i32(tag.len() as i32 + 5);
    out.put_slice(tag.as_bytes());
    out.put_u8(0);
}

/// Writes a ReadyForQuery with the session's status.
pub(crate) fn put_ready(out: &mut BytesMut, status: char) {
    out.put_u8(b'Z');
    out.put_i32(5);
    out.put_u8(status as u8);
}

/// Writes a RowDescription.
pub(crate) fn put_columns(out: &mut BytesMut, columns: &[Column], formats: &Formats) {
    let field = |(place, column): (usize, &Column)| {
        FieldDescription::new(
            column.name.clone(),
            0,
            0,
            column.ty.oid(),
            column.ty.length(),
            column.modifier,
            i16::from(formats.is_binary(place)),
        )
    };
    put(out, &RowDescription::new(columns.iter().enumerate().map(field).collect()));
}

/// Writes an ErrorResponse.
pub(crate) fn put_error(out: &mut BytesMut, severity: &str, error: &Error) {
    let mut fields = vec![
        (b'S', severity.to_owned()),
        (b'V', severity.to_owned()),
        (b'C', error.code.to_owned()),
        (b'M', error.message.clone()),
    ];
    let more = [(b'D', &error.detail), (b'H', &error.hint)];
    fields.extend(more.into_iter().filter_map(|(kind, text)| Some((kind, text.clone()?))));
    if let Some(about) = &error.about {
        let more =
            [(b'W', &about.context), (b't', &about.table), (b'c', &about.column), (b'n', &about.constraint)];
        fields.extend(more.into_iter().filter_map(|(kind, text)| Some((kind, text.clone()?))));
        if about.table.is_some() {
            fields.push((b's', "public".to_owned()));
        }
    }
    fields.extend(error.position.map(|position| (b'P', position.to_string())));
    // A message of the protocol ends at a zero byte.
    fields.iter_mut().for_each(|(_, text)| text.retain(|sign| sign != '\0'));
    put(out, &ErrorResponse::new(fields));
}

/// Writes a NoticeResponse.
pub(crate) fn put_notice(out: &mut BytesMut, notice: &Notice) {
    let fields = vec![
        (b'S', notice.severity.to_owned()),
        (b'V', notice.severity.to_owned()),
        (b'C', notice.code.to_owned()),
        (b'M', notice.message.clone()),
    ];
    put(out, &NoticeResponse::new(fields));
}
