//! Tests of the integers of a group against the plain ones.

use proptest::prelude::*;
use thermocline_base::depth;

use super::*;

fn round_trip(values: &[i64], params: &Params) {
    let mut bytes = vec![0xAA; 5];
    write(values, params, &mut bytes);
    assert_eq!(bytes.len() - 5, params.bytes(values.len()));
    bytes.extend([0; 16]);
    let mut out = vec![1; values.len()];
    unpack(&bytes, 5, params, &mut out);
    assert_eq!(out, values);
    for (i, v) in values.iter().enumerate() {
        assert_eq!(value(&bytes, 5, params, values.len(), i), *v, "{params:?} at {i}");
    }
}

fn check(values: &[i64]) {
    let (low, high) = extent(values);
    let width = width_of(high.wrapping_sub(low) as u64);
    let runs = 1 + values.windows(2).filter(|pair| pair[0] != pair[1]).count();
    for kind in [Kind::Line, Kind::Positions, Kind::Marks] {
        let runs = if kind == Kind::Line { 0 } else { runs };
        round_trip(values, &Params { kind, width, base: low, slope: 0, runs });
    }
    sloped(values).iter().for_each(|line| round_trip(values, line));
    for choice in [Choice::Smallest, Choice::PointReads] {
        round_trip(values, &plan(values, choice));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(depth::either(64, 2000)))]

    #[test]
    fn all_kinds_give_the_values(
        values in prop::collection::vec(any::<i64>(), 1..=GROUP_ROWS),
        width in 0u32..=64,
        base in any::<i64>(),
        run in 1usize..100,
        slope in -100_000i64..100_000,
    ) {
        let narrow = |v: &i64| if width == 0 { 0 } else { (*v as u64 >> (64 - width)) as i64 };
        let values: Vec<i64> = values.iter().map(|v| base.wrapping_add(narrow(v))).collect();
        check(&values);
        let runs: Vec<i64> = (0..values.len()).map(|i| values[i / run]).collect();
        check(&runs);
        let rising: Vec<i64> = (0..).zip(&values).map(|(i, v)| v.wrapping_add(slope * i)).collect();
        check(&rising);
    }
}

#[test]
fn extremes_have_their_place() {
    check(&[i64::MIN, i64::MAX, 0, -1]);
    check(&[i64::MAX; GROUP_ROWS]);
    check(&[i64::MIN]);
}

#[test]
fn each_shape_gets_its_kind() {
    let plan = |values: Vec<i64>| plan(&values, Choice::PointReads);
    let constant = plan(vec![7; 1000]);
    assert_eq!((constant.kind, constant.bytes(1000)), (Kind::Line, 0));
    let sequence = plan((0..1000).map(|i| 5000 - 3 * i).collect());
    assert_eq!((sequence.kind, sequence.slope, sequence.bytes(1000)), (Kind::Line, -3, 0));
    let runs = plan((0..1000).map(|i| (i / 10) * 7919 % 1000).collect());
    assert_eq!((runs.kind, runs.runs), (Kind::Marks, 100));
    let smallest = super::plan(&[vec![1; 500], vec![1_000_000; 500]].concat(), Choice::Smallest);
    assert_eq!((smallest.kind, smallest.runs), (Kind::Positions, 2));
    assert_eq!(plan((0..1000).map(|i| i * 7919 % 1000).collect()).kind, Kind::Line);
}
