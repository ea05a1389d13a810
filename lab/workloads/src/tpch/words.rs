//! The words of TPC-H's texts: lists of clause 4.2.2.13, and sentences of clause 4.2.2.14's grammar.
//!
//! A word of a list comes as often as its weight says. Comments are pieces of one text of 4 MiB, as in the specification, so that
//! making one costs nothing. `%special%requests%` and its like are as rare in it as sentences make them.

use crate::random::Random;

pub(super) const COLORS: [&str; 92] = [
    "almond",
    "antique",
    "aquamarine",
    "azure",
    "beige",
    "bisque",
    "black",
    "blanched",
    "blue",
    "blush",
    "brown",
    "burlywood",
    "burnished",
    "chartreuse",
    "chiffon",
    "chocolate",
    "coral",
    "cornflower",
    "cornsilk",
    "cream",
    "cyan",
    "dark",
    "deep",
    "dim",
    "dodger",
    "drab",
    "firebrick",
    "floral",
    "forest",
    "frosted",
    "gainsboro",
    "ghost",
    "goldenrod",
    "green",
    "grey",
    "honeydew",
    "hot",
    "indian",
    "ivory",
    "khaki",
    "lace",
    "lavender",
    "lawn",
    "lemon",
    "light",
    "lime",
    "linen",
    "magenta",
    "maroon",
    "medium",
    "metallic",
    "midnight",
    "mint",
    "misty",
    "moccasin",
    "navajo",
    "navy",
    "olive",
    "orange",
    "orchid",
    "pale",
    "papaya",
    "peach",
    "peru",
    "pink",
    "plum",
    "powder",
    "puff",
    "purple",
    "red",
    "rose",
    "rosy",
    "royal",
    "saddle",
    "salmon",
    "sandy",
    "seashell",
    "sienna",
    "sky",
    "slate",
    "smoke",
    "snow",
    "spring",
    "steel",
    "tan",
    "thistle",
    "tomato",
    "turquoise",
    "violet",
    "wheat",
    "white",
    "yellow",
];
pub(super) const TYPES: [&[&str]; 3] = [
    &["STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO"],
    &["ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED"],
    &["TIN", "NICKEL", "BRASS", "STEEL", "COPPER"],
];
pub(super) const CONTAINERS: [&[&str]; 2] =
    [&["SM", "LG", "MED", "JUMBO", "WRAP"], &["CASE", "BOX", "BAG", "JAR", "PKG", "PACK", "CAN", "DRUM"]];
pub(super) const SEGMENTS: [&str; 5] = ["AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY", "HOUSEHOLD"];
pub(super) const PRIORITIES: [&str; 5] = ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"];
pub(super) const INSTRUCTIONS: [&str; 4] = ["DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN"];
pub(super) const MODES: [&str; 7] = ["REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"];
pub(super) const REGIONS: [&str; 5] = ["AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"];
/// Nations, by their key, with the region of each.
pub(super) const NATIONS: [(&str, i32); 25] = [
    ("ALGERIA", 0),
    ("ARGENTINA", 1),
    ("BRAZIL", 1),
    ("CANADA", 1),
    ("EGYPT", 4),
    ("ETHIOPIA", 0),
    ("FRANCE", 3),
    ("GERMANY", 3),
    ("INDIA", 2),
    ("INDONESIA", 2),
    ("IRAN", 4),
    ("IRAQ", 4),
    ("JAPAN", 2),
    ("JORDAN", 4),
    ("KENYA", 0),
    ("MOROCCO", 0),
    ("MOZAMBIQUE", 0),
    ("PERU", 1),
    ("CHINA", 2),
    ("ROMANIA", 3),
    ("SAUDI ARABIA", 4),
    ("VIETNAM", 2),
    ("RUSSIA", 3),
    ("UNITED KINGDOM", 3),
    ("UNITED STATES", 1),
];

type Words = [(&'static str, u32)];

const NOUNS: &Words = &[
    ("packages", 40),
    ("requests", 40),
    ("accounts", 40),
    ("deposits", 40),
    ("foxes", 20),
    ("ideas", 20),
    ("theodolites", 20),
    ("pinto beans", 20),
    ("instructions", 20),
    ("dependencies", 10),
    ("excuses", 10),
    ("platelets", 10),
    ("asymptotes", 10),
    ("courts", 5),
    ("dolphins", 5),
    ("multipliers", 1),
    ("sauternes", 1),
    ("warthogs", 1),
    ("frets", 1),
    ("dinos", 1),
    ("attainments", 1),
    ("somas", 1),
    ("Tiresias", 1),
    ("patterns", 1),
    ("forges", 1),
    ("braids", 1),
    ("frays", 1),
    ("warhorses", 1),
    ("dugouts", 1),
    ("notornis", 1),
    ("epitaphs", 1),
    ("pearls", 1),
    ("tithes", 1),
    ("waters", 1),
    ("orbits", 1),
    ("gifts", 1),
    ("sheaves", 1),
    ("depths", 1),
    ("sentiments", 1),
    ("decoys", 1),
    ("realms", 1),
    ("pains", 1),
    ("grouches", 1),
    ("escapades", 1),
    ("hockey players", 1),
];
const VERBS: &Words = &[
    ("sleep", 20),
    ("wake", 20),
    ("are", 20),
    ("cajole", 20),
    ("haggle", 20),
    ("nag", 10),
    ("use", 10),
    ("boost", 10),
    ("affix", 5),
    ("detect", 5),
    ("integrate", 5),
    ("maintain", 1),
    ("nod", 1),
    ("was", 1),
    ("lose", 1),
    ("sublate", 1),
    ("solve", 1),
    ("thrash", 1),
    ("promise", 1),
    ("engage", 1),
    ("hinder", 1),
    ("print", 1),
    ("x-ray", 1),
    ("breach", 1),
    ("eat", 1),
    ("grow", 1),
    ("impress", 1),
    ("mold", 1),
    ("poach", 1),
    ("serve", 1),
    ("run", 1),
    ("dazzle", 1),
    ("snooze", 1),
    ("doze", 1),
    ("unwind", 1),
    ("kindle", 1),
    ("play", 1),
    ("hang", 1),
    ("believe", 1),
    ("doubt", 1),
];
const ADJECTIVES: &Words = &[
    ("special", 20),
    ("pending", 20),
    ("unusual", 20),
    ("express", 20),
    ("furious", 1),
    ("sly", 1),
    ("careful", 1),
    ("blithe", 1),
    ("quick", 1),
    ("fluffy", 1),
    ("slow", 1),
    ("quiet", 1),
    ("ruthless", 1),
    ("thin", 1),
    ("close", 1),
    ("dogged", 1),
    ("daring", 1),
    ("brave", 1),
    ("stealthy", 1),
    ("permanent", 1),
    ("enticing", 1),
    ("idle", 1),
    ("busy", 1),
    ("regular", 50),
    ("final", 40),
    ("ironic", 40),
    ("even", 30),
    ("bold", 20),
    ("silent", 10),
];
const ADVERBS: &Words = &[
    ("sometimes", 1),
    ("always", 1),
    ("never", 1),
    ("furiously", 50),
    ("slyly", 50),
    ("carefully", 50),
    ("blithely", 40),
    ("quickly", 30),
    ("fluffily", 20),
    ("slowly", 1),
    ("quietly", 1),
    ("ruthlessly", 1),
    ("thinly", 1),
    ("closely", 1),
    ("doggedly", 1),
    ("daringly", 1),
    ("bravely", 1),
    ("stealthily", 1),
    ("permanently", 1),
    ("enticingly", 1),
    ("idly", 1),
    ("busily", 1),
    ("regularly", 1),
    ("finally", 1),
    ("ironically", 1),
    ("evenly", 1),
    ("boldly", 1),
    ("silently", 1),
];
const PREPOSITIONS: &Words = &[
    ("about", 50),
    ("above", 50),
    ("according to", 50),
    ("across", 50),
    ("after", 50),
    ("against", 40),
    ("along", 40),
    ("alongside of", 30),
    ("among", 30),
    ("around", 20),
    ("at", 10),
    ("atop", 1),
    ("before", 1),
    ("behind", 1),
    ("beneath", 1),
    ("beside", 1),
    ("between", 1),
    ("beyond", 1),
    ("by", 1),
    ("during", 1),
    ("inside", 1),
    ("into", 1),
    ("near", 1),
    ("over", 1),
    ("through", 1),
    ("under", 1),
    ("until", 1),
    ("upon", 1),
    ("without", 1),
];
const AUXILIARIES: &Words = &[
    ("may", 1),
    ("might", 1),
    ("will", 1),
    ("would", 1),
    ("can", 1),
    ("could", 1),
    ("should", 1),
    ("ought to", 1),
];
const ENDS: &Words = &[(".", 50), (";", 1), (":", 1), ("?", 1), ("!", 1), ("--", 1)];

/// Forms of a sentence: each letter is a list of words or a phrase, by clause 4.2.2.14.
const SENTENCES: &Words = &[("N V T", 3), ("N V P T", 3), ("N V N T", 3), ("N P V N T", 1), ("N P V P T", 1)];
const NOUN_PHRASES: &Words = &[("n", 10), ("j n", 20), ("j, j n", 10), ("d j n", 50)];
const VERB_PHRASES: &Words = &[("v", 30), ("x v", 1), ("v d", 40), ("x v d", 1)];

fn drawn(random: &mut Random, words: &Words) -> &'static str {
    let all: u32 = words.iter().map(|(_, weight)| weight).sum();
    let mut at = random.below(u64::from(all)) as u32;
    for (word, weight) in words {
        if at < *weight {
            return word;
        }
        at -= weight;
    }
    unreachable!("a number below the sum of all weights is within one of them")
}

/// Appends what the letters of `form` stand for.
fn write(text: &mut String, random: &mut Random, form: &str) {
    for letter in form.chars() {
        match letter {
            'N' => {
                let phrase = drawn(random, NOUN_PHRASES);
                write(text, random, phrase);
            }
            'V' => {
                let phrase = drawn(random, VERB_PHRASES);
                write(text, random, phrase);
            }
            'P' => {
                text.push_str(drawn(random, PREPOSITIONS));
                text.push_str(" the ");
                write(text, random, "N");
            }
            'T' => {
                // The end of a sentence stands at its last word.
                text.truncate(text.trim_end().len());
                text.push_str(drawn(random, ENDS));
            }
            'n' => text.push_str(drawn(random, NOUNS)),
            'v' => text.push_str(drawn(random, VERBS)),
            'j' => text.push_str(drawn(random, ADJECTIVES)),
            'd' => text.push_str(drawn(random, ADVERBS)),
            'x' => text.push_str(drawn(random, AUXILIARIES)),
            other => text.push(other),
        }
    }
}

/// A text of sentences, all of it ASCII.
#[derive(Clone, Debug)]
pub(super) struct Sentences(String);

impl Sentences {
    pub(super) fn new(random: &mut Random, bytes: usize) -> Self {
        let mut text = String::with_capacity(bytes + 256);
        while text.len() < bytes {
            let sentence = drawn(random, SENTENCES);
            write(&mut text, random, sentence);
            text.push(' ');
        }
        Self(text)
    }

    /// A piece of `low` to `high` bytes, from anywhere.
    pub(super) fn piece(&self, random: &mut Random, low: u64, high: u64) -> &str {
        let length = (low + random.below(high - low + 1)) as usize;
        let start = random.below((self.0.len() - length) as u64) as usize;
        &self.0[start..start + length]
    }
}
