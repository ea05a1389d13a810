//! Order lines in the order in which a growing database gets them: the rows that freeze.
//!
//! New orders of random districts and warehouses follow each other, with the quantities of the New-Order transaction (clause
//! 2.4.1), and every order has been delivered since, at one time for all of its lines. Amounts are the quantity times the price of
//! the item. `ol_dist_info` is as the specification has it, or text of another kind (see [`Strings`]).

use thermocline_engine::row::{Column, Dec, Timestamp, Type};

use super::random::{Constants, a_string, item_id};
use super::schema::OrderLine;
use super::{DISTRICTS, ORDER_LINES_MAX, ORDER_LINES_MIN, Scale};
use crate::names::Surnames;
use crate::random::{Random, mix64};
use crate::text::Text;

/// The strings of `ol_dist_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strings {
    /// 24 random letters and digits, those of the stock that was taken: they hardly repeat.
    Tpcc,
    /// Surnames as skewed as real ones (see [`Surnames`]), as CH-benCHmark has them in place of random letters.
    Ch,
    /// Remarks of 6 to 20 words, of which one in two is a phrase that recurs.
    Long,
}

const WORDS: [&str; 32] = [
    "customer",
    "asked",
    "for",
    "delivery",
    "before",
    "noon",
    "leave",
    "at",
    "the",
    "door",
    "fragile",
    "handle",
    "with",
    "care",
    "gift",
    "wrapping",
    "in",
    "blue",
    "paper",
    "call",
    "ahead",
    "second",
    "floor",
    "no",
    "invoice",
    "inside",
    "return",
    "label",
    "please",
    "signature",
    "required",
    "today",
];

/// Draws order lines.
#[derive(Clone, Debug)]
pub struct Lines {
    strings: Strings,
    /// Of [`Strings::Ch`] only.
    names: Option<Surnames>,
    scale: Scale,
    constants: Constants,
    random: Random,
    next_o_id: Vec<i32>,
    at_us: i64,
    /// Lines of the present order that are still to come.
    rest: i16,
    line: OrderLine,
    /// `ol_dist_info` of the line; in [`Strings::Long`] it is longer than the schema's column takes.
    text: String,
}

impl Lines {
    /// The lines that belong to a seed.
    #[must_use]
    pub fn new(warehouses: i32, strings: Strings, seed: u64) -> Self {
        let scale = Scale::full(warehouses);
        Self {
            strings,
            names: (strings == Strings::Ch).then(Surnames::new),
            scale,
            constants: Constants::new(seed, seed),
            random: Random::stream(seed, &[0x6c]),
            next_o_id: vec![scale.customers + 1; warehouses as usize * DISTRICTS as usize],
            at_us: 1_700_000_000_000_000,
            rest: 0,
            line: OrderLine::default(),
            text: String::new(),
        }
    }

    /// The columns of the lines: those of ORDER-LINE, with a text in place of the last one for [`Strings::Long`].
    #[must_use]
    pub fn columns(strings: Strings) -> Vec<Column> {
        let mut columns = OrderLine::schema_columns();
        if strings == Strings::Long
            && let Some(last) = columns.last_mut()
        {
            last.ty = Type::Text;
        }
        columns
    }

    /// The next line, whose `ol_dist_info` is empty, and that text.
    pub fn next_line(&mut self) -> (&OrderLine, &str) {
        let random = &mut self.random;
        if self.rest == 0 {
            let warehouse = random.between_i32(1, self.scale.warehouses);
            let district = random.between(1, i64::from(DISTRICTS)) as i16;
            let place = (warehouse - 1) as usize * DISTRICTS as usize + (district - 1) as usize;
            self.rest = random.between(ORDER_LINES_MIN as i64, ORDER_LINES_MAX as i64) as i16;
            self.at_us += random.between(5, 60);
            self.line.ol_o_id = self.next_o_id[place];
            self.next_o_id[place] += 1;
            (self.line.ol_w_id, self.line.ol_d_id, self.line.ol_number) = (warehouse, district, 0);
            self.line.ol_delivery_d = Some(Timestamp(self.at_us));
        }
        self.rest -= 1;
        let line = &mut self.line;
        line.ol_number += 1;
        line.ol_i_id = item_id(random, &self.constants, &self.scale);
        let is_remote = self.scale.warehouses > 1 && random.percent(1);
        line.ol_supply_w_id =
            if is_remote { random.between_i32(1, self.scale.warehouses) } else { line.ol_w_id };
        line.ol_quantity = random.between(1, 10) as i16;
        // The price of an item is always the same, from 1.00 to 100.00.
        let price_cents = 100 + (mix64(line.ol_i_id as u64) % 9_901) as i64;
        line.ol_amount = Dec::from_scaled(i64::from(line.ol_quantity) * price_cents);
        self.text.clear();
        match self.strings {
            Strings::Tpcc => {
                let text: Text<24> = a_string(random, 24, 24);
                self.text.push_str(&text);
            }
            Strings::Ch => self.text.push_str(self.names.as_ref().map_or("", |names| names.draw(random))),
            Strings::Long => remark(random, &mut self.text),
        }
        (&self.line, &self.text)
    }
}

/// Six to twenty words.
fn remark(random: &mut Random, text: &mut String) {
    let recurs = random.percent(50);
    // One of 5,000 phrases, or one of its own.
    let mut phrase = Random::new(if recurs { random.between(1, 5_000) as u64 } else { random.next_u64() });
    for i in 0..phrase.between(6, 20) {
        text.push_str(if i == 0 { "" } else { " " });
        text.push_str(WORDS[phrase.between(0, WORDS.len() as i64 - 1) as usize]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_orders() {
        let mut lines = Lines::new(10, Strings::Ch, 1);
        let (mut last, mut orders) = (OrderLine::default(), 0);
        for _ in 0..5_000 {
            let (line, text) = lines.next_line();
            assert!(!text.is_empty() && (1..=10).contains(&line.ol_w_id) && (1..=10).contains(&line.ol_d_id));
            if line.ol_number == 1 {
                assert!(orders == 0 || (5..=15).contains(&last.ol_number));
                orders += 1;
            } else {
                assert_eq!((line.ol_o_id, line.ol_number), (last.ol_o_id, last.ol_number + 1));
                assert_eq!(line.ol_delivery_d, last.ol_delivery_d);
            }
            last = line.clone();
        }
        assert!((400..600).contains(&orders), "{orders}");
    }
}
