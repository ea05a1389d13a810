//! Memory servers as processes: what they say, what they refuse, and kill -9 of either side.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::sync::Arc;
use std::time::Duration;

use thermocline_base::clock::SystemClock;
use thermocline_remote::client::{Client, ClientOptions, Event, PageError};
use thermocline_remote::tcp::{Address, TcpConnect};
use thermocline_remote::transport::Connect;

use crate::{command, directory, errors, lab, results};

/// A server on a unix socket.
pub(crate) struct Process {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Process {
    pub(crate) fn start(dir: &Path, socket: &str, grace: &str) -> Self {
        let path = dir.join(socket);
        let arguments = [
            "memory-server",
            "--unlocked",
            "--memory",
            "64MiB",
            "--grace",
            grace,
            "--socket",
            path.to_str().expect("UTF-8"),
        ];
        let mut child = command(dir, &arguments).stdout(Stdio::piped()).spawn().expect("the binary starts");
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        let mut lines = [String::new(), String::new()];
        lines.iter_mut().for_each(|line| {
            output.read_line(line).expect("text");
        });
        assert!(
            lines[0].starts_with("exports 64 MiB in 1 segments, not locked and touched in "),
            "{lines:?}"
        );
        assert!(lines[1].starts_with("listens on /"), "{lines:?}");
        Self { child, output }
    }

    /// It hangs from now on.
    pub(crate) fn stop(&self) {
        self.signal(rustix::process::Signal::STOP);
    }

    /// It no longer hangs.
    pub(crate) fn go_on(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let child = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(child, signal).expect("it runs");
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it was ours");
    }
}

/// A server does not outlive its test: whoever waits for the end of the test's output would wait for the server's, too.
impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already; if it cannot be killed, there is no caller to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn connect(dir: &Path, socket: &str) -> Box<dyn Connect> {
    Box::new(TcpConnect::new(Address::Unix(dir.join(socket)), None, false, Duration::from_secs(60)))
}

fn page(number: u64) -> Arc<[u8]> {
    (0..512_u64).flat_map(|word| (number * 512 + word).to_le_bytes()).collect()
}

#[test]
fn a_server_says_what_it_exports_and_ends_when_it_is_told() {
    let dir = directory();
    let mut server = Process::start(dir.path(), "socket", "3600");
    let path = dir.path().join("socket");
    let status = || lab(&["memory-server", "--status", "--socket", path.to_str().expect("UTF-8")]);
    let mut client =
        Client::new(ClientOptions::default(), Arc::new(SystemClock), vec![connect(dir.path(), "socket")]);
    while client.statistics().leases < 1 || !results(&status()).contains("leases: 1") {
        client.drive(Duration::from_millis(10));
    }
    client.close();
    while !results(&status()).contains("leases: 0") {
        std::thread::yield_now();
    }
    let pid = rustix::process::Pid::from_child(&server.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    let mut said = String::new();
    server.output.read_line(&mut said).expect("text");
    assert_eq!(said, "ends; nobody has memory here\n");
    assert!(server.child.wait().expect("it was ours").success());
    let output = status();
    assert_eq!(output.status.code(), Some(1), "{}", errors(&output));
    assert!(!path.exists());
}

#[test]
fn servers_that_cannot_be() {
    let dir = directory();
    let key = dir.path().join("key");
    std::fs::write(&key, "no key").expect("a file");
    let key = key.to_str().expect("UTF-8");
    let cases: [(&[&str], &str); 6] = [
        (&["memory-server"], "--memory"),
        (&["memory-server", "--memory", "64MiB"], "--listen HOST:PORT or --socket PATH"),
        (&["memory-server", "--memory", "1MiB", "--socket", "/nowhere/socket"], "/nowhere/socket"),
        (&["memory-server", "--memory", "64MiB", "--listen", "0.0.0.0:0"], "--key-file"),
        (&["memory-server", "--memory", "64MiB", "--listen", "127.0.0.1:0", "--key-file", key], "key"),
        (&["bench", "remote", "--remote", "/a,/a"], "twice"),
    ];
    for (arguments, said) in cases {
        let output = lab(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", errors(&output));
        assert!(errors(&output).contains(said), "{arguments:?}: no {said:?} in {}", errors(&output));
    }
}

#[test]
#[ignore = "kills processes for a minute or more: .ci/deep remote"]
fn servers_are_killed_and_no_page_is_lost() {
    let dir = directory();
    let names = ["one", "two", "three"];
    let mut servers: Vec<Option<Process>> =
        names.iter().map(|name| Some(Process::start(dir.path(), name, "3600"))).collect();
    let options = ClientOptions {
        copies: 2,
        batch_ns: 0,
        timeout_ns: 5_000_000_000,
        retry_ns: 1_000_000,
        ..ClientOptions::default()
    };
    let connects = names.iter().map(|name| connect(dir.path(), name)).collect();
    let mut client = Client::new(options, Arc::new(SystemClock), connects);
    let mut out: Vec<(u64, u64)> = Vec::new();
    let mut next = 0;
    for round in 0..rounds() {
        while client.statistics().leases < 3 || client.statistics().short_pages > 0 {
            client.drive(Duration::from_millis(5));
        }
        // Something is on its way, in both directions, while a server is killed.
        let mut going: Vec<_> = (0..50)
            .map(|_| {
                next += 1;
                (client.page_out(page(next)), next)
            })
            .collect();
        let mut coming: Vec<_> = out.iter().map(|(slot, number)| (client.page_in(*slot), *number)).collect();
        client.drive(Duration::ZERO);
        let at = (round % 3) as usize;
        servers[at].take().expect("it was started again").kill();
        while !going.is_empty() || !coming.is_empty() {
            client.drive(Duration::from_millis(5));
            while let Some(event) = client.event() {
                match event {
                    Event::Out { ticket, slot } => {
                        let at = going.iter().position(|(asked, _)| *asked == ticket).expect("sent");
                        out.push((slot, going.swap_remove(at).1));
                    }
                    Event::In { ticket, bytes } => {
                        let at = coming.iter().position(|(asked, _)| *asked == ticket).expect("asked for");
                        assert_eq!(bytes, page(coming.swap_remove(at).1));
                    }
                    Event::Failed { ticket, error } => {
                        assert_eq!(error, PageError::Full, "round {round}");
                        going.retain(|(asked, _)| *asked != ticket);
                    }
                }
            }
        }
        servers[at] = Some(Process::start(dir.path(), names[at], "3600"));
        while out.len() > 500 {
            client.free(out.swap_remove(round as usize % out.len()).0);
        }
    }
    assert!(client.statistics().lost_servers >= rounds(), "{:?}", client.statistics());
    servers.into_iter().flatten().for_each(Process::kill);
}

#[test]
#[ignore = "kills processes for a minute or more: .ci/deep remote"]
fn clients_are_killed_and_no_server_keeps_their_memory() {
    let dir = directory();
    let server = Process::start(dir.path(), "socket", "0.2");
    let path = dir.path().join("socket");
    let path = path.to_str().expect("UTF-8");
    let status = || results(&lab(&["memory-server", "--status", "--socket", path]));
    for round in 0..rounds() {
        let temporary = directory();
        let mut client = command(temporary.path(), &["bench", "remote", "--remote", path, "--pages", "5000"])
            .stdout(Stdio::null())
            .spawn()
            .expect("the binary starts");
        while !status().contains("leases: 1") {
            assert!(
                client.try_wait().expect("it is ours").is_none(),
                "round {round}: it was to be killed first"
            );
        }
        client.kill().expect("it runs");
        client.wait().expect("it was ours");
        while !status().contains("leases: 0") || !status().contains("0 to be zeroed, 1 free") {
            std::thread::yield_now();
        }
    }
    server.kill();
}

fn rounds() -> u64 {
    std::env::var("THERMOCLINE_KILL_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(60)
}
