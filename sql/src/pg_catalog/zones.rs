//! `pg_timezone_names`: the zones that SET TIME ZONE and AT TIME ZONE know by name.

use thermocline_base::clock::{Clock, SystemClock};
use thermocline_row::Interval;

use crate::catalog::System;
use crate::types::{Datum, Type, Zone};

/// The zones as they are now.
pub(super) fn pg_timezone_names() -> System {
    let now = SystemClock.wall_us();
    let row = |name: String| {
        let (zone, name) = Zone::named(&name)?;
        let (abbreviation, saves_daylight) = zone.abbreviation(now);
        Some(vec![
            Datum::text(name),
            Datum::text(abbreviation),
            Datum::Interval(Interval::new(0, 0, zone.offset(now))),
            Datum::Bool(saves_daylight),
        ])
    };
    System {
        columns: vec![
            ("name", Type::Text),
            ("abbrev", Type::Text),
            ("utc_offset", Type::Interval),
            ("is_dst", Type::Bool),
        ],
        rows: Zone::names().filter_map(row).collect(),
    }
}
