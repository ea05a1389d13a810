//! The transaction that a writer has found in its way, and how often that had undone something before.

use crate::hot::version::TxnId;
use crate::mutation::{self, Rule};
use crate::txn::registry::Registry;

/// Who is in the way, and how often he had undone something *before* the look that found him there. A count that is read
/// after the look may cover the very undoing that has cleared the way, and the wait would be for nothing.
#[derive(Debug, Default)]
pub(crate) struct InTheWay(Option<(TxnId, u32)>);

impl InTheWay {
    /// A look has found `id` in the way: what to wait for. `None`: his count was not known before, look again.
    pub(crate) fn since(&mut self, id: TxnId, registry: &Registry) -> Option<u32> {
        match self.0 {
            Some((known, since)) if known == id => Some(since),
            _ if mutation::off(Rule::CountBeforeLook) => Some(registry.undone(id)),
            _ => {
                self.0 = Some((id, registry.undone(id)));
                None
            }
        }
    }
}
