//! Options that say where the rows of tables may go, and which pager pages those that are paged.

use std::path::PathBuf;

use crate::settings::Paging;
use clap::Args;
use thermocline_engine::{Options, PagerKind, Tiering};
use thermocline_remote::key::Key;
use thermocline_remote::pages::{Copies, RemotePages};
use thermocline_remote::profile::Profile;

use super::Failure;
use super::data_dir::DataDir;
use super::servers;
use super::values;

/// Memory of servers that are started, together, if nothing else is said.
const STARTED_BYTES: u64 = 2 << 30;

/// A pager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pager {
    Engine(PagerKind),
    /// `own`, with memory of other machines.
    Remote,
}

impl Pager {
    fn name(self) -> String {
        match self {
            Self::Engine(kind) => kind.to_string(),
            Self::Remote => "remote".to_owned(),
        }
    }
}

/// See the module.
#[derive(Debug, Args)]
pub struct PagingArguments {
    /// Where the rows of all tables may go: auto, hot, cold, frozen, paged [default: the engine's own]
    #[arg(long, value_name = "NAME", value_parser = tiering, hide_short_help = true)]
    tiering: Option<Tiering>,
    /// Who pages the rows of paged tables: own, os, or remote: own, with the pages on memory servers
    #[arg(long, value_name = "own|os|remote", value_parser = pager, hide_short_help = true)]
    pager: Option<Pager>,
    /// Make the file of pages in this directory [default: the database's own]
    #[arg(long, value_name = "DIR", hide_short_help = true)]
    paged_dir: Option<PathBuf>,
    /// Memory for pages, of the memory limit [default: the engine's own]
    #[arg(long, value_name = "SIZE", value_parser = values::size, hide_short_help = true)]
    paged_bytes: Option<u64>,
    /// Memory servers that keep copies of pages: addresses, or spawn:N to start N of them for this [default with --pager remote: spawn:1]
    #[arg(long, value_name = "ADDRESS,…|spawn:N", hide_short_help = true)]
    remote: Option<String>,
    /// The key of the servers
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    remote_key: Option<PathBuf>,
    /// Memory of the servers, together [default: 2GiB of those that are started, all that others have]
    #[arg(long, value_name = "SIZE", value_parser = values::size, hide_short_help = true)]
    remote_bytes: Option<u64>,
    /// Places of each page: local (a file of this machine, and copies on servers), 1 or 2 servers alone [default: local]
    #[arg(long, value_name = "local|1|2", value_parser = copies, hide_short_help = true)]
    remote_copies: Option<Copies>,
    /// Authenticate, but never encrypt; needs --remote-seal
    #[arg(long, requires = "remote_seal", hide_short_help = true)]
    remote_plain: bool,
    /// Give the servers pages that they cannot read
    #[arg(long, hide_short_help = true)]
    remote_seal: bool,
    /// Have the servers answer as over a network: ib-2007, rdma-100g, ethernet-25g, ethernet-1g (emulated)
    #[arg(long, value_name = "NAME", value_parser = servers::profile, hide_short_help = true)]
    remote_profile: Option<Profile>,
}

fn tiering(name: &str) -> Result<Tiering, String> {
    name.parse().map_err(|error: thermocline_engine::Error| error.to_string())
}

fn pager(name: &str) -> Result<Pager, String> {
    if name == "remote" {
        return Ok(Pager::Remote);
    }
    let kind: Result<PagerKind, _> = name.parse();
    kind.map(Pager::Engine).map_err(|_| format!("{name:?} is not one of own, os, remote"))
}

fn copies(name: &str) -> Result<Copies, String> {
    name.parse()
}

/// Memory servers, and those of them that end with this.
pub struct Servers {
    pages: RemotePages,
    /// The most that is wanted of them.
    bytes: Option<u64>,
    _started: Vec<servers::KillOnDrop>,
    /// The sockets of servers that are started.
    _sockets: DataDir,
}

impl Servers {
    /// These options, with the memory of the servers, for a database that is opened once.
    ///
    /// # Errors
    /// They are not reached.
    pub fn lend(&self, options: Options) -> Result<Options, String> {
        let file = self.pages.open()?;
        if self.pages.copies != Copies::Local {
            return Ok(options.with_paged_file(Some(file)));
        }
        let room = file.room_bytes();
        let bytes = self.bytes.unwrap_or(room);
        if bytes > room {
            eprintln!("the memory servers lend {room} bytes, and not {bytes}");
        }
        Ok(options.with_lent_file(Some(file)).with_lent_bytes(bytes.min(room)))
    }
}

impl PagingArguments {
    /// The settings of a run.
    pub fn settings(&self) -> Paging {
        let is_remote = self.has_servers();
        Paging {
            tiering: self.tiering.map(|tiering| tiering.to_string()),
            pager: self.pager.map(Pager::name),
            paged_dir: self
                .paged_dir
                .as_ref()
                .map(|dir| std::path::absolute(dir).unwrap_or_else(|_| dir.clone())),
            paged_bytes: self.paged_bytes,
            remote: is_remote.then(|| self.remote().to_owned()),
            remote_copies: is_remote.then(|| self.copies().to_string()),
            remote_profile: self.remote_profile.filter(|_| is_remote).map(|profile| profile.name.to_owned()),
        }
    }

    /// The options of a database with these, and its memory servers, which have to be there as long as it is open.
    ///
    /// # Errors
    /// An option does not fit the others; servers are not reached.
    pub fn options(&self, options: Options) -> Result<(Options, Option<Servers>), Failure> {
        let options = self.settings().within(options).map_err(Failure::Usage)?;
        match self.servers()? {
            Some(servers) => Ok((servers.lend(options).map_err(Failure::Failed)?, Some(servers))),
            None => Ok((options, None)),
        }
    }

    /// The memory servers of a database, if it has any; started where that is asked for.
    ///
    /// # Errors
    /// An option does not fit the others; servers cannot be started.
    pub fn servers(&self) -> Result<Option<Servers>, Failure> {
        if !self.has_servers() {
            return match self.of_servers() {
                Some(name) => Err(Failure::Usage(format!("{name} says nothing without --remote"))),
                None => Ok(None),
            };
        }
        if self.pager != Some(Pager::Remote) && self.copies() != Copies::Local {
            let copies = self.copies();
            return Err(Failure::Usage(format!(
                "--remote-copies {copies} has pages on servers alone, which those of paged tables can be: that needs --pager remote"
            )));
        }
        let sockets = DataDir::prepare(None)?;
        let bytes = self.remote_bytes.unwrap_or(STARTED_BYTES);
        let (addresses, key, started): (_, Option<Key>, _) =
            servers::servers(self.remote(), self.remote_key.as_deref(), bytes, sockets.path())?;
        let pages = RemotePages {
            servers: addresses,
            key,
            copies: self.copies(),
            plain: self.remote_plain,
            sealed: self.remote_seal,
            profile: self.remote_profile,
        };
        Ok(Some(Servers { pages, bytes: self.remote_bytes, _started: started, _sockets: sockets }))
    }

    fn has_servers(&self) -> bool {
        self.pager == Some(Pager::Remote) || self.remote.is_some()
    }

    /// An option that is given and is about memory servers.
    fn of_servers(&self) -> Option<&'static str> {
        let given = [
            (self.remote_key.is_some(), "--remote-key"),
            (self.remote_bytes.is_some(), "--remote-bytes"),
            (self.remote_copies.is_some(), "--remote-copies"),
            (self.remote_plain, "--remote-plain"),
            (self.remote_seal, "--remote-seal"),
            (self.remote_profile.is_some(), "--remote-profile"),
        ];
        given.into_iter().find_map(|(is_given, name)| is_given.then_some(name))
    }

    fn remote(&self) -> &str {
        self.remote.as_deref().unwrap_or("spawn:1")
    }

    fn copies(&self) -> Copies {
        self.remote_copies.unwrap_or(Copies::Local)
    }
}
