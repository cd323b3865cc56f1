//! Hosts that are this machine.

use std::net::IpAddr;

/// Returns whether a host, with or without a port, is an address on loopback or `localhost`.
pub fn is_loopback(host: &str) -> bool {
    let of = |host: &str| {
        let address = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || address.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    };
    let without_port = host.rsplit_once(':').map(|(name, _)| name);
    of(host) || without_port.is_some_and(of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_on_loopback_by_address_or_as_localhost() {
        for (host, is_local) in [
            ("127.0.0.1:10251", true),
            ("localhost:10251", true),
            ("localhost", true),
            ("[::1]:10251", true),
            ("::1", true),
            ("127.9.9.9", true),
            ("berth.example:10251", false),
            ("127.0.0.1.example:10251", false),
            ("192.0.2.1:10251", false),
            ("", false),
        ] {
            assert_eq!(is_loopback(host), is_local, "{host}");
        }
    }
}
