//! Size classes.
//!
//! ```text
//! bytes asked        cell                         waste inside a cell   slab
//! 1 ..= 256          next multiple of 8, from 16  < 8 bytes             1 block
//! 257 ..= 128 KiB    16 steps for each doubling   < 1/16                1..=16 blocks, tail < 1/16
//! above              whole blocks (a span)        < 1 block             -
//! ```
//!
//! A *cell* is what an allocation gets, a *slab* a run of blocks that one class cuts into cells, back to back from its
//! start. Blocks are aligned to their length and every cell size of a request that is a multiple of 64 is one itself,
//! so such cells are aligned to 64 bytes; cells of 2^n bytes are aligned to their size.

/// Length and alignment of a block: the unit in which memory is charged and given back.
pub(super) const BLOCK_BYTES: usize = 64 << 10;
/// As a power of two.
pub(super) const BLOCK_SHIFT: u32 = BLOCK_BYTES.trailing_zeros();

const MIN_BYTES: usize = 16;
const FINE_BYTES: usize = 256;
const FINE_CLASSES: usize = (FINE_BYTES - MIN_BYTES) / 8 + 1;
const STEPS: usize = 16;
const DOUBLINGS: usize = 9;
/// The largest cell that is cut from a slab.
pub(super) const MAX_CELL_BYTES: usize = FINE_BYTES << DOUBLINGS;
/// How many classes there are. [`SPAN`] is none of them.
pub(super) const CLASSES: usize = FINE_CLASSES + DOUBLINGS * STEPS;
/// Stands where a class stands, for allocations of whole blocks.
pub(super) const SPAN: u8 = u8::MAX;
const _: () = assert!(CLASSES < SPAN as usize);

/// How a class cuts its slabs, and what a shard keeps of it.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) cell_bytes: u32,
    /// Cells of a slab.
    pub(super) cells: u16,
    /// Blocks of a slab.
    pub(super) blocks: u16,
    /// Free cells that one shard keeps at most.
    pub(super) magazine: u16,
    /// Free cells that go to or from a shard at once.
    pub(super) batch: u16,
}

/// A shard keeps at most this much of a class (and at least one cell).
const MAGAZINE_BYTES: usize = 32 << 10;
const MAX_MAGAZINE: usize = 256;
const MAX_SLAB_BLOCKS: usize = 16;

static SHAPES: [Shape; CLASSES] = {
    let mut shapes = [Shape { cell_bytes: 0, cells: 0, blocks: 0, magazine: 0, batch: 0 }; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        shapes[class] = shape_of(class);
        class += 1;
    }
    shapes
};

const fn cell_bytes(class: usize) -> usize {
    if class < FINE_CLASSES {
        MIN_BYTES + class * 8
    } else {
        let (doubling, step) = ((class - FINE_CLASSES) / STEPS, (class - FINE_CLASSES) % STEPS);
        (FINE_BYTES << doubling) + (step + 1) * ((FINE_BYTES << doubling) / STEPS)
    }
}

const fn shape_of(class: usize) -> Shape {
    let bytes = cell_bytes(class);
    let mut blocks = 1;
    while (blocks * BLOCK_BYTES) % bytes * 16 > blocks * BLOCK_BYTES || blocks * BLOCK_BYTES < bytes {
        blocks += 1;
        assert!(blocks <= MAX_SLAB_BLOCKS, "some slab of every class has a tail of at most 1/16");
    }
    let mut magazine = MAGAZINE_BYTES / bytes;
    if magazine == 0 {
        magazine = 1;
    } else if magazine > MAX_MAGAZINE {
        magazine = MAX_MAGAZINE;
    }
    // Each cell that is cut is a scheduling point of a model, and its world has few cells in use.
    let few = cfg!(feature = "model") && magazine >= 16;
    let batch = if few {
        4
    } else if magazine >= 4 {
        magazine / 4
    } else {
        1
    };
    Shape {
        cell_bytes: bytes as u32,
        cells: (blocks * BLOCK_BYTES / bytes) as u16,
        blocks: blocks as u16,
        magazine: magazine as u16,
        batch: batch as u16,
    }
}

/// The class of an allocation, or [`SPAN`].
#[inline(always)]
pub(super) const fn class_of(bytes: usize) -> u8 {
    if bytes <= MIN_BYTES {
        0
    } else if bytes <= FINE_BYTES {
        ((bytes - MIN_BYTES).div_ceil(8)) as u8
    } else if bytes <= MAX_CELL_BYTES {
        let last = bytes - 1;
        let doubling = last.ilog2() as usize;
        let step = (last >> (doubling - STEPS.ilog2() as usize)) - STEPS;
        (FINE_CLASSES + (doubling - FINE_BYTES.ilog2() as usize) * STEPS + step) as u8
    } else {
        SPAN
    }
}

/// The shape of a class that is not [`SPAN`].
#[inline(always)]
pub(super) fn shape(class: u8) -> &'static Shape {
    &SHAPES[class as usize]
}

/// Blocks of a span that holds `bytes`.
pub(super) const fn span_blocks(bytes: usize) -> u32 {
    bytes.div_ceil(BLOCK_BYTES) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_gets_the_smallest_class_that_holds_it() {
        for bytes in (1..=MAX_CELL_BYTES).filter(|bytes| *bytes <= 5000 || bytes % 64 <= 1) {
            let class = class_of(bytes);
            let cell = shape(class).cell_bytes as usize;
            assert!(cell >= bytes, "{bytes} bytes in cells of {cell}");
            assert!(
                class == 0 || (shape(class - 1).cell_bytes as usize) < bytes,
                "{bytes} bytes in cells of {cell}"
            );
            assert!(bytes < MIN_BYTES || cell - bytes < 8 || (cell - bytes) * 16 < cell, "{bytes} in {cell}");
            assert!(!bytes.is_multiple_of(64) || cell.is_multiple_of(64), "{bytes} bytes in cells of {cell}");
        }
        assert_eq!(class_of(MAX_CELL_BYTES + 1), SPAN);
    }

    #[test]
    fn slabs_waste_little() {
        for class in 0..CLASSES as u8 {
            let shape = shape(class);
            let slab = usize::from(shape.blocks) * BLOCK_BYTES;
            let filled = usize::from(shape.cells) * shape.cell_bytes as usize;
            assert!(filled <= slab && (slab - filled) * 16 <= slab, "cells of {} bytes", shape.cell_bytes);
            assert!(shape.cell_bytes > 2560 || shape.blocks == 1, "cells of {} bytes", shape.cell_bytes);
            assert!(shape.batch >= 1 && shape.batch <= shape.magazine);
        }
    }

    #[test]
    fn powers_of_two_are_classes() {
        for bits in 4..=17 {
            assert_eq!(shape(class_of(1 << bits)).cell_bytes, 1 << bits);
        }
    }
}
