//! Many threads, all levels, everything at once: transfers, merges and splits of accounts, changes of keys, savepoints,
//! a snapshot that stays open throughout, and maintenance that never rests. Then silence, and nothing may be left over.
//!
//! The sum of all balances never changes, and neither does who exists twice: an account is known by its number (the
//! primary key, which changes) and by its name (unique, which does not).

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use thermocline_base::io::MemoryIo;
use thermocline_base::rng::Rng;
use thermocline_engine::row::{Column, KeyBuf, Type, Value};
use thermocline_engine::{
    ColdStoreKind, Database, Direction, Durability, Error, Index, IndexSchema, Isolation, KeyRange, LockMode,
    Options, Result, Table, TableSchema, Transaction, TransactionOptions, block_on,
};

use crate::moves::{Mover, Running, Watch, World, rounds, within};

const ACCOUNTS: i64 = 48;
/// Numbers that an account may have.
const NUMBERS: u64 = 96;
const BALANCE: i64 = 1_000;
const THREADS: u64 = 4;
const TRANSACTIONS: u64 = 40_000;
/// The same where rows move, which takes longer.
const MOVING_TRANSACTIONS: u64 = 5_000;
/// For so many transactions of each thread there is a step of the mover.
const TRANSACTIONS_PER_MOVE: u64 = 50;
/// A run takes much less.
const LIMIT: Duration = Duration::from_secs(300);

const LEVELS: [Isolation; 4] =
    [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::RepeatableRead, Isolation::Serializable];

#[derive(Clone)]
struct Bank {
    db: Database,
    table: Table,
    primary: Index,
    by_balance: Index,
}

/// Name and balance by number.
type State = BTreeMap<i64, (i64, i64)>;

fn key(number: i64) -> KeyBuf {
    KeyBuf::new().i64(number)
}

impl Bank {
    fn open(world: World) -> Self {
        let options = Options::default()
            .with_durability(Durability::Off)
            .with_memory_limit(Some(256 << 20))
            .with_retries(1_000);
        let options = world.options(options);
        let db = Database::open_with(Path::new("/memory"), options, Arc::new(MemoryIo::new()), false)
            .expect("the options are fine");
        let table = db
            .create_table(
                TableSchema::new("accounts")
                    .column(Column::new("number", Type::Int8))
                    .column(Column::new("name", Type::Int8))
                    .column(Column::new("balance", Type::Int8))
                    .primary_key(IndexSchema::hash("accounts_key", &["number"]))
                    .index(IndexSchema::ordered("accounts_name", &["name"]).unique())
                    .index(IndexSchema::ordered("accounts_balance", &["balance"])),
            )
            .expect("the definition is fine");
        let bank = Self {
            primary: table.primary(),
            by_balance: table.index("accounts_balance").expect("it is there"),
            table,
            db,
        };
        bank.db
            .run(TransactionOptions::new(), async |tx| {
                for name in 0..ACCOUNTS {
                    bank.insert(tx, name, name, BALANCE).await?;
                }
                Ok(())
            })
            .expect("fresh rows");
        bank
    }

    async fn insert(&self, tx: &mut Transaction, number: i64, name: i64, balance: i64) -> Result<()> {
        let row = [Value::Int8(number), Value::Int8(name), Value::Int8(balance)];
        tx.insert_values(&self.table, &row).await.map(drop)
    }

    /// Adds to a balance; what it is then.
    async fn add(&self, tx: &mut Transaction, number: i64, amount: i64) -> Result<Option<i64>> {
        let layout = self.table.layout();
        tx.update(&self.primary, &key(number), |row| {
            let balance = layout.i64(row.row(), 2).expect("a balance is not null") + amount;
            row.set_i64(2, balance).map(|()| balance).map_err(|error| self.table.error(error))
        })
        .await
    }

    async fn read(&self, tx: &mut Transaction, number: i64) -> Result<Option<(i64, i64)>> {
        let layout = self.table.layout();
        let see = |row: &[u8]| (layout.i64(row, 1).expect("a name"), layout.i64(row, 2).expect("a balance"));
        tx.read(&self.primary, &key(number), see).await
    }

    /// All accounts, read through the table or through the index over balances.
    async fn state(&self, tx: &mut Transaction, by_index: bool) -> Result<State> {
        let layout = self.table.layout();
        let mut state = State::new();
        let mut twice = None;
        let see = |row: &[u8]| {
            let column = |column| layout.i64(row, column).expect("no column is nullable");
            if state.insert(column(0), (column(1), column(2))).is_some() {
                twice = Some(column(0));
            }
            ControlFlow::Continue(())
        };
        if by_index {
            tx.scan(&self.by_balance, KeyRange::all(), Direction::Backward, see).await?;
        } else {
            tx.scan_table(&self.table, see).await?;
        }
        assert_eq!(twice, None, "a scan met a number twice");
        Ok(state)
    }

    /// One transaction of a random kind.
    async fn act(&self, tx: &mut Transaction, rng: &mut Rng) -> Result<()> {
        let mut number = || i64::try_from(rng.below(NUMBERS)).expect("it is small");
        let (from, to) = (number(), number());
        if from == to {
            return Ok(());
        }
        let amount = 1 + from % 7;
        let pause = rng.chance(0.2);
        let pause = || {
            if pause {
                std::thread::yield_now();
            }
        };
        match rng.below(8) {
            // A transfer, which takes the money back where there is no receiver.
            0..=3 => {
                let savepoint = tx.savepoint()?;
                let taken = self.add(tx, from, -amount).await?.is_some();
                pause();
                if taken && self.add(tx, to, amount).await?.is_none() {
                    tx.rollback_to(&savepoint)?;
                }
            }
            // The same with reads that the level has to vouch for; at read committed a lock does.
            4 => {
                let both = if rng.chance(0.5) {
                    tx.lock(&self.primary, &key(from), LockMode::Update).await?
                        && tx.lock(&self.primary, &key(to), LockMode::Update).await?
                } else {
                    self.read(tx, from).await?.is_some() && self.read(tx, to).await?.is_some()
                };
                if both
                    && self.add(tx, from, -amount).await?.is_some()
                    && self.add(tx, to, amount).await?.is_none()
                {
                    return Err(Error::Refused("the receiver has gone".to_owned()));
                }
            }
            // Another number, and sometimes back.
            5 => {
                let set = |number: i64| {
                    move |row: &mut thermocline_engine::row::RowEditor<'_>| {
                        row.set_i64(0, number).map_err(|error| Error::Refused(error.to_string()))
                    }
                };
                let moved = tx.update(&self.primary, &key(from), set(to)).await?.is_some();
                pause();
                if moved && rng.chance(0.3) {
                    tx.update(&self.primary, &key(to), set(from)).await?.expect("its own row");
                }
            }
            // Deleted and inserted again, under the same name and another number.
            6 => {
                let Some((name, _)) = self.read(tx, from).await? else { return Ok(()) };
                // At read committed the balance may have changed since: the last state of the row counts.
                tx.lock(&self.primary, &key(from), LockMode::Update).await?;
                let Some((again, balance)) = self.read(tx, from).await? else { return Ok(()) };
                pause();
                if again == name && tx.delete(&self.primary, &key(from)).await? {
                    self.insert(tx, to, name, balance).await?;
                }
            }
            // Undone as a whole.
            _ => {
                self.add(tx, from, amount).await?;
                tx.delete(&self.primary, &key(to)).await?;
                return Err(Error::Refused("on purpose".to_owned()));
            }
        }
        Ok(())
    }

    fn check(&self, level: Isolation, rng: &mut Rng) -> State {
        let options = TransactionOptions::new().isolation(level).read_only();
        let (by_index, again) = (rng.chance(0.5), rng.chance(0.3));
        let state = self
            .db
            .run(options, async |tx| {
                let state = self.state(tx, by_index).await?;
                if again {
                    assert_eq!(self.state(tx, !by_index).await?, state, "a snapshot has two states");
                }
                for (&number, &row) in state.iter().take(8) {
                    assert_eq!(self.read(tx, number).await?, Some(row), "a row is there by scan, not by key");
                }
                Ok(state)
            })
            .expect("a reader does not fail");
        assert_eq!(
            state.values().map(|row| row.1).sum::<i64>(),
            ACCOUNTS * BALANCE,
            "money came or went: {state:?}"
        );
        let mut names: Vec<i64> = state.values().map(|row| row.0).collect();
        names.sort_unstable();
        assert_eq!(names, (0..ACCOUNTS).collect::<Vec<_>>(), "a name is missing, or there twice");
        state
    }
}

#[test]
fn nothing_is_lost_and_nothing_is_left() {
    within(LIMIT, |watch| stress(World::Still, TRANSACTIONS, watch));
}

/// The same while rows leave memory and come back all the time.
#[test]
fn nothing_is_lost_over_moves() {
    within(LIMIT * rounds(1) as u32, |watch| {
        for round in 0..rounds(1) {
            stress(World::Random(ColdStoreKind::Memory, round), MOVING_TRANSACTIONS, watch);
            stress(World::ToAndFro(ColdStoreKind::Pages), MOVING_TRANSACTIONS, watch);
            stress(World::Governed(ColdStoreKind::Memory), MOVING_TRANSACTIONS, watch);
            stress(World::Frozen, MOVING_TRANSACTIONS, watch);
            stress(World::Paged, MOVING_TRANSACTIONS, watch);
            stress(World::Ladder(ColdStoreKind::Memory, round), MOVING_TRANSACTIONS, watch);
            stress(World::Random(ColdStoreKind::Direct, round), MOVING_TRANSACTIONS, watch);
        }
    });
}

fn stress(world: World, transactions: u64, watch: &Watch) {
    let bank = Bank::open(world);
    watch.note(format!("stress, {world:?}"), &bank.db);
    let mut mover = Mover::new(world, &bank.db, &bank.table, 0..NUMBERS as i64);
    let baseline = bank.db.statistics();
    let mut old = bank.db.begin(TransactionOptions::new().read_only()).expect("it begins");
    let before = block_on(bank.state(&mut old, false)).expect("a scan");
    let is_running = AtomicBool::new(true);
    let moved = AtomicU64::new(if world == World::Still { u64::MAX } else { 0 });
    let (committed, refused, failed) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let running = Running(&is_running);
        let actors: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (bank, moved) = (&bank, &moved);
                let (committed, refused, failed) = (&committed, &refused, &failed);
                scope.spawn(move || {
                    let mut rng = Rng::new(0x5eed + thread);
                    for round in 0..transactions {
                        while moved.load(Ordering::Relaxed) < round / TRANSACTIONS_PER_MOVE {
                            std::thread::yield_now();
                        }
                        let level = LEVELS[rng.below(4) as usize];
                        if round % 8 == 0 && level != Isolation::ReadCommitted {
                            bank.check(level, &mut rng);
                            continue;
                        }
                        let options = TransactionOptions::new().isolation(level);
                        let options = if rng.chance(0.1) { options.no_wait() } else { options };
                        let mut tx = bank.db.begin(options).expect("it begins");
                        let outcome = block_on(bank.act(&mut tx, &mut rng));
                        match outcome.and_then(|()| block_on(tx.commit())) {
                            Ok(()) => committed.fetch_add(1, Ordering::Relaxed),
                            Err(Error::Refused(_) | Error::DuplicateKey { .. }) => {
                                refused.fetch_add(1, Ordering::Relaxed)
                            }
                            Err(error) => {
                                let expected =
                                    error.is_retryable() || matches!(error, Error::WouldWait { .. });
                                assert!(expected, "{error}");
                                failed.fetch_add(1, Ordering::Relaxed)
                            }
                        };
                    }
                })
            })
            .collect();
        let keeper = scope.spawn(|| {
            let mut steps = bank.db.maintenance_steps();
            while is_running.load(Ordering::Relaxed) {
                steps.step();
                std::thread::yield_now();
            }
        });
        if world != World::Still {
            scope.spawn(|| mover.run(&is_running, &moved));
        }
        // While a snapshot is older than a move, the row does not come back.
        let mut old = Some(old);
        let mut check_old = || {
            if let Some(mut old) = old.take() {
                let now = block_on(bank.state(&mut old, true)).expect("a scan");
                assert_eq!(now, before, "the old snapshot has changed");
            }
        };
        if world != World::Still {
            let done = || committed.load(Ordering::Relaxed) + failed.load(Ordering::Relaxed);
            while done() < THREADS * transactions / 4 && actors.iter().any(|actor| !actor.is_finished()) {
                std::thread::sleep(Duration::from_millis(1));
            }
            check_old();
        }
        for actor in actors {
            actor.join().expect("an actor");
        }
        drop(running);
        keeper.join().expect("the keeper");
        check_old();
    });
    let total = THREADS * transactions;
    let (committed, refused, failed) = (committed.into_inner(), refused.into_inner(), failed.into_inner());
    assert!(committed > total / 4 && refused > 0 && failed > 0, "{committed} {refused} {failed} of {total}");

    let mut steps = bank.db.maintenance_steps();
    if world != World::Still {
        let frozen = bank.db.statistics().frozen;
        let freezes = matches!(world, World::Frozen | World::Ladder(..));
        assert!(
            !freezes || frozen.frozen_rows > 100 && frozen.thawed_rows > 10,
            "hardly anything has frozen: {frozen:?}"
        );
    }
    if world == World::Paged {
        let paged = bank.db.statistics().paged.expect("rows have gone over");
        assert!(
            paged.rows_over > 100 && paged.came_back > 0 && paged.page_ins > 0,
            "hardly anything has gone over: {paged:?}"
        );
    }
    if !matches!(world, World::Still | World::Frozen | World::Paged) {
        let cold = bank.db.statistics().cold;
        let moved = (cold.migrated_rows, cold.promoted_rows, cold.reads);
        // Bounds for the slowest: with `direct`, under the address sanitizer, 929 rows were seen to move. On the ladder one
        // step in fifteen promotes, and none may do so before the old snapshot has gone.
        let promotes = !matches!(world, World::Ladder(..));
        assert!(
            moved.0 > 100 && (!promotes || moved.1 > 10) && moved.2 > 1_000,
            "{world:?}: hardly anything has moved: {moved:?}"
        );
    }
    if world != World::Still {
        mover.settle(&steps);
    }
    for _ in 0..8 {
        steps.step();
    }
    let left = bank.db.statistics();
    assert_eq!(left.garbage_items, 0, "nobody holds a snapshot");
    assert_eq!(left.index_entries, baseline.index_entries, "every entry belongs to a row");
    assert_eq!(left.version_bytes_used, baseline.version_bytes_used, "one version a row is left");
    let state = bank.check(Isolation::Snapshot, &mut Rng::new(1));
    assert_eq!(state.len() as i64, ACCOUNTS);
    assert_eq!(3 * ACCOUNTS as u64, left.index_entries);
}
