//! Facts of the machine that a result was measured on, and the memory that the process uses.
//!
//! Everything here comes from `/proc`; where there is none, numbers are absent and names say so.

use std::path::Path;

use serde::Serialize;

/// The machine of a result.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// Logical processors that this process may use.
    pub cores: usize,
    /// The operating system and its version.
    pub kernel: String,
    /// Physical memory.
    pub memory_bytes: Option<u64>,
}

impl Machine {
    /// The machine that we run on.
    #[must_use]
    pub fn here() -> Self {
        let cpu = read("/proc/cpuinfo").lines().find_map(|line| line.strip_prefix("model name")).map_or_else(
            || std::env::consts::ARCH.to_owned(),
            |rest| rest.trim_start_matches([' ', '\t', ':']).to_owned(),
        );
        let release = read("/proc/sys/kernel/osrelease");
        Self {
            cpu,
            cores: cores(),
            kernel: format!("{} {}", std::env::consts::OS, release.trim()).trim_end().to_owned(),
            memory_bytes: kibibytes("/proc/meminfo", "MemTotal:"),
        }
    }
}

/// Logical processors that this process may use.
#[must_use]
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Memory that could be taken without pushing anything else out.
#[must_use]
pub fn memory_available_bytes() -> Option<u64> {
    kibibytes("/proc/meminfo", "MemAvailable:")
}

/// The resident memory of this process.
#[must_use]
pub fn rss_bytes() -> Option<u64> {
    kibibytes("/proc/self/status", "VmRSS:")
}

/// The highest resident memory of this process since it started, or since [`forget_rss_max`].
#[must_use]
pub fn rss_bytes_max() -> Option<u64> {
    kibibytes("/proc/self/status", "VmHWM:")
}

/// Makes the kernel forget the highest resident memory so far, so that what was measured before a run (the
/// calibration takes up to 1 GiB) is not charged to it. `false` if the kernel does not let us.
#[must_use]
pub fn forget_rss_max() -> bool {
    std::fs::write("/proc/self/clear_refs", "5").is_ok()
}

/// Does `dir` lie in memory (tmpfs or ramfs)? Then nothing measured about durability there means anything.
#[must_use]
pub fn lies_in_memory(dir: &Path) -> bool {
    #[cfg(target_os = "linux")]
    {
        const TMPFS_MAGIC: u64 = 0x0102_1994;
        const RAMFS_MAGIC: u64 = 0x8584_58f6;
        rustix::fs::statfs(dir).is_ok_and(|found| {
            let kind = u64::try_from(found.f_type).unwrap_or(0);
            kind == TMPFS_MAGIC || kind == RAMFS_MAGIC
        })
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = dir;
        false
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The value of a line `name   123 kB`, in bytes.
fn kibibytes(path: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(path).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    let number = value.trim().trim_end_matches("kB").trim_end();
    Some(number.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_a_name_and_cores() {
        let machine = Machine::here();
        assert!(!machine.cpu.is_empty() && !machine.kernel.is_empty());
        assert!(machine.cores > 0);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_highest_resident_memory_can_be_forgotten() {
        let block = vec![1_u8; 64 << 20];
        let with_block = rss_bytes_max().expect("Linux says");
        assert!(with_block >= block.len() as u64);
        drop(block);
        if forget_rss_max() {
            assert!(rss_bytes_max().expect("Linux says") < with_block);
        }
    }
}
