//! The graph of a history and the search for its cycles.
//!
//! Each kind of cycle is a cycle in a graph made for it, found by strongly connected components, then made short by
//! breadth-first search:
//!
//! ```text
//! G0            ww, real time
//! G1c           ww, wr, real time
//! Stale         nodes (T, how T was entered); only from a T that was entered by real time an rw leaves
//! GSingle       an rw edge a → b closed by a path b → a of ww, wr, real time
//! GNonadjacent  nodes (T, how T was entered); from a T that was entered by rw no rw leaves
//! G2Item        all edges
//! ```
//!
//! Real time would be a quadratic number of edges. Instead there is a chain of moments: a transaction leads to the
//! moment of its end, each moment to the next, and a moment to the transactions that begin between it and the next.

use super::Kind;
use petgraph::algo::kosaraju_scc;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;
use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write;

/// Why one transaction comes before another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    /// Its append `before` is followed by the other's `after`.
    Ww { key: u64, before: u64, after: u64 },
    /// Its append `value` is the last that the other read.
    Wr { key: u64, value: u64 },
    /// It read a list that ends with `last`, without the other's `after`.
    Rw { key: u64, last: Option<u64>, after: u64 },
    /// It had ended before the other began.
    RealTime,
}

impl Reason {
    fn is_rw(self) -> bool {
        matches!(self, Self::Rw { .. })
    }

    fn belongs_to(self, kind: Kind) -> bool {
        match self {
            Self::Ww { .. } | Self::RealTime => true,
            Self::Wr { .. } => kind != Kind::G0,
            Self::Rw { .. } => kind != Kind::G0 && kind != Kind::G1c,
        }
    }
}

/// Transactions, with the reason why the next one comes after each.
pub(crate) type Cycle = Vec<(usize, Reason)>;

/// Transactions (the first nodes) and moments (the others).
pub(crate) struct Graph {
    transactions: usize,
    edges: DiGraph<(), Reason>,
}

impl Graph {
    /// `transactions` of them, and no edge.
    pub(crate) fn new(transactions: usize) -> Self {
        let mut edges = DiGraph::new();
        for _ in 0..transactions {
            edges.add_node(());
        }
        Self { transactions, edges }
    }

    /// `from` comes before `to`. Nothing if they are the same.
    pub(crate) fn edge(&mut self, from: usize, to: usize, reason: Reason) {
        if from != to {
            self.edges.add_edge(NodeIndex::new(from), NodeIndex::new(to), reason);
        }
    }

    /// Orders transactions that have (number, begin, end) by time; one without an end comes before nobody.
    pub(crate) fn real_time(&mut self, times: &[(usize, u64, Option<u64>)]) {
        let mut ends: Vec<(u64, usize)> = times.iter().filter_map(|&(by, _, end)| Some((end?, by))).collect();
        ends.sort_unstable();
        let first = self.edges.node_count();
        for (at, &(_, by)) in ends.iter().enumerate() {
            let moment = self.edges.add_node(()).index();
            self.edge(by, moment, Reason::RealTime);
            if at > 0 {
                self.edge(moment - 1, moment, Reason::RealTime);
            }
        }
        for &(by, begin, _) in times {
            let past = ends.partition_point(|(end, _)| *end < begin);
            if past > 0 {
                self.edge(first + past - 1, by, Reason::RealTime);
            }
        }
    }

    /// A short cycle of this kind, if there is one.
    pub(crate) fn cycle(&self, kind: Kind) -> Option<Cycle> {
        let nodes = match kind {
            Kind::GSingle => self.single()?,
            Kind::Stale | Kind::GNonadjacent => {
                let count = self.edges.node_count();
                let mut cycle = shortest(&self.entered(kind))?;
                for (node, _) in &mut cycle {
                    *node %= count;
                }
                cycle
            }
            _ => shortest(
                &self
                    .edges
                    .filter_map(|_, ()| Some(()), |_, reason| reason.belongs_to(kind).then_some(*reason)),
            )?,
        };
        Some(nodes.into_iter().filter(|(node, _)| *node < self.transactions).collect())
    }

    /// Each node twice: entered by an edge after which no rw edge may follow (the second half), or by another one (the
    /// first half).
    fn entered(&self, kind: Kind) -> DiGraph<(), Reason> {
        let count = self.edges.node_count();
        let mut twice = DiGraph::new();
        for _ in 0..2 * count {
            twice.add_node(());
        }
        for edge in self.edges.edge_references() {
            let (from, reason) = (edge.source().index(), *edge.weight());
            let bars_rw = if kind == Kind::Stale { reason != Reason::RealTime } else { reason.is_rw() };
            let to = NodeIndex::new(edge.target().index() + if bars_rw { count } else { 0 });
            twice.add_edge(NodeIndex::new(from), to, reason);
            if !reason.is_rw() {
                twice.add_edge(NodeIndex::new(count + from), to, reason);
            }
        }
        twice
    }

    fn single(&self) -> Option<Cycle> {
        // Each such cycle lies in a component of `entered`, which has none in a history without anomalies.
        let count = self.edges.node_count();
        let suspects: BTreeSet<usize> = components(&self.entered(Kind::GNonadjacent))
            .into_iter()
            .flatten()
            .map(|node| node.index() % count)
            .collect();
        let others =
            self.edges.filter_map(|_, ()| Some(()), |_, reason| (!reason.is_rw()).then_some(*reason));
        let candidates = self.edges.edge_references().filter(|edge| {
            let ends = [edge.source().index(), edge.target().index()];
            edge.weight().is_rw() && ends.iter().all(|end| suspects.contains(end))
        });
        let close = |(from, to, reason): (NodeIndex, NodeIndex, Reason)| {
            let mut cycle = vec![(from.index(), reason)];
            cycle.extend(path(&others, to, from)?);
            Some(cycle)
        };
        candidates
            .filter_map(|edge| close((edge.source(), edge.target(), *edge.weight())))
            .min_by_key(Vec::len)
    }

    /// The cycle in words.
    pub(crate) fn describe(&self, cycle: &Cycle) -> String {
        let mut text = String::new();
        for (at, (by, reason)) in cycle.iter().enumerate() {
            let next = cycle[(at + 1) % cycle.len()].0;
            let because = match reason {
                Reason::Ww { key, before, after } => {
                    format!("T{next} appended {after} to key {key} after T{by}'s {before}")
                }
                Reason::Wr { key, value } => format!("T{next} read T{by}'s {value} of key {key}"),
                Reason::Rw { key, last: Some(last), after } => {
                    format!("T{by} read key {key} up to {last}, without T{next}'s {after}")
                }
                Reason::Rw { key, last: None, after } => {
                    format!("T{by} read key {key} as empty, without T{next}'s {after}")
                }
                Reason::RealTime => format!("T{by} had ended before T{next} began"),
            };
            write!(text, "{}T{by} → T{next} ({because})", if at == 0 { "" } else { "; " })
                .expect("a string takes what is written");
        }
        text
    }
}

/// Components of more than one node: those that hold cycles, as no edge leads from a node to itself.
fn components(graph: &DiGraph<(), Reason>) -> Vec<Vec<NodeIndex>> {
    let mut found = kosaraju_scc(graph);
    found.retain(|component| component.len() > 1);
    found
}

/// A short cycle: the shortest through some node of the smallest component that has any.
fn shortest(graph: &DiGraph<(), Reason>) -> Option<Cycle> {
    // Enough starts for a short cycle, few enough for a component that is the whole history.
    const STARTS: usize = 200;
    let component = components(graph).into_iter().min_by_key(Vec::len)?;
    component.iter().take(STARTS).filter_map(|&node| path(graph, node, node)).min_by_key(Vec::len)
}

/// The shortest path of at least one edge: its nodes but the last, each with the edge that leaves it.
fn path(graph: &DiGraph<(), Reason>, from: NodeIndex, to: NodeIndex) -> Option<Cycle> {
    let mut parents: Vec<Option<(NodeIndex, Reason)>> = vec![None; graph.node_count()];
    let mut open = VecDeque::from([from]);
    while let Some(node) = open.pop_front() {
        for edge in graph.edges(node) {
            let next = edge.target();
            if parents[next.index()].is_some() {
                continue;
            }
            parents[next.index()] = Some((node, *edge.weight()));
            if next == to {
                return Some(back(&parents, from, to));
            }
            open.push_back(next);
        }
    }
    None
}

fn back(parents: &[Option<(NodeIndex, Reason)>], from: NodeIndex, to: NodeIndex) -> Cycle {
    let mut found = Vec::new();
    let mut node = to;
    loop {
        let (parent, reason) =
            parents[node.index()].expect("each node on the way was reached from another one");
        found.push((parent.index(), reason));
        node = parent;
        if node == from {
            found.reverse();
            return found;
        }
    }
}
