//! A read is of one moment: what is published after it began says nothing to it, in memory or not.

use std::sync::Arc;

use thermocline_base::io::MemoryIo;
use thermocline_base::multiplex::block_on;

use super::super::read::{Patience, Want};
use super::super::*;
use super::model::{dir, finish};

const INDEX: IndexId = IndexId { table: 1, index: 0 };
const KEY: &[u8] = b"key";

#[test]
fn a_read_sees_none_of_what_is_published_after_it_began() {
    for spills in [false, true] {
        let io = MemoryIo::new();
        let options = StoreOptions { memory_bytes: 32 << 10, threads: 0, ..StoreOptions::new([7; 16]) };
        let store: Arc<Store> = Store::open(Arc::new(io), dir(), options).expect("it opens");
        let put = |batch: &mut Batch, former: Option<u64>, record: &[u8]| {
            if let Some(former) = former {
                batch.remove(INDEX, KEY, BatchId(former), Removal::Last).expect("short");
            }
            batch.put(INDEX, KEY, record).expect("short");
        };
        let mut one = Batch::confirmed(BatchId(1));
        put(&mut one, None, b"one");
        finish(&store, store.write(one)).expect("written");
        // One that is not decided, in memory or as a piece of its own.
        let mut two = Batch::new(BatchId(2));
        put(&mut two, Some(1), b"two");
        for number in 0..if spills { 15_000_u64 } else { 0 } {
            two.put(INDEX, &number.to_be_bytes(), &[2; 60]).expect("short");
        }
        finish(&store, store.write(two)).expect("written");
        if spills {
            while store.step(Step::Work) {}
        }
        let waits_in_memory =
            |waiting: &version::WaitingBatch| matches!(waiting, version::WaitingBatch::Memory { .. });
        let (version, published) = store.inner.moment();
        assert_eq!(version.waiting.iter().any(waits_in_memory), !spills);
        let expected =
            [Found::new(BatchId(2), false, b"two".to_vec()), Found::new(BatchId(1), true, b"one".to_vec())];
        let read = || {
            let read =
                store.inner.get_in((&version, published), INDEX.as_u64(), KEY, (Want::All, Patience::Waits));
            block_on(read).expect("readable").expect("it waits")
        };
        assert_eq!(read(), expected);
        finish(&store, store.confirm(BatchId(2))).expect("it waits");
        let mut three = Batch::confirmed(BatchId(3));
        put(&mut three, Some(2), b"three");
        finish(&store, store.write(three)).expect("written");
        assert_eq!(read(), expected, "spills: {spills}");
        let now = finish(&store, store.get(INDEX, KEY)).expect("readable");
        assert_eq!(now, [Found::new(BatchId(3), true, b"three".to_vec())]);
    }
}
