//! Groups of rows with equal keys, numbered in the order in which they come.
//!
//! ```text
//! keys of a row ──► words: one a key, and one with a bit for each null ──► table ──► number of the group
//! ```
//!
//! Integers, dates, decimals of one scale and truth values are their own words. A text of up to seven bytes is its bytes and its length;
//! a longer one has a number, by which it stands once. Keys of any other kind, or whose kind changes from batch to batch, are
//! kept as values, all of them from then on.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use super::vector::{IntForm, TextForm, Values, Vector};
use crate::error::Result;
use crate::exec::Row;
use crate::expr::memory::{Kept, size_of_row};
use crate::types::{Datum, Numeric};

/// The kind of a key that stands in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Int(IntForm),
    Scaled(u16),
    Bool,
    Text(TextForm),
}

impl Form {
    fn of(vector: &Vector<'_>) -> Option<Self> {
        Some(match &vector.values {
            Values::Ints(form, _) => Self::Int(*form),
            Values::Scaled(scale, _) => Self::Scaled(*scale),
            Values::Bools(_) => Self::Bool,
            Values::Texts(texts) => Self::Text(texts.form),
            Values::One(_) | Values::Floats(_) | Values::Datums(_) => return None,
        })
    }
}

/// Texts of a key that do not fit into a word, numbered in the order in which they came.
#[derive(Debug)]
struct LongTexts {
    bytes: Vec<u8>,
    /// Where each text ends.
    ends: Vec<u64>,
    /// A part of a text's hash and one more than its number, at a place by its hash; (0, 0): none. As many as a power of two.
    table: Vec<(u32, u32)>,
    /// Drawn for each run, so that no texts are made to collide.
    seed: u64,
}

/// Bit of a word that is the number of a long text.
const LONG: u64 = 1 << 63;
/// Bytes of a text that fits into a word.
const SHORT: usize = 7;
/// Bytes that a map takes for an entry, beside what the entry points to.
const ENTRY_BYTES: usize = 64;

#[inline]
fn mix(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word) * u128::from(0x9E37_79B9_7F4A_7C15_u64);
    (product >> 64) as u64 ^ product as u64
}

impl LongTexts {
    fn new(seed: u64) -> Self {
        Self { bytes: Vec::new(), ends: Vec::new(), table: vec![(0, 0); 64], seed }
    }

    fn hash(seed: u64, text: &[u8]) -> u64 {
        let (words, rest) = text.as_chunks::<8>();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let hash =
            words.iter().fold(seed ^ text.len() as u64, |hash, word| mix(hash, u64::from_le_bytes(*word)));
        mix(mix(hash, u64::from_le_bytes(last)), seed)
    }

    /// The word of a text. Without memory to be charged no further text comes: its word is that of no group.
    fn word(&mut self, text: &[u8], kept: Option<&mut Kept<'_>>) -> Result<u64> {
        if text.len() <= SHORT {
            let mut bytes = [0; 8];
            bytes[..text.len()].copy_from_slice(text);
            bytes[SHORT] = text.len() as u8;
            return Ok(u64::from_le_bytes(bytes));
        }
        let hash = Self::hash(self.seed, text);
        let part = (hash >> 32) as u32;
        let mask = self.table.len() - 1;
        let mut place = hash as usize & mask;
        loop {
            match self.table[place] {
                (_, 0) => break,
                (other, number) if other == part && self.text(number - 1) == text => {
                    return Ok(LONG | u64::from(number - 1));
                }
                _ => place = (place + 1) & mask,
            }
        }
        let Some(kept) = kept else { return Ok(u64::MAX) };
        // The lists double, and the table is at most half full.
        kept.add(2 * text.len() + 2 * size_of::<u64>() + 4 * size_of::<(u32, u32)>())?;
        let number = u32::try_from(self.ends.len()).expect("memory holds fewer texts");
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len() as u64);
        self.table[place] = (part, number + 1);
        if self.ends.len() * 2 > self.table.len() {
            self.grow();
        }
        Ok(LONG | u64::from(number))
    }

    fn grow(&mut self) {
        let mut table = vec![(0, 0); self.table.len() * 2];
        let mask = table.len() - 1;
        for number in 0..self.ends.len() as u32 {
            let hash = Self::hash(self.seed, self.text(number));
            let mut place = hash as usize & mask;
            while table[place].1 != 0 {
                place = (place + 1) & mask;
            }
            table[place] = ((hash >> 32) as u32, number + 1);
        }
        self.table = table;
    }

    fn text(&self, number: u32) -> &[u8] {
        let begin = number.checked_sub(1).map_or(0, |before| self.ends[before as usize]);
        &self.bytes[begin as usize..self.ends[number as usize] as usize]
    }

    /// The value of the text that a word stands for.
    fn datum(&self, word: u64, form: TextForm) -> Datum {
        if word & LONG != 0 {
            return form.datum(self.text((word & !LONG) as u32));
        }
        let bytes = word.to_le_bytes();
        form.datum(&bytes[..usize::from(bytes[SHORT])])
    }
}

/// Keys as words.
#[derive(Debug)]
struct Words {
    forms: Vec<Form>,
    long: Vec<LongTexts>,
    /// The words of the groups, one behind the other.
    words: Vec<u64>,
    /// One more than a group's number, at a place by the hash of its words; 0: none. As many as a power of two.
    table: Vec<u32>,
    /// Drawn for each run, so that no rows are made to collide.
    seed: u64,
    /// Words of the rows of a batch.
    rows: Vec<u64>,
}

#[derive(Debug)]
enum Keys {
    /// No row has come.
    New,
    Words(Words),
    Values {
        places: HashMap<Row, u32>,
        rows: Vec<Row>,
    },
}

/// The number of a row whose group is none of those that are there, where no further one may come.
pub(super) const BEYOND: u32 = u32::MAX;

/// See the module.
#[derive(Debug)]
pub(super) struct Groups {
    keys: Keys,
    /// Number of groups.
    pub(super) count: usize,
}

impl Words {
    fn new(forms: Vec<Form>) -> Self {
        let seed = RandomState::new().hash_one(0) | 1;
        let long = forms.iter().map(|_| LongTexts::new(seed)).collect();
        Self { forms, long, words: Vec::new(), table: vec![0; 64], seed, rows: Vec::new() }
    }

    fn width(&self) -> usize {
        self.forms.len() + 1
    }

    /// Fills `rows` with the words of a batch.
    fn fill(&mut self, keys: &[&Vector<'_>], count: usize, mut kept: Option<&mut Kept<'_>>) -> Result<()> {
        let width = self.width();
        self.rows.clear();
        self.rows.resize(count * width, 0);
        for (place, vector) in keys.iter().enumerate() {
            let rows = self.rows.chunks_exact_mut(width);
            match &vector.values {
                Values::Ints(_, values) | Values::Scaled(_, values) => {
                    rows.zip(values.iter()).for_each(|(row, value)| row[place] = *value as u64);
                }
                Values::Bools(values) => {
                    rows.zip(values).for_each(|(row, value)| row[place] = u64::from(*value));
                }
                Values::Texts(texts) => {
                    for (at, row) in rows.enumerate() {
                        row[place] = self.long[place].word(texts.get(at), kept.as_deref_mut())?;
                    }
                }
                Values::One(_) | Values::Floats(_) | Values::Datums(_) => {
                    unreachable!("the kind of each key was looked at")
                }
            }
            if vector.nulls.is_some() {
                for (at, row) in self.rows.chunks_exact_mut(width).enumerate() {
                    if vector.is_null(at) {
                        row[place] = 0;
                        row[width - 1] |= 1 << (place % 64);
                    }
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn hash(seed: u64, words: &[u64]) -> u64 {
        words.iter().fold(seed, |hash, word| mix(hash, *word))
    }

    fn grow(&mut self) {
        let width = self.width();
        self.table = vec![0; self.table.len() * 2];
        for (group, words) in self.words.chunks_exact(width).enumerate() {
            let mask = self.table.len() - 1;
            let mut place = Self::hash(self.seed, words) as usize & mask;
            while self.table[place] != 0 {
                place = (place + 1) & mask;
            }
            self.table[place] = group as u32 + 1;
        }
    }

    /// The group of a row of the batch. Without memory to be charged no further group comes.
    #[inline]
    fn group(&mut self, row: usize, count: &mut usize, kept: Option<&mut Kept<'_>>) -> Result<u32> {
        let width = self.width();
        let words = &self.rows[row * width..(row + 1) * width];
        let mask = self.table.len() - 1;
        let mut place = Self::hash(self.seed, words) as usize & mask;
        loop {
            match self.table[place] {
                0 => break,
                group => {
                    let begin = (group - 1) as usize * width;
                    if self.words[begin..begin + width] == *words {
                        return Ok(group - 1);
                    }
                }
            }
            place = (place + 1) & mask;
        }
        let Some(kept) = kept else { return Ok(BEYOND) };
        // The list doubles, and the table is at most half full.
        kept.add(2 * size_of_val(words) + 4 * size_of::<u32>())?;
        let group = u32::try_from(*count).expect("memory holds fewer groups");
        self.words.extend_from_slice(words);
        self.table[place] = group + 1;
        *count += 1;
        if *count * 2 > self.table.len() {
            self.grow();
        }
        Ok(group)
    }

    /// The values of a group's keys.
    fn row(&self, group: usize) -> Row {
        let width = self.width();
        let words = &self.words[group * width..(group + 1) * width];
        let nulls = words[width - 1];
        let value = |(place, form): (usize, &Form)| {
            let word = words[place];
            if nulls >> (place % 64) & 1 != 0 {
                return Datum::Null;
            }
            match form {
                Form::Int(form) => form.datum(word as i64),
                Form::Scaled(scale) => Datum::Numeric(Numeric::Small(word as i64, *scale)),
                Form::Bool => Datum::Bool(word != 0),
                Form::Text(form) => self.long[place].datum(word, *form),
            }
        };
        self.forms.iter().enumerate().map(value).collect()
    }
}

impl Groups {
    /// None yet; without keys all rows are one group, which is there from the beginning.
    pub(super) fn new(keys: usize) -> Self {
        Self { keys: Keys::New, count: usize::from(keys == 0) }
    }

    /// The groups of so many rows, into `out`; if none may come any more, some are [`BEYOND`] those that are there.
    pub(super) fn of_rows(
        &mut self,
        keys: &[&Vector<'_>],
        rows: usize,
        out: &mut Vec<u32>,
        (kept, may_grow): (&mut Kept<'_>, bool),
    ) -> Result<()> {
        out.clear();
        if keys.is_empty() {
            out.resize(rows, 0);
            return Ok(());
        }
        let forms: Option<Vec<Form>> = keys.iter().map(|key| Form::of(key)).collect();
        // The bits of the nulls are those of one word.
        let forms = forms.filter(|forms| forms.len() <= 64);
        match (&self.keys, forms) {
            (Keys::New, Some(forms)) => self.keys = Keys::Words(Words::new(forms)),
            (Keys::Words(words), Some(forms)) if words.forms == forms => {}
            (Keys::Values { .. }, _) => {}
            _ => self.keep_values(kept)?,
        }
        match &mut self.keys {
            Keys::Words(words) => {
                words.fill(keys, rows, may_grow.then_some(&mut *kept))?;
                out.reserve(rows);
                for row in 0..rows {
                    let kept = if may_grow { Some(&mut *kept) } else { None };
                    out.push(words.group(row, &mut self.count, kept)?);
                }
            }
            Keys::Values { places, rows: known } => {
                for row in 0..rows {
                    let key: Row = keys.iter().map(|key| key.datum(row)).collect();
                    let group = match places.get(&key) {
                        Some(group) => *group,
                        None if !may_grow => BEYOND,
                        None => {
                            // It stands in the list and in the table, which has room for twice as many.
                            kept.add(2 * size_of_row(&key) + ENTRY_BYTES)?;
                            let group = u32::try_from(known.len()).expect("memory holds fewer groups");
                            known.push(key.clone());
                            places.insert(key, group);
                            self.count += 1;
                            group
                        }
                    };
                    out.push(group);
                }
            }
            Keys::New => unreachable!("just seen to"),
        }
        Ok(())
    }

    /// Keeps keys as values from here on.
    fn keep_values(&mut self, kept: &mut Kept<'_>) -> Result<()> {
        let rows: Vec<Row> = (0..self.count).map(|group| self.row(group)).collect();
        for row in &rows {
            kept.add(2 * size_of_row(row) + ENTRY_BYTES)?;
        }
        let places = rows.iter().cloned().zip(0..).collect();
        self.keys = Keys::Values { places, rows };
        Ok(())
    }

    /// The values of a group's keys.
    pub(super) fn row(&self, group: usize) -> Row {
        match &self.keys {
            Keys::New => Row::new(),
            Keys::Words(words) => words.row(group),
            Keys::Values { rows, .. } => rows[group].clone(),
        }
    }
}
