//! Errors of SQL: PostgreSQL's code and words, the place in the statement, and what would help.

use std::fmt;
use std::num::NonZeroU32;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// The refusal of a statement. The fields are those that PostgreSQL's protocol sends to a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Error {
    /// SQLSTATE.
    pub code: &'static str,
    /// The message, in one line.
    pub message: String,
    /// Particulars: keys and values.
    pub detail: Option<String>,
    /// Advice.
    pub hint: Option<String>,
    /// The thing that it is about, where that is known.
    pub about: Option<Box<About>>,
    /// Where in the text of the statements, counted in characters from 1.
    pub position: Option<usize>,
    /// Where, in bytes from 1; becomes `position` once the text is at hand.
    at: Option<NonZeroU32>,
    /// The reason for which the statement may run again.
    again: Again,
}

/// A reason for which a statement runs again that has ended with an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Again {
    /// There is none.
    #[default]
    No,
    /// A definition has changed since the statement was bound.
    Rebind,
    /// A row has changed since the statement read it, and nothing tells where it is now.
    Stale,
    /// Another session holds an advisory lock.
    Lock,
}

/// The thing that an error is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// The work during which it happened: the line of a COPY.
    pub context: Option<String>,
    /// The table.
    pub table: Option<String>,
    /// Its column.
    pub column: Option<String>,
    /// The constraint that was violated.
    pub constraint: Option<String>,
    /// Which one of the rows that were inserted together it is about.
    pub(crate) row: Option<usize>,
}

impl Error {
    /// An error with this SQLSTATE and message.
    #[cold]
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), ..Self::default() }
    }

    /// Says where, unless that is known already.
    #[cold]
    pub(crate) fn at(mut self, at: u32) -> Self {
        // The place that is none becomes 0.
        self.at = self.at.or(NonZeroU32::new(at.wrapping_add(1)));
        self
    }

    /// Says that it stands where another error does.
    #[cold]
    pub(crate) fn at_that_of(mut self, other: &Self) -> Self {
        self.at = other.at;
        self
    }

    /// Forgets the place: it is one of a text that the user has not sent.
    #[cold]
    pub(crate) fn nowhere(mut self) -> Self {
        (self.at, self.position) = (None, None);
        self
    }

    /// Says for which reason the statement may run again.
    #[cold]
    pub(crate) fn again_as(mut self, again: Again) -> Self {
        self.again = again;
        self
    }

    /// The reason for which the statement may run again.
    pub(crate) fn again(&self) -> Again {
        self.again
    }

    /// Says what to do.
    #[cold]
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Says particulars.
    #[cold]
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// A thing of PostgreSQL's that is not there yet.
    #[cold]
    pub(crate) fn unsupported(what: impl fmt::Display) -> Self {
        Self::new("0A000", format!("{what} is not supported yet"))
    }

    fn about(&mut self) -> &mut About {
        self.about.get_or_insert_default()
    }

    /// Says what was done when it happened, unless that is known already.
    pub(crate) fn context(mut self, context: impl FnOnce() -> String) -> Self {
        self.about().context.get_or_insert_with(context);
        self
    }

    /// Says which one of the rows of an insert it is about.
    #[cold]
    pub(crate) fn row(mut self, row: usize) -> Self {
        self.about().row = Some(row);
        self
    }

    /// Says which table it is about.
    pub(crate) fn table(mut self, table: &str) -> Self {
        self.about().table = Some(table.to_owned());
        self
    }

    /// Says which column it is about.
    pub(crate) fn column(mut self, column: &str) -> Self {
        self.about().column = Some(column.to_owned());
        self
    }

    /// Says which constraint it is about.
    pub(crate) fn constraint(mut self, constraint: &str) -> Self {
        self.about().constraint = Some(constraint.to_owned());
        self
    }

    /// Counts the characters of `text` before the place.
    pub(crate) fn locate(mut self, text: &str) -> Self {
        if let Some(at) = self.at.take() {
            let before = text.get(..at.get() as usize - 1).unwrap_or(text);
            self.position = Some(before.chars().count() + 1);
        }
        self
    }
}

/// The place of what stands nowhere in the text.
pub(crate) const NOWHERE: u32 = u32::MAX;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<thermocline_engine::Error> for Error {
    fn from(error: thermocline_engine::Error) -> Self {
        use thermocline_engine::Error as Engine;
        match &error {
            Engine::DuplicateKey { index, key, table } => {
                Error::new("23505", format!("duplicate key value violates unique constraint \"{index}\""))
                    .detail(format!("Key {key} already exists."))
                    .table(table)
                    .constraint(index)
            }
            Engine::TransactionFailed => aborted(),
            Engine::LockTimeout { .. } => lock_timeout().detail(error.to_string()),
            _ => Error::new(error.sqlstate(), error.to_string()),
        }
    }
}

/// The end of a statement that has waited for a lock as long as `lock_timeout` lets it.
pub(crate) fn lock_timeout() -> Error {
    Error::new("55P03", "canceling statement due to lock timeout")
}

/// The refusal of every statement in a transaction that has failed.
pub(crate) fn aborted() -> Error {
    Error::new("25P02", "current transaction is aborted, commands ignored until end of transaction block")
}

/// The name among `names` that is nearest to `wanted`, if it is near: at most a third of its letters differ.
pub(crate) fn nearest<'n>(wanted: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let limit = (wanted.chars().count() / 3).max(1);
    let near = names.into_iter().map(|name| (distance(wanted, name), name));
    near.filter(|(far, _)| *far <= limit).min_by_key(|(far, _)| *far).map(|(_, name)| name)
}

/// Letters to change, add or leave out (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut before = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = before + usize::from(x != *y);
            before = row[j + 1];
            row[j + 1] = changed.min(before + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
