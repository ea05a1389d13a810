//! Digests, and bytes as text: `md5`, `sha256`, `encode`, `decode`.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use md5::{Digest, Md5};
use sha2::{Sha224, Sha256, Sha384, Sha512};

use super::Function;
use super::casts::str;
use super::strings::bytes;
use crate::error::{Error, Result};
use crate::expr::{Call, Made};
use crate::types::{Datum, Type, text};
use Type::{Bytea, Name, Text};

const fn row(name: &'static str, args: &'static [Type], returns: Type, call: Call) -> Function {
    Function { name, args, returns, call }
}

pub(super) const FUNCTIONS: &[Function] = &[
    row("md5", &[Text], Text, Call::One(|a| Ok(Datum::text(hex(&Md5::digest(str(a))))))),
    row("md5", &[Bytea], Text, Call::One(|a| Ok(Datum::text(hex(&Md5::digest(bytes(a))))))),
    row("sha224", &[Bytea], Bytea, Call::One(|a| Ok(Datum::Bytes(Sha224::digest(bytes(a))[..].into())))),
    row("sha256", &[Bytea], Bytea, Call::One(|a| Ok(Datum::Bytes(Sha256::digest(bytes(a))[..].into())))),
    row("sha384", &[Bytea], Bytea, Call::One(|a| Ok(Datum::Bytes(Sha384::digest(bytes(a))[..].into())))),
    row("sha512", &[Bytea], Bytea, Call::One(|a| Ok(Datum::Bytes(Sha512::digest(bytes(a))[..].into())))),
    row("convert_to", &[Text, Name], Bytea, Call::Two(convert_to)),
    row("convert_from", &[Bytea, Name], Text, Call::Two(convert_from)),
    row("encode", &[Bytea, Text], Text, Call::Two(encode)),
    row("decode", &[Text, Text], Bytea, Call::Two(decode)),
];

/// Signs of a line of base64, as MIME has them.
const LINE: usize = 76;

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// The one encoding of texts.
fn is_utf8(name: &Datum) -> Result<()> {
    let name = str(name);
    let plain: String = name.to_ascii_lowercase().replace(['-', '_'], "");
    match plain.as_str() {
        "utf8" | "unicode" => Ok(()),
        _ => Err(Error::unsupported(format!("encoding \"{name}\"")).hint("Texts are in UTF8.")),
    }
}

fn convert_to(a: &Datum, encoding: &Datum) -> Made {
    is_utf8(encoding)?;
    Ok(Datum::Bytes(str(a).as_bytes().into()))
}

fn convert_from(a: &Datum, encoding: &Datum) -> Made {
    is_utf8(encoding)?;
    let found = std::str::from_utf8(bytes(a)).ok().filter(|text| !text.contains('\0'));
    let found = found.ok_or_else(|| Error::new("22021", "invalid byte sequence for encoding \"UTF8\""))?;
    Ok(Datum::text(found))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unknown(format: &str) -> Error {
    Error::new("22023", format!("unrecognized encoding: \"{format}\""))
        .hint("Take one of \"base64\", \"escape\" and \"hex\".")
}

fn encode(a: &Datum, format: &Datum) -> Made {
    let all = bytes(a);
    Ok(Datum::text(match str(format).to_ascii_lowercase().as_str() {
        "hex" => hex(all),
        "base64" => {
            let whole = BASE64.encode(all);
            let mut out = String::with_capacity(whole.len() + whole.len() / LINE);
            let mut rest = &whole[..];
            while rest.len() >= LINE {
                out.push_str(&rest[..LINE]);
                out.push('\n');
                rest = &rest[LINE..];
            }
            out + rest
        }
        "escape" => escaped(all),
        _ => return Err(unknown(str(format))),
    }))
}

/// Zeros and what is no ASCII as octal numbers, backslashes doubled.
fn escaped(all: &[u8]) -> String {
    let mut out = String::with_capacity(all.len());
    for byte in all {
        match byte {
            b'\\' => out.push_str("\\\\"),
            0 | 0x80.. => out.push_str(&format!("\\{byte:03o}")),
            byte => out.push(char::from(*byte)),
        }
    }
    out
}

fn decode(a: &Datum, format: &Datum) -> Made {
    let written = str(a);
    Ok(Datum::Bytes(match str(format).to_ascii_lowercase().as_str() {
        "hex" => text::bytes(&format!("\\x{written}"))?.into(),
        "base64" => base64(written)?.into(),
        "escape" => text::escaped_bytes(written)?.into(),
        _ => return Err(unknown(str(format))),
    }))
}

fn base64(written: &str) -> Result<Vec<u8>> {
    let signs: String = written.chars().filter(|sign| !" \t\n\r".contains(*sign)).collect();
    BASE64.decode(&signs).map_err(|error| match error {
        base64::DecodeError::InvalidByte(place, b'=') if place < signs.len() => {
            Error::new("22023", "unexpected \"=\" while decoding base64 sequence")
        }
        base64::DecodeError::InvalidByte(place, _) => {
            let sign = signs[place..].chars().next().unwrap_or_default();
            Error::new("22023", format!("invalid symbol \"{sign}\" found while decoding base64 sequence"))
        }
        _ => Error::new("22023", "invalid base64 end sequence")
            .hint("Input data is missing padding, is truncated, or is otherwise corrupted."),
    })
}
