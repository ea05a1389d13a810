//! The tree against a model, with several threads, and in the memory that it takes.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering as StdOrdering};

use proptest::prelude::*;
use thermocline_base::epoch::Epochs;

use super::*;
use crate::index::node_memory::HeapMemory;

type Model = BTreeSet<(Vec<u8>, u64)>;

struct Setup<const N: usize> {
    epochs: Arc<Epochs>,
    memory: Arc<HeapMemory>,
    tree: Tree<HeapMemory, N>,
}

fn setup_with_limit<const N: usize>(bytes_max: usize) -> Setup<N> {
    let epochs = Arc::new(Epochs::new());
    let memory = Arc::new(HeapMemory::with_limit(Arc::clone(&epochs), bytes_max));
    let tree = Tree::new(Arc::clone(&memory)).unwrap();
    Setup { epochs, memory, tree }
}

fn setup<const N: usize>() -> Setup<N> {
    setup_with_limit(usize::MAX)
}

fn mix(key: u64) -> u64 {
    let mut x = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

impl<const N: usize> Setup<N> {
    fn rows(&self, key: &[u8]) -> Vec<u64> {
        let mut rows = Vec::new();
        let broke: Option<()> = self.tree.lookup(&self.epochs.pin(), key, |row| {
            rows.push(row.0);
            ControlFlow::Continue(())
        });
        assert_eq!(broke, None);
        rows
    }

    /// A scan of all batches, each under a pin of its own.
    fn scan(
        &self,
        from: Bound<(&[u8], RowId)>,
        to: Bound<&[u8]>,
        direction: Direction,
        batch: &mut Batch,
    ) -> Vec<(Vec<u8>, u64)> {
        let mut all = Vec::new();
        let mut more = self.tree.scan_batch(&self.epochs.pin(), from, to, direction, batch);
        loop {
            assert!(!batch.is_empty() || !more, "an empty batch in the middle of a scan");
            all.extend(batch.iter().map(|(key, row)| (key.to_vec(), row.0)));
            if !more {
                return all;
            }
            more = self.tree.scan_next(&self.epochs.pin(), to, batch);
        }
    }

    fn all(&self, direction: Direction) -> Vec<(Vec<u8>, u64)> {
        self.scan(Bound::Unbounded, Bound::Unbounded, direction, &mut Batch::new())
    }

    /// Moves all nodes, and says how many are where they were.
    fn move_all(&self) -> Result<usize, OutOfMemory> {
        let mut before = Vec::new();
        self.addresses(self.tree.root.address.load(Ordering::Acquire), &mut before);
        // What has moved must not come to stand where something else was.
        let guard = self.epochs.pin();
        self.memory.leaving.store(true, StdOrdering::Relaxed);
        let mut place = TreePlace::default();
        let moved = loop {
            match self.tree.move_nodes(&guard, &mut place, 3) {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        self.memory.leaving.store(false, StdOrdering::Relaxed);
        let mut after = Vec::new();
        self.addresses(self.tree.root.address.load(Ordering::Acquire), &mut after);
        assert!(after.len() <= before.len());
        moved.map(|()| after.iter().filter(|address| before.contains(address)).count())
    }

    fn addresses(&self, address: u64, into: &mut Vec<u64>) {
        into.push(address);
        // SAFETY: nobody changes the tree while a test looks at it.
        let node = View::<N>::open(unsafe { NodeRef::at(address) }).unwrap();
        if node.shape().level() > 0 {
            (0..node.shape().count()).for_each(|at| self.addresses(node.slot(at).value(), into));
        }
    }

    /// Every node lies between its fences, which are those of its place in the parent, and its entries are in order.
    fn verify(&self) {
        let address = self.tree.root.address.load(Ordering::Acquire);
        let entries = self.verify_node(address, &(Vec::new(), 0), None);
        assert_eq!(entries, self.tree.len());
    }

    fn verify_node(&self, address: u64, low: &(Vec<u8>, u64), high: Option<&(Vec<u8>, u64)>) -> u64 {
        // SAFETY: nobody changes the tree while a test verifies it.
        let node = View::<N>::open(unsafe { NodeRef::at(address) }).unwrap();
        let fences = Fences::of(&node).unwrap();
        assert_eq!((fences.low().key.to_vec(), fences.low().info.row), *low);
        assert_eq!(fences.high().map(|high| (high.key.to_vec(), high.info.row)).as_ref(), high);
        let shape = node.shape();
        let leaf = shape.level() == 0;
        let mut prefix = Vec::new();
        node.read_prefix(&mut prefix).unwrap();
        let mut pairs = Vec::new();
        let mut children = Vec::new();
        for at in 0..shape.count() {
            let slot = node.slot(at);
            let mut key = Vec::new();
            node.append_key(slot, &prefix, &mut key).unwrap();
            let mut pair = (key, node.slot_row(slot, leaf));
            if !leaf && at == 0 {
                pair = low.clone();
            }
            assert!(pair >= *low && high.is_none_or(|high| pair < *high), "{pair:?} is outside its node");
            if let Some(before) = pairs.last() {
                assert!(*before < pair, "{before:?} and {pair:?} are out of order");
            }
            pairs.push(pair);
            children.push(slot.value());
        }
        if leaf {
            return pairs.len() as u64;
        }
        assert!(!children.is_empty(), "an inner node has a child");
        let mut entries = 0;
        for (at, child) in children.iter().enumerate() {
            entries += self.verify_node(*child, &pairs[at], pairs.get(at + 1).or(high));
        }
        entries
    }
}

/// Keys that collide, that share prefixes, that are prefixes of each other, and that stand out of line.
fn keys() -> impl Strategy<Value = Vec<u8>> {
    let letters = || prop::collection::vec(prop::sample::select(vec![0u8, 1, b'a', 0xff]), 0..6);
    prop_oneof![
        4 => letters(),
        3 => (0u64..300).prop_map(|n| n.to_be_bytes().to_vec()),
        3 => (prop::sample::select(vec![3usize, 20, 44, 90]), letters(), letters()).prop_map(|(len, middle, end)| {
            let mut key = vec![b'p'; len];
            key.extend(middle);
            key.extend(vec![b'q'; 9]);
            key.extend(end);
            key
        }),
        1 => (letters(), prop::sample::select(vec![300usize, 700, 2048])).prop_map(|(end, len)| {
            let mut key = vec![b'x'; len - end.len()];
            key.extend(end);
            key
        }),
    ]
}

#[derive(Clone, Debug)]
enum Operation {
    Insert(Vec<u8>, u64),
    /// Removes the entry of the model that stands there, if there are any.
    Remove(usize),
    RemoveMany(usize, usize),
    Lookup(Vec<u8>),
    Scan(Bound<Vec<u8>>, u64, Bound<Vec<u8>>, bool, usize),
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let bound = || {
        prop_oneof![
            keys().prop_map(Bound::Included),
            keys().prop_map(Bound::Excluded),
            Just(Bound::Unbounded),
        ]
    };
    let operation = prop_oneof![
        30 => (keys(), 0u64..4).prop_map(|(key, row)| Operation::Insert(key, row * 0x2222_2222_2222)),
        8 => any::<usize>().prop_map(Operation::Remove),
        1 => (any::<usize>(), 1usize..150).prop_map(|(at, count)| Operation::RemoveMany(at, count)),
        6 => keys().prop_map(Operation::Lookup),
        3 => (bound(), 0u64..3, bound(), any::<bool>(), prop::sample::select(vec![1, 3, usize::MAX]))
            .prop_map(|(from, row, to, forward, max)| Operation::Scan(from, row, to, forward, max)),
    ];
    prop::collection::vec(operation, 1..500)
}

fn run<const N: usize>(operations: Vec<Operation>) {
    let setup = setup::<N>();
    let mut model = Model::new();
    let mut batch = Batch::new();
    for operation in operations {
        match operation {
            Operation::Insert(key, row) => {
                let new = setup.tree.insert(&setup.epochs.pin(), &key, RowId(row)).unwrap();
                assert_eq!(new, model.insert((key.clone(), row)), "{key:?} {row}");
            }
            Operation::Remove(at) if !model.is_empty() => {
                let pair = model.iter().nth(at % model.len()).unwrap().clone();
                assert!(!setup.tree.remove(&setup.epochs.pin(), &pair.0, RowId(pair.1 + 1)));
                assert!(setup.tree.remove(&setup.epochs.pin(), &pair.0, RowId(pair.1)), "{pair:?}");
                model.remove(&pair);
            }
            Operation::RemoveMany(at, count) if !model.is_empty() => {
                let pairs: Vec<_> = model.iter().skip(at % model.len()).take(count).cloned().collect();
                for pair in pairs {
                    assert!(setup.tree.remove(&setup.epochs.pin(), &pair.0, RowId(pair.1)), "{pair:?}");
                    model.remove(&pair);
                }
            }
            Operation::Remove(_) | Operation::RemoveMany(..) => {}
            Operation::Lookup(key) => {
                let expected: Vec<u64> =
                    model.range((key.clone(), 0)..=(key.clone(), u64::MAX)).map(|(_, row)| *row).collect();
                assert_eq!(setup.rows(&key), expected, "{key:?}");
            }
            Operation::Scan(from, row, to, forward, max) => {
                batch.set_entries_max(max);
                let row = row * 0x1111_1111_1111;
                let above = |bound: &Bound<Vec<u8>>, row: u64, pair: &(Vec<u8>, u64)| match bound {
                    Bound::Included(key) => *pair >= (key.clone(), row),
                    Bound::Excluded(key) => *pair > (key.clone(), row),
                    Bound::Unbounded => true,
                };
                let below = |bound: &Bound<Vec<u8>>, row: u64, pair: &(Vec<u8>, u64)| match bound {
                    Bound::Included(key) => *pair <= (key.clone(), row),
                    Bound::Excluded(key) => *pair < (key.clone(), row),
                    Bound::Unbounded => true,
                };
                let key_row = |bound: &Bound<Vec<u8>>, upper: bool| match bound {
                    Bound::Included(_) if upper => u64::MAX,
                    Bound::Excluded(_) if !upper => u64::MAX,
                    _ => 0,
                };
                let mut expected: Vec<_> = model
                    .iter()
                    .filter(|pair| {
                        if forward {
                            above(&from, row, pair) && below(&to, key_row(&to, true), pair)
                        } else {
                            below(&from, row, pair) && above(&to, key_row(&to, false), pair)
                        }
                    })
                    .cloned()
                    .collect();
                let direction = if forward { Direction::Forward } else { Direction::Backward };
                if !forward {
                    expected.reverse();
                }
                let from = from.as_ref().map(|key| (key.as_slice(), RowId(row)));
                let found = setup.scan(from, to.as_ref().map(Vec::as_slice), direction, &mut batch);
                assert_eq!(found, expected);
            }
        }
    }
    setup.verify();
    while setup.tree.maintain(&setup.epochs.pin()) {}
    setup.verify();
    assert!(setup.all(Direction::Forward).into_iter().eq(model.iter().cloned()));
    assert!(setup.all(Direction::Backward).into_iter().eq(model.iter().rev().cloned()));
    assert_eq!(setup.move_all(), Ok(0));
    setup.verify();
    assert!(setup.all(Direction::Forward).into_iter().eq(model.iter().cloned()));
    setup.memory.collect();
    let bytes = setup.memory.bytes() as u64 + size_of::<Tree<HeapMemory, N>>() as u64;
    assert_eq!(setup.tree.memory_bytes(), bytes);
    drop(setup.tree);
    assert_eq!(setup.memory.bytes(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn small_nodes_behave_like_a_set(operations in operations()) {
        run::<512>(operations);
    }

    #[test]
    fn pages_behave_like_a_set(operations in operations()) {
        run::<4096>(operations);
    }
}

fn grow_and_shrink<const N: usize>(keys: u64, key: impl Fn(u64) -> Vec<u8>) -> usize {
    let setup = setup::<N>();
    for n in 0..keys {
        assert!(setup.tree.insert(&setup.epochs.pin(), &key(n), RowId(n)).unwrap());
    }
    setup.verify();
    setup.memory.collect();
    let full_bytes = setup.memory.bytes();
    let height = setup.tree.height(&setup.epochs.pin());
    for n in 0..keys {
        assert_eq!(setup.rows(&key(n)), [n]);
    }
    for n in (0..keys).filter(|n| n % 100 != 0) {
        assert!(setup.tree.remove(&setup.epochs.pin(), &key(n), RowId(n)));
    }
    while setup.tree.maintain(&setup.epochs.pin()) {}
    setup.verify();
    setup.memory.collect();
    let left = setup.memory.bytes();
    assert!(left < full_bytes / 20, "{left} of {full_bytes} bytes are left");
    for n in 0..keys {
        assert_eq!(setup.rows(&key(n)).len(), usize::from(n % 100 == 0));
    }
    for n in (0..keys).filter(|n| n % 100 == 0) {
        assert!(setup.tree.remove(&setup.epochs.pin(), &key(n), RowId(n)));
    }
    while setup.tree.maintain(&setup.epochs.pin()) {}
    setup.memory.collect();
    assert!(height > 1 && setup.tree.height(&setup.epochs.pin()) == 1, "the tree keeps its levels");
    assert_eq!(setup.memory.bytes(), N);
    full_bytes
}

#[test]
fn grows_shrinks_and_gives_memory_back() {
    let keys = 60_000;
    let random = grow_and_shrink::<4096>(keys, |n| mix(n).to_be_bytes().to_vec());
    assert!(random < 25 * keys as usize, "{random} bytes for random keys");
    let ordered = grow_and_shrink::<4096>(keys, |n| n.to_be_bytes().to_vec());
    assert!(ordered < 35 * keys as usize / 2, "{ordered} bytes for ascending keys");
    grow_and_shrink::<512>(20_000, |n| mix(n).to_be_bytes().to_vec());
    grow_and_shrink::<512>(2_000, |n| {
        let mut key = vec![b'k'; 60 + (n % 7) as usize];
        key.extend(mix(n).to_be_bytes());
        key
    });
}

/// Many runs that grow at their ends, in turn, leave full leaves behind.
#[test]
fn interleaved_runs_leave_full_leaves() {
    let setup = setup::<4096>();
    let (runs, length) = (20u32, 2_000u32);
    for block in 0..length / 50 {
        for run in 0..runs {
            for n in block * 50..(block + 1) * 50 {
                let key = [run.to_be_bytes(), n.to_be_bytes()].concat();
                assert!(setup.tree.insert(&setup.epochs.pin(), &key, RowId(u64::from(n))).unwrap());
            }
        }
    }
    setup.verify();
    setup.memory.collect();
    let entries = (runs * length) as usize;
    assert!(setup.memory.bytes() < 20 * entries, "{} bytes an entry", setup.memory.bytes() / entries);
}

#[test]
fn one_key_with_many_rows() {
    let setup = setup::<512>();
    let rows = 3_000u64;
    for n in 0..rows {
        assert!(setup.tree.insert(&setup.epochs.pin(), b"the same", RowId(mix(n) >> 16)).unwrap());
        assert!(!setup.tree.insert(&setup.epochs.pin(), b"the same", RowId(mix(n) >> 16)).unwrap());
    }
    setup.verify();
    let mut expected: Vec<u64> = (0..rows).map(|n| mix(n) >> 16).collect();
    expected.sort_unstable();
    assert_eq!(setup.rows(b"the same"), expected);
    let mut calls = 0;
    let fifth = setup.tree.lookup(&setup.epochs.pin(), b"the same", |row| {
        calls += 1;
        if calls == 50 { ControlFlow::Break(row.0) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(fifth, Some(expected[49]));
}

#[test]
fn a_full_memory_is_an_error_and_changes_nothing() {
    for key_len in [8usize, 100] {
        let setup = setup_with_limit::<512>(20 << 10);
        let key = |n: u64| {
            let mut key = vec![b'k'; key_len - 8];
            key.extend(mix(n).to_be_bytes());
            key
        };
        let mut refused = Vec::new();
        let mut there = 0;
        for n in 0..2_000 {
            match setup.tree.insert(&setup.epochs.pin(), &key(n), RowId(n)) {
                Ok(new) => {
                    assert!(new);
                    there += 1;
                }
                Err(OutOfMemory) => refused.push(n),
            }
        }
        assert!(there > 80 && !refused.is_empty(), "{there} entries of {key_len} bytes");
        setup.verify();
        for n in 0..2_000 {
            assert_eq!(setup.rows(&key(n)).len(), usize::from(!refused.contains(&n)));
        }
        drop(setup.tree);
        setup.memory.collect();
        assert_eq!(setup.memory.bytes(), 0);
    }
}

#[test]
fn nodes_that_find_no_memory_stay() {
    let setup = setup_with_limit::<512>(40 * 512);
    let mut keys = 0;
    while setup.memory.bytes() < 36 * 512 {
        setup.tree.insert(&setup.epochs.pin(), &mix(keys).to_be_bytes(), RowId(keys)).unwrap();
        keys += 1;
        setup.memory.collect();
    }
    // The pin keeps the cells of what has moved, so there is soon no room.
    assert_eq!(setup.move_all(), Err(OutOfMemory));
    setup.verify();
    for key in 0..keys {
        assert_eq!(setup.rows(&mix(key).to_be_bytes()), [key]);
    }
    setup.memory.collect();
    let bytes = setup.memory.bytes() as u64 + size_of::<Tree<HeapMemory, 512>>() as u64;
    assert_eq!(setup.tree.memory_bytes(), bytes);
}

/// Stable keys are always found, by lookups and by scans in both directions, while others split and merge the nodes
/// around them, and one more moves all nodes.
#[test]
fn stable_entries_are_found_while_others_come_and_go() {
    let setup = setup::<512>();
    let stable = 300u64;
    let volatile = 6_000u64;
    // Few stable keys, spread among many volatile ones; every tenth is long.
    let key = |n: u64, writer: u64| {
        let mut key = mix(n).to_be_bytes().to_vec();
        key.push(writer as u8);
        if n.is_multiple_of(10) {
            key.extend([b'l'; 80]);
        }
        key
    };
    for n in 0..stable {
        setup.tree.insert(&setup.epochs.pin(), &key(n, 0), RowId(n)).unwrap();
    }
    let mut expected: Vec<_> = (0..stable).map(|n| (key(n, 0), n)).collect();
    expected.sort();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let setup = &setup;
        let writers: Vec<_> = (1..=2u64)
            .map(|writer| {
                scope.spawn(move || {
                    for round in 0..3 {
                        for n in 0..volatile {
                            let key = key(n, writer);
                            assert!(setup.tree.insert(&setup.epochs.pin(), &key, RowId(n + round)).unwrap());
                        }
                        for n in 0..volatile {
                            assert_eq!(setup.rows(&key(n, writer)), [n + round]);
                            assert!(setup.tree.remove(
                                &setup.epochs.pin(),
                                &key(n, writer),
                                RowId(n + round)
                            ));
                        }
                    }
                })
            })
            .collect();
        let done = &done;
        setup.memory.leaving.store(true, StdOrdering::Relaxed);
        scope.spawn(move || {
            while !done.load(StdOrdering::Relaxed) {
                let mut place = TreePlace::default();
                while setup.tree.move_nodes(&setup.epochs.pin(), &mut place, 5).unwrap() {}
            }
        });
        for direction in [Direction::Forward, Direction::Backward] {
            let expected = &expected;
            scope.spawn(move || {
                let mut batch = Batch::new();
                let mut at = 1;
                while !done.load(StdOrdering::Relaxed) {
                    let mut found = setup.scan(Bound::Unbounded, Bound::Unbounded, direction, &mut batch);
                    if direction == Direction::Backward {
                        found.reverse();
                    }
                    assert!(found.is_sorted_by(|a, b| a < b), "an entry came twice or out of order");
                    found.retain(|(key, _)| key[8] == 0);
                    assert_eq!(found.len(), expected.len(), "a stable entry was missed");
                    for _ in 0..100 {
                        at = mix(at);
                        assert_eq!(setup.rows(&key(at % stable, 0)), [at % stable]);
                    }
                }
            });
        }
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, StdOrdering::Relaxed);
    });
    while setup.tree.maintain(&setup.epochs.pin()) {}
    setup.verify();
    assert_eq!(setup.all(Direction::Forward), expected);
    setup.memory.collect();
    assert!(setup.memory.bytes() < 200_000, "{} bytes for {stable} entries", setup.memory.bytes());
    drop(setup.tree);
    setup.memory.collect();
    assert_eq!(setup.memory.bytes(), 0);
}
