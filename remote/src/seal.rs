//! Sealed pages: what a memory server has of a page says nothing of it, and cannot be changed unnoticed.
//!
//! A key is drawn when a client is made; it never leaves the process and dies with it, as what is out there does. A page is encrypted
//! and authenticated by AES-256-GCM (`ring`) before it goes out, under a nonce that is never used again (a count of pages) and
//! bound to its slot. Nonce and tag stay here, 24 bytes a slot, so a sealed page is as long as a plain one.
//!
//! The checksum in the table is that of the sealed bytes: pages are copied and moved between servers without being opened. It finds
//! damage. It does not stop a server that means it, since whoever knows a page can make another one with the same CRC; the tag
//! does.

use std::fmt;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};

use crate::key::Key;

/// The mark that is kept of a sealed page.
#[derive(Clone, Copy, Default)]
struct Mark {
    /// 0: none.
    count: u64,
    tag: [u8; 16],
}

const _: () = assert!(size_of::<Mark>() == 24);

/// See the module.
pub(crate) struct Seals {
    key: LessSafeKey,
    count: u64,
    marks: Vec<Mark>,
}

impl fmt::Debug for Seals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seals").field("count", &self.count).finish_non_exhaustive()
    }
}

fn nonce(count: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&count.to_le_bytes());
    Nonce::assume_unique_for_key(bytes)
}

impl Seals {
    /// Seals under a key that only this value has.
    pub(crate) fn new() -> Self {
        let key = UnboundKey::new(&AES_256_GCM, &Key::fresh().0).expect("the key has the cipher's length");
        Self { key: LessSafeKey::new(key), count: 0, marks: Vec::new() }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.marks.capacity() * size_of::<Mark>()
    }

    /// Seals the page of a slot.
    pub(crate) fn seal(&mut self, slot: u64, page: &mut [u8]) {
        self.count += 1;
        let at = slot as usize;
        if self.marks.len() <= at {
            self.marks.resize(at + 1, Mark::default());
        }
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce(self.count), Aad::from(slot.to_le_bytes()), page)
            .expect("a page is shorter than what the cipher takes");
        let mut mark = Mark { count: self.count, tag: [0; 16] };
        mark.tag.copy_from_slice(tag.as_ref());
        self.marks[at] = mark;
    }

    /// Opens the page of a slot. `false`: it is not what was sealed there last.
    pub(crate) fn open(&self, slot: u64, page: &mut [u8]) -> bool {
        let Some(mark) = self.marks.get(slot as usize).filter(|mark| mark.count > 0) else { return false };
        let (aad, tag) = (Aad::from(slot.to_le_bytes()), Tag::from(mark.tag));
        self.key.open_in_place_separate_tag(nonce(mark.count), aad, tag, page, 0..).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_sealed_last_in_a_slot_opens() {
        let mut seals = Seals::new();
        let page = [7_u8; 4096];
        let (mut first, mut second, mut other) = (page, page, page);
        seals.seal(3, &mut first);
        assert_ne!(first, page);
        seals.seal(3, &mut second);
        seals.seal(9, &mut other);
        assert_ne!(first, second, "no nonce is used twice");
        let opens = |seals: &Seals, slot, page: &[u8; 4096]| {
            let mut page = *page;
            seals.open(slot, &mut page).then_some(page)
        };
        assert_eq!(opens(&seals, 3, &second), Some(page));
        assert_eq!(opens(&seals, 9, &other), Some(page));
        for (slot, wrong) in [(3, &first), (3, &other), (9, &second), (4, &second), (100, &second)] {
            assert_eq!(opens(&seals, slot, wrong), None, "{slot}");
        }
        second[100] ^= 1;
        assert_eq!(opens(&seals, 3, &second), None);
        assert_eq!(opens(&Seals::new(), 9, &other), None);
    }
}
