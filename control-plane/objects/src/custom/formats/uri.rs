//! The format `uri`, as Go parses the URI of a request.

use super::{is_hex, split_where};
use std::net::Ipv6Addr;

/// An absolute URI or an absolute path, as in the first line of a request.
pub(super) fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|b| b < 0x20 || b == 0x7f) {
        return false;
    }
    if text == "*" {
        return true;
    }
    let Some((has_scheme, rest)) = scheme(text) else {
        return false;
    };
    let rest = rest.split_once('?').map_or(rest, |(path, _)| path);
    let Some(absolute) = rest.strip_prefix('/') else {
        // After a scheme, the rest may be opaque, as in `mailto:a@example.com`.
        return has_scheme;
    };
    match absolute.strip_prefix('/').filter(|_| has_scheme) {
        Some(authority) => {
            let (authority, path) = split_where(authority, |c| c == '/');
            is_authority(authority) && has_plain_escapes(path)
        }
        None => has_plain_escapes(rest),
    }
}

/// Splits the scheme off. `None` for a text that begins with a colon.
fn scheme(text: &str) -> Option<(bool, &str)> {
    for (i, c) in text.char_indices() {
        match c {
            'a'..='z' | 'A'..='Z' => {}
            '0'..='9' | '+' | '-' | '.' if i > 0 => {}
            ':' if i > 0 => return Some((true, text.get(i + 1..)?)),
            ':' => return None,
            _ => break,
        }
    }
    Some((false, text))
}

/// Returns whether each `%` begins a byte in hexadecimal digits.
fn has_plain_escapes(text: &str) -> bool {
    let mut parts = text.split('%');
    parts.next();
    parts.all(|part| part.get(..2).is_some_and(is_hex))
}

fn is_authority(text: &str) -> bool {
    let (user, host) = match text.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, text),
    };
    let is_user = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    if user.is_some_and(|user| !user.chars().all(is_user) || !has_plain_escapes(user)) {
        return false;
    }
    let is_port = |port: &str| port.bytes().all(|b| b.is_ascii_digit());
    if let Some(literal) = host.strip_prefix('[') {
        let Some((address, port)) = literal.rsplit_once(']') else {
            return false;
        };
        let zone = address
            .split_once("%25")
            .map_or(address, |(address, _)| address);
        let port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return port && zone.parse::<Ipv6Addr>().is_ok();
    }
    let is_host = |c: char| {
        c.is_ascii_alphanumeric() || !c.is_ascii() || "!$&'()*+,;=:[]<>\"-_.~%".contains(c)
    };
    // Bytes of ASCII are not escaped in the names of hosts, except `%` itself.
    let mut escapes = host.split('%').skip(1);
    let are_high = escapes.all(|e| e.starts_with("25") || !e.starts_with(|c: char| c < '8'));
    let port = host.rsplit_once(':').map_or("", |(_, port)| port);
    host.chars().all(is_host) && has_plain_escapes(host) && are_high && is_port(port)
}
