//! Isolation, judged by what clients saw: a checker of list-append histories after Elle (Kingsbury and Alvaro, *Elle:
//! Inferring Isolation Anomalies from Experimental Observations*, VLDB 2020), with the anomalies of Adya's thesis.
//!
//! Clients append numbers, each once, to lists and read whole lists. A list that was read shows which appends came
//! before it and in which order, so versions need no guessing:
//!
//! ```text
//! version order of a key   = the longest list that a committed transaction read; every other one is a prefix of it
//! ww  T1 → T2   T2's append follows T1's in the version order
//! wr  T1 → T2   T2 read a list that ends with T1's append
//! rw  T1 → T2   T1 read a list that T2's append comes right after
//! real time     T1 had ended before T2 began (if the history has times)
//! ```
//!
//! A serial order that explains the history is a topological order of these edges, so a cycle refutes it. Which cycles
//! a level allows: [`Isolation`]. What is wrong without any cycle (a read of an aborted append, two lists that
//! contradict each other, …) is looked for first, because the edges would mean nothing.
//!
//! Rules:
//! - Sound: whatever is reported did happen. An operation whose outcome is unknown counts once somebody saw it.
//! - Complete for what can be inferred: the order of appends that nobody ever read stays open. A history that ends
//!   with a transaction that reads every key, and has times, leaves nothing open but the order of its last appends.
//! - Knows nothing of the engine; [`driver`] makes histories with it.

mod driver;
pub(crate) mod graph;
mod tests;

use graph::{Graph, Reason};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One operation of a transaction, as its client saw it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    /// `value`, which nobody else appends to any list, was appended to the list of `key`.
    Append {
        /// Whose list.
        key: u64,
        /// What was appended.
        value: u64,
    },
    /// The list of `key` was read.
    Read {
        /// Whose list.
        key: u64,
        /// What it held, the transaction's own appends included.
        list: Vec<u64>,
    },
}

/// What the client was told in the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// That it is committed.
    Committed,
    /// That it is not.
    Aborted,
    /// Nothing: the process died, or the commit failed in a way that leaves it open.
    Unknown,
}

/// A transaction as its client saw it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Transaction {
    /// In the client's order.
    pub(crate) operations: Vec<Operation>,
    /// What the client was told.
    pub(crate) outcome: Outcome,
    /// When it began, and when its end was acknowledged, on any clock that all clients share. Without one, the real
    /// time order is not checked.
    pub(crate) times: Option<(u64, u64)>,
}

/// What all clients saw. Transactions are named by their place in here.
#[derive(Clone, Default, Debug)]
pub(crate) struct History {
    /// In any order.
    pub(crate) transactions: Vec<Transaction>,
}

/// How much a history must keep.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Isolation {
    /// No cycle of ww and wr, and no read that misses what was acknowledged before its transaction began.
    ReadCommitted,
    /// Besides: no cycle without two rw edges that follow each other (Cerone and Gotsman, *Analysing Snapshot
    /// Isolation*), so write skew is allowed and a lost update is not.
    Snapshot,
    /// No cycle at all. (Phantoms would be allowed, but lists are never absent.)
    RepeatableRead,
    /// No cycle at all.
    Serializable,
}

/// What is wrong.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    /// The history is none: a value is appended twice. A mistake of who made it.
    Malformed,
    /// A value was read that nobody appended.
    Garbage,
    /// A list holds a value twice.
    Duplicate,
    /// A transaction does not see its own appends, sees them too early, or (from snapshot on) sees a list change.
    Internal,
    /// Two lists of a key contradict each other: neither is a prefix of the other.
    Incompatible,
    /// An aborted append was read.
    G1a,
    /// An append that its transaction followed with another one was read without that.
    G1b,
    /// A cycle of ww.
    G0,
    /// A cycle of ww and wr.
    G1c,
    /// A cycle whose rw edges all leave transactions that it enters by real time: somebody does not see what was
    /// acknowledged before. Contradicts even snapshots of single statements: nobody's commit can precede the begin of a
    /// reader that misses it.
    Stale,
    /// A cycle with exactly one rw: a lost update, a torn snapshot.
    GSingle,
    /// A cycle with several rw, no two of which follow each other.
    GNonadjacent,
    /// A cycle with two rw that follow each other: write skew.
    G2Item,
}

/// Something that the level does not allow, with the evidence.
#[derive(Clone, Debug)]
pub(crate) struct Anomaly {
    /// What it is.
    pub(crate) kind: Kind,
    /// The transactions, in the order of the cycle if it is one.
    pub(crate) transactions: Vec<usize>,
    /// For people.
    pub(crate) evidence: String,
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.evidence)
    }
}

/// Does `history` keep what `isolation` promises?
///
/// # Errors
/// The simplest anomaly that refutes it.
pub(crate) fn check(history: &History, isolation: Isolation) -> Result<(), Anomaly> {
    let facts = Facts::collect(history)?;
    facts.internal(isolation)?;
    facts.dirty()?;
    let graph = facts.graph();
    let mut kinds = vec![Kind::G0, Kind::G1c, Kind::Stale];
    if isolation >= Isolation::Snapshot {
        kinds.extend([Kind::GSingle, Kind::GNonadjacent]);
    }
    if isolation >= Isolation::RepeatableRead {
        kinds.push(Kind::G2Item);
    }
    for kind in kinds {
        if let Some(cycle) = graph.cycle(kind) {
            let transactions = cycle.iter().map(|(transaction, _)| *transaction).collect();
            return Err(Anomaly { kind, transactions, evidence: graph.describe(&cycle) });
        }
    }
    Ok(())
}

fn anomaly(kind: Kind, transactions: &[usize], evidence: String) -> Anomaly {
    Anomaly { kind, transactions: transactions.to_vec(), evidence }
}

/// A list as read by a transaction that counts.
struct Seen<'a> {
    by: usize,
    key: u64,
    list: &'a [u64],
    /// How many elements at the front are not the reader's own.
    foreign: usize,
    /// How many appends to `key` the reader had made before.
    own: usize,
}

/// What a history says before any edge is drawn.
struct Facts<'a> {
    history: &'a History,
    /// Who appended a value, and to what.
    writers: BTreeMap<u64, (usize, u64)>,
    /// Each transaction's appends to a key, in its order.
    appends: BTreeMap<(usize, u64), Vec<u64>>,
    /// Transactions that took effect: committed, or unknown and seen.
    effective: BTreeSet<usize>,
    /// What effective transactions read, transaction by transaction, in its order.
    seen: Vec<Seen<'a>>,
    /// The longest list of each key that an effective transaction read, with its reader.
    orders: BTreeMap<u64, (&'a [u64], usize)>,
}

impl<'a> Facts<'a> {
    fn collect(history: &'a History) -> Result<Self, Anomaly> {
        let mut writers = BTreeMap::new();
        let mut appends: BTreeMap<(usize, u64), Vec<u64>> = BTreeMap::new();
        for (by, transaction) in history.transactions.iter().enumerate() {
            for operation in &transaction.operations {
                let Operation::Append { key, value } = *operation else { continue };
                if let Some((other, _)) = writers.insert(value, (by, key)) {
                    let evidence = format!("both T{other} and T{by} append {value}");
                    return Err(anomaly(Kind::Malformed, &[other, by], evidence));
                }
                appends.entry((by, key)).or_default().push(value);
            }
        }
        let effective = effective(history, &writers);
        let mut facts =
            Self { history, writers, appends, effective, seen: Vec::new(), orders: BTreeMap::new() };
        facts.look()?;
        Ok(facts)
    }

    /// Fills `seen` and `orders`.
    fn look(&mut self) -> Result<(), Anomaly> {
        for &by in &self.effective {
            let mut own: BTreeMap<u64, usize> = BTreeMap::new();
            for operation in &self.history.transactions[by].operations {
                match operation {
                    Operation::Append { key, .. } => *own.entry(*key).or_default() += 1,
                    Operation::Read { key, list } => {
                        self.elements(by, *key, list)?;
                        let is_own =
                            |value: &u64| self.writers.get(value).is_some_and(|(writer, _)| *writer == by);
                        let foreign = list.iter().position(is_own).unwrap_or(list.len());
                        let own = own.get(key).copied().unwrap_or_default();
                        self.seen.push(Seen { by, key: *key, list, foreign, own });
                        let (longest, other) = *self.orders.entry(*key).or_insert((list, by));
                        let (short, long) = if list.len() > longest.len() {
                            (longest, &list[..])
                        } else {
                            (&list[..], longest)
                        };
                        if !long.starts_with(short) {
                            let evidence =
                                format!("key {key}: T{other} read {longest:?}, and T{by} read {list:?}");
                            return Err(anomaly(Kind::Incompatible, &[other, by], evidence));
                        }
                        if list.len() > longest.len() {
                            self.orders.insert(*key, (list, by));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Each element of a list stands there once and was appended by somebody, to this key.
    fn elements(&self, by: usize, key: u64, list: &[u64]) -> Result<(), Anomaly> {
        let mut known = BTreeSet::new();
        for value in list {
            if !known.insert(value) {
                let evidence = format!("key {key}: T{by} read {value} twice in {list:?}");
                return Err(anomaly(Kind::Duplicate, &[by], evidence));
            }
            if self.writers.get(value).is_none_or(|(_, written)| *written != key) {
                let evidence =
                    format!("key {key}: T{by} read {value}, which nobody appended to it, in {list:?}");
                return Err(anomaly(Kind::Garbage, &[by], evidence));
            }
        }
        Ok(())
    }

    /// Each transaction sees its own appends, and from snapshot on a list does not change under it.
    fn internal(&self, isolation: Isolation) -> Result<(), Anomaly> {
        let mut before: BTreeMap<(usize, u64), &Seen<'_>> = BTreeMap::new();
        for seen in &self.seen {
            let Seen { by, key, list, .. } = *seen;
            let appended = self.appends.get(&(by, key)).map_or(&[][..], Vec::as_slice);
            if list[seen.foreign..] != appended[..seen.own] {
                let evidence = format!(
                    "key {key}: T{by} read {list:?} after it had appended {:?}",
                    &appended[..seen.own]
                );
                return Err(anomaly(Kind::Internal, &[by], evidence));
            }
            if let Some(first) = before.insert((by, key), seen)
                && isolation >= Isolation::Snapshot
                && first.list[..first.foreign] != list[..seen.foreign]
            {
                let evidence = format!("key {key}: T{by} read {:?}, and then {list:?}", first.list);
                return Err(anomaly(Kind::Internal, &[by], evidence));
            }
        }
        Ok(())
    }

    /// Nobody reads what was aborted, or what is half done.
    fn dirty(&self) -> Result<(), Anomaly> {
        for seen in &self.seen {
            let Seen { by, key, list, .. } = *seen;
            for value in &list[..seen.foreign] {
                let (writer, _) = self.writers[value];
                if self.history.transactions[writer].outcome == Outcome::Aborted {
                    let evidence = format!("key {key}: T{by} read {value} of T{writer}, which aborted");
                    return Err(anomaly(Kind::G1a, &[writer, by], evidence));
                }
            }
            let Some(last) = list[..seen.foreign].last() else { continue };
            let (writer, _) = self.writers[last];
            let appended = &self.appends[&(writer, key)];
            if appended.last() != Some(last) {
                let evidence =
                    format!("key {key}: T{by} read {last} as the end, T{writer} appended {appended:?}");
                return Err(anomaly(Kind::G1b, &[writer, by], evidence));
            }
        }
        Ok(())
    }

    fn graph(&self) -> Graph {
        let mut graph = Graph::new(self.history.transactions.len());
        for (&key, (order, _)) in &self.orders {
            for pair in order.windows(2) {
                let [before, after] = [pair[0], pair[1]];
                graph.edge(
                    self.writers[&before].0,
                    self.writers[&after].0,
                    Reason::Ww { key, before, after },
                );
            }
        }
        // Appends that took effect and that nobody saw follow all that somebody saw, in an order that stays open.
        let mut unseen: BTreeMap<u64, Vec<(usize, u64)>> = BTreeMap::new();
        for (&(by, key), values) in self.appends.iter().filter(|((by, _), _)| self.effective.contains(by)) {
            let order = self.orders.get(&key).map_or(&[][..], |(order, _)| order);
            for &after in values.iter().filter(|value| !order.contains(value)) {
                unseen.entry(key).or_default().push((by, after));
                if let Some(&before) = order.last() {
                    graph.edge(self.writers[&before].0, by, Reason::Ww { key, before, after });
                }
            }
        }
        for seen in &self.seen {
            let Seen { by, key, list, foreign, .. } = *seen;
            let last = list[..foreign].last().copied();
            if let Some(value) = last {
                graph.edge(self.writers[&value].0, by, Reason::Wr { key, value });
            }
            if let Some(&after) = self.orders[&key].0.get(foreign) {
                graph.edge(by, self.writers[&after].0, Reason::Rw { key, last, after });
                continue;
            }
            for &(writer, after) in unseen.get(&key).into_iter().flatten() {
                graph.edge(by, writer, Reason::Rw { key, last, after });
            }
        }
        let times = |&by: &usize| self.history.transactions[by].times.map(|(begin, end)| (by, begin, end));
        let known = |by: usize| self.history.transactions[by].outcome == Outcome::Committed;
        let times: Vec<_> = self.effective.iter().filter_map(times).collect();
        graph.real_time(
            &times
                .into_iter()
                .map(|(by, begin, end)| (by, begin, known(by).then_some(end)))
                .collect::<Vec<_>>(),
        );
        graph
    }
}

/// Committed transactions, and unknown ones whose appends one of these read, or one that is thereby known, and so on.
fn effective(history: &History, writers: &BTreeMap<u64, (usize, u64)>) -> BTreeSet<usize> {
    let committed = |(_, transaction): &(usize, &Transaction)| transaction.outcome == Outcome::Committed;
    let mut open: Vec<usize> =
        history.transactions.iter().enumerate().filter(committed).map(|(by, _)| by).collect();
    let mut found: BTreeSet<usize> = open.iter().copied().collect();
    while let Some(by) = open.pop() {
        for operation in &history.transactions[by].operations {
            let Operation::Read { list, .. } = operation else { continue };
            for (writer, _) in list.iter().filter_map(|value| writers.get(value)) {
                if history.transactions[*writer].outcome == Outcome::Unknown && found.insert(*writer) {
                    open.push(*writer);
                }
            }
        }
    }
    found
}
