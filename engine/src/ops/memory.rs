//! The memory of a database: counted for the budget, and told to the governor, which decides what leaves.

use thermocline_base::sync::Ordering;

use crate::catalog::table::TableForm;
use crate::cold::store::{StoreMemory, StoreMemoryUse};
use crate::hot::budget::MemoryKind;
use crate::hot::memory::Memory;
use crate::ops::temperatures;
use crate::options::{ColdStoreKind, IN_MEMORY};
use crate::session::db::Inner;

/// Rows of one batch, at first and within bounds.
pub(crate) const BATCH_ROWS: usize = 512;
/// Bytes that are written down about a row that moves.
pub(crate) const MOVING_ROW_BYTES: u64 = 128;
/// Batches of rows that are being moved take one part in so many of the limit at most.
pub(crate) const MOVING_SHARE: u64 = 32;
/// Where what is live is to be, in thousandths of the limit: at best, and at the least when writers wait all the same.
pub(crate) const GOAL: u64 = 840;

/// Does this database get a governor?
pub(crate) fn is_wanted(inner: &Inner) -> bool {
    let in_memory = inner.files.dir() == std::path::Path::new(IN_MEMORY);
    !inner.options.read_only && (!in_memory || inner.options.cold_store == ColdStoreKind::Memory)
}

/// Calls `see` with the memories of all tables.
pub(crate) fn each_memory(inner: &Inner, mut see: impl FnMut(&Memory)) {
    let guard = inner.epochs.pin();
    for entry in inner.catalog.all() {
        memories_of(entry.form_pinned(&guard), &mut see);
    }
}

pub(crate) fn memories_of(form: &TableForm, see: &mut impl FnMut(&Memory)) {
    see(&form.store.memory);
    see(&form.store.slots);
    form.indexes.iter().for_each(|index| see(&index.memory));
}

/// Bytes that are used, without the free cells of rows and indexes.
pub(crate) fn live_bytes(inner: &Inner) -> u64 {
    let mut free = 0;
    each_memory(inner, |memory| free += memory.committed_bytes().saturating_sub(memory.used_bytes()));
    inner.budget.used().saturating_sub(free)
}

/// Bytes that a database takes under a limit however few of its rows are in memory, by purpose.
pub(crate) fn fixed_bytes(inner: &Inner, limit: u64) -> Vec<(&'static str, u64)> {
    use MemoryKind::{ColdFences, ColdFilters, Log, Process, Temperature};
    let used = |kind: MemoryKind| (kind.name(), inner.budget.used_by(kind));
    let temperature = if is_wanted(inner) { temperatures::bytes_within(inner, limit) } else { 0 };
    let parts = [
        used(Log),
        (Process.name(), PROCESS_BYTES + limit / MOVING_SHARE),
        used(ColdFilters),
        used(ColdFences),
        (Temperature.name(), temperature),
    ];
    parts.into_iter().filter(|(_, bytes)| *bytes > 0).collect()
}

/// Bytes of a row with its entries, about.
pub(crate) fn row_bytes(inner: &Inner) -> u64 {
    let guard = inner.epochs.pin();
    let (mut bytes, mut rows) = (0, 0);
    for entry in inner.catalog.all() {
        let form = entry.form_pinned(&guard);
        bytes += form.store.memory.used_bytes();
        rows += form.primary().len();
    }
    (bytes / rows.max(1)).clamp(32, 1 << 20)
}

/// Bytes of the process for an open database apart from what is counted: stacks of its threads, tables with a place for
/// each thread, what sessions keep, and what the allocator keeps between all these. Measured (docs/understand/governor.md).
const PROCESS_BYTES: u64 = 2 << 20;

/// Bytes that the governor has in its hands while rows move: batches as they are being made, and lists of what is in them. A bound
/// of it, since it is asked about at other times.
pub(crate) fn moving_bytes(inner: &Inner) -> u64 {
    if inner.cold.get().is_none() || inner.budget.limit().is_none() {
        return 0;
    }
    let rows = (inner.options.batches_in_flight * BATCH_ROWS) as u64;
    (rows * (row_bytes(inner) + MOVING_ROW_BYTES)).min(moving_bytes_max(inner))
}

/// Bytes that it may have in its hands, but for one row of each batch: under a small limit, batches of large rows are of few rows.
pub(crate) fn moving_bytes_max(inner: &Inner) -> u64 {
    inner.budget.limit().map_or(u64::MAX, |limit| limit / MOVING_SHARE)
}

/// Lets the budget know what others have allocated.
pub(crate) fn note_memory(inner: &Inner) {
    let budget = &inner.budget;
    let copying = inner.checkpoints.copying_bytes.load(Ordering::Relaxed);
    budget.note(MemoryKind::Process, PROCESS_BYTES + moving_bytes(inner) + copying);
    if let Some(log) = inner.log() {
        budget.note(MemoryKind::Log, log.memory_bytes());
    }
    crate::ops::page::note_paged(inner);
    if let Some(cold) = inner.cold.get() {
        let (copies, batches) = {
            let copies = inner.cold.copies().lock();
            let batches = copies.len() * StoreMemory::within(budget.limit()).block_bytes;
            (copies.iter().map(|store| store.memory()).sum(), batches as u64)
        };
        let mut memory = [cold.store.memory(), copies].into_iter().sum::<StoreMemoryUse>();
        memory.buffers += batches;
        budget.note(MemoryKind::ColdFilters, memory.filters);
        budget.note(MemoryKind::ColdFences, memory.fences);
        budget.note(MemoryKind::ColdBuffers, memory.buffers);
        budget.note(MemoryKind::ColdFrames, memory.frames);
        if inner.options.cold_store == ColdStoreKind::Pages {
            let most = StoreMemory::within(budget.limit());
            let buffers = most.buffer_bytes().saturating_sub(memory.buffers);
            budget.keep(buffers + most.frame_bytes.saturating_sub(memory.frames));
        }
    }
}
