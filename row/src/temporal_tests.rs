//! Tests of dates, times, timestamps and intervals.

use proptest::prelude::*;

use super::super::testing::interval;
use super::*;

#[test]
fn calendar_equals_counting() {
    // One era of 400 years and some more, on both sides of the epoch.
    let mut date = Date::from_ymd(1, 1, 1).unwrap();
    for year in 1i64..=2_500 {
        for month in 1..=12u8 {
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let days =
                [31, 28 + u8::from(leap), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][usize::from(month) - 1];
            for day in 1..=days {
                assert_eq!(date.ymd(), (year, month, day));
                assert_eq!(Date::from_ymd(year, month, day), Some(date));
                date.0 += 1;
            }
            assert_eq!(Date::from_ymd(year, month, days + 1), None);
        }
    }
    assert_eq!(Date::from_ymd(1970, 1, 1), Some(Date(0)));
    assert_eq!(Date::from_ymd(2000, 2, 29), Some(Date(11_016)));
    assert_eq!(
        (Date::from_ymd(2000, 0, 1), Date::from_ymd(2000, 13, 1), Date::from_ymd(2000, 1, 0)),
        (None, None, None)
    );
    assert_eq!(Date::from_ymd(i64::MAX, 1, 1), None);
}

#[test]
fn texts() {
    for text in ["1970-01-01", "2024-02-29", "0000-12-31", "-0001-01-01", "+10000-01-01"] {
        assert_eq!(text.parse::<Date>().unwrap().to_string(), text);
    }
    for text in ["00:00:00", "24:00:00", "23:59:59.999999", "01:02:03.5"] {
        assert_eq!(text.parse::<Time>().unwrap().to_string(), text);
    }
    assert_eq!("07:30".parse::<Time>().unwrap().to_string(), "07:30:00");
    assert_eq!("2024-02-29 07:30:00.25".parse::<Timestamp>().unwrap().to_string(), "2024-02-29T07:30:00.25");
    assert_eq!("2024-02-29".parse::<Timestamp>().unwrap().to_string(), "2024-02-29T00:00:00");
    for (text, utc) in [
        ("2024-01-01T00:30:00+02:00", "2023-12-31T22:30:00Z"),
        ("2024-01-01 00:30:00-0530", "2024-01-01T06:00:00Z"),
        ("2024-01-01T00:30Z", "2024-01-01T00:30:00Z"),
        ("-0001-01-01T00:00:00+01", "-0002-12-31T23:00:00Z"),
    ] {
        assert_eq!(text.parse::<TimestampTz>().unwrap().to_string(), utc);
    }
    for (text, interval, shown) in [
        ("P1Y2M3DT4H5M6.5S", Interval::new(14, 3, 14_706_500_000), "P1Y2M3DT4H5M6.5S"),
        ("P2W", Interval::new(0, 14, 0), "P14D"),
        ("PT-0.000001S", Interval::new(0, 0, -1), "PT-0.000001S"),
        ("P-1M+1DT0S", Interval::new(-1, 1, 0), "P-1M1D"),
        ("PT0S", Interval::default(), "PT0S"),
    ] {
        let read: Interval = text.parse().unwrap();
        assert_eq!((read.months, read.days, read.micros), (interval.months, interval.days, interval.micros));
        assert_eq!(read.to_string(), shown);
    }
    let uuid = "12345678-9abc-def0-1234-56789abcdef0";
    assert_eq!(uuid.parse::<Uuid>().unwrap().to_string(), uuid);
    assert_eq!(uuid.replace('-', "").to_uppercase().parse::<Uuid>().unwrap().to_string(), uuid);
}

#[test]
fn no_such_texts() {
    for text in
        ["", "2024", "2024-1-1", "24-01-01", "2024-01-01-01", "2024-+1-01", "x024-01-01", "2024-01-0é"]
    {
        assert_eq!(text.parse::<Date>(), Err(TemporalError::Syntax(DATE_FORM)), "{text}");
    }
    assert_eq!("2023-02-29".parse::<Date>(), Err(TemporalError::NoSuch("day")));
    assert_eq!("5900000-01-01".parse::<Date>(), Err(TemporalError::OutOfRange));
    for text in ["", "12", "1:00", "12:00:00.", "12:00:00.1234567", "12:00.5", "12:00:00:00", "12:0a"] {
        assert_eq!(text.parse::<Time>(), Err(TemporalError::Syntax(TIME_FORM)), "{text}");
    }
    for text in ["24:00:00.000001", "25:00", "12:60", "12:00:60"] {
        assert_eq!(text.parse::<Time>(), Err(TemporalError::NoSuch("time of day")), "{text}");
    }
    assert_eq!("300000-01-01".parse::<Timestamp>(), Err(TemporalError::OutOfRange));
    for edge in [i64::MIN, i64::MAX] {
        assert_eq!(Timestamp(edge).to_string().parse(), Ok(Timestamp(edge)));
    }
    for text in ["2024-01-01T00:00:00", "2024-01-01Z+", "2024-01-01T00:00:00+1", "2024-01-01T00:00+0é"] {
        assert!(matches!(text.parse::<TimestampTz>(), Err(TemporalError::Syntax(_))), "{text}");
    }
    for text in
        ["", "P", "PT", "1D", "P1", "P1D1Y", "P1DT", "P1H", "P1.5D", "PT1D", "PTT1S", "P1YT1.S", "P1é"]
    {
        assert_eq!(text.parse::<Interval>(), Err(TemporalError::Syntax(INTERVAL_FORM)), "{text}");
    }
    assert_eq!("P999999999999Y".parse::<Interval>(), Err(TemporalError::OutOfRange));
    for text in ["", "12345678-9abc-def0-1234-56789abcdef", "12345678x9abc-def0-1234-56789abcdef0", "é"] {
        assert_eq!(text.parse::<Uuid>(), Err(TemporalError::Syntax(UUID_FORM)), "{text}");
    }
}

proptest! {
    #[test]
    fn text_round_trips(days in any::<i32>(), micros in any::<i64>(), clock in 0..=MICROS_PER_DAY, bytes in any::<[u8; 16]>()) {
        prop_assert_eq!(Date(days).to_string().parse(), Ok(Date(days)));
        let time = Time::from_micros(clock).unwrap();
        prop_assert_eq!(time.to_string().parse(), Ok(time));
        prop_assert_eq!(Timestamp(micros).to_string().parse(), Ok(Timestamp(micros)));
        prop_assert_eq!(TimestampTz(micros).to_string().parse(), Ok(TimestampTz(micros)));
        prop_assert_eq!(Uuid(bytes).to_string().parse(), Ok(Uuid(bytes)));
    }

    #[test]
    fn intervals_round_trip(a in interval(), b in interval()) {
        let read: Interval = a.to_string().parse().unwrap();
        prop_assert_eq!((read.months, read.days, read.micros), (a.months, a.days, a.micros));
        let again = Interval::from_span_micros(a.span_micros()).unwrap();
        prop_assert_eq!(again, a);
        prop_assert_eq!(a.cmp(&b), a.span_micros().cmp(&b.span_micros()));
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[-+P0-9T:.ZDHMSYé ]{0,24}") {
        let _ = (text.parse::<Date>().is_ok(), text.parse::<Time>().is_ok(), text.parse::<Timestamp>().is_ok());
        let _ = (text.parse::<TimestampTz>().is_ok(), text.parse::<Interval>().is_ok(), text.parse::<Uuid>().is_ok());
    }
}

#[test]
fn intervals_compare_as_spans() {
    assert_eq!(Interval::new(1, 0, 0), Interval::new(0, 30, 0));
    assert_eq!(Interval::new(0, 1, 0), Interval::new(0, 0, MICROS_PER_DAY));
    assert!(Interval::new(0, 30, 1) > Interval::new(1, 0, 0));
    for edge in [
        Interval::new(i32::MAX, i32::MAX, i64::MAX),
        Interval::new(i32::MIN, i32::MIN, i64::MIN),
        Interval::new(i32::MAX, 30, 0),
    ] {
        assert_eq!(Interval::from_span_micros(edge.span_micros()), Some(edge));
    }
    assert_eq!(
        Interval::from_span_micros(Interval::new(i32::MAX, i32::MAX, i64::MAX).span_micros() + 1),
        None
    );
}
