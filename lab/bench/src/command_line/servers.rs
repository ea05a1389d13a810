//! Memory servers that a command uses: those at addresses, or processes that it starts.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use thermocline_base::clock::SystemClock;
use thermocline_remote::key::Key;
use thermocline_remote::pages::RemotePages;
use thermocline_remote::profile::{PROFILES, Profile, ProfileConnect};
use thermocline_remote::tcp::{Address, TcpConnect};
use thermocline_remote::transport::Connect;

use super::{Failure, values};

/// A process that ends when this is dropped, without doing anything more (SIGKILL on Unix).
pub struct KillOnDrop(pub Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Parses the name of a network whose speed is emulated.
///
/// # Errors
/// If there is none of this name.
pub fn profile(name: &str) -> Result<Profile, String> {
    let names = || PROFILES.map(|profile| profile.name).join(", ");
    Profile::named(name).ok_or_else(|| format!("{name:?} is no network of ours; name one of {}", names()))
}

/// Memory servers: where they are, their key, and those of them that were started.
pub type Servers = (Vec<Address>, Option<Key>, Vec<KillOnDrop>);

/// The servers of a list of addresses, or `spawn:N` of them started on sockets in a directory, with so much memory together and some to spare.
pub fn servers(list: &str, key_of: Option<&Path>, bytes: u64, dir: &Path) -> Result<Servers, Failure> {
    let (mut addresses, mut children) = (Vec::new(), Vec::new());
    if let Some(count) = list.strip_prefix("spawn:") {
        let count = values::few(count).map_err(Failure::Usage)?;
        for number in 0..count {
            let (child, address) =
                spawn(&dir.join(format!("server-{number}")), bytes / u64::from(count) + (128 << 20))?;
            children.push(child);
            addresses.push(address);
        }
        return Ok((addresses, None, children));
    }
    addresses
        .extend(RemotePages::addresses(list).map_err(|error| Failure::Usage(format!("--remote: {error}")))?);
    let key = key_of.map(Key::read).transpose().map_err(|error| Failure::Usage(error.to_string()))?;
    Ok((addresses, key, children))
}

/// Connections to them.
pub fn connects(
    addresses: &[Address],
    key: Option<&Key>,
    plain: bool,
    profile: Option<Profile>,
) -> Vec<Box<dyn Connect>> {
    let connect = |address: &Address| {
        let tcp = TcpConnect::new(address.clone(), key.cloned(), plain, Duration::from_secs(5));
        let connect: Box<dyn Connect> = match profile {
            Some(profile) => Box::new(ProfileConnect::new(Box::new(tcp), profile, Arc::new(SystemClock))),
            None => Box::new(tcp),
        };
        connect
    };
    addresses.iter().map(connect).collect()
}

/// Processor time of servers that were started, in microseconds.
pub fn cpu_of(children: &[KillOnDrop]) -> Option<f64> {
    children.iter().map(|child| cpu_us(&child.0)).sum::<Option<f64>>().filter(|_| !children.is_empty())
}

/// Starts a memory server on a unix socket, which needs no key, and hears from it where it listens.
fn spawn(socket: &Path, bytes: u64) -> Result<(KillOnDrop, Address), Failure> {
    let failed = |error: std::io::Error| Failure::Failed(format!("cannot start a memory server: {error}"));
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(["memory-server", "--unlocked", "--memory", &bytes.to_string()]);
    command
        .args(["--parent", &std::process::id().to_string()])
        .arg("--socket")
        .arg(socket)
        .stdout(Stdio::piped())
        .stdin(Stdio::null());
    let mut child = KillOnDrop(command.spawn().map_err(failed)?);
    let output =
        child.0.stdout.take().ok_or_else(|| Failure::Failed("a memory server has no output".to_owned()))?;
    for line in BufReader::new(output).lines() {
        if let Some(address) = line.map_err(failed)?.strip_prefix("listens on ") {
            return Ok((child, address.parse().map_err(Failure::Failed)?));
        }
    }
    Err(Failure::Failed("a memory server ended before it listened; it has said why".to_owned()))
}

/// Processor time of a child so far, where the system tells.
fn cpu_us(child: &Child) -> Option<f64> {
    let mut sum = None;
    for task in std::fs::read_dir(format!("/proc/{}/task", child.id())).ok()?.flatten() {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        let ns: f64 = text.split_whitespace().next()?.parse().ok()?;
        sum = Some(sum.unwrap_or(0.0) + ns / 1e3);
    }
    sum
}
