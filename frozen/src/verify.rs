//! Checks that the bytes of a block are those that were written.
//!
//! Each byte is covered: by a checksum (the front's, a dictionary's, a presence's, a segment's), or by the rule that what lies
//! between those is zero. What differs is named by column and group.

use thermocline_base::checksum::crc32c;

use super::block::{Block, BlockMeta};
use super::builder::segment_checksum;
use super::bytes::range;
use super::error::Error;
use super::format::{ENTRY, Entry, HEADER};

impl Block<'_> {
    /// Looks at all bytes of the block.
    ///
    /// # Errors
    /// The first column and group that are not as they were written.
    pub fn verify(&self) -> Result<(), Error> {
        let meta = self.meta;
        let flaw = |column: Option<usize>, group: Option<usize>, reason: &str| Error::Damaged {
            number: Some(meta.header.number),
            column: column.map(|column| meta.names[column].clone()),
            group: group.map(|group| group as u32),
            reason: reason.into(),
        };
        self.verify_front()?;
        let mut end = meta.header.front();
        for (index, column) in meta.columns.iter().enumerate() {
            if column.dictionary_at != end {
                return Err(flaw(Some(index), None, "its dictionary is not where the one before it ends"));
            }
            end += column.dictionary_len;
            if crc32c(range(self.bytes, column.dictionary_at, end)) != column.checksum {
                return Err(flaw(Some(index), None, "the checksum of its dictionary does not match"));
            }
        }
        for group in 0..meta.header.groups {
            let entry = self.group(group);
            if entry.at < end || range(self.bytes, end, entry.at).iter().any(|byte| *byte != 0) {
                return Err(flaw(None, Some(group), "what is before it is not empty"));
            }
            end = entry.at + entry.len as usize;
            let offset = |index: usize| {
                let next = Entry::read(self.bytes, entry.at + index * ENTRY);
                if index < meta.columns.len() { entry.at + next.offset as usize } else { end }
            };
            let presence = range(self.bytes, entry.at + meta.columns.len() * ENTRY, offset(0));
            if crc32c(presence) != entry.checksum {
                return Err(flaw(None, Some(group), "the checksum of its presence does not match"));
            }
            for index in 0..meta.columns.len() {
                let at = entry.at + index * ENTRY;
                let data = range(self.bytes, offset(index), offset(index + 1));
                let sum = segment_checksum(range(self.bytes, at, at + ENTRY), data);
                if sum != self.zone_entry(index, group).checksum {
                    return Err(flaw(Some(index), Some(group), "its checksum does not match"));
                }
            }
        }
        if range(self.bytes, end, self.bytes.len()).iter().any(|byte| *byte != 0) {
            return Err(flaw(None, None, "its end is not empty"));
        }
        Ok(())
    }

    /// The front once more: it was checked when it was parsed, and memory can fail since.
    fn verify_front(&self) -> Result<(), Error> {
        let front = BlockMeta::reread(self.bytes)?;
        if front != self.meta.header.number || self.bytes.len() < HEADER {
            return Err(Error::damaged("the bytes are not those that were parsed"));
        }
        Ok(())
    }
}
