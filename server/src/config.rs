//! How a server is set up: nothing has to be said.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use pgwire::api::auth::sasl::scram::{ScramSecret, gen_salted_password};

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

/// What proves that a client knows a password, which it does not tell (RFC 5803).
#[derive(Clone)]
pub(crate) struct Verifier {
    pub(crate) salt: Vec<u8>,
    pub(crate) iterations: usize,
    pub(crate) stored_key: Vec<u8>,
    pub(crate) server_key: Vec<u8>,
}

/// Rounds of the key derivation of SCRAM (RFC 7677 §4).
const ITERATIONS: usize = 4096;
/// How verifiers begin, as PostgreSQL writes them.
const SCHEME: &str = "SCRAM-SHA-256$";

impl Verifier {
    /// Makes one, which takes a while.
    fn of(password: &str) -> Self {
        let salt = thermocline_base::rng::fresh_id().to_vec();
        let salted = gen_salted_password(password, &salt, ITERATIONS);
        match ScramSecret::verifier_from_salted_password(salt, salted, ITERATIONS) {
            ScramSecret::Verifier { salt, iterations, stored_key, server_key } => {
                Self { salt, iterations, stored_key, server_key }
            }
            ScramSecret::SaltedPassword { .. } => unreachable!("a verifier was asked for"),
        }
    }

    /// Reads `SCRAM-SHA-256$ROUNDS:SALT$STORED:SERVER`.
    fn parse(text: &str) -> Option<Self> {
        let (head, keys) = text.strip_prefix(SCHEME)?.split_once('$')?;
        let ((iterations, salt), (stored, server)) = (head.split_once(':')?, keys.split_once(':')?);
        let bytes = |text: &str| STANDARD.decode(text).ok();
        let iterations = iterations.parse().ok().filter(|count| *count > 0)?;
        let (salt, stored_key, server_key) = (bytes(salt)?, bytes(stored)?, bytes(server)?);
        let whole = !salt.is_empty() && stored_key.len() == 32 && server_key.len() == 32;
        whole.then_some(Self { salt, iterations, stored_key, server_key })
    }

    fn write(&self) -> String {
        let Self { salt, iterations, stored_key, server_key } = self;
        let [salt, stored, server] = [salt, stored_key, server_key].map(|bytes| STANDARD.encode(bytes));
        format!("{SCHEME}{iterations}:{salt}${stored}:{server}")
    }
}

/// Verifiers of passwords by role, which no debug output shows.
#[derive(Clone, Default)]
pub struct Passwords {
    all: HashMap<String, Verifier>,
    in_clear: bool,
}

impl std::fmt::Debug for Passwords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.all.keys()).finish()
    }
}

impl Passwords {
    /// Reads lines `role:VERIFIER`, or `role:password`; empty lines and those that begin with `#` say nothing.
    ///
    /// # Errors
    /// The number of the line that is something else, and what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut passwords = Self::default();
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
            let verifier = if password.starts_with(SCHEME) {
                let whole = Verifier::parse(password);
                whole.ok_or_else(|| format!("line {}: the verifier is none; write it anew", number + 1))?
            } else {
                passwords.in_clear = true;
                Verifier::of(password)
            };
            passwords.all.insert(role.to_owned(), verifier);
        }
        if passwords.is_empty() { Err("it has no line role:password".to_owned()) } else { Ok(passwords) }
    }

    /// The line of a password file that a client has to know this password for. The password does not stand in it.
    ///
    /// # Errors
    /// A password that is empty, or more than a line.
    pub fn line(password: &str) -> Result<String, &'static str> {
        if password.is_empty() {
            return Err("the password is empty");
        }
        if password.contains(['\n', '\r', '\0']) {
            return Err("a password is one line");
        }
        Ok(format!("{}:{}\n", crate::ROLE, Verifier::of(password).write()))
    }

    /// Are there none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Does the file say a password itself?
    #[must_use]
    pub fn in_clear(&self) -> bool {
        self.in_clear
    }

    pub(crate) fn of(&self, role: &str) -> Option<&Verifier> {
        self.all.get(role)
    }
}

#[cfg(test)]
mod tests {
    use super::{Passwords, Verifier};

    #[test]
    fn a_password_file_says_which_line_is_wrong() {
        let good = Passwords::parse("# ours\n\npostgres:a:b\n").expect("it is well formed");
        assert!(good.of("postgres").is_some() && good.of("ada").is_none() && good.in_clear());
        assert!(!format!("{good:?}").contains("a:b"));
        let wrong = |text: &str| Passwords::parse(text).expect_err(text);
        assert_eq!(wrong("postgres"), "line 1: expected role:password");
        assert_eq!(wrong("\nada:x"), "line 2: the only role is postgres");
        assert_eq!(wrong("postgres:"), "line 1: the password is empty");
        assert_eq!(wrong("postgres:SCRAM-SHA-256$4096:x"), "line 1: the verifier is none; write it anew");
        assert_eq!(wrong(""), "it has no line role:password");
    }

    /// The verifier of `pencil` is PostgreSQL 15's.
    #[test]
    fn verifiers_are_those_of_postgresql() {
        let line = Passwords::line("secret").expect("it is one line");
        assert!(!line.contains("secret"));
        let read = Passwords::parse(&line).expect("it is well formed");
        assert!(!read.in_clear());
        assert_eq!(format!("postgres:{}\n", read.of("postgres").expect("it is there").write()), line);
        assert!(Passwords::line("").is_err() && Passwords::line("a\nb").is_err());
        let theirs = "SCRAM-SHA-256$4096:Edp6HbR8Wy8mHT8OrhGnjw==$TbioDgQcEwXvmPMSkcPWzlK4BiuFg/xemYEju3Mr6dE=:WeziX2wM4tjWQy6Eo0DdrrkaI0klZuXuSDebRfQG0Qo=";
        let parsed = Verifier::parse(theirs).expect("it is well formed");
        assert_eq!(parsed.write(), theirs);
        assert_eq!(parsed.iterations, 4096);
        let salted = super::gen_salted_password("pencil", &parsed.salt, parsed.iterations);
        let same = super::ScramSecret::verifier_from_salted_password(parsed.salt, salted, 4096);
        let super::ScramSecret::Verifier { stored_key, server_key, .. } = same else { panic!("a verifier") };
        assert_eq!((stored_key, server_key), (parsed.stored_key, parsed.server_key));
    }
}
