//! The measuring of temperatures, made when memory begins to be short.

use std::sync::OnceLock;

use crate::pressure::Warmth;

/// See the module.
#[derive(Default)]
pub(crate) struct Warm(OnceLock<Warmth>);

impl Warm {
    /// The measuring, if it has begun.
    #[inline]
    pub(crate) fn get(&self) -> Option<&Warmth> {
        self.0.get()
    }

    /// The measuring; `begin` makes it if it has not begun.
    pub(crate) fn get_or_begin(&self, begin: impl FnOnce() -> Warmth) -> &Warmth {
        self.0.get_or_init(begin)
    }
}
