//! Tests of the checker itself: planted anomalies are found and named, histories without one pass.
//!
//! Short notation of planted histories: one line a transaction, `a1:5` appends 5 to key 1, `r1:5,6` reads key 1,
//! `abort` or `unknown` at the end says how it ended, `@3-7` at the front when.

use super::*;
use proptest::prelude::*;

fn history(lines: &str) -> History {
    let transaction = |line: &str| {
        let mut it = Transaction { operations: Vec::new(), outcome: Outcome::Committed, times: None };
        for word in line.split_whitespace() {
            let number = |text: &str| text.parse::<u64>().expect("a number");
            let pair = |text: &str| text.split_once(':').map(|(key, rest)| (number(key), rest.to_owned()));
            match word.split_at(1) {
                ("@", times) => {
                    let (begin, end) = times.split_once('-').expect("two times");
                    it.times = Some((number(begin), number(end)));
                }
                ("r", rest) => {
                    let (key, list) = pair(rest).expect("a key");
                    let list = list.split(',').filter(|value| !value.is_empty()).map(number).collect();
                    it.operations.push(Operation::Read { key, list });
                }
                ("a", "bort") => it.outcome = Outcome::Aborted,
                ("a", rest) => {
                    let (key, value) = pair(rest).expect("a key");
                    it.operations.push(Operation::Append { key, value: number(&value) });
                }
                _ => it.outcome = Outcome::Unknown,
            }
        }
        it
    };
    History {
        transactions: lines.lines().map(str::trim).filter(|line| !line.is_empty()).map(transaction).collect(),
    }
}

const LEVELS: [Isolation; 4] =
    [Isolation::ReadCommitted, Isolation::Snapshot, Isolation::RepeatableRead, Isolation::Serializable];

/// `lines` must be refused as `kind` from level `least` on, and pass below.
fn refused(kind: Kind, least: Isolation, lines: &str) {
    for level in LEVELS {
        let outcome = check(&history(lines), level);
        match outcome {
            Err(anomaly) => {
                assert!(level >= least, "{level:?} allows this, but: {anomaly}");
                assert_eq!(anomaly.kind, kind, "{level:?}: {anomaly}");
                assert!(!anomaly.transactions.is_empty() && !anomaly.evidence.is_empty());
            }
            Ok(()) => assert!(level < least, "{kind:?} was missed at {level:?}"),
        }
    }
}

fn passes(lines: &str) {
    for level in LEVELS {
        if let Err(anomaly) = check(&history(lines), level) {
            panic!("{level:?}: {anomaly}");
        }
    }
}

#[test]
fn serial_transactions_pass() {
    passes("");
    passes(
        "@0-1 a1:1 a1:2 r1:1,2
         @2-3 r1:1,2 a2:3
         @4-5 a1:4 abort
         @6-7 r1:1,2 a1:5 a2:6 r1:1,2,5
         @8-9 r1:1,2,5 r2:3,6 r3:",
    );
}

#[test]
fn concurrent_ones_pass_in_either_order() {
    passes("@0-9 r1: r2:\n @1-8 a1:1 a2:2\n @10-11 r1:1 r2:2");
    passes("@0-9 r1:1 r2:2\n @1-8 a1:1 a2:2\n @10-11 r1:1 r2:2");
}

#[test]
fn unknown_outcomes_count_once_seen() {
    passes("@0-1 a1:1 unknown\n @2-3 r1:");
    passes("@0-1 a1:1 unknown\n @2-3 r1:\n @4-5 r1:1");
    refused(Kind::G1c, Isolation::ReadCommitted, "a1:1 r2:2 unknown\n a2:2 r1:1");
    // One unknown transaction is known through another one.
    refused(
        Kind::GSingle,
        Isolation::Snapshot,
        "a1:1 a2:2\n r1:1 r2: a3:3 unknown\n r3:3 a4:4 unknown\n r4:4",
    );
}

#[test]
fn malformed() {
    refused(Kind::Malformed, Isolation::ReadCommitted, "a1:1\n a2:1");
}

#[test]
fn garbage() {
    refused(Kind::Garbage, Isolation::ReadCommitted, "a1:1\n r1:1,2");
    refused(Kind::Garbage, Isolation::ReadCommitted, "a1:1\n r2:1");
}

#[test]
fn duplicate() {
    refused(Kind::Duplicate, Isolation::ReadCommitted, "a1:1\n r1:1,1");
}

#[test]
fn internal() {
    refused(Kind::Internal, Isolation::ReadCommitted, "a1:1 r1:");
    refused(Kind::Internal, Isolation::ReadCommitted, "a1:1 a1:2 r1:2,1");
    refused(Kind::Internal, Isolation::ReadCommitted, "r1:1 a1:1");
    refused(Kind::Internal, Isolation::Snapshot, "a1:1\n r1: r1:1");
}

#[test]
fn incompatible() {
    refused(Kind::Incompatible, Isolation::ReadCommitted, "a1:1\n a1:2\n r1:1,2\n r1:2,1");
    refused(Kind::Incompatible, Isolation::ReadCommitted, "a1:1\n a1:2\n r1:1\n r1:2");
    refused(Kind::Incompatible, Isolation::ReadCommitted, "a1:1\n a1:2 r1:2 r1:1,2");
}

#[test]
fn g1a() {
    refused(Kind::G1a, Isolation::ReadCommitted, "a1:1 abort\n r1:1");
    passes("a1:1 r2: abort\n r1:");
}

#[test]
fn g1b() {
    refused(Kind::G1b, Isolation::ReadCommitted, "a1:1 a1:2\n r1:1");
}

#[test]
fn g0() {
    refused(Kind::G0, Isolation::ReadCommitted, "a1:1 a2:2\n a1:3 a2:4\n r1:1,3 r2:4,2");
    // Its second append was lost: it would have to stand before and after the other transaction's.
    refused(Kind::G0, Isolation::ReadCommitted, "a1:1 a1:2\n a1:3\n r1:1,3");
}

#[test]
fn g1c() {
    refused(Kind::G1c, Isolation::ReadCommitted, "a1:1 r2:2\n a2:2 r1:1");
}

#[test]
fn g_single() {
    // A torn snapshot.
    refused(Kind::GSingle, Isolation::Snapshot, "a1:1 a2:2\n r1:1 r2:");
    // A lost update: both read the empty list, both appended, one append is gone at the end.
    refused(Kind::GSingle, Isolation::Snapshot, "r1: a1:1\n r1: a1:2\n r1:1,2");
}

#[test]
fn g_nonadjacent() {
    // Long fork: two readers see two independent appends in opposite order.
    refused(Kind::GNonadjacent, Isolation::Snapshot, "a1:1\n a2:2\n r1:1 r2:\n r1: r2:2");
}

#[test]
fn g2_item() {
    // Write skew.
    refused(Kind::G2Item, Isolation::RepeatableRead, "r1: a2:1\n r2: a1:2\n r1:2 r2:1");
    // The same, told apart only by the final read's being final.
    refused(Kind::G2Item, Isolation::RepeatableRead, "r1: a2:1\n r2: a1:2");
    // The read-only transaction's anomaly of Fekete, O'Neil and O'Neil.
    refused(Kind::G2Item, Isolation::RepeatableRead, "r1: r2: a1:1\n r2: a2:2\n r1: r2:2");
}

#[test]
fn real_time() {
    // A read in the past, of something that had been acknowledged; fine without times.
    passes("a1:1\n r1:");
    refused(Kind::Stale, Isolation::ReadCommitted, "@0-1 a1:1\n @2-3 r1:");
    refused(Kind::Stale, Isolation::ReadCommitted, "@0-1 a1:1\n @1-2 r1:1 a2:2\n @3-4 r2:2 r1:");
    passes("@0-2 a1:1\n @1-3 r1:");
    // A lost append: its end was acknowledged, and the final reader does not find it.
    refused(Kind::Stale, Isolation::ReadCommitted, "@0-1 a1:1\n @0-2 a1:2\n @3-4 r1:2");
    // Statements of one transaction may see different states at read committed, but not at snapshot.
    refused(Kind::GSingle, Isolation::Snapshot, "@0-9 r1: r2:2\n @1-2 a1:1\n @3-4 a2:2");
    // Appends in the order opposite to time.
    refused(Kind::G0, Isolation::ReadCommitted, "@0-1 a1:1\n @2-3 a1:2\n @4-5 r1:2,1");
    // A read from the future.
    refused(Kind::G1c, Isolation::ReadCommitted, "@0-1 r1:1\n @2-3 a1:1");
}

#[test]
fn evidence_names_the_cycle() {
    let anomaly = check(&history("@0-1 a1:1\n @2-3 r1:"), Isolation::Snapshot).expect_err("stale");
    let text = anomaly.to_string();
    assert!(text.contains("T1 read key 1 as empty, without T0's 1"), "{text}");
    assert!(text.contains("T0 had ended before T1 began"), "{text}");
}

/// A step of a random client: which transaction, and what it does.
#[derive(Clone, Copy, Debug)]
enum Step {
    Append(usize, u64),
    Read(usize, u64),
    End(usize, bool),
}

fn steps(length: usize) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..4_usize, 0..4_u64).prop_map(|(client, key)| Step::Append(client, key)),
        4 => (0..4_usize, 0..4_u64).prop_map(|(client, key)| Step::Read(client, key)),
        3 => (0..4_usize, any::<bool>()).prop_map(|(client, mostly)| Step::End(client, mostly)),
    ];
    prop::collection::vec(step, 0..length)
}

/// A store of lists with snapshots and the first committer winning: what snapshot isolation allows, by construction.
#[derive(Default)]
struct Model {
    lists: BTreeMap<u64, Vec<u64>>,
    changed: BTreeMap<u64, u64>,
    clock: u64,
}

struct Client {
    snapshot: BTreeMap<u64, Vec<u64>>,
    begin: u64,
    transaction: Transaction,
}

impl Model {
    fn begin(&mut self) -> Client {
        self.clock += 1;
        let transaction = Transaction { operations: Vec::new(), outcome: Outcome::Aborted, times: None };
        Client { snapshot: self.lists.clone(), begin: self.clock, transaction }
    }

    /// Ends a transaction: it commits if it wants to and nobody changed what it wrote (or, where `reads` count, read).
    fn end(&mut self, mut client: Client, commit: bool, reads: bool) -> Transaction {
        self.clock += 1;
        let collides = |operation: &Operation| match operation {
            Operation::Append { key, .. } => self.changed.get(key).is_some_and(|at| *at > client.begin),
            Operation::Read { key, .. } => {
                reads && self.changed.get(key).is_some_and(|at| *at > client.begin)
            }
        };
        if commit && !client.transaction.operations.iter().any(collides) {
            client.transaction.outcome = Outcome::Committed;
            for operation in &client.transaction.operations {
                if let Operation::Append { key, value } = *operation {
                    self.lists.entry(key).or_default().push(value);
                    self.changed.insert(key, self.clock);
                }
            }
        }
        client.transaction.times = Some((client.begin, self.clock));
        client.transaction
    }
}

/// Four clients that interleave as `steps` say; validated reads make the history serializable.
fn interleaved(steps: &[Step], reads: bool) -> History {
    let mut model = Model::default();
    let mut clients: [Option<Client>; 4] = [const { None }; 4];
    let mut transactions = Vec::new();
    let ends = (0..4).map(|client| Step::End(client, true));
    for (number, step) in steps.iter().copied().chain(ends).enumerate() {
        let (Step::Append(at, _) | Step::Read(at, _) | Step::End(at, _)) = step;
        let mut client = clients[at].take().unwrap_or_else(|| model.begin());
        match step {
            Step::Append(_, key) => {
                let value = number as u64;
                client.snapshot.entry(key).or_default().push(value);
                client.transaction.operations.push(Operation::Append { key, value });
            }
            Step::Read(_, key) => {
                let list = client.snapshot.get(&key).cloned().unwrap_or_default();
                client.transaction.operations.push(Operation::Read { key, list });
            }
            Step::End(_, commit) => {
                transactions.push(model.end(client, commit, reads));
                continue;
            }
        }
        clients[at] = Some(client);
    }
    let mut last = model.begin();
    for key in 0..4 {
        let list = last.snapshot.get(&key).cloned().unwrap_or_default();
        last.transaction.operations.push(Operation::Read { key, list });
    }
    transactions.push(model.end(last, true, reads));
    History { transactions }
}

/// Forgets the last element that some committed reader of nothing but foreign elements saw: a stale read.
fn make_stale(history: &mut History, choice: usize) -> bool {
    let mut writers = BTreeMap::new();
    for (by, transaction) in history.transactions.iter().enumerate() {
        for operation in &transaction.operations {
            if let Operation::Append { value, .. } = operation {
                writers.insert(*value, by);
            }
        }
    }
    let mut candidates = Vec::new();
    for (by, transaction) in history.transactions.iter().enumerate() {
        for (at, operation) in transaction.operations.iter().enumerate() {
            if let Operation::Read { list, .. } = operation
                && transaction.outcome == Outcome::Committed
                && !list.is_empty()
                && list.iter().all(|value| writers[value] != by)
            {
                candidates.push((by, at));
            }
        }
    }
    if candidates.is_empty() {
        return false;
    }
    let (by, at) = candidates[choice % candidates.len()];
    if let Operation::Read { list, .. } = &mut history.transactions[by].operations[at] {
        list.pop();
    }
    true
}

proptest! {
    #[test]
    fn serial_histories_pass(steps in steps(60)) {
        // One client after the other: its steps in a row, then its end.
        let mut serial = Vec::new();
        for chunk in steps.chunks(5) {
            serial.extend(chunk.iter().map(|step| match *step {
                Step::Append(_, key) => Step::Append(0, key),
                Step::Read(_, key) => Step::Read(0, key),
                Step::End(_, commit) => Step::End(0, commit),
            }));
            serial.push(Step::End(0, true));
        }
        for level in LEVELS {
            let outcome = check(&interleaved(&serial, false), level);
            prop_assert!(outcome.is_ok(), "{level:?}: {}", outcome.expect_err("just seen"));
        }
    }

    #[test]
    fn validated_histories_are_serializable(steps in steps(120)) {
        for level in LEVELS {
            let outcome = check(&interleaved(&steps, true), level);
            prop_assert!(outcome.is_ok(), "{level:?}: {}", outcome.expect_err("just seen"));
        }
    }

    #[test]
    fn snapshot_histories_pass_at_snapshot(steps in steps(120)) {
        let history = interleaved(&steps, false);
        let outcome = check(&history, Isolation::Snapshot);
        prop_assert!(outcome.is_ok(), "{}", outcome.expect_err("just seen"));
        if let Err(anomaly) = check(&history, Isolation::Serializable) {
            prop_assert_eq!(anomaly.kind, Kind::G2Item);
        }
    }

    #[test]
    fn a_stale_read_is_found(steps in steps(120), choice in any::<prop::sample::Index>()) {
        let mut history = interleaved(&steps, true);
        prop_assume!(make_stale(&mut history, choice.index(1000)));
        prop_assert!(check(&history, Isolation::Snapshot).is_err());
    }
}

#[test]
fn snapshot_isolation_shows_write_skew_somewhere() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut found = 0;
    for _ in 0..200 {
        let steps = steps(120).new_tree(&mut runner).expect("nothing is rejected").current();
        found += usize::from(check(&interleaved(&steps, false), Isolation::Serializable).is_err());
    }
    assert!(found > 0, "the model never showed what snapshot isolation allows: it proves nothing");
}

#[test]
fn long_histories_are_checked_quickly() {
    let mut steps = Vec::new();
    for at in 0..40_000_usize {
        let (client, key) = (at % 4, (at / 7 + at / 1000) as u64 % 4);
        steps.push(match at / 4 % 5 {
            0 | 3 => Step::Read(client, key + at as u64 / 200 * 4),
            1 | 2 => Step::Append(client, key + at as u64 / 200 * 4),
            _ => Step::End(client, true),
        });
    }
    let history = interleaved(&steps, true);
    assert!(history.transactions.len() > 7_000, "{}", history.transactions.len());
    check(&history, Isolation::Serializable).unwrap_or_else(|anomaly| panic!("{anomaly}"));
}
