//! Read-only point transactions: begin, read 100 bytes by key, commit. The shortest transaction there is, so what it
//! costs beside the look-up is the engine's price for being transactional.

use thermocline_base::rng::Rng;
use thermocline_engine::{Database, Index, Result as EngineResult, TransactionOptions};

use super::{RunError, Session, plain};
use crate::drive::{Client, End, Ended, Place, Workload};
use crate::report::Throughput;

pub(super) fn run(session: &mut Session<'_>, records: u64) -> Result<Throughput, RunError> {
    let database = session.open()?;
    let threads = session.settings.threads;
    let (table, loaded) =
        session.load(&database, |count| plain::load(&database, records, false, threads, count))?;
    let point = Point {
        database: &database,
        index: table.primary(),
        options: TransactionOptions::default().read_only(),
        records,
        seed: session.settings.seed,
    };
    let found = session.measure(&database, &loaded, &point)?;
    session.close(database)?;
    Ok(found)
}

struct Point<'a> {
    database: &'a Database,
    index: Index,
    options: TransactionOptions,
    records: u64,
    seed: u64,
}

impl Workload for Point<'_> {
    type Client<'a>
        = PointClient<'a>
    where
        Self: 'a;

    fn kinds(&self) -> &[&'static str] {
        &["point"]
    }

    fn client(&self, place: Place) -> PointClient<'_> {
        let seed = self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(place.client as u64);
        PointClient { point: self, rng: Rng::new(seed) }
    }
}

struct PointClient<'a> {
    point: &'a Point<'a>,
    rng: Rng,
}

impl PointClient<'_> {
    #[inline]
    async fn read(&mut self) -> EngineResult<bool> {
        let id = self.rng.below(self.point.records);
        let mut transaction = self.point.database.begin(self.point.options)?;
        let copied = transaction
            .read(&self.point.index, &plain::key(id), |row| {
                let mut copy = [0_u8; plain::PAYLOAD];
                copy.copy_from_slice(plain::PlainRow(row).payload().as_bytes());
                std::hint::black_box(&copy);
            })
            .await?;
        transaction.commit().await?;
        Ok(copied.is_some())
    }
}

impl Client for PointClient<'_> {
    #[inline]
    async fn transaction(&mut self) -> Ended {
        let end = match self.read().await {
            Ok(true) => End::Committed,
            Ok(false) => End::Failed("a row that was loaded is not there".into()),
            Err(error) => super::end_of(error),
        };
        Ended { kind: 0, end }
    }
}
