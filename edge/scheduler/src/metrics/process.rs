//! The process as Linux shows it in `/proc`. Other systems have no such metrics.

use super::EdgeMetric;

/// The units of CPU time per second in `/proc`, on every Linux that Rust supports.
const TICKS_PER_SECOND: f64 = 100.0;
/// The number for `unlimited`: the greatest number of 64 bits.
const UNLIMITED: f64 = 18_446_744_073_709_551_615.0;

/// Reads the available values.
pub(super) fn read() -> Vec<(EdgeMetric, f64)> {
    let file = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let mut values = Vec::new();
    if let Some(stat) = Stat::parse(&file("/proc/self/stat")) {
        values.push((EdgeMetric::ProcessCpu, stat.cpu_seconds));
        values.push((EdgeMetric::ProcessVirtualMemory, stat.virtual_bytes));
        if let Some(boot) = field(&file("/proc/stat"), "btime ", 0) {
            values.push((EdgeMetric::ProcessStartTime, boot + stat.started_seconds));
        }
    }
    if let Some(kibibytes) = field(&file("/proc/self/status"), "VmRSS:", 0) {
        values.push((EdgeMetric::ProcessResidentMemory, kibibytes * 1024.0));
    }
    let limits = file("/proc/self/limits");
    for (metric, name) in [
        (EdgeMetric::ProcessMaxFds, "Max open files"),
        (EdgeMetric::ProcessVirtualMemoryMax, "Max address space"),
    ] {
        values.extend(field(&limits, name, 0).map(|limit| (metric, limit)));
    }
    if let Ok(entries) = std::fs::read_dir("/proc/self/fd") {
        values.push((EdgeMetric::ProcessOpenFds, entries.count() as f64));
    }
    let (received, sent) = network(&file("/proc/self/net/dev"));
    values.push((EdgeMetric::ProcessNetworkReceive, received));
    values.push((EdgeMetric::ProcessNetworkTransmit, sent));
    values
}

/// The used fields of `/proc/self/stat`.
struct Stat {
    cpu_seconds: f64,
    virtual_bytes: f64,
    started_seconds: f64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The name of the program, in parentheses, may contain any character.
        let (_, fields) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        // Numbered from 3 in proc(5): 14 and 15 are the CPU times, 22 the start, 23 the memory.
        let number = |at: usize| fields.get(at - 3)?.parse::<f64>().ok();
        Some(Self {
            cpu_seconds: (number(14)? + number(15)?) / TICKS_PER_SECOND,
            virtual_bytes: number(23)?,
            started_seconds: number(22)? / TICKS_PER_SECOND,
        })
    }
}

/// A number behind a name at the beginning of a line.
fn field(text: &str, name: &str, at: usize) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    match rest.split_whitespace().nth(at)? {
        "unlimited" => Some(UNLIMITED),
        number => number.parse().ok(),
    }
}

/// Bytes received and sent by all interfaces.
fn network(text: &str) -> (f64, f64) {
    let of_interface = |line: &str| {
        let (_, counts) = line.split_once(':')?;
        let counts: Vec<&str> = counts.split_whitespace().collect();
        let number = |at: usize| counts.get(at)?.parse::<f64>().ok();
        Some((number(0)?, number(8)?))
    };
    let interfaces = text.lines().filter_map(of_interface);
    interfaces.fold((0.0, 0.0), |(received, sent), (more, also)| {
        (received + more, sent + also)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_by_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 8 0 1000 4096 30";
        let stat = Stat::parse(stat).expect("a line of /proc/self/stat");
        assert_eq!(stat.cpu_seconds, 3.0);
        assert_eq!(stat.started_seconds, 10.0);
        assert_eq!(stat.virtual_bytes, 4096.0);
        let limits = "Max open files            1024                 4096                 files\n\
                      Max address space         unlimited            unlimited            bytes\n";
        assert_eq!(field(limits, "Max open files", 0), Some(1024.0));
        assert_eq!(field(limits, "Max address space", 0), Some(UNLIMITED));
        assert_eq!(field(limits, "Max nonsense", 0), None);
        let network_text = "Inter-|   Receive |  Transmit\n face |bytes    packets|bytes packets\n\
                            lo: 10 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0\n eth0: 5 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0\n";
        assert_eq!(network(network_text), (15.0, 27.0));
    }
}
