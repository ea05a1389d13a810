//! Tests of dictionaries: codes give their strings, and searches their places, for each way that lengths stand.

use proptest::prelude::*;

use super::*;

fn check(mut strings: Vec<Vec<u8>>, which: u8) {
    strings.sort();
    strings.dedup();
    let refs: Vec<&[u8]> = strings.iter().map(Vec::as_slice).collect();
    let mut bytes = vec![9; 3];
    write_strings(&refs, &mut bytes);
    assert_eq!(bytes[3], which);
    let dictionary = Strings { bytes: &bytes, at: 3, count: refs.len() };
    for (code, string) in refs.iter().enumerate() {
        let (a, b) = dictionary.parts(code);
        assert_eq!([a, b].concat(), *string);
        assert_eq!((dictionary.below(string), dictionary.up_to(string)), (code, code + 1));
        for cut in 0..string.len().min(20) {
            let prefix = &string[..cut];
            assert_eq!(dictionary.below(prefix), refs.iter().filter(|s| **s < prefix).count());
            let begins = refs.iter().filter(|s| **s < prefix || s.starts_with(prefix)).count();
            assert_eq!(dictionary.up_to_prefix(prefix), begins);
        }
    }
    assert_eq!(dictionary.parts(refs.len()), (&[][..], &[][..]));
}

proptest! {
    #[test]
    fn codes_give_their_strings(strings in prop::collection::vec("[a-c]{0,15}", 1..60)) {
        let bytes: Vec<Vec<u8>> = strings.iter().map(|s| s.clone().into_bytes()).collect();
        check(bytes.clone(), 2);
        let with = |len: usize| [bytes.clone(), vec![vec![b'd'; len]]].concat();
        check(with(200), 1);
        check(with(300), 0);
    }
}

#[test]
fn integers_give_theirs() {
    for values in [vec![5], vec![-3, 0, 90_000], vec![i64::MIN, -1, i64::MAX]] {
        let mut bytes = vec![1];
        write_integers(&values, &mut bytes);
        bytes.extend([0; 16]);
        assert_eq!((0..values.len()).map(|code| integer(&bytes, 1, code)).collect::<Vec<_>>(), values);
    }
}
