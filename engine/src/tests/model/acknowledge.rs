//! When a commit may be acknowledged (`interleavings.md`, 2): not before what it wrote, or may have read, is on disk.
//!
//! The futures are polled by hand, without a flusher, so that every commit waits until the test flushes.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::*;

type Commit = Pin<Box<dyn Future<Output = Result<()>>>>;

fn is_acknowledged(commit: &mut Commit) -> bool {
    match commit.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Pending => false,
        Poll::Ready(outcome) => {
            outcome.expect("the commit");
            true
        }
    }
}

/// A writer that changes row 1 and deletes row 2, and a reader who sees both. Who was acknowledged before the log was
/// flushed?
fn acknowledged_too_early(durability: Durability) -> Vec<&'static str> {
    let options = Options::default()
        .with_durability(durability)
        .with_log_buffer_bytes(8 << 20)
        .with_log_segment_bytes(1 << 20);
    let db = Database::open_with(Path::new("/db"), options, Arc::new(MemoryIo::new()), false)
        .expect("the options are fine");
    let world = World::create(db, |schema| schema);
    let log = world.db.inner().log().expect("it keeps a log");
    let flush = || log.flush_once().expect("memory does not fail");

    let mut tx = world.begin(Isolation::Snapshot);
    tx.insert(1, 10).expect("a fresh row");
    tx.insert(2, 20).expect("a fresh row");
    let mut rows: Commit = Box::pin(tx.tx.commit());
    let _ = is_acknowledged(&mut rows);
    flush();

    let mut writer = world.begin(Isolation::Snapshot);
    writer.set(1, 11).expect("nobody competes");
    writer.delete(2).expect("nobody competes");
    let mut writer: Commit = Box::pin(writer.tx.commit());
    let mut early = Vec::new();
    let written = is_acknowledged(&mut writer);
    if written {
        early.push("the writer");
    }
    let (mut reader, mut absence) = (world.begin(Isolation::Snapshot), world.begin(Isolation::Snapshot));
    assert_eq!(reader.read(1).expect("a read"), Some(11), "a commit is seen before it is on disk");
    assert_eq!(absence.read(2).expect("a read"), None, "a commit is seen before it is on disk");
    let mut readers: [(_, Commit); 2] = [
        ("who saw a row", Box::pin(reader.tx.commit())),
        ("who saw that there is none", Box::pin(absence.tx.commit())),
    ];
    let mut waiting = Vec::new();
    // A reader that tells what it has read before it commits.
    let asked = world.db.clone();
    let mut told: Commit = Box::pin(async move { asked.acknowledged().await });
    if is_acknowledged(&mut told) {
        early.push("who tells before");
    } else {
        waiting.push(&mut told);
    }
    for (who, commit) in &mut readers {
        if is_acknowledged(commit) {
            early.push(*who);
        } else {
            waiting.push(commit);
        }
    }
    flush();
    assert!(written || is_acknowledged(&mut writer), "it is on disk now");
    for commit in waiting {
        assert!(is_acknowledged(commit), "it is on disk now");
    }
    // A reader of what has long been on disk does not wait.
    let mut late = world.begin(Isolation::Snapshot);
    assert_eq!(late.read(1).expect("a read"), Some(11));
    let mut late: Commit = Box::pin(late.tx.commit());
    assert!(is_acknowledged(&mut late), "nothing is left to wait for");
    early
}

#[test]
fn nobody_is_told_of_what_is_not_on_disk() {
    for durability in [Durability::Sync, Durability::Group] {
        assert_eq!(acknowledged_too_early(durability), [""; 0]);
    }
    let all = ["the writer", "who tells before", "who saw a row", "who saw that there is none"];
    assert_eq!(acknowledged_too_early(Durability::Async), all, "that is what asynchronous commits are for");
}

#[test]
fn a_writer_that_does_not_wait_is_caught() {
    let _off = mutation::switch_off(Rule::AckAfterDurable);
    assert_eq!(acknowledged_too_early(Durability::Group), ["the writer"]);
}

#[test]
fn a_reader_that_does_not_wait_is_caught() {
    let _off = mutation::switch_off(Rule::ReadOnlyAckAfterDurable);
    let readers = ["who tells before", "who saw a row", "who saw that there is none"];
    assert_eq!(acknowledged_too_early(Durability::Group), readers);
}
