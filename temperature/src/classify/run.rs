//! The two algorithms.
//!
//! ```text
//!   forward    blocks in order, each thread all of them, for its partitions ─► cut
//!   backward   the last section: definitions ─► some blocks ─► certain? ─► more blocks ─► … ─► the section before ─► …
//! ```
//!
//! Backward looks at the bounds each time it has read a quarter more than at the last time, so it reads at most that
//! quarter in vain, and looks seldom.

use std::collections::BTreeMap;

use super::rank::{self, Cut};
use super::state::{Pace, Partition, Weights};
use super::{Algorithm, Budget, Classification, ClassifyOptions, Ranked, TableBudget};
use crate::log::error::{Damage, LogError};
use crate::log::format::{BLOCK_HEADER_BYTES, Block, DEFINITIONS, ENTRIES, MARKS, PARTITIONS, marks};
use crate::log::reader::{LogReader, PartBytes, Section};

/// A thread's share.
struct Worker<'a> {
    log: &'a LogReader,
    /// The first of its partitions.
    first: usize,
    partitions: Vec<Partition>,
    bytes: PartBytes,
    bytes_read: u64,
    damages: Vec<Damage>,
}

impl Worker<'_> {
    /// Parts of a block from `part` on, one for each partition of this thread.
    fn read(&mut self, block: &Block, parts: std::ops::Range<usize>) -> Result<bool, LogError> {
        let outcome = self.log.read_parts(block, parts.clone(), &mut self.bytes)?;
        // What all threads read counts once.
        if parts.start != MARKS || self.first == 0 {
            self.bytes_read += block.parts[parts].iter().map(|part| u64::from(part.len)).sum::<u64>();
        }
        Ok(outcome.map_err(|damage| self.damages.push(damage)).is_ok())
    }

    fn contradiction(&mut self, block: &Block, what: &'static str) {
        self.damages.push(Damage { offset: block.offset, bytes: u64::from(block.length), what });
    }

    fn own(&self, from: usize) -> std::ops::Range<usize> {
        from + self.first..from + self.first + self.partitions.len()
    }

    fn begin_section(&mut self) {
        for partition in &mut self.partitions {
            partition.begin_section();
        }
    }

    fn define(&mut self, block: &Block) -> Result<(), LogError> {
        if block.definitions == 0 || !self.read(block, self.own(DEFINITIONS))? {
            return Ok(());
        }
        let mut good = true;
        for (number, partition) in self.partitions.iter_mut().enumerate() {
            let number = self.first + number;
            let bytes = self.bytes.of(block.parts[DEFINITIONS + number]);
            good &= partition.define(block.first_ids[number], bytes).is_some();
        }
        if !good {
            self.contradiction(block, "the definitions of a block contradict each other");
        }
        Ok(())
    }

    /// Takes a block's entries.
    fn apply(&mut self, block: &Block, number: u32, pace: &Pace, direction: Weights) -> Result<(), LogError> {
        if !self.read(block, MARKS..MARKS + 1)? {
            return Ok(());
        }
        let Some(marks) = marks(self.bytes.of(block.parts[MARKS]), block) else {
            self.contradiction(block, "the marks of a block contradict its header");
            return Ok(());
        };
        if !self.read(block, self.own(ENTRIES))? {
            return Ok(());
        }
        let mut good = true;
        for (index, partition) in self.partitions.iter_mut().enumerate() {
            let bytes = self.bytes.of(block.parts[ENTRIES + self.first + index]);
            good &= partition.apply(bytes, &marks, number, pace, direction).is_some();
        }
        if !good {
            self.contradiction(block, "the entries of a block contradict its marks");
        }
        Ok(())
    }
}

/// Runs `body` for each worker, on threads of their own if there are several.
fn each<'a>(
    workers: &mut [Worker<'a>],
    body: impl Fn(&mut Worker<'a>) -> Result<(), LogError> + Sync,
) -> Result<(), LogError> {
    if let [worker] = workers {
        return body(worker);
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = workers.iter_mut().map(|worker| scope.spawn(|| body(worker))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a worker's panic is ours"))
    })
}

/// Counts what is read, and joins what the workers found.
#[derive(Default)]
struct Total {
    recorded: u64,
    accesses: u64,
    quanta: u64,
    bytes_read: u64,
    damages: Vec<Damage>,
}

impl Total {
    fn count(&mut self, block: &Block) {
        self.recorded += u64::from(block.recorded);
        self.accesses += block.weight;
        self.quanta += u64::from(block.quanta);
        self.bytes_read += BLOCK_HEADER_BYTES as u64;
    }
}

pub(super) fn classify(log: &LogReader, options: &ClassifyOptions) -> Result<Classification, LogError> {
    let alpha = options.alpha;
    assert!(alpha > 0.0 && alpha < 1.0, "the share of the last quantum lies between 0 and 1, not at {alpha}");
    let accesses_max = options.accesses_max.max(1);
    let mut pace = Pace { octaves: -(1.0 - alpha).log2(), accesses_max, last: 0 };
    let threads = options.threads.clamp(1, PARTITIONS);
    let mut workers: Vec<Worker<'_>> = (0..threads)
        .map(|thread| {
            let (first, end) = (thread * PARTITIONS / threads, (thread + 1) * PARTITIONS / threads);
            let partitions = (first..end).map(|_| Partition::default()).collect();
            Worker { log, first, partitions, bytes: PartBytes::default(), bytes_read: 0, damages: Vec::new() }
        })
        .collect();
    let mut total = Total::default();
    let cut = match options.algorithm {
        Algorithm::Forward => forward(log, &mut workers, &mut pace, &mut total, options.budget)?,
        Algorithm::Backward => backward(log, &mut workers, &mut pace, &mut total, options)?,
    };
    for worker in &mut workers {
        total.bytes_read += worker.bytes_read;
        total.damages.append(&mut worker.damages);
    }
    total.damages.sort_by_key(|damage| (damage.offset, damage.what));
    total.damages.dedup();
    let partitions = join(workers);
    Ok(answer(log, partitions, cut, total, alpha))
}

/// The partitions of all workers, in order.
fn join(workers: Vec<Worker<'_>>) -> Vec<Partition> {
    workers.into_iter().flat_map(|worker| worker.partitions).collect()
}

/// The last quantum of a block.
fn last_quantum(log: &LogReader, block: &Block) -> Result<u64, LogError> {
    let mut bytes = PartBytes::default();
    let whole = log.read_parts(block, MARKS..MARKS + 1, &mut bytes)?.is_ok();
    let marks = if whole { marks(bytes.of(block.parts[MARKS]), block) } else { None };
    Ok(marks.and_then(|marks| marks.last().map(|mark| mark.quantum)).unwrap_or(block.first_quantum))
}

fn forward(
    log: &LogReader,
    workers: &mut [Worker<'_>],
    pace: &mut Pace,
    total: &mut Total,
    budget: Budget,
) -> Result<Cut, LogError> {
    let sections = log.sections(&mut total.damages)?;
    if let Some(block) = sections.back().and_then(|section| section.blocks.last()) {
        pace.last = last_quantum(log, block)?;
    }
    let pace = *pace;
    each(workers, |worker| {
        let mut number = 0;
        for section in &sections {
            worker.begin_section();
            for block in &section.blocks {
                worker.define(block)?;
                worker.apply(block, number, &pace, Weights::Growing)?;
                number += 1;
            }
        }
        for partition in &mut worker.partitions {
            partition.settle(&pace);
        }
        Ok(())
    })?;
    sections.iter().flat_map(|section| &section.blocks).for_each(|block| total.count(block));
    Ok(with_partitions(workers, |partitions| Cut::find(partitions, budget)))
}

fn backward(
    log: &LogReader,
    workers: &mut [Worker<'_>],
    pace: &mut Pace,
    total: &mut Total,
    options: &ClassifyOptions,
) -> Result<Cut, LogError> {
    let mut sections = log.backwards();
    let mut blocks_read = 0_u32;
    let mut look_at = 1;
    let mut earliest = u64::MAX;
    while let Some(section) = sections.next(&mut total.damages)? {
        if blocks_read == 0
            && let Some(block) = section.blocks.last()
        {
            pace.last = last_quantum(log, block)?;
        }
        let pace = *pace;
        let Section { blocks } = section;
        each(workers, |worker| {
            worker.begin_section();
            blocks.iter().try_for_each(|block| worker.define(block))
        })?;
        let mut end = blocks.len();
        while end > 0 {
            let start = end.saturating_sub((look_at - blocks_read).max(1) as usize);
            each(workers, |worker| {
                (start..end).rev().try_for_each(|at| {
                    // Numbers that rise with the distance from the end tell which block had a row's last access.
                    let number = blocks_read + (end - 1 - at) as u32;
                    worker.apply(&blocks[at], number, &pace, Weights::Falling)
                })
            })?;
            for block in &blocks[start..end] {
                total.count(block);
                earliest = earliest.min(block.first_quantum);
            }
            blocks_read += (end - start) as u32;
            end = start;
            if blocks_read >= look_at {
                look_at = blocks_read + (blocks_read / 4).max(1);
                // The earliest quantum may go on in the block before.
                let age = pace.last.saturating_sub(earliest);
                let rest = rank::rest(options.alpha, pace.accesses_max, pace.weight_before(age));
                let certain = with_partitions(workers, |partitions| {
                    let cut = Cut::find(partitions, options.budget);
                    cut.is_certain(partitions, rest).then_some(cut)
                });
                if let Some(cut) = certain {
                    total.bytes_read += blocks[..start].len() as u64 * BLOCK_HEADER_BYTES as u64;
                    return Ok(cut);
                }
            }
        }
    }
    Ok(with_partitions(workers, |partitions| Cut::find(partitions, options.budget)))
}

/// Lends all partitions to `body`, as one slice.
fn with_partitions<T>(workers: &mut [Worker<'_>], body: impl FnOnce(&[Partition]) -> T) -> T {
    let mut all: Vec<Partition> = workers.iter_mut().flat_map(|worker| worker.partitions.drain(..)).collect();
    let result = body(&all);
    let threads = workers.len();
    for (thread, worker) in workers.iter_mut().enumerate().rev() {
        worker.partitions = all.split_off(thread * PARTITIONS / threads);
    }
    result
}

fn answer(log: &LogReader, partitions: Vec<Partition>, cut: Cut, total: Total, alpha: f64) -> Classification {
    let density_min = cut.last_key(&partitions) * alpha;
    let hot = cut.hot(&partitions);
    let mut accesses_hot = 0;
    let mut hottest = Vec::with_capacity(hot.len());
    let mut tables: BTreeMap<_, TableBudget> = BTreeMap::new();
    for (number, index) in hot {
        let ranked = partitions[number].ranked(index, alpha);
        accesses_hot += u64::from(partitions[number].states[index].accesses);
        let table = tables.entry(ranked.row.table).or_default();
        table.rows += 1;
        table.bytes += ranked.size.bytes();
        hottest.push(ranked);
    }
    let key = |row: &Ranked| cut.key(row.estimate, row.size);
    hottest.sort_unstable_by(|a, b| key(b).total_cmp(&key(a)).then(a.row.cmp(&b.row)));
    let met =
        |partition: &Partition| (0..partition.len()).filter(|index| partition.is_met(*index)).count() as u64;
    Classification {
        hottest,
        tables,
        density_min,
        rows: partitions.iter().map(met).sum(),
        recorded: total.recorded,
        accesses: total.accesses,
        accesses_hot,
        quanta: total.quanta,
        bytes_read: total.bytes_read,
        bytes: log.bytes(),
        unresolved: partitions.iter().map(|partition| partition.unresolved).sum(),
        damages: total.damages,
        alpha,
        cut,
        partitions,
    }
}
