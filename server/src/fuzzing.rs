//! Entrances for fuzz targets: bytes that a client may send.

use bytes::Bytes;

use crate::message;

/// Reads bytes as each message that a client may send, before and behind its login.
pub fn message(bytes: &[u8]) {
    let Some((kind, body)) = bytes.split_first() else { return };
    let body = Bytes::copy_from_slice(body);
    let _ = message::decode(*kind, body.clone());
    for kind in *b"QPBDCESHXdcf" {
        let _ = message::decode(kind, body.clone());
    }
    let _ = message::startup(body.clone());
    let _ = message::sasl_initial(body.clone());
    crate::door::answer_sasl(&body);
}
