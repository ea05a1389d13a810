//! Transactions: who is open, what each may see, what each has done, and which rows are locked.

pub(crate) mod bodies;
pub(crate) mod definitions;
pub(crate) mod in_the_way;
pub(crate) mod locks;
pub(crate) mod marks;
pub(crate) mod prune;
pub(crate) mod registry;
pub(crate) mod undurable;
pub(crate) mod visibility;
