//! Processor time by group of threads: the governor's, the store's, the clients'.
//!
//! The kernel tells the time and the name of each thread, of which it keeps 15 characters. Clients come and go with a run, so
//! their share is what is left of the process's time.

use std::collections::BTreeMap;
use std::fs;

/// The group that has what the others have not.
pub(crate) const CLIENTS: &str = "clients";

/// How the names of a group's threads begin.
const GROUPS: [(&str, &str); 15] = [
    ("thermocline-gov", "governor"),
    ("thermocline-cle", "cleaner"),
    ("thermocline-fre", "freezer"),
    ("thermocline-lea", "freezer"),
    ("thermocline-che", "checkpoint"),
    ("thermocline-mai", "maintenance"),
    ("thermocline-log", "log"),
    ("thermocline-ssd", "store"),
    ("store ", "store"),
    ("direct store", "store"),
    ("thermocline-io", "device"),
    ("thermocline-rea", "device"),
    ("thermocline-pro", "device"),
    ("thermocline-del", "device"),
    ("bench-", "benchmark"),
];

/// Nanoseconds that the threads of each group have used, those of clients aside. Empty where the kernel does not tell.
pub(crate) fn cpu_ns_by_group() -> BTreeMap<&'static str, u64> {
    let mut groups = BTreeMap::new();
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return groups };
    let process = std::process::id().to_string();
    for task in tasks.flatten() {
        // A thread that has ended in between says nothing.
        let read = |of: &str| fs::read_to_string(task.path().join(of)).ok();
        let (Some(name), Some(times)) = (read("comm"), read("schedstat")) else { continue };
        let ns: u64 = times.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0);
        let group = match task.file_name().to_str() == Some(&process) {
            true => Some("benchmark"),
            false => group_of(name.trim_end()),
        };
        if let Some(group) = group {
            *groups.entry(group).or_default() += ns;
        }
    }
    groups
}

/// The group of a thread; `None`: a client.
fn group_of(name: &str) -> Option<&'static str> {
    match GROUPS.iter().find(|(begin, _)| name.starts_with(begin)) {
        Some((_, group)) => Some(group),
        None if name.starts_with("client-") => None,
        None => Some("others"),
    }
}

/// Seconds of each group between two readings, and of the clients: what is left of `process_seconds`. Empty where the kernel
/// does not tell.
pub(crate) fn seconds_between(
    before: &BTreeMap<&'static str, u64>,
    after: &BTreeMap<&'static str, u64>,
    process_seconds: f64,
) -> BTreeMap<String, f64> {
    let mut seconds: BTreeMap<String, f64> = after
        .iter()
        .map(|(group, ns)| {
            let since = ns.saturating_sub(before.get(group).copied().unwrap_or(0));
            ((*group).to_owned(), since as f64 / 1e9)
        })
        .collect();
    if !seconds.is_empty() {
        let known: f64 = seconds.values().sum();
        seconds.insert(CLIENTS.to_owned(), (process_seconds - known).max(0.0));
    }
    seconds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_the_group_of_their_name() {
        let of = |name| group_of(name).unwrap_or(CLIENTS);
        let names = ["thermocline-governor", "thermocline-cle", "store work", "client-1", "tokio-runtime-w"];
        assert_eq!(names.map(of), ["governor", "cleaner", "store", CLIENTS, "others"]);
    }

    #[test]
    fn clients_have_what_is_left() {
        let before = BTreeMap::from([("governor", 1_000_000_000)]);
        let after = BTreeMap::from([("governor", 1_500_000_000), ("store", 250_000_000)]);
        let found = seconds_between(&before, &after, 2.0);
        assert_eq!(found["governor"], 0.5);
        assert_eq!(found["store"], 0.25);
        assert_eq!(found[CLIENTS], 1.25);
        assert!(seconds_between(&before, &BTreeMap::new(), 2.0).is_empty(), "the kernel does not tell");
    }
}
