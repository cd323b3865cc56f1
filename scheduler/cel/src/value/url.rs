//! URLs, read as Go reads them: as the API server does.

use indexmap::IndexMap;
use std::fmt;
use std::net::IpAddr;

/// The most parameters of a query that are read.
const PARAMETERS_MAX: usize = 10_000;

/// A URL.
#[derive(Debug, Clone, Default)]
pub(crate) struct Url {
    pub(crate) scheme: String,
    /// All after the scheme, if that does not start with a slash.
    opaque: String,
    /// The user and, after a colon, the password, decoded.
    user: Option<(Vec<u8>, Option<Vec<u8>>)>,
    pub(crate) host: String,
    /// The path, decoded.
    path: Vec<u8>,
    /// The path as written.
    raw_path: String,
    query: String,
    has_empty_query: bool,
    fragment: String,
    has_no_authority: bool,
}

/// The part of a URL that contains a character, which decides whether it must be escaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UrlPart {
    User,
    Host,
    Zone,
    Path,
    Query,
    Fragment,
}

fn must_escape(byte: u8, place: UrlPart) -> bool {
    if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
        return false;
    }
    let allowed: &[u8] = match place {
        UrlPart::User => b"$&+=,;",
        UrlPart::Host | UrlPart::Zone => b"!()*$&+=,;:\"'<>[]",
        UrlPart::Path => b"$&+=,;:/@",
        UrlPart::Query => b"",
        UrlPart::Fragment => b"!()*$&+=,;:/?@",
    };
    !allowed.contains(&byte)
}

fn hex(byte: u8) -> Option<u8> {
    char::from(byte)
        .to_digit(16)
        .and_then(|digit| u8::try_from(digit).ok())
}

/// A text is no URL; the messages are Go's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UrlError {
    #[error("invalid URL escape {0:?}")]
    Escape(String),
    #[error("invalid character {0:?} in host name")]
    HostCharacter(char),
    #[error("invalid port {0:?} after host")]
    Port(String),
    /// Any other fault.
    #[error("{0}")]
    Malformed(&'static str),
}

fn unescape(text: &str, place: UrlPart) -> Result<Vec<u8>, UrlError> {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at).copied() {
        match byte {
            b'%' => {
                let digits = bytes.get(at + 1..at + 3);
                let value = digits.and_then(|pair| Some((hex(pair[0])?, hex(pair[1])?)));
                let escape = || {
                    let end = bytes.len().min(at + 3);
                    let shown = String::from_utf8_lossy(&bytes[at..end]).into_owned();
                    UrlError::Escape(shown)
                };
                let (high, low) = value.ok_or_else(escape)?;
                let value = high << 4 | low;
                let is_percent = value == b'%' && digits == Some(b"25");
                // Hosts permit no escapes of ASCII characters, zones only some, as in Go.
                let refused = match place {
                    UrlPart::Host => high < 8 && !is_percent,
                    UrlPart::Zone => {
                        !is_percent && value != b' ' && must_escape(value, UrlPart::Host)
                    }
                    _ => false,
                };
                if refused {
                    return Err(escape());
                }
                plain.push(value);
                at += 3;
                continue;
            }
            b'+' if place == UrlPart::Query => plain.push(b' '),
            byte => {
                let is_host = matches!(place, UrlPart::Host | UrlPart::Zone);
                if is_host && byte.is_ascii() && must_escape(byte, place) {
                    let shown = char::from(byte);
                    return Err(UrlError::HostCharacter(shown));
                }
                plain.push(byte);
            }
        }
        at += 1;
    }
    Ok(plain)
}

fn escape(bytes: &[u8], place: UrlPart) -> String {
    let mut escaped = String::with_capacity(bytes.len());
    for byte in bytes {
        if must_escape(*byte, place) {
            escaped.push_str(&format!("%{byte:02X}"));
        } else {
            escaped.push(char::from(*byte));
        }
    }
    escaped
}

fn text_of(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// The scheme and the rest.
fn split_scheme(text: &str) -> Result<(&str, &str), UrlError> {
    for (index, byte) in text.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if index > 0 => {}
            b':' if index == 0 => return Err(UrlError::Malformed("missing protocol scheme")),
            b':' => return Ok((&text[..index], &text[index + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

fn is_optional_port(text: &str) -> bool {
    match text.as_bytes() {
        [] => true,
        [b':', digits @ ..] => digits.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

fn parse_host(scheme: &str, host: &str) -> Result<String, UrlError> {
    let check_port = |port: &str| {
        if is_optional_port(port) {
            Ok(())
        } else {
            Err(UrlError::Port(port.to_owned()))
        }
    };
    if let Some(open) = host.rfind('[') {
        if open > 0 {
            return Err(UrlError::Malformed("invalid IP-literal"));
        }
        let close = host
            .rfind(']')
            .ok_or(UrlError::Malformed("missing ']' in host"))?;
        let port = &host[close + 1..];
        check_port(port)?;
        let port = text_of(unescape(port, UrlPart::Host)?);
        let name = &host[1..close];
        let name = match name.find("%25") {
            None => text_of(unescape(name, UrlPart::Host)?),
            Some(zone) => {
                let (address, zone) = name.split_at(zone);
                let address = text_of(unescape(address, UrlPart::Host)?);
                format!("{address}{}", text_of(unescape(zone, UrlPart::Zone)?))
            }
        };
        // An address may have a zone.
        let (address, zone) = name.split_once('%').unwrap_or((&name, "zone"));
        let is_address = match address.parse::<IpAddr>() {
            Ok(IpAddr::V4(_)) => return Err(UrlError::Malformed("invalid IP-literal")),
            parsed => parsed.is_ok() && !zone.is_empty(),
        };
        if !is_address {
            return Err(UrlError::Malformed("invalid host"));
        }
        return Ok(format!("[{name}]{port}"));
    }
    if let Some(first) = host.find(':') {
        // The hosts of a database may be a list of hosts and ports.
        let strict = matches!(scheme, "http" | "https");
        let colon = if strict {
            first
        } else {
            host.rfind(':').unwrap_or(first)
        };
        check_port(&host[colon..])?;
    }
    unescape(host, UrlPart::Host).map(text_of)
}

fn is_user(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte))
}

impl Url {
    /// Reads a URL that may have a fragment.
    ///
    /// # Errors
    /// The text is no URL.
    pub(crate) fn read(text: &str) -> Result<Self, UrlError> {
        Self::in_request(text)?;
        // A request has no fragment; a URL may.
        let (before, fragment) = text.split_once('#').unwrap_or((text, ""));
        let mut url = Self::parse(before, false)?;
        let fragment = unescape(fragment, UrlPart::Fragment)?;
        url.fragment = escape(&fragment, UrlPart::Fragment);
        Ok(url)
    }

    /// Reads a URL as in a request.
    ///
    /// # Errors
    /// The text is no such URL.
    pub(crate) fn in_request(text: &str) -> Result<Self, UrlError> {
        Self::parse(text, true)
    }

    /// Reads a URL that has a scheme or an absolute path, as in a request, or any reference.
    fn parse(text: &str, in_request: bool) -> Result<Self, UrlError> {
        let mut url = Self::default();
        if text.bytes().any(|byte| byte.is_ascii_control()) {
            return Err(UrlError::Malformed(
                "net/url: invalid control character in URL",
            ));
        }
        if text.is_empty() && in_request {
            return Err(UrlError::Malformed("empty url"));
        }
        if text == "*" {
            url.path = b"*".to_vec();
            return Ok(url);
        }
        let (scheme, mut rest) = split_scheme(text)?;
        url.scheme = scheme.to_ascii_lowercase();
        if let Some(before) = rest.strip_suffix('?')
            && !before.contains('?')
        {
            url.has_empty_query = true;
            rest = before;
        } else if let Some((before, query)) = rest.split_once('?') {
            query.clone_into(&mut url.query);
            rest = before;
        }
        if !rest.starts_with('/') {
            if !url.scheme.is_empty() {
                rest.clone_into(&mut url.opaque);
                return Ok(url);
            }
            if in_request {
                return Err(UrlError::Malformed("invalid URI for request"));
            }
            let segment = rest.split('/').next().unwrap_or_default();
            if segment.contains(':') {
                return Err(UrlError::Malformed(
                    "first path segment in URL cannot contain colon",
                ));
            }
        }
        let may_have_authority = !url.scheme.is_empty() || !in_request && !rest.starts_with("///");
        match rest.strip_prefix("//") {
            Some(after) if may_have_authority => {
                let end = after.find('/').unwrap_or(after.len());
                url.parse_authority(&after[..end])?;
                rest = &after[end..];
            }
            _ => url.has_no_authority = !url.scheme.is_empty() && rest.starts_with('/'),
        }
        url.path = unescape(rest, UrlPart::Path)?;
        if escape(&url.path, UrlPart::Path) != rest {
            rest.clone_into(&mut url.raw_path);
        }
        Ok(url)
    }

    fn parse_authority(&mut self, authority: &str) -> Result<(), UrlError> {
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        self.host = parse_host(&self.scheme, host)?;
        let Some(user) = user else {
            return Ok(());
        };
        if !is_user(user) {
            return Err(UrlError::Malformed("net/url: invalid userinfo"));
        }
        let (name, password) = match user.split_once(':') {
            Some((name, password)) => (name, Some(unescape(password, UrlPart::User)?)),
            None => (user, None),
        };
        self.user = Some((unescape(name, UrlPart::User)?, password));
        Ok(())
    }

    /// The parameters of the query in the order of their first values. One that cannot be decoded is left out.
    pub(crate) fn parameters(&self) -> IndexMap<String, Vec<String>> {
        let mut found: IndexMap<String, Vec<String>> = IndexMap::new();
        let parameters: Vec<&str> = self.query.split('&').collect();
        for parameter in parameters
            .iter()
            .take_while(|_| parameters.len() <= PARAMETERS_MAX)
        {
            if parameter.is_empty() || parameter.contains(';') {
                continue;
            }
            let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            if let (Ok(key), Ok(value)) = (
                unescape(key, UrlPart::Query),
                unescape(value, UrlPart::Query),
            ) {
                found.entry(text_of(key)).or_default().push(text_of(value));
            }
        }
        found
    }

    pub(crate) fn host_and_port(&self) -> (&str, &str) {
        let (host, port) = match self.host.rfind(':') {
            Some(colon) if is_optional_port(&self.host[colon..]) => {
                (&self.host[..colon], &self.host[colon + 1..])
            }
            _ => (&*self.host, ""),
        };
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        (bare.unwrap_or(host), port)
    }

    pub(crate) fn escaped_path(&self) -> String {
        let is_valid =
            |byte: u8| b"!$&'()*+,;=:@[]%".contains(&byte) || !must_escape(byte, UrlPart::Path);
        if !self.raw_path.is_empty() && self.raw_path.bytes().all(is_valid) {
            return self.raw_path.clone();
        }
        if self.path == b"*" {
            return "*".to_owned();
        }
        escape(&self.path, UrlPart::Path)
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.scheme.is_empty() {
            write!(f, "{}:", self.scheme)?;
        }
        // An opaque URL has no authority and no path.
        if self.opaque.is_empty() {
            let has_authority = !(self.has_no_authority
                || self.scheme.is_empty() && self.host.is_empty() && self.user.is_none());
            if has_authority {
                if !self.host.is_empty() || !self.path.is_empty() || self.user.is_some() {
                    f.write_str("//")?;
                }
                if let Some((name, password)) = &self.user {
                    f.write_str(&escape(name, UrlPart::User))?;
                    if let Some(password) = password {
                        write!(f, ":{}", escape(password, UrlPart::User))?;
                    }
                    f.write_str("@")?;
                }
                f.write_str(&escape(self.host.as_bytes(), UrlPart::Host))?;
            }
            f.write_str(&self.escaped_path())?;
        } else {
            f.write_str(&self.opaque)?;
        }
        if self.has_empty_query || !self.query.is_empty() {
            write!(f, "?{}", self.query)?;
        }
        if !self.fragment.is_empty() {
            write!(f, "#{}", self.fragment)?;
        }
        Ok(())
    }
}

/// The fault of a text as a URI, for the format `uri`.
pub(crate) fn uri_problem(text: &str) -> Option<String> {
    Url::in_request(text)
        .err()
        .map(|problem| format!("parse {text:?}: {problem}"))
}
