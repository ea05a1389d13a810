//! `thermocline memory-server`: memory of this machine for databases on others.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use thermocline_base::clock::{Clock, SystemClock};
use thermocline_remote::key::Key;
use thermocline_remote::server::{SEGMENT_BYTES, Server, ServerOptions};
use thermocline_remote::tcp::{Address, TcpConnect};

use super::Failure;
use super::values;

/// Options of `memory-server`.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Memory to export, in segments of 64 MiB, for instance 4GiB
    #[arg(long, value_name = "SIZE", value_parser = values::size, required_unless_present = "status")]
    memory: Option<u64>,
    /// Serve who proves the key, on this address
    #[arg(long, value_name = "HOST:PORT", value_parser = tcp)]
    listen: Vec<Address>,
    /// Serve processes of this user (with a key: who proves it) on this unix socket
    #[arg(long, value_name = "PATH")]
    socket: Vec<PathBuf>,
    /// The key that databases have, too: 64 hexadecimal digits in a file that only its owner may read
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Use huge pages
    #[arg(long)]
    huge: bool,
    /// Seconds without a sign of life after which a database's memory is taken back
    #[arg(long, default_value = "30", value_name = "SECONDS", value_parser = values::seconds)]
    grace: f64,
    /// Seconds that databases have to take their pages away when the server is ended
    #[arg(long, default_value = "60", value_name = "SECONDS", value_parser = values::seconds_or_zero)]
    drain: f64,
    /// Export memory that the system may page out
    #[arg(long)]
    unlocked: bool,
    /// Ask the server at the address what it exports and to how many, and end
    #[arg(long)]
    status: bool,
    /// End with this process, which has started the server, however it ends
    #[arg(long, hide = true, value_name = "PID")]
    parent: Option<i32>,
}

fn tcp(text: &str) -> Result<Address, String> {
    match text.parse()? {
        Address::Unix(_) => Err("a path is given by --socket".to_owned()),
        address @ Address::Tcp(_) => Ok(address),
    }
}

/// Has the system end this process when its parent has ended.
fn end_with(parent: i32) -> Result<(), Failure> {
    use rustix::process::{Pid, getppid};
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(|error| Failure::Failed(format!("cannot end with process {parent}: {error}")))?;
    // It may have ended before.
    if getppid() != Pid::from_raw(parent) {
        return Err(Failure::Failed(format!("process {parent}, which has started this server, has ended")));
    }
    Ok(())
}

/// Serves until it is ended.
pub fn run(arguments: &Arguments, quiet: bool) -> Result<(), Failure> {
    let key = match &arguments.key_file {
        Some(file) => Some(Key::read(file).map_err(|error| Failure::Usage(error.to_string()))?),
        None => None,
    };
    let sockets =
        arguments.socket.iter().map(|path| Address::Unix(std::path::absolute(path).unwrap_or(path.clone())));
    let listen: Vec<Address> = arguments.listen.iter().cloned().chain(sockets).collect();
    if arguments.status {
        let [address] = &listen[..] else {
            return Err(Failure::Usage(
                "--status asks one server: name its --listen HOST:PORT or its --socket".to_owned(),
            ));
        };
        let connect = TcpConnect::new(address.clone(), key, false, Duration::from_secs(5));
        let status = connect.status().map_err(|error| Failure::Failed(format!("{address}: {error}")))?;
        print!("{status}");
        return Ok(());
    }
    if let Some(parent) = arguments.parent {
        end_with(parent)?;
    }
    let ended = Arc::new(AtomicBool::new(false));
    let (signal, main) = (Arc::clone(&ended), std::thread::current());
    ctrlc::set_handler(move || {
        // The second one does not wait for anybody.
        if signal.swap(true, Ordering::AcqRel) {
            std::process::exit(130);
        }
        main.unpark();
    })
    .map_err(|error| Failure::Failed(format!("cannot listen for signals: {error}")))?;
    let options = ServerOptions {
        memory_bytes: arguments.memory.unwrap_or_default(),
        segment_bytes: SEGMENT_BYTES,
        listen,
        key,
        huge: arguments.huge,
        locked: !arguments.unlocked,
        grace: Duration::from_secs_f64(arguments.grace),
    };
    let server = Server::start(&options).map_err(|error| Failure::Usage(error.to_string()))?;
    let registered = server.registered();
    println!(
        "exports {} MiB in {} segments, {} and touched in {:.2} s",
        registered.bytes >> 20,
        registered.segments,
        if arguments.unlocked { "not locked" } else { "locked" },
        registered.us as f64 / 1e6
    );
    server.addresses().iter().for_each(|address| println!("listens on {address}"));
    while !ended.load(Ordering::Acquire) {
        std::thread::park();
    }
    server.drain();
    let deadline = SystemClock.now_ns() + (arguments.drain * 1e9) as u64;
    while server.leases() > 0 && SystemClock.now_ns() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    if !quiet {
        match server.leases() {
            0 => println!("ends; nobody has memory here"),
            left => println!("ends; {left} databases have not taken their pages away in time"),
        }
    }
    Ok(())
}
