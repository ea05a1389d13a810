//! A classifier's temperatures, as a file: they survive a restart.
//!
//! ```text
//!   header   magic "TCLTEMP1" | format u32 | rows u32 | buckets u64 | database 16 bytes | chosen u64 | budget u64
//!            | alpha f64 | exact f64 | usual f64 (NaN: none) | crc u32
//!   sample   rows × (table u32 | hash u64 | sum f64, as of now | size u16) | crc u32
//!   table    for each bucket in which something is: (empty ones before it u32 | 8 words u64) … | end u32 | crc u32
//! ```
//!
//! All checksums start from the database's id. The table is taken over as it is, by a classifier of the same length;
//! one of another length gets the rows of the sample, and learns the others anew. The sample stands first, so that a
//! reader that wants the histogram alone reads no more.
//!
//! The file is worth nothing to correctness: a classifier that finds it damaged, or none, knows no temperatures.

use thermocline_base::checksum::{Seed, crc32c_append};
use thermocline_base::ids::TableId;
use thermocline_base::sync::Ordering;

use super::sample::LIMIT_ALL;
use super::table::WORDS;
use super::{Classifier, Inner, TABLES_MAX};
use crate::histogram::Temperatures;
use crate::{RowName, SizeClass};

const MAGIC: &[u8; 8] = b"TCLTEMP1";
/// The format that this program writes, and the only one that it reads.
const FORMAT: u32 = 1;
/// Length of the header, with its checksum.
pub const HEADER_BYTES: usize = 84;
const ROW_BYTES: usize = 22;
const SUM_BYTES: usize = 4;
/// A header that says more is damaged: a sample takes 2 MiB at most.
const ROWS_MAX: u32 = 1 << 17;
/// Stands where the number of empty buckets would, behind the last one.
const END: u32 = u32::MAX;
const PIECE_BYTES: usize = 64 << 10;

/// Why a file says nothing.
pub type Refused = &'static str;

/// A row of the sample.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct StoredRow {
    pub(super) name: RowName,
    pub(super) sum: f64,
    pub(super) size: SizeClass,
}

/// The header.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Header {
    rows: u32,
    buckets: u64,
    chosen: u64,
    budget: u64,
    alpha: f64,
    exact: f64,
    usual: Option<f64>,
}

fn start(database: &[u8; 16]) -> u32 {
    Seed::new(database, 0x7465_6d70).at(0)
}

fn sealed<'a>(database: &[u8; 16], bytes: &'a [u8], what: Refused) -> Result<&'a [u8], Refused> {
    let (body, sum) = bytes.split_last_chunk::<SUM_BYTES>().ok_or(what)?;
    if crc32c_append(start(database), body).to_le_bytes() == *sum { Ok(body) } else { Err(what) }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

impl Header {
    /// Reads a header.
    pub fn read(database: &[u8; 16], bytes: &[u8]) -> Result<Self, Refused> {
        if bytes.len() < HEADER_BYTES || &bytes[..8] != MAGIC {
            return Err("it is no file of temperatures");
        }
        if u32_at(bytes, 8) != FORMAT {
            return Err("its format is of another version");
        }
        let body = sealed(database, &bytes[..HEADER_BYTES], "its header does not check out")?;
        let float = |at| f64::from_bits(u64_at(body, at));
        let header = Self {
            rows: u32_at(body, 12),
            buckets: u64_at(body, 16),
            chosen: u64_at(body, 40),
            budget: u64_at(body, 48),
            alpha: float(56),
            exact: float(64),
            usual: Some(float(72)).filter(|usual| !usual.is_nan()),
        };
        let makes_sense = header.rows <= ROWS_MAX
            && (1..=LIMIT_ALL).contains(&header.chosen)
            && header.alpha > 0.0
            && header.alpha < 1.0
            && (0.0..1e15).contains(&header.exact);
        if makes_sense { Ok(header) } else { Err("its header makes no sense") }
    }

    /// Bytes of the sample, which follow the header.
    pub const fn sample_bytes(&self) -> usize {
        self.rows as usize * ROW_BYTES + SUM_BYTES
    }

    fn sample(&self, database: &[u8; 16], bytes: &[u8]) -> Result<Vec<StoredRow>, Refused> {
        let body = sealed(database, bytes, "its sample does not check out")?;
        let rows = body.chunks_exact(ROW_BYTES).map(|row| StoredRow {
            name: RowName { table: TableId(u32_at(row, 0)), hash: u64_at(row, 4) },
            sum: f64::from_bits(u64_at(row, 12)),
            size: SizeClass::from_number(u16::from_le_bytes([row[20], row[21]])),
        });
        let rows: Vec<StoredRow> = rows.filter(|row| row.sum.is_finite() && row.sum > 0.0).collect();
        Ok(rows)
    }

    /// The temperatures that the file's sample says.
    pub fn temperatures(&self, database: &[u8; 16], bytes: &[u8]) -> Result<Temperatures, Refused> {
        let rows = self.sample(database, bytes)?;
        let scale = LIMIT_ALL as f64 / self.chosen as f64;
        Ok(histogram(rows.iter(), scale, self.alpha, self.budget))
    }
}

/// Temperatures of rows of which each stands for `scale`, if the densest may take `budget` bytes.
fn histogram<'a>(
    rows: impl Iterator<Item = &'a StoredRow>,
    scale: f64,
    alpha: f64,
    budget: u64,
) -> Temperatures {
    let mut rows: Vec<&StoredRow> = rows.collect();
    let density = |row: &StoredRow| row.sum / row.size.bytes() as f64;
    rows.sort_unstable_by(|a, b| density(b).total_cmp(&density(a)));
    let mut used = 0.0;
    let first_cold = rows.iter().find(|row| {
        used += row.size.bytes() as f64 * scale;
        used > budget as f64
    });
    let threshold = first_cold.map_or(0.0, |row| density(row) * alpha);
    let mut found = Temperatures { threshold, ..Temperatures::default() };
    for row in rows {
        if found.tables.len() < TABLES_MAX || found.tables.contains_key(&row.name.table) {
            found.add(row.name.table, row.sum * alpha, row.size.bytes(), scale);
        }
    }
    found
}

impl Classifier {
    /// The spread of temperatures over the rows of each table (of at most 64), estimated.
    #[must_use]
    pub fn temperatures(&self) -> Temperatures {
        let (rows, chosen) = {
            let inner = self.inner.lock();
            (inner.sample.stored(), inner.sample.chosen())
        };
        let budget = self.budget_bytes.load(Ordering::Relaxed);
        histogram(rows.iter(), LIMIT_ALL as f64 / chosen as f64, self.alpha, budget)
    }

    /// All that it knows, for a file of the database, in pieces of some KiB. Others may go on observing meanwhile.
    ///
    /// # Errors
    /// What `write` returns.
    pub fn store<E>(
        &self,
        database: &[u8; 16],
        mut write: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (rows, chosen, usual) = {
            let inner = self.inner.lock();
            (inner.sample.stored(), inner.sample.chosen(), inner.cold_usual)
        };
        let mut bytes = Vec::with_capacity(PIECE_BYTES + 128);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&FORMAT.to_le_bytes());
        bytes.extend_from_slice(&(rows.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(self.table.buckets() as u64).to_le_bytes());
        bytes.extend_from_slice(database);
        bytes.extend_from_slice(&chosen.to_le_bytes());
        let budget = self.budget_bytes.load(Ordering::Relaxed);
        bytes.extend_from_slice(&budget.to_le_bytes());
        for float in [self.alpha, self.table.exact(), usual.unwrap_or(f64::NAN)] {
            bytes.extend_from_slice(&float.to_bits().to_le_bytes());
        }
        let sum = crc32c_append(start(database), &bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        let mut sum = start(database);
        write(&bytes)?;
        bytes.clear();
        let mut piece = |bytes: &mut Vec<u8>, sum: &mut u32, least: usize| {
            if bytes.len() < least {
                return Ok(());
            }
            *sum = crc32c_append(*sum, bytes);
            let written = write(bytes);
            bytes.clear();
            written
        };
        for row in &rows {
            bytes.extend_from_slice(&row.name.table.0.to_le_bytes());
            bytes.extend_from_slice(&row.name.hash.to_le_bytes());
            bytes.extend_from_slice(&row.sum.to_bits().to_le_bytes());
            bytes.extend_from_slice(&row.size.number().to_le_bytes());
            piece(&mut bytes, &mut sum, PIECE_BYTES)?;
        }
        piece(&mut bytes, &mut sum, 0)?;
        bytes.extend_from_slice(&sum.to_le_bytes());
        // That sum is in none.
        let mut ignored = 0;
        piece(&mut bytes, &mut ignored, 0)?;
        sum = start(database);
        let mut skipped = 0_u32;
        for bucket in 0..self.table.buckets() {
            let words = self.table.words(bucket);
            if words == [0; WORDS] {
                skipped += 1;
                continue;
            }
            bytes.extend_from_slice(&skipped.to_le_bytes());
            words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
            skipped = 0;
            piece(&mut bytes, &mut sum, PIECE_BYTES)?;
        }
        bytes.extend_from_slice(&END.to_le_bytes());
        piece(&mut bytes, &mut sum, 0)?;
        write(&sum.to_le_bytes())
    }

    /// Takes over what [`Classifier::store`] gave, read by `read`, which fills what it is given or says why not. A
    /// classifier that knows something already forgets it.
    ///
    /// # Errors
    /// The bytes are damaged: nothing is known then.
    pub fn restore(
        &self,
        database: &[u8; 16],
        mut read: impl FnMut(&mut [u8]) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        let (header, rows) = read_sample(database, &mut read)?;
        {
            let mut inner = self.inner.lock();
            let Inner { rng, sample, cold_usual, .. } = &mut *inner;
            self.table.reset(0.0);
            if header.buckets == self.table.buckets() as u64 {
                self.table.reset(header.exact);
                if let Err(refused) = self.restore_table(database, &mut read) {
                    self.table.reset(0.0);
                    return Err(refused);
                }
            } else {
                for row in &rows {
                    self.table.add(row.name.mixed(), row.sum as f32, rng);
                }
            }
            sample.restore(header.chosen, &rows);
            *cold_usual = header.usual;
        }
        // Finds the threshold.
        self.end_quanta(0);
        Ok(())
    }

    fn restore_table(
        &self,
        database: &[u8; 16],
        read: &mut impl FnMut(&mut [u8]) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        let buckets = self.table.buckets() as u64;
        read_table(database, buckets, read, |bucket, words| self.table.set_words(bucket as usize, words))
    }
}

/// Reads the header and the sample.
fn read_sample(
    database: &[u8; 16],
    read: &mut impl FnMut(&mut [u8]) -> Result<(), Refused>,
) -> Result<(Header, Vec<StoredRow>), Refused> {
    let mut header = [0; HEADER_BYTES];
    read(&mut header)?;
    let header = Header::read(database, &header)?;
    let mut sample = vec![0; header.sample_bytes()];
    read(&mut sample)?;
    let rows = header.sample(database, &sample)?;
    Ok((header, rows))
}

/// Reads the table of so many buckets, and gives `see` those in which something is: before the checksum has been looked at.
fn read_table(
    database: &[u8; 16],
    buckets: u64,
    read: &mut impl FnMut(&mut [u8]) -> Result<(), Refused>,
    mut see: impl FnMut(u64, [u64; WORDS]),
) -> Result<(), Refused> {
    const WRONG: Refused = "its table does not check out";
    let mut sum = start(database);
    let mut bucket = 0;
    loop {
        let mut skipped = [0; 4];
        read(&mut skipped)?;
        sum = crc32c_append(sum, &skipped);
        let skipped = u32::from_le_bytes(skipped);
        if skipped == END {
            break;
        }
        bucket += u64::from(skipped);
        let mut bytes = [0; WORDS * 8];
        read(&mut bytes)?;
        sum = crc32c_append(sum, &bytes);
        if bucket >= buckets {
            return Err(WRONG);
        }
        see(bucket, std::array::from_fn(|word| u64_at(&bytes, word * 8)));
        bucket += 1;
    }
    let mut stored = [0; SUM_BYTES];
    read(&mut stored)?;
    if stored == sum.to_le_bytes() { Ok(()) } else { Err(WRONG) }
}

/// Reads a whole file of the database's temperatures, as [`Classifier::restore`] does, and keeps nothing of it.
///
/// # Errors
/// What is wrong with it.
pub fn check(
    database: &[u8; 16],
    mut read: impl FnMut(&mut [u8]) -> Result<(), Refused>,
) -> Result<(), Refused> {
    let (header, _) = read_sample(database, &mut read)?;
    read_table(database, header.buckets, &mut read, |_, _| {})
}

#[cfg(test)]
mod tests {
    use thermocline_base::rng::Rng;

    use super::super::ClassifierOptions;
    use super::*;
    use crate::Access;

    const DATABASE: [u8; 16] = [7; 16];

    fn classifier(memory_bytes: usize) -> Classifier {
        Classifier::new(&ClassifierOptions {
            memory_bytes,
            budget_bytes: 112 * 500,
            alpha: 0.02,
            alpha_shift: 0.2,
            seed: 3,
        })
    }

    /// Rows from 0 on, row n accessed 4000 - n times in each of fifty quanta.
    fn taught() -> Classifier {
        let classifier = classifier(4 << 20);
        for _ in 0..50 {
            let access = |row: u64| Access {
                row: RowName { table: TableId(row as u32 % 2), hash: row },
                size: SizeClass::of(112),
                weight: (4000 - row) as u32,
                cold: row > 1000,
            };
            classifier.observe(&(0..2000).map(access).collect::<Vec<_>>());
            classifier.end_quanta(1);
        }
        classifier
    }

    fn stored(of: &Classifier) -> Vec<u8> {
        let mut bytes = Vec::new();
        let written: Result<(), ()> = of.store(&DATABASE, |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        });
        written.expect("a vector takes all");
        bytes
    }

    fn reader(mut bytes: &[u8]) -> impl FnMut(&mut [u8]) -> Result<(), Refused> {
        move |piece| {
            let (now, rest) = bytes.split_at_checked(piece.len()).ok_or("it was cut")?;
            piece.copy_from_slice(now);
            bytes = rest;
            Ok(())
        }
    }

    fn restore(of: &Classifier, database: &[u8; 16], bytes: &[u8]) -> Result<(), Refused> {
        of.restore(database, reader(bytes))
    }

    fn whole(database: &[u8; 16], bytes: &[u8]) -> Result<(), Refused> {
        check(database, reader(bytes))
    }

    fn temperatures(of: &Classifier) -> Vec<f32> {
        (0..2000).map(|row| of.temperature(TableId(row as u32 % 2), row)).collect()
    }

    #[test]
    fn what_was_known_is_known_again() {
        let before = taught();
        let bytes = stored(&before);
        let after = classifier(4 << 20);
        restore(&after, &DATABASE, &bytes).expect("what was stored");
        assert_eq!(temperatures(&before), temperatures(&after));
        assert!((before.threshold() / after.threshold() - 1.0).abs() < 1e-5);
        assert!(before.threshold() > 0.0);
        assert_eq!(before.tables(), after.tables());
        let [known, again] = [&before, &after].map(Classifier::temperatures);
        assert_eq!(known.tables, again.tables);
        assert_eq!(known.sampled_rows, 2000);
        let hot: u64 = known.tables.values().map(|table| table.hot.rows).sum();
        assert!((495..=505).contains(&hot), "{hot} rows are hot, of room for 500");
        let header = Header::read(&DATABASE, &bytes).expect("its header");
        let sample = &bytes[HEADER_BYTES..HEADER_BYTES + header.sample_bytes()];
        assert_eq!(header.temperatures(&DATABASE, sample).expect("its sample").tables, known.tables);
        // Both go on alike.
        for of in [&before, &after] {
            of.end_quanta(30);
        }
        assert_eq!(temperatures(&before), temperatures(&after));
    }

    #[test]
    fn a_classifier_of_another_size_learns_from_the_sample() {
        let before = taught();
        let bytes = stored(&before);
        for memory in [256 << 10, 8 << 20] {
            let after = classifier(memory);
            restore(&after, &DATABASE, &bytes).expect("what was stored");
            assert!((before.threshold() / after.threshold() - 1.0).abs() < 0.25, "{memory} bytes");
            let (was, is) = (before.temperature(TableId(0), 0), after.temperature(TableId(0), 0));
            assert!((was / is - 1.0).abs() < 0.2, "{was} {is}, {memory} bytes");
        }
    }

    #[test]
    fn damage_is_refused_and_changes_nothing() {
        let bytes = stored(&taught());
        whole(&DATABASE, &bytes).expect("what was stored");
        let fresh = classifier(4 << 20);
        let mut rng = Rng::new(5);
        for _ in 0..300 {
            let mut bad = bytes.clone();
            let at = rng.below(bad.len() as u64) as usize;
            bad[at] ^= 1 << rng.below(8);
            restore(&fresh, &DATABASE, &bad).expect_err("a bit was flipped");
            whole(&DATABASE, &bad).expect_err("a bit was flipped");
            bad.truncate(rng.below(bytes.len() as u64) as usize);
            restore(&fresh, &DATABASE, &bad).expect_err("it was cut");
        }
        assert!(restore(&fresh, &[8; 16], &bytes).is_err(), "it is another database's");
        assert!(
            restore(&fresh, &DATABASE, &[]).is_err() && restore(&fresh, &DATABASE, b"dear diary").is_err()
        );
        assert!(temperatures(&fresh).iter().all(|temperature| *temperature == 0.0));
    }
}
