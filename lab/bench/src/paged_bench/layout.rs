//! Tuples, which of them are hot, and where they lie.

use thermocline_base::backing::{PAGE_BYTES, PART_BYTES, PART_PAGES};
use thermocline_base::io::AlignedBytes;
use thermocline_region::placement::{Placement, Sampled};
use thermocline_region::{Paging, RegionError, Side};
use thermocline_workloads::random::{Random, mix64};
use thermocline_workloads::zipf::{Scatter, Zipf};

use super::PagedSettings;

/// Accesses that are sampled for each tuple, on average, to see which are hot.
const SAMPLED_PER_TUPLE: u64 = 2;

/// All tuples, and how they are drawn.
pub(super) struct Tuples {
    pub(super) count: u64,
    pub(super) bytes: u32,
    zipf: Zipf,
    scatter: Scatter,
    seed: u64,
}

/// In which order they lie: the pinned ones first.
pub(super) struct Order {
    tuples: Vec<u32>,
    pinned: usize,
    per_page: usize,
}

impl Tuples {
    pub(super) fn new(settings: &PagedSettings) -> Self {
        Self {
            count: settings.tuples,
            bytes: settings.tuple_bytes,
            zipf: Zipf::new(settings.tuples, settings.theta),
            scatter: Scatter::new(settings.tuples, settings.seed),
            seed: settings.seed,
        }
    }

    /// A tuple, as it is accessed.
    pub(super) fn draw(&self, random: &mut Random) -> u64 {
        self.scatter.place(self.zipf.draw(random) - 1)
    }

    /// Writes a tuple.
    fn write(&self, tuple: u64, into: &mut [u8]) {
        let (head, rest) = into.split_at_mut(8);
        head.copy_from_slice(&tuple.to_le_bytes());
        rest.fill(mix64(tuple) as u8);
    }

    /// Reads all bytes of a tuple: are they what was written?
    pub(super) fn is_whole(&self, tuple: u64, bytes: &[u8]) -> bool {
        let (head, rest) = bytes.split_at(8);
        let byte = mix64(tuple) as u8;
        head == tuple.to_le_bytes() && rest.iter().fold(0, |sum, found| sum | (found ^ byte)) == 0
    }

    /// The hottest tuples of a sample that fit into so many bytes, and then the rest, each in an order that knows nothing of heat.
    pub(super) fn order(&self, pinned_bytes: u64) -> Order {
        let per_page = PAGE_BYTES / self.bytes as usize;
        let mut tuples: Vec<u32> = (0..self.count as u32).collect();
        let mut random = Random::stream(self.seed, &[1]);
        random.shuffle(&mut tuples);
        let pages = pinned_bytes / PAGE_BYTES as u64;
        let fit = pages.saturating_mul(per_page as u64).min(self.count) as usize;
        if fit == 0 || fit == tuples.len() {
            return Order { tuples, pinned: fit, per_page };
        }
        let mut uses = vec![0_u32; self.count as usize];
        let mut random = Random::stream(self.seed, &[2]);
        for _ in 0..self.count * SAMPLED_PER_TUPLE {
            uses[self.draw(&mut random) as usize] += 1;
        }
        let sampled = |(tuple, uses): (usize, &u32)| Sampled {
            container: 0,
            place: tuple as u64,
            bytes: self.bytes,
            accesses: u64::from(*uses),
            pinned: false,
        };
        let placement =
            Placement::of(uses.iter().enumerate().map(sampled).collect(), fit as u64 * u64::from(self.bytes));
        let mut hot = vec![false; self.count as usize];
        placement.hot.iter().for_each(|tuple| hot[tuple.place as usize] = true);
        let (mut order, cold): (Vec<u32>, Vec<u32>) =
            tuples.into_iter().partition(|tuple| hot[*tuple as usize]);
        let pinned = order.len();
        order.extend(cold);
        Order { tuples: order, pinned, per_page }
    }
}

impl Order {
    fn parts_of(&self, tuples: usize) -> usize {
        tuples.div_ceil(self.per_page).div_ceil(PART_PAGES)
    }

    pub(super) fn pinned_bytes(&self) -> u64 {
        (self.parts_of(self.pinned) * PART_BYTES) as u64
    }

    pub(super) fn paged_pages(&self) -> u64 {
        (self.tuples.len() - self.pinned).div_ceil(self.per_page) as u64
    }

    pub(super) fn parts(&self) -> usize {
        self.parts_of(self.pinned) + self.parts_of(self.tuples.len() - self.pinned)
    }
}

/// Where each tuple lies: its place in the region, and in the lowest bit whether it is pinned.
pub(super) struct Places {
    places: Vec<u64>,
    /// Begin of the pinned side, whose parts stand in front.
    pinned: Option<std::ptr::NonNull<u8>>,
}

// SAFETY: pinned parts are written by `load` alone, and only read once it has ended.
unsafe impl Sync for Places {}

/// Where a tuple lies.
pub(super) enum Place<'a> {
    Pinned(&'a [u8]),
    Paged(u64),
}

impl Places {
    pub(super) fn of(&self, tuple: u64, bytes: u32) -> Place<'_> {
        let place = self.places[tuple as usize];
        match self.pinned {
            Some(start) if place & 1 == 1 => {
                // SAFETY: `load` has put the tuple there, in a pinned part that outlives the places.
                Place::Pinned(unsafe {
                    let at = start.add((place >> 1) as usize);
                    std::slice::from_raw_parts(at.as_ptr(), bytes as usize)
                })
            }
            _ => Place::Paged(place >> 1),
        }
    }
}

/// Puts all tuples into a region whose parts are all free.
pub(super) fn load(pager: &dyn Paging, tuples: &Tuples, order: &Order) -> Result<Places, RegionError> {
    let mut places = vec![0_u64; order.tuples.len()];
    let (pinned, paged) = order.tuples.split_at(order.pinned);
    let per_part = order.per_page * PART_PAGES;
    let mut start = None;
    let fill = |part: &[u32], bytes: &mut [u8], place: u64, flag: u64, places: &mut Vec<u64>| {
        for (at, tuple) in part.iter().enumerate() {
            let offset = at / order.per_page * PAGE_BYTES + at % order.per_page * tuples.bytes as usize;
            tuples.write(u64::from(*tuple), &mut bytes[offset..offset + tuples.bytes as usize]);
            places[*tuple as usize] = (place + offset as u64) << 1 | flag;
        }
    };
    for some in pinned.chunks(per_part) {
        let part = pager.take(Side::Pinned)?;
        let at = pager.pinned(part)?;
        // The first part stands in front of all; places are counted from it.
        start.get_or_insert(at);
        // SAFETY: the part is this function's alone.
        let bytes = unsafe { std::slice::from_raw_parts_mut(at.as_ptr(), PART_BYTES) };
        fill(some, bytes, u64::from(part.number) * PART_BYTES as u64, 1, &mut places);
        debug_assert!(part.number > 0 || start == Some(at), "part 0 is the first that is pinned");
    }
    for some in paged.chunks(per_part) {
        let part = pager.take(Side::Paged)?;
        let pages = some.len().div_ceil(order.per_page);
        let mut run = AlignedBytes::zeroed(pages * PAGE_BYTES);
        fill(some, &mut run, u64::from(part.number) * PART_BYTES as u64, 0, &mut places);
        pager.append(part, run)?.expect("a fresh part has room for a part");
    }
    Ok(Places { places, pinned: start })
}
