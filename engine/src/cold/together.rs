//! Several reads of a store at the same time.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

/// Runs futures, in their order, so many at the same time; each is begun when it is its turn. What each came to, as they end.
pub(crate) async fn together<F: Future>(
    at_once: usize,
    mut futures: impl Iterator<Item = F>,
    mut see: impl FnMut(F::Output),
) {
    let mut under_way: Vec<Pin<Box<F>>> = Vec::with_capacity(at_once);
    poll_fn(|context| {
        let mut slot = 0;
        loop {
            if slot == under_way.len() {
                let next = if slot < at_once { futures.next() } else { None };
                match next {
                    Some(future) => under_way.push(Box::pin(future)),
                    None => break,
                }
            }
            match under_way[slot].as_mut().poll(context) {
                Poll::Pending => slot += 1,
                Poll::Ready(output) => {
                    see(output);
                    drop(under_way.swap_remove(slot));
                }
            }
        }
        if under_way.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
