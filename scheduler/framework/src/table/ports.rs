//! The host ports that the pods of a node hold. A pod can have thousands of ports, so none is searched for one by one.

use crate::pod_info::{ANY_IP, HostPort};
use berth_api::Str;
use std::collections::BTreeMap;

/// The addresses of one port and protocol, each with the number of pods' ports that hold it.
type Addresses = BTreeMap<Str, usize>;

/// Host ports by number and protocol.
#[derive(Debug, Clone, Default)]
pub(super) struct UsedPorts(BTreeMap<(i32, Str), Addresses>);

impl UsedPorts {
    pub(super) fn add(&mut self, port: &HostPort) {
        let key = (port.port, port.protocol.clone());
        let addresses = self.0.entry(key).or_default();
        *addresses.entry(port.ip.clone()).or_default() += 1;
    }

    /// Reverts one [`Self::add`].
    pub(super) fn remove(&mut self, port: &HostPort) {
        let key = (port.port, port.protocol.clone());
        let Some(addresses) = self.0.get_mut(&key) else {
            return;
        };
        if let Some(count) = addresses.get_mut(&port.ip) {
            *count -= 1;
            if *count == 0 {
                addresses.remove(&port.ip);
            }
        }
        if addresses.is_empty() {
            self.0.remove(&key);
        }
    }

    /// Returns whether a wanted port conflicts with one of these; see [`HostPort::conflicts_with`].
    pub(super) fn conflicts_with(&self, wanted: &HostPort) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let addresses = self.0.get(&(wanted.port, wanted.protocol.clone()));
        addresses.is_some_and(|addresses| {
            wanted.ip == ANY_IP
                || addresses.contains_key(&wanted.ip)
                || addresses.contains_key(&Str::new(ANY_IP))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ports conflict as [`HostPort::conflicts_with`] states, and a port that two pods hold is free when both were
    /// removed.
    #[test]
    fn conflicts_are_those_of_single_ports() {
        let mut all = Vec::new();
        for ip in [ANY_IP, "127.0.0.1", "10.0.0.1"] {
            for protocol in ["TCP", "UDP"] {
                for port in [80, 81] {
                    let (ip, protocol) = (ip.into(), protocol.into());
                    all.push(HostPort { ip, protocol, port });
                }
            }
        }
        for used in &all {
            let mut ports = UsedPorts::default();
            ports.add(used);
            ports.add(used);
            for removed in 0..3 {
                for wanted in &all {
                    let expected = removed < 2 && wanted.conflicts_with(used);
                    let got = ports.conflicts_with(wanted);
                    assert_eq!(got, expected, "{wanted:?}, {used:?}, {removed} removed");
                }
                ports.remove(used);
            }
        }
    }
}
