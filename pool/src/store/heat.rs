//! Heat of pages on its way through a merge: from the pieces that are read to the chunks that are written.
//!
//! Rules:
//! - A page has its part of its extent's temperature: of a piece's last extent fewer pages are used, so each has more.
//! - A chunk's heat is handed over when its write was answered well, while its extents are its writer's alone.

use thermocline_base::io::{Buffer, Completion};

use super::error::Result;
use super::piece::{Files, Piece};
use crate::device::PageHeat;
use crate::space::EXTENT_PAGES;

impl Piece {
    /// Heat of the pages from `page` on that lie together. Empty where it is not known.
    pub(super) fn heats(&self, page: u32, count: u32) -> Vec<PageHeat> {
        let (number, _) = self.meta.locate(page);
        let pages = number..number + u64::from(count);
        let mut heats = self.files().device.heats(pages, self.meta.version);
        let all = u64::from(self.meta.pages + self.meta.tail_pages);
        for (page, heat) in (u64::from(page)..).zip(&mut heats) {
            let in_extent = (all - page / EXTENT_PAGES * EXTENT_PAGES).min(EXTENT_PAGES);
            heat.temperature /= in_extent as f32;
        }
        heats
    }
}

/// A chunk that is being written.
#[derive(Debug)]
pub(super) struct UnderWay {
    pub(super) completion: Completion,
    /// Its first page.
    pub(super) first: u64,
    /// By page.
    pub(super) heats: Vec<PageHeat>,
}

impl UnderWay {
    /// Waits until it is written in pages of this version. Gives its buffer.
    pub(super) fn wait(self, files: &Files, version: u64) -> Result<Buffer> {
        let outcome = self.completion.wait();
        outcome.result?;
        files.device.hand_over(self.first, version, outcome.buffer.as_slice(), &self.heats);
        Ok(outcome.buffer)
    }
}
