//! `thermocline serve`: a database for clients of PostgreSQL; `thermocline passwd`: the file with their password.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use thermocline_bench::command_line::paging::PagingArguments;
use thermocline_bench::command_line::{Failure, values};
use thermocline_engine::{Database, Durability, Options};
use thermocline_server::{Config, Ends, Passwords, Server};

/// Options of `serve`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Directory of the database; made if it is not there
    #[arg(long, value_name = "DIR", default_value = "thermocline-data")]
    data_dir: PathBuf,
    /// Address to listen on; several are possible
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:5433")]
    listen: Vec<SocketAddr>,
    /// Directory of a Unix socket
    #[arg(long, value_name = "DIR")]
    socket_dir: Option<PathBuf>,
    /// Most memory for rows and indexes; rows that do not fit go to disk
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    memory_limit: Option<u64>,
    /// When a commit counts: group (on disk), async (soon on disk), off (at a clean end)
    #[arg(long, value_name = "WHEN")]
    durability: Option<Durability>,
    /// File with a line role:password; then every client has to know its password, and may come from other machines
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Most clients at the same time
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    max_connections: usize,
    /// Address that answers Prometheus; one of this machine's own, unless --metrics-for-others is given
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<SocketAddr>,
    /// Other machines may read what Prometheus is told, without a password
    #[arg(long, requires = "metrics")]
    metrics_for_others: bool,
    #[command(flatten)]
    paging: PagingArguments,
}

/// Options of `passwd`.
#[derive(Debug, Args)]
pub(crate) struct Passwd {
    /// The password file; what it says is replaced
    file: PathBuf,
}

/// Reads a password file that only its owner may read.
fn read_passwords(path: &Path) -> Result<Passwords, Failure> {
    use std::os::unix::fs::PermissionsExt;
    let shown = path.display();
    let unread = |error: std::io::Error| Failure::Usage(format!("cannot read {shown}: {error}"));
    let mode = std::fs::metadata(path).map_err(unread)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let message = format!("others may read {shown} (its mode is {mode:04o}); say chmod 600 {shown}");
        return Err(Failure::Usage(message));
    }
    let text = std::fs::read_to_string(path).map_err(unread)?;
    let passwords = Passwords::parse(&text).map_err(|error| Failure::Usage(format!("{shown}: {error}")))?;
    if passwords.in_clear() {
        tracing::warn!(
            "{shown} says a password in clear; `thermocline passwd {shown}` writes what proves it instead"
        );
    }
    Ok(passwords)
}

/// Writes a password file that only its owner may read.
pub(crate) fn passwd(arguments: &Passwd) -> Result<(), Failure> {
    use std::io::{IsTerminal, Write};
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
    let path = &arguments.file;
    let mut password = String::new();
    if std::io::stdin().is_terminal() {
        eprint!("The password of {} (it is shown): ", thermocline_server::ROLE);
    }
    std::io::stdin()
        .read_line(&mut password)
        .map_err(|error| Failure::Failed(format!("cannot read a password: {error}")))?;
    let line = Passwords::line(password.trim_end_matches(['\n', '\r']))
        .map_err(|error| Failure::Usage(error.to_owned()))?;
    let write = || {
        let mut file =
            std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        file.set_permissions(std::fs::Permissions::from_mode(0o600))?;
        file.write_all(line.as_bytes())?;
        file.sync_all()
    };
    write()
        .map_err(|error: std::io::Error| Failure::Failed(format!("cannot write {}: {error}", path.display())))
}

/// Serves a database until a signal ends the process.
pub(crate) fn run(arguments: Serve) -> Result<(), Failure> {
    thermocline_server::tell_panics_in_a_line();
    thermocline_server::allow_all_files();
    let passwords = match &arguments.password_file {
        Some(path) => read_passwords(path)?,
        None => Passwords::default(),
    };
    if let Some(wide) = arguments.metrics.filter(|address| !address.ip().is_loopback())
        && !arguments.metrics_for_others
    {
        return Err(Failure::Usage(format!(
            "other machines would read metrics at {wide}; that needs --metrics-for-others"
        )));
    }
    if passwords.is_empty()
        && let Some(wide) = arguments.listen.iter().find(|address| !address.ip().is_loopback())
    {
        return Err(Failure::Usage(format!(
            "{wide} can be reached from other machines; that needs --password-file"
        )));
    }
    let dir = &arguments.data_dir;
    let mut options = Options::default().with_memory_limit(arguments.memory_limit);
    if let Some(durability) = arguments.durability {
        options = options.with_durability(durability);
    }
    // They are asked for longer than the database is open.
    let (options, _servers) = arguments.paging.options(options)?;
    let open = || {
        let kind = if dir.is_dir() { Database::cold_store_in(dir)? } else { None };
        let kind = kind.unwrap_or(options.cold_store);
        Database::open(dir, options.clone().with_cold_store(kind))
    };
    let db = open().map_err(|error| Failure::Failed(format!("cannot open {}: {error}", dir.display())))?;
    let config = Config {
        listen: arguments.listen,
        socket_dir: arguments.socket_dir,
        metrics: arguments.metrics,
        passwords,
        max_connections: arguments.max_connections,
        ..Config::default()
    };
    // Before the server says that it listens: a reader of that may ask it to end at once.
    let ends = Ends::heard().map_err(|error| Failure::Failed(format!("cannot hear signals: {error}")))?;
    let server = Server::start(db, config).map_err(|error| Failure::Failed(error.to_string()))?;
    for address in server.addresses() {
        tracing::info!(%address, "listening; psql -h {} -p {} -U postgres", address.ip(), address.port());
    }
    if let Some(socket) = server.socket() {
        tracing::info!(socket = %socket.display(), "listening");
    }
    ends.wait();
    tracing::info!("ending: connections are closed, the database too; a second signal ends at once");
    server.stop().map_err(|error| Failure::Failed(format!("cannot close the database: {error}")))
}
