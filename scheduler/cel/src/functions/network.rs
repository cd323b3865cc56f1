//! IP addresses and networks.

use super::{Declaration, FunctionContext};
use crate::error::EvaluationError;
use crate::value::{CelValue, EvalResult};
use std::fmt;
use std::net::IpAddr;

pub(crate) const DECLARATIONS: &[Declaration] = declarations! {
    "ip", "string_to_ip", "string -> net.IP" => ip;
    "ip", "cidr_ip", ".net.CIDR -> net.IP" => |_, args| network(args).map(|cidr| CelValue::Ip(cidr.address));
    "family", "ip_family", ".net.IP -> int" => |_, args| address(args).map(|ip| CelValue::Int(if ip.is_ipv4() { 4 } else { 6 }));
    "ip.isCanonical", "ip_is_canonical", "string -> bool" => is_canonical;
    "isUnspecified", "ip_is_unspecified", ".net.IP -> bool" => |_, args| test(args, |ip| ip.is_unspecified());
    "isLoopback", "ip_is_loopback", ".net.IP -> bool" => |_, args| test(args, |ip| ip.is_loopback());
    "isLinkLocalMulticast", "ip_is_link_local_multicast", ".net.IP -> bool" => |_, args| test(args, is_link_local_multicast);
    "isLinkLocalUnicast", "ip_is_link_local_unicast", ".net.IP -> bool" => |_, args| test(args, is_link_local_unicast);
    "isGlobalUnicast", "ip_is_global_unicast", ".net.IP -> bool" => |_, args| test(args, is_global_unicast);
    "isIP", "is_ip", "string -> bool" => |_, args| text(args).map(|text| CelValue::Bool(parse_ip(text).is_ok()));
    "string", "ip_to_string", "net.IP -> string" => |_, args| address(args).map(|ip| CelValue::text(&ip.to_string()));
    "cidr", "string_to_cidr", "string -> net.CIDR" => |_, args| parse_cidr(text(args)?).map(CelValue::Cidr);
    "isCIDR", "is_cidr", "string -> bool" => |_, args| text(args).map(|text| CelValue::Bool(parse_cidr(text).is_ok()));
    "string", "cidr_to_string", "net.CIDR -> string" => |_, args| network(args).map(|cidr| CelValue::text(&cidr.to_string()));
    "containsIP", "cidr_contains_ip_string", ".net.CIDR, string -> bool" => contains_ip;
    "containsIP", "cidr_contains_ip_ip", ".net.CIDR, net.IP -> bool" => contains_ip;
    "containsCIDR", "cidr_contains_cidr_string", ".net.CIDR, string -> bool" => contains_cidr;
    "containsCIDR", "cidr_contains_cidr", ".net.CIDR, net.CIDR -> bool" => contains_cidr;
    "prefixLength", "cidr_prefix_length", ".net.CIDR -> int" => |_, args| network(args).map(|cidr| CelValue::Int(cidr.prefix_length.into()));
    "masked", "cidr_masked", ".net.CIDR -> net.CIDR" => |_, args| network(args).map(|cidr| CelValue::Cidr(cidr.masked()));
};

/// An address and how many of its bits are the network's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cidr {
    address: IpAddr,
    prefix_length: u8,
}

impl Cidr {
    pub(crate) const fn prefix_length(self) -> u8 {
        self.prefix_length
    }

    /// The first bits of an address as a number, and the length of addresses.
    fn bits(address: IpAddr, length: u8) -> u128 {
        let (bits, width) = match address {
            IpAddr::V4(ip) => (u128::from(u32::from(ip)), 32),
            IpAddr::V6(ip) => (u128::from(ip), 128),
        };
        bits.checked_shr(width - u32::from(length)).unwrap_or(0)
    }

    fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && Self::bits(self.address, self.prefix_length)
                == Self::bits(address, self.prefix_length)
    }

    /// The network itself, with zeros beyond the prefix.
    fn masked(self) -> Self {
        let bits = Self::bits(self.address, self.prefix_length);
        let length = u32::from(self.prefix_length);
        let address = match self.address {
            IpAddr::V4(_) => {
                let bits = bits.checked_shl(32 - length).unwrap_or(0) as u32;
                IpAddr::V4(bits.into())
            }
            IpAddr::V6(_) => IpAddr::V6(bits.checked_shl(128 - length).unwrap_or(0).into()),
        };
        Self { address, ..self }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_length)
    }
}

fn text(args: &[CelValue]) -> Result<&str, EvaluationError> {
    match args {
        [CelValue::String(text)] => Ok(text),
        _ => Err(EvaluationError::no_such_overload()),
    }
}

fn address(args: &[CelValue]) -> Result<IpAddr, EvaluationError> {
    match args {
        [CelValue::Ip(ip)] => Ok(*ip),
        _ => Err(EvaluationError::no_such_overload()),
    }
}

fn network(args: &[CelValue]) -> Result<Cidr, EvaluationError> {
    match args {
        [CelValue::Cidr(cidr)] => Ok(*cidr),
        _ => Err(EvaluationError::no_such_overload()),
    }
}

fn test(args: &[CelValue], test: fn(IpAddr) -> bool) -> EvalResult {
    address(args).map(|ip| CelValue::Bool(test(ip)))
}

fn is_link_local_multicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.octets()[..3] == [224, 0, 0],
        IpAddr::V6(ip) => ip.segments()[0] & 0xff0f == 0xff02,
    }
}

fn is_link_local_unicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.segments()[0] & 0xffc0 == 0xfe80,
    }
}

fn is_global_unicast(ip: IpAddr) -> bool {
    let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !broadcast
        && !ip.is_unspecified()
        && !ip.is_loopback()
        && !ip.is_multicast()
        && !is_link_local_unicast(ip)
}

fn parse_ip(text: &str) -> Result<IpAddr, EvaluationError> {
    let ip: IpAddr = text.parse().map_err(|_| {
        EvaluationError::failed(format!(
            "IP Address {text:?} parse error during conversion from string"
        ))
    })?;
    match ip {
        IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some() => Err(EvaluationError::failed(format!(
            "IPv4-mapped IPv6 address {text:?} is not allowed"
        ))),
        ip => Ok(ip),
    }
}

fn parse_cidr(text: &str) -> Result<Cidr, EvaluationError> {
    let failed = || {
        EvaluationError::failed(format!(
            "network address parse error during conversion from string: {text:?}"
        ))
    };
    let (address, length) = text.rsplit_once('/').ok_or_else(failed)?;
    let address = parse_ip(address)?;
    let is_number = length.bytes().all(|byte| byte.is_ascii_digit())
        && (length.len() == 1 || !length.starts_with('0'));
    let prefix_length: u8 = length.parse().map_err(|_| failed())?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    if !is_number || prefix_length > longest {
        return Err(failed());
    }
    Ok(Cidr {
        address,
        prefix_length,
    })
}

fn ip(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    parse_ip(text(args)?).map(CelValue::Ip)
}

fn is_canonical(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let text = text(args)?;
    Ok(CelValue::Bool(parse_ip(text)?.to_string() == text))
}

fn contains_ip(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    match args {
        [CelValue::Cidr(cidr), CelValue::Ip(ip)] => Ok(CelValue::Bool(cidr.contains(*ip))),
        [CelValue::Cidr(cidr), CelValue::String(ip)] => {
            Ok(CelValue::Bool(cidr.contains(parse_ip(ip)?)))
        }
        _ => Err(EvaluationError::no_such_overload()),
    }
}

fn contains_cidr(_: &mut FunctionContext<'_>, args: &[CelValue]) -> EvalResult {
    let (outer, inner) = match args {
        [CelValue::Cidr(outer), CelValue::Cidr(inner)] => (outer, *inner),
        [CelValue::Cidr(outer), CelValue::String(inner)] => (outer, parse_cidr(inner)?),
        _ => return Err(EvaluationError::no_such_overload()),
    };
    let contains = outer.prefix_length <= inner.prefix_length && outer.contains(inner.address);
    Ok(CelValue::Bool(contains))
}
