//! Makes histories with the engine: clients that append to lists and read them at random.
//!
//! The lists are rows of one table, `lists (id int8 primary key, list bytes)`, all of them inserted, empty, before the
//! first client starts. Clients are futures, several on each thread, so that transactions of one thread wait for each
//! other too. They work on a window of keys that moves on as transactions start: enough collisions, and lists that
//! stay short. Nothing is retried; what fails is recorded as aborted. At the end one transaction reads every list.

use super::{History, Operation, Outcome, Transaction, check};
use crate::moves::{Mover, Running, Watch, World, rounds, within};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use thermocline_engine::ColdStoreKind::{Direct, Memory, Pages};
use thermocline_engine::row::{EncodedRow, KeyBuf};
use thermocline_engine::{
    Change, Changed, Database, Index, IndexSchema, Isolation, Options, Result, SeenRow, Table, TableSchema,
    TransactionOptions, row, run_tasks, yield_now,
};

row! {
    /// A list of little-endian u64.
    struct List as ListRow {
        id: i64,
        list: Vec<u8>,
    }
}

/// Histories of one level take much less, all together.
const LIMIT: Duration = Duration::from_secs(300);
/// Transactions of one history.
const TRANSACTIONS: u64 = 2_000;
/// For so many transactions there is a step of the mover: a fast machine would be at the end before rows move.
const TRANSACTIONS_PER_MOVE: u64 = 20;
/// Clients on each thread.
const CLIENTS: usize = 4;
/// Keys that are in use at a time.
const WINDOW: u64 = 6;
/// The window moves on by one key after so many transactions.
const TRANSACTIONS_PER_KEY: u64 = 25;

impl From<Isolation> for super::Isolation {
    fn from(isolation: Isolation) -> Self {
        match isolation {
            Isolation::ReadCommitted => Self::ReadCommitted,
            Isolation::Snapshot => Self::Snapshot,
            Isolation::RepeatableRead => Self::RepeatableRead,
            Isolation::Serializable => Self::Serializable,
        }
    }
}

/// Numbers that look random: SplitMix64.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % bound
    }
}

/// What all clients of a history share.
struct Shared<'a> {
    database: &'a Database,
    table: Table,
    lists: Index,
    isolation: Isolation,
    /// Orders begins and ends.
    clock: AtomicU64,
    /// Transactions that were started.
    started: AtomicU64,
    /// Transactions to start.
    transactions: u64,
    /// Steps that the mover has made; all there are, if there is no mover.
    moved: AtomicU64,
}

impl Shared<'_> {
    fn keys(&self) -> u64 {
        self.transactions / TRANSACTIONS_PER_KEY + WINDOW
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }
}

/// Runs `threads` threads of clients on an empty database and returns what they saw.
pub(crate) fn history_of_random_workload(
    database: &Database,
    threads: usize,
    seed: u64,
    isolation: Isolation,
    world: World,
) -> History {
    history(database, threads, seed, isolation, world).expect("setting up and the final read meet nobody")
}

fn history(
    database: &Database,
    threads: usize,
    seed: u64,
    isolation: Isolation,
    world: World,
) -> Result<History> {
    let schema = TableSchema::new("lists").columns(List::schema_columns());
    let table = database.create_table(schema.primary_key(IndexSchema::hash("pk", &["id"])))?;
    let shared = Shared {
        database,
        table: table.clone(),
        lists: table.primary(),
        isolation,
        clock: AtomicU64::new(0),
        started: AtomicU64::new(0),
        transactions: TRANSACTIONS,
        moved: AtomicU64::new(if world == World::Still { u64::MAX } else { 0 }),
    };
    database.run(TransactionOptions::default(), async |transaction| {
        let mut bytes = EncodedRow::new();
        for id in 0..shared.keys() {
            let list = List { id: id as i64, list: Vec::new() };
            list.encode(&mut bytes).map_err(|error| table.error(error))?;
            transaction.insert(&table, &bytes).await?;
        }
        Ok(())
    })?;
    let run = |thread: usize| {
        let mut found: Vec<Vec<Transaction>> = vec![Vec::new(); CLIENTS];
        let clients = found.iter_mut().enumerate().map(|(at, found)| {
            let number = (thread * CLIENTS + at) as u64;
            client(&shared, number, Numbers(seed ^ number << 40), found)
        });
        run_tasks(clients.collect());
        found.into_iter().flatten()
    };
    let is_running = AtomicBool::new(true);
    let mut transactions: Vec<Transaction> = std::thread::scope(|scope| {
        let _running = Running(&is_running);
        if world != World::Still {
            let mut mover = Mover::new(world, database, &table, 0..shared.keys() as i64);
            let (is_running, moved) = (&is_running, &shared.moved);
            scope.spawn(move || mover.run(is_running, moved));
        }
        // A single thread is the calling one, so that what is switched off for it (`base::mutation`) is off for the
        // clients.
        if threads == 1 {
            return run(0).collect();
        }
        let spawn = |thread| scope.spawn(move || run(thread).collect::<Vec<_>>());
        let threads: Vec<_> = (0..threads).map(spawn).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a client panicked")).collect()
    });
    transactions.push(final_read(&shared)?);
    Ok(History { transactions })
}

async fn client(shared: &Shared<'_>, number: u64, mut numbers: Numbers, found: &mut Vec<Transaction>) {
    // Values are unique: the client's number in front.
    let mut value = number << 32;
    loop {
        let started = shared.started.fetch_add(1, Ordering::Relaxed);
        if started >= shared.transactions {
            return;
        }
        while shared.moved.load(Ordering::Relaxed) < started / TRANSACTIONS_PER_MOVE {
            yield_now().await;
        }
        let first = started / TRANSACTIONS_PER_KEY;
        let mut recorded = Recorded { operations: Vec::new(), undone: Vec::new() };
        let begin = shared.tick();
        let outcome = transaction(shared, first, &mut numbers, &mut value, &mut recorded).await;
        let end = shared.tick();
        found.push(Transaction { operations: recorded.operations, outcome, times: Some((begin, end)) });
        if !recorded.undone.is_empty() {
            // What a savepoint undid is like a transaction of its own that aborted.
            found.push(Transaction { operations: recorded.undone, outcome: Outcome::Aborted, times: None });
        }
    }
}

/// What a client did in one transaction.
struct Recorded {
    operations: Vec<Operation>,
    /// Appends that a savepoint undid.
    undone: Vec<Operation>,
}

/// One transaction of one to six operations.
async fn transaction(
    shared: &Shared<'_>,
    first: u64,
    numbers: &mut Numbers,
    value: &mut u64,
    recorded: &mut Recorded,
) -> Outcome {
    let options = TransactionOptions::default().isolation(shared.isolation);
    let mut transaction = shared.database.begin(options).expect("the database is open");
    for _ in 0..=numbers.below(6) {
        let key = first + numbers.below(WINDOW);
        let kind = numbers.below(20);
        *value += 1;
        let outcome = match kind {
            0..=2 => {
                let savepoint = transaction.savepoint().expect("the transaction has not failed");
                match undone(shared, &mut transaction, key, *value, recorded).await {
                    Ok(()) => transaction.rollback_to(&savepoint),
                    failed => failed,
                }
            }
            3..=10 => {
                // Recorded before it is known to work: one that fails ends an aborted transaction.
                recorded.operations.push(Operation::Append { key, value: *value });
                append(shared, &mut transaction, key, *value).await
            }
            11..=13 => {
                let other = first + numbers.below(WINDOW);
                statement(shared, &mut transaction, (other, key), *value, recorded).await
            }
            _ => match read(shared, &mut transaction, key).await {
                Ok(list) => {
                    recorded.operations.push(Operation::Read { key, list });
                    Ok(())
                }
                Err(error) => Err(error),
            },
        };
        if let Err(error) = outcome {
            assert!(error.is_retryable(), "a conflict is all that an operation may meet here: {error}");
            return Outcome::Aborted;
        }
        // Without this a transaction that meets nobody would run to its end in one go.
        if numbers.below(2) == 0 {
            yield_now().await;
        }
    }
    if numbers.below(15) == 0 {
        transaction.rollback();
        return Outcome::Aborted;
    }
    match transaction.commit().await {
        Ok(()) => Outcome::Committed,
        Err(error) if error.is_retryable() => Outcome::Aborted,
        Err(error) => panic!("a conflict is all that a commit may meet here: {error}"),
    }
}

/// What a savepoint is going to undo: an append. Reads count all the same.
async fn undone(
    shared: &Shared<'_>,
    transaction: &mut thermocline_engine::Transaction,
    key: u64,
    value: u64,
    recorded: &mut Recorded,
) -> Result<()> {
    let list = read(shared, transaction, key).await?;
    recorded.operations.push(Operation::Read { key, list });
    recorded.undone.push(Operation::Append { key, value });
    append(shared, transaction, key, value).await
}

/// A statement of several operations: reads two lists and appends to the second one by its handle. It does not see that, and
/// does it once.
async fn statement(
    shared: &Shared<'_>,
    transaction: &mut thermocline_engine::Transaction,
    (other, key): (u64, u64),
    value: u64,
    recorded: &mut Recorded,
) -> Result<()> {
    let list_of = |row: &[u8]| -> Vec<u64> {
        let (values, rest) = ListRow(row).list().as_chunks::<8>();
        assert!(rest.is_empty(), "list {key} is torn");
        values.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect()
    };
    let mut append = |editor: &mut thermocline_engine::row::RowEditor<'_>| {
        let mut list = ListRow(editor.row()).list().to_vec();
        list.extend(value.to_le_bytes());
        ListRow::set_list(editor, &list).map_err(|error| shared.table.error(error))?;
        Ok((Change::Update, ()))
    };
    loop {
        let mut statement = transaction.statement()?;
        let mut found = Vec::new();
        for key in [other, key] {
            let see = |row: SeenRow<'_>| (row.handle(), list_of(&row));
            let seen = statement.read(&shared.lists, &KeyBuf::new().i64(key as i64), see).await?;
            let (handle, list) = seen.unwrap_or_else(|| panic!("list {key} is gone"));
            recorded.operations.push(Operation::Read { key, list: list.clone() });
            found.push((handle, list));
            yield_now().await;
        }
        recorded.operations.push(Operation::Append { key, value });
        let (handle, list) = &found[1];
        match statement.change_row(&shared.table, handle, &mut append).await? {
            Changed::Updated(()) => {}
            Changed::Lost => {
                // Nothing was appended: the statement is repeated with a new snapshot.
                recorded.operations.pop();
                statement.undo();
                continue;
            }
            answer => panic!("list {key} is there, and the answer is {answer:?}"),
        }
        yield_now().await;
        for (handle, list) in &found {
            let again = statement.read_row(&shared.table, handle, |row| list_of(&row)).await?;
            assert_eq!(
                again.as_ref(),
                Some(list),
                "a statement's snapshot has changed, or it sees its own append"
            );
        }
        let by_key =
            statement.read(&shared.lists, &KeyBuf::new().i64(key as i64), |row| list_of(&row)).await?;
        assert_eq!(by_key.as_ref(), Some(list), "a statement sees its own append");
        let twice = statement.change_row(&shared.table, handle, &mut append).await?;
        assert_eq!(twice, Changed::ByStatement);
        return Ok(());
    }
}

async fn append(
    shared: &Shared<'_>,
    transaction: &mut thermocline_engine::Transaction,
    key: u64,
    value: u64,
) -> Result<()> {
    let change = |editor: &mut thermocline_engine::row::RowEditor<'_>| {
        let mut list = ListRow(editor.row()).list().to_vec();
        list.extend(value.to_le_bytes());
        ListRow::set_list(editor, &list).map_err(|error| shared.table.error(error))
    };
    let found = transaction.update(&shared.lists, &KeyBuf::new().i64(key as i64), change).await?;
    assert!(found.is_some(), "list {key} is gone");
    Ok(())
}

async fn read(
    shared: &Shared<'_>,
    transaction: &mut thermocline_engine::Transaction,
    key: u64,
) -> Result<Vec<u64>> {
    let list = |row: &[u8]| {
        let (values, rest) = ListRow(row).list().as_chunks::<8>();
        assert!(rest.is_empty(), "list {key} is torn");
        values.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect()
    };
    let found = transaction.read(&shared.lists, &KeyBuf::new().i64(key as i64), list).await?;
    Ok(found.unwrap_or_else(|| panic!("list {key} is gone")))
}

fn final_read(shared: &Shared<'_>) -> Result<Transaction> {
    let begin = shared.tick();
    let options = TransactionOptions::default().isolation(shared.isolation);
    let operations = shared.database.run(options, async |transaction| {
        let mut operations = Vec::new();
        for key in 0..shared.keys() {
            operations.push(Operation::Read { key, list: read(shared, transaction, key).await? });
        }
        Ok(operations)
    })?;
    Ok(Transaction { operations, outcome: Outcome::Committed, times: Some((begin, shared.tick())) })
}

/// Histories of several seeds keep `isolation`, and are such that breaking it would show.
fn keeps(isolation: Isolation) {
    within(LIMIT, move |watch| {
        for (seed, threads) in [(1, 1), (2, 2), (3, 2), (4, 4)] {
            is_kept(isolation, threads, seed, World::Still, watch);
        }
    });
}

/// So do they while all rows move to and fro.
fn keeps_over_moves(isolation: Isolation) {
    within(LIMIT * rounds(1) as u32, move |watch| {
        let mut promoted = 0;
        for round in 0..rounds(1) {
            let seed = 8 * round;
            for (threads, world) in [
                (1, World::ToAndFro(Memory)),
                (2, World::Random(Memory, seed)),
                (2, World::ToAndFro(Pages)),
                (4, World::Random(Pages, seed)),
                (2, World::Random(Direct, seed)),
                (2, World::Governed(Memory)),
                (2, World::Frozen),
                (4, World::Frozen),
                (2, World::Paged),
                (4, World::Paged),
                (2, World::Ladder(Memory, seed)),
                (2, World::Ladder(Pages, seed)),
                (4, World::Governed(Pages)),
            ] {
                promoted += is_kept(isolation, threads, seed + threads as u64, world, watch);
            }
        }
        assert!(promoted > 20, "only {promoted} rows were promoted");
    });
}

/// How many rows were promoted.
fn is_kept(isolation: Isolation, threads: usize, seed: u64, world: World, watch: &Watch) -> u64 {
    let options = world.options(Options::default().with_memory_limit(Some(256 << 20)));
    let database = Database::open_in_memory(options).expect("memory is enough");
    watch.note(format!("{isolation}, seed {seed}, {threads} threads, {world:?}"), &database);
    let history = history_of_random_workload(&database, threads, seed, isolation, world);
    let ended = |outcome| history.transactions.iter().filter(|it| it.outcome == outcome).count() as u64;
    let (committed, aborted) = (ended(Outcome::Committed), ended(Outcome::Aborted));
    assert!(
        committed > TRANSACTIONS / 10 && aborted > TRANSACTIONS / 100,
        "{committed} and {aborted}: too tame"
    );
    if let Err(anomaly) = check(&history, isolation.into()) {
        panic!("{isolation}, seed {seed}, {threads} threads, {world:?}: {anomaly}");
    }
    let cold = database.statistics().cold;
    if world == World::Frozen {
        let frozen = database.statistics().frozen;
        let moved = (frozen.frozen_rows, frozen.thawed_rows);
        assert!(moved.0 > 50 && moved.1 > 50, "hardly anything has frozen: {moved:?}");
    } else if world == World::Paged {
        let paged = database.statistics().paged.expect("rows have gone over");
        let moved = (paged.rows_over, paged.came_back, paged.page_ins);
        assert!(moved.0 > 50 && moved.1 > 0 && moved.2 > 0, "hardly anything has gone over: {moved:?}");
    } else if world != World::Still {
        let moved = (cold.migrated_rows, cold.reads);
        assert!(moved.0 > 50 && moved.1 > 100, "hardly anything has moved: {moved:?}");
    }
    cold.promoted_rows
}

#[test]
fn levels_are_kept_over_moves() {
    for isolation in
        [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::RepeatableRead, Isolation::Serializable]
    {
        keeps_over_moves(isolation);
    }
}

#[test]
fn read_committed_is_kept() {
    keeps(Isolation::ReadCommitted);
}

#[test]
fn snapshot_is_kept() {
    keeps(Isolation::Snapshot);
}

#[test]
fn repeatable_read_is_kept() {
    keeps(Isolation::RepeatableRead);
}

#[test]
fn serializable_is_kept() {
    keeps(Isolation::Serializable);
}

/// Snapshot isolation is weaker, and this workload shows it: were it not so, the tests above would prove little.
#[test]
fn snapshot_is_told_from_serializable() {
    let database = Database::open_in_memory(Options::default()).expect("memory is enough");
    let history = history_of_random_workload(&database, 2, 4, Isolation::Snapshot, World::Still);
    let anomaly = check(&history, super::Isolation::Serializable).expect_err("write skew is common here");
    assert_eq!(anomaly.kind, super::Kind::G2Item, "{anomaly}");
}

/// Rules of the engine that are switched off must be missed.
#[cfg(feature = "model")]
mod mutations {
    use super::*;
    use thermocline_engine::mutation::{Rule, switch_off};

    fn is_missed(rule: Rule, isolation: Isolation) {
        for seed in 0..20 {
            let database = Database::open_in_memory(Options::default()).expect("memory is enough");
            let off = switch_off(rule);
            let history = history_of_random_workload(&database, 1, seed, isolation, World::Still);
            drop(off);
            if check(&history, isolation.into()).is_err() {
                return;
            }
        }
        panic!("{rule:?} was off, and every history kept {isolation}");
    }

    #[test]
    fn first_updater_wins() {
        is_missed(Rule::FirstUpdaterWins, Isolation::Snapshot);
    }

    #[test]
    fn reads_are_validated() {
        is_missed(Rule::ValidateReads, Isolation::RepeatableRead);
        is_missed(Rule::ValidateReads, Isolation::Serializable);
    }

    #[test]
    fn savepoints_keep_reads() {
        is_missed(Rule::SavepointKeepsReads, Isolation::Serializable);
    }
}
