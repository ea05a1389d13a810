//! How a server is set up: nothing has to be said.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Where a server listens, whom it lets in, and its limits.
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses to listen on.
    pub listen: Vec<SocketAddr>,
    /// Directory of the Unix socket; its name is PostgreSQL's, `.s.PGSQL.` and the port.
    pub socket_dir: Option<PathBuf>,
    /// Address that answers Prometheus.
    pub metrics: Option<SocketAddr>,
    /// Passwords by role. Empty: those on this machine are trusted, others refused.
    pub passwords: Passwords,
    /// Most clients at the same time.
    pub max_connections: usize,
    /// Longest message that a client may send, in bytes.
    pub max_message_bytes: usize,
    /// Threads that serve clients.
    pub threads: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 5433))],
            socket_dir: None,
            metrics: None,
            passwords: Passwords::default(),
            max_connections: 1000,
            max_message_bytes: 64 << 20,
            threads: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        }
    }
}

/// Passwords by role, which no debug output shows.
#[derive(Clone, Default)]
pub struct Passwords(HashMap<String, String>);

impl std::fmt::Debug for Passwords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Passwords {
    /// Reads lines `role:password`; empty lines and those that begin with `#` say nothing.
    ///
    /// # Errors
    /// The number of the line that is something else, and what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut all = HashMap::new();
        for (number, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let Some((role, password)) = line.split_once(':') else {
                return Err(format!("line {}: expected role:password", number + 1));
            };
            if role != crate::ROLE {
                return Err(format!("line {}: the only role is {}", number + 1, crate::ROLE));
            }
            if password.is_empty() {
                return Err(format!("line {}: the password is empty", number + 1));
            }
            all.insert(role.to_owned(), password.to_owned());
        }
        if all.is_empty() { Err("it has no line role:password".to_owned()) } else { Ok(Self(all)) }
    }

    /// Are there none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn of(&self, role: &str) -> Option<&str> {
        self.0.get(role).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::Passwords;

    #[test]
    fn a_password_file_says_which_line_is_wrong() {
        let good = Passwords::parse("# ours\n\npostgres:a:b\n").expect("it is well formed");
        assert_eq!(good.of("postgres"), Some("a:b"));
        assert!(!format!("{good:?}").contains("a:b"));
        assert_eq!(Passwords::parse("postgres").expect_err("no colon"), "line 1: expected role:password");
        assert_eq!(Passwords::parse("\nada:x").expect_err("a role"), "line 2: the only role is postgres");
        assert_eq!(Passwords::parse("postgres:").expect_err("empty"), "line 1: the password is empty");
        assert_eq!(Passwords::parse("").expect_err("nothing"), "it has no line role:password");
    }
}
