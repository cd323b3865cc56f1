//! The resource usage of processes: CPU time and peak memory, as reported by Linux.

use std::collections::BTreeMap;
use std::fs;

/// A process of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its name in reports.
    pub name: String,
    /// Its id.
    pub pid: u32,
}

impl Process {
    /// This process, which runs the workload.
    pub fn runner() -> Self {
        Self {
            name: "runner".to_owned(),
            pid: std::process::id(),
        }
    }
}

/// The resource usage of a process since it started.
#[derive(Debug, Clone, PartialEq)]
pub struct Usage {
    /// CPU time in user and system mode, in seconds.
    pub cpu_seconds: f64,
    /// The same of the threads that run, in seconds, by the name of the thread.
    pub threads: BTreeMap<String, f64>,
    /// The peak resident memory, in bytes.
    pub peak_bytes: u64,
    /// The current resident memory, in bytes.
    pub resident_bytes: u64,
}

/// Clock ticks a second in /proc: fixed for programs on Linux.
const TICKS_PER_SECOND: f64 = 100.0;

impl Process {
    /// The usage; none if the system has no /proc, or the process has exited.
    pub fn usage(&self) -> Option<Usage> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?;
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        Some(Usage {
            cpu_seconds: cpu_seconds(&stat)?,
            threads: self.threads(),
            peak_bytes: bytes(&status, "VmHWM:")?,
            resident_bytes: bytes(&status, "VmRSS:")?,
        })
    }

    /// The CPU time of the threads, by their name.
    fn threads(&self) -> BTreeMap<String, f64> {
        let mut threads = BTreeMap::new();
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid));
        for task in tasks.into_iter().flatten().flatten() {
            // A thread may have ended since the listing.
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            if let (Some(name), Some(seconds)) = (name(&stat), cpu_seconds(&stat)) {
                *threads.entry(name.to_owned()).or_default() += seconds;
            }
        }
        threads
    }
}

/// Field 2 of /proc/PID/stat, without the parentheses.
fn name(stat: &str) -> Option<&str> {
    let (before, _) = stat.rsplit_once(')')?;
    Some(before.split_once('(')?.1)
}

/// Fields 14 and 15 of /proc/PID/stat (proc_pid_stat(5)). The name in field 2 may hold spaces and parentheses.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_SECOND)
}

/// A field of /proc/PID/status (proc_pid_status(5)), in bytes.
fn bytes(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|l| l.strip_prefix(field))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// The machine on which a result was measured.
pub fn machine() -> serde_json::Map<String, serde_json::Value> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        text.lines()
            .find_map(|line| {
                let (key, value) = line.split_once(':')?;
                (key.trim() == name).then(|| value.trim().to_owned())
            })
            .unwrap_or_default()
    };
    let cpus = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let mut machine = serde_json::Map::new();
    machine.insert("cpus".to_owned(), cpus.into());
    machine.insert(
        "cpuModel".to_owned(),
        field(&read("/proc/cpuinfo"), "model name").into(),
    );
    machine.insert(
        "memory".to_owned(),
        field(&read("/proc/meminfo"), "MemTotal").into(),
    );
    machine.insert("os".to_owned(), std::env::consts::OS.into());
    machine.insert("arch".to_owned(), std::env::consts::ARCH.into());
    machine.insert(
        "kernel".to_owned(),
        read("/proc/sys/kernel/osrelease").trim().into(),
    );
    machine.insert(
        "loadAverage".to_owned(),
        read("/proc/loadavg").split_whitespace().next().into(),
    );
    machine
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_parsed_from_proc() {
        let stat = "42 (a) b (c) R 1 42 42 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 9 0 100 1000 10";
        assert_eq!(cpu_seconds(stat), Some(3.0));
        assert_eq!(name(stat), Some("a) b (c"));
        let status = "Name:\tberth\nVmPeak:\t  900 kB\nVmHWM:\t  512 kB\nVmRSS:\t  256 kB\n";
        assert_eq!(bytes(status, "VmHWM:"), Some(512 * 1024));
        assert_eq!(bytes(status, "VmRSS:"), Some(256 * 1024));
        assert_eq!((cpu_seconds("42"), name("42")), (None, None));
        assert_eq!(bytes("Name:\tberth\n", "VmHWM:"), None);
    }
}
