//! YCSB: one operation is one transaction; operations that only read run in read-only transactions.

use std::sync::Arc;

use thermocline_base::sync::{AtomicU64, Ordering};
use thermocline_engine::{Database, TransactionOptions};
use thermocline_workloads::ycsb::generate::{
    Config, Generator, KeySpace, Operation, Requests, Workload as Mix,
};
use thermocline_workloads::ycsb::load::{LoadOptions, UserTable, load};
use thermocline_workloads::ycsb::operations::{Executor, Outcome};

use super::disturb::Shifts;
use super::{RunError, Session, end_of, engine, setting};
use crate::drive::{Client, End, Ended, Place, Workload};
use crate::report::Throughput;
use crate::settings::{Benchmark, Settings};

pub(super) fn run(session: &mut Session<'_>) -> Result<Throughput, RunError> {
    let config = config(session.settings)?;
    let Benchmark::Ycsb { shift_seconds, shift_every_seconds, restart, .. } = session.settings.benchmark
    else {
        unreachable!("`ycsb` runs with its own settings");
    };
    let shifts = Shifts { first: shift_seconds, every: shift_every_seconds };
    if let Some(shift) = shift_seconds.filter(|shift| *shift >= session.settings.seconds) {
        return Err(RunError::Setting(format!(
            "--shift {shift} is not before the end of the counted seconds"
        )));
    }
    let mut database = session.open()?;
    let options = LoadOptions { threads: session.settings.threads, ..LoadOptions::default() };
    let (table, loaded) = session.load(&database, |count| {
        load(&database, &config, options, &|progress| count(progress, config.records))
    })?;
    let keys = KeySpace::new(config.records);
    let shifted = AtomicU64::new(0);
    let (shifted, config) = (&shifted, &config);
    let ycsb = Ycsb { database: &database, table, config, keys: Arc::clone(&keys), shifted, first: 0 };
    let mut found = session.measure_shifting(&database, &loaded, &ycsb, shifts, shifted)?;
    drop(ycsb);
    if restart {
        let (again, seconds) = session.reopen(database)?;
        database = again;
        let table = UserTable::open(&database).map_err(engine("find the table"))?;
        let ycsb = Ycsb { database: &database, table, config, keys, shifted, first: 0 };
        session.measure_again(&database, &ycsb, seconds, &mut found)?;
    }
    session.close(database)?;
    Ok(found)
}

pub(super) fn config(settings: &Settings) -> Result<Config, RunError> {
    let Benchmark::Ycsb { workload, read_percent, records, fields, field_bytes, theta, .. } =
        &settings.benchmark
    else {
        unreachable!("`ycsb` runs with its own settings");
    };
    let mix = match read_percent {
        Some(percent) => Mix::Reads(u8::try_from(*percent).map_err(|_| too_many("read-percent", *percent))?),
        None => setting("workload", workload)?,
    };
    let mut config = Config::new(mix, *records);
    config.fields = u16::try_from(*fields).map_err(|_| too_many("fields", *fields))?;
    config.field_bytes = *field_bytes;
    config.seed = settings.seed;
    config.requests = match (config.requests, *theta) {
        (Requests::Latest(_), theta) => Requests::Latest(theta),
        (_, 0.0) => Requests::Uniform,
        (_, theta) => Requests::Zipf(theta),
    };
    Ok(config)
}

fn too_many(name: &str, value: u32) -> RunError {
    RunError::Setting(format!("--{name} {value} is too many"))
}

pub(super) struct Ycsb<'a> {
    database: &'a Database,
    table: UserTable,
    config: &'a Config,
    keys: Arc<KeySpace>,
    /// Number of times that other rows have become the popular ones.
    shifted: &'a AtomicU64,
    /// The number of the first client: others draw other requests.
    first: u64,
}

static UNSHIFTED: AtomicU64 = AtomicU64::new(0);

impl<'a> Ycsb<'a> {
    /// Whose popular rows stay popular, and whose clients have numbers from `first` on.
    pub(super) fn new(
        database: &'a Database,
        table: UserTable,
        config: &'a Config,
        keys: Arc<KeySpace>,
        first: u64,
    ) -> Self {
        Self { database, table, config, keys, shifted: &UNSHIFTED, first }
    }
}

const KINDS: [&str; 5] = ["read", "update", "insert", "scan", "read-modify-write"];

const fn kind_of(operation: &Operation) -> usize {
    match operation {
        Operation::Read { .. } => 0,
        Operation::Update { .. } => 1,
        Operation::Insert { .. } => 2,
        Operation::Scan { .. } => 3,
        Operation::ReadModifyWrite { .. } => 4,
    }
}

impl Workload for Ycsb<'_> {
    type Client<'a>
        = YcsbClient<'a>
    where
        Self: 'a;

    fn kinds(&self) -> &[&'static str] {
        &KINDS
    }

    fn client(&self, place: Place) -> YcsbClient<'_> {
        YcsbClient {
            database: self.database,
            executor: Executor::new(&self.table, self.config),
            generator: Generator::new(self.config, Arc::clone(&self.keys), self.first + place.client as u64),
            keys: &self.keys,
            shifted: self.shifted,
            shift_seed: self.config.seed,
            shifts: 0,
            all_keys_are_there: !matches!(self.config.workload, Mix::D | Mix::E),
            reading: TransactionOptions::default().read_only(),
            writing: TransactionOptions::default(),
        }
    }
}

pub(super) struct YcsbClient<'a> {
    database: &'a Database,
    executor: Executor,
    generator: Generator,
    keys: &'a KeySpace,
    shifted: &'a AtomicU64,
    /// Which rows are popular: this many shifts after these.
    shift_seed: u64,
    shifts: u64,
    /// No client inserts or deletes, so a key that is missing is an error.
    all_keys_are_there: bool,
    reading: TransactionOptions,
    writing: TransactionOptions,
}

impl Client for YcsbClient<'_> {
    #[inline]
    async fn transaction(&mut self) -> Ended {
        let shifted = self.shifted.load(Ordering::Relaxed);
        if shifted != self.shifts {
            self.shifts = shifted;
            self.generator.shift(self.shift_seed.wrapping_add(shifted));
        }
        let operation = self.generator.operation();
        let kind = kind_of(&operation);
        let only_reads = matches!(operation, Operation::Read { .. } | Operation::Scan { .. });
        let options = if only_reads { self.reading } else { self.writing };
        let executor = &mut self.executor;
        let result = self
            .database
            .transaction(options, async |transaction| {
                let mut outcome = Outcome::default();
                executor.execute(transaction, &operation, &mut outcome).await?;
                Ok(outcome)
            })
            .await;
        if let Operation::Insert { key, .. } = operation {
            self.keys.settle(key);
        }
        let end = match result {
            Ok(outcome) if outcome.missing > 0 && self.all_keys_are_there => {
                End::Failed("a row that was loaded is not there".into())
            }
            Ok(outcome) => {
                std::hint::black_box(outcome.checksum);
                End::Committed
            }
            Err(error) => end_of(error),
        };
        Ended { kind, end }
    }
}
