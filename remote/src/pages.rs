//! The memory servers that a database is given, and the file of pages that is made of them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use thermocline_base::clock::{Clock, SystemClock};

use crate::client::ClientOptions;
use crate::file::{RemoteFile, RemoteOptions};
use crate::key::Key;
use crate::profile::{Profile, ProfileConnect};
use crate::tcp::{Address, TcpConnect};
use crate::transport::Connect;

/// Time that a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(5);

/// In how many places each page is that is not in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Copies {
    /// In a file of this machine, and as long as there is room on a server, which is read first: the level below the frames of paged
    /// tables and of the cold store.
    #[default]
    Local,
    /// On one server: what is lost with it is made again from images and log, at the next opening.
    One,
    /// On two servers.
    Two,
}

impl FromStr for Copies {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "local" => Ok(Self::Local),
            "1" => Ok(Self::One),
            "2" => Ok(Self::Two),
            other => Err(format!("{other:?} is not one of local, 1, 2")),
        }
    }
}

impl fmt::Display for Copies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Local => "local",
            Self::One => "1",
            Self::Two => "2",
        })
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct RemotePages {
    /// Where the servers are.
    pub servers: Vec<Address>,
    /// The secret that they and this process have in common.
    pub key: Option<Key>,
    /// Places of each page.
    pub copies: Copies,
    /// Authenticate, but never encrypt what is sent. Only where pages are [sealed](Self::sealed): nothing else protects them on their way.
    pub plain: bool,
    /// Give the servers pages that they cannot read.
    pub sealed: bool,
    /// Have the servers answer as over this network.
    pub profile: Option<Profile>,
}

impl RemotePages {
    /// Reads a list of addresses, separated by commas.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn addresses(list: &str) -> Result<Vec<Address>, String> {
        let mut addresses = Vec::new();
        for text in list.split(',') {
            let address: Address = text.trim().parse()?;
            if addresses.contains(&address) {
                return Err(format!("{address} is named twice"));
            }
            addresses.push(address);
        }
        Ok(addresses)
    }

    /// Connects to the servers; for one opening of a database.
    ///
    /// # Errors
    /// The servers that were not reached and why; pages that would be sent in clear.
    pub fn open(&self) -> Result<Arc<RemoteFile>, String> {
        if self.plain && !self.sealed {
            return Err("pages that are neither encrypted nor sealed can be read and changed on their way; seal them, or \
                        have them encrypted"
                .to_owned());
        }
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let connect = |address: &Address| -> Box<dyn Connect> {
            let tcp = TcpConnect::new(address.clone(), self.key.clone(), self.plain, CONNECT);
            match self.profile {
                Some(profile) => Box::new(ProfileConnect::new(Box::new(tcp), profile, Arc::clone(&clock))),
                None => Box::new(tcp),
            }
        };
        let client = ClientOptions {
            copies: if self.copies == Copies::Two { 2 } else { 1 },
            elsewhere: self.copies == Copies::Local,
            sealed: self.sealed,
            ..RemoteOptions::default().client
        };
        let options = RemoteOptions { client, ..RemoteOptions::default() };
        let servers = self.servers.iter().map(connect).collect();
        RemoteFile::open(options, &clock, servers).map(Arc::new).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_once() {
        let two = RemotePages::addresses("a:1, /run/b").expect("two");
        assert_eq!(two.iter().map(ToString::to_string).collect::<Vec<_>>(), ["a:1", "/run/b"]);
        assert!(RemotePages::addresses("a:1,a:1").expect_err("twice").contains("twice"));
        assert!(RemotePages::addresses("nowhere").expect_err("no port").contains("HOST:PORT"));
        let in_clear = RemotePages {
            servers: two,
            key: None,
            copies: Copies::One,
            plain: true,
            sealed: false,
            profile: None,
        };
        let refused = in_clear.open().map(|_| ()).expect_err("anybody could change them");
        assert!(refused.contains("seal them"), "{refused}");
        for name in ["local", "1", "2"] {
            assert_eq!(name.parse::<Copies>().expect("known").to_string(), name);
        }
        assert!("3".parse::<Copies>().is_err());
    }
}
