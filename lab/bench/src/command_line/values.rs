//! Values that a command line may have. Each error says what would be right.

use std::ops::RangeInclusive;

use bytesize::ByteSize;

/// A number of bytes: `512MiB`, `1GiB`, `2GB`, `1073741824`.
pub fn size(text: &str) -> Result<u64, String> {
    match text.parse::<ByteSize>() {
        Ok(size) if size.as_u64() > 0 => Ok(size.as_u64()),
        Ok(_) => Err("must be more than 0, for instance 512MiB".to_owned()),
        Err(_) => Err("is no size; write for instance 512MiB, 1GiB or 2GB".to_owned()),
    }
}

/// A number of bytes, or a share of something.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum SizeOrShare {
    /// Bytes.
    Bytes(u64),
    /// From above 0 on.
    Share(f64),
}

/// A number of bytes, or a share: `1GiB`, `25%`.
pub fn size_or_share(text: &str) -> Result<SizeOrShare, String> {
    let Some(percent) = text.strip_suffix('%') else { return size(text).map(SizeOrShare::Bytes) };
    match percent.trim().parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent.is_finite() => Ok(SizeOrShare::Share(percent / 100.0)),
        _ => Err("is no share; write for instance 25%, or a size such as 1GiB".to_owned()),
    }
}

/// A whole number of at least 1; `1_000_000` is easier to read than `1000000`, and `10M` still more.
pub fn count(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1_000),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1_000_000),
        Some(b'b' | b'B') => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    let number = digits.replace('_', "").parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    match number {
        Some(0) => Err("must be at least 1".to_owned()),
        Some(number) => Ok(number),
        None => Err("is no whole number; write for instance 1000000, 1_000_000 or 1M".to_owned()),
    }
}

/// A whole number of at least 1 that counts few things.
pub fn few(text: &str) -> Result<u32, String> {
    u32::try_from(count(text)?)
        .ok()
        .filter(|number| *number <= 1 << 20)
        .ok_or_else(|| format!("is too many; at most {} are possible", 1 << 20))
}

/// A number of MiB.
pub fn mebibytes(text: &str) -> Result<u64, String> {
    match count(text)? {
        number if number <= 1 << 24 => Ok(number),
        _ => Err("is too much; at most 16777216 (16 TiB) are possible".to_owned()),
    }
}

/// Threads: at least 1, at most as many as the engine has places for.
pub fn threads(text: &str) -> Result<usize, String> {
    // The engine's own threads and the caller need places as well.
    const MOST: u64 = thermocline_base::sync::MAX_THREADS as u64 - 64;
    match count(text)? {
        number if number <= MOST => Ok(number as usize),
        _ => Err(format!("is too many; at most {MOST} are possible")),
    }
}

/// Transactions in flight on a thread.
pub fn in_flight(text: &str) -> Result<usize, String> {
    match count(text)? {
        number if number <= 65_536 => Ok(number as usize),
        _ => Err("is too many; at most 65536 are possible".to_owned()),
    }
}

/// Reads in flight on a thread.
pub fn depth(text: &str) -> Result<usize, String> {
    match count(text)? {
        number if number <= 4_096 => Ok(number as usize),
        _ => Err("is too many; at most 4096 are possible".to_owned()),
    }
}

/// Seconds, parts of one included; more than 0.
pub fn seconds(text: &str) -> Result<f64, String> {
    match seconds_or_zero(text)? {
        0.0 => Err("must be more than 0".to_owned()),
        seconds => Ok(seconds),
    }
}

/// Seconds, parts of one included.
pub fn seconds_or_zero(text: &str) -> Result<f64, String> {
    const WEEK: f64 = 7.0 * 86_400.0;
    number(text, 0.0..=WEEK, "seconds, for instance 20 or 0.5, up to a week")
}

/// A skew of the Zipf distribution.
pub fn theta(text: &str) -> Result<f64, String> {
    number(text, 0.0..=2.0, "a skew from 0 (uniform) to 2, for instance 0.99")
}

/// A share above 0 and below 1.
pub fn share(text: &str) -> Result<f64, String> {
    match number(text, 0.0..=1.0, SHARE)? {
        share if share > 0.0 && share < 1.0 => Ok(share),
        _ => Err(format!("is not {SHARE}")),
    }
}

/// A scale: above 0, up to 1.
pub fn scale(text: &str) -> Result<f64, String> {
    const SCALE: &str = "a scale above 0 and up to 1, for instance 0.01";
    match number(text, 0.0..=1.0, SCALE)? {
        scale if scale > 0.0 => Ok(scale),
        _ => Err(format!("is not {SCALE}")),
    }
}

/// The factor by which something is larger.
pub fn times(text: &str) -> Result<f64, String> {
    number(text, 1.0..=100.0, "a number of times from 1 to 100, for instance 4")
}

const SHARE: &str = "a share above 0 and below 1, for instance 0.05";

/// A whole percentage.
pub fn percent(text: &str) -> Result<u32, String> {
    let bare = text.trim_end_matches('%').trim_end();
    bare.parse()
        .ok()
        .filter(|percent| *percent <= 100)
        .ok_or_else(|| "is no percentage; write a whole number from 0 to 100".to_owned())
}

fn number(text: &str, range: RangeInclusive<f64>, wanted: &str) -> Result<f64, String> {
    text.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| format!("is not {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_human() {
        assert_eq!(size("1GiB"), Ok(1 << 30));
        assert_eq!(size("512 MiB"), Ok(512 << 20));
        assert_eq!(size("2GB"), Ok(2_000_000_000));
        assert_eq!(size("4096"), Ok(4096));
        for wrong in ["", "much", "-1", "1XB", "0", "0GiB"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn counts_are_at_least_one() {
        assert_eq!(
            (count("1_000_000"), count("10M"), count("5k")),
            (Ok(1_000_000), Ok(10_000_000), Ok(5_000))
        );
        for wrong in ["0", "", "M", "1.5", "-3", "99999999999999999999", "99999999999999999999M"] {
            assert!(count(wrong).is_err(), "{wrong}");
        }
        assert!(few("2000000").is_err() && threads("5000").is_err() && in_flight("1M").is_err());
    }

    #[test]
    fn seconds_percentages_and_skews_stay_in_their_ranges() {
        assert_eq!((seconds("0.5"), seconds_or_zero("0")), (Ok(0.5), Ok(0.0)));
        assert_eq!((percent("90"), percent("90%"), theta("0.99")), (Ok(90), Ok(90), Ok(0.99)));
        for wrong in ["0", "-1", "nan", "inf", "1e9", "soon"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
        assert_eq!((share("0.05"), scale("1"), times("4")), (Ok(0.05), Ok(1.0), Ok(4.0)));
        assert!(scale("0").is_err() && scale("1.5").is_err() && times("0.5").is_err());
        assert!(share("0").is_err() && share("1").is_err() && share("nan").is_err());
        assert!(percent("101").is_err() && percent("-1").is_err() && theta("3").is_err());
    }
}
