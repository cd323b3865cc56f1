//! IP addresses and networks.

use super::{Declaration, FunctionContext};
use crate::error::EvaluationError;
use crate::value::{CelValue, Cidr, EvalResult, parse_cidr, parse_ip};
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
