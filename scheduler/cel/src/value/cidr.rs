//! Networks and addresses.

use crate::error::EvaluationError;
use std::fmt;
use std::net::IpAddr;

/// An address and how many of its bits are the network's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cidr {
    pub(crate) address: IpAddr,
    pub(crate) prefix_length: u8,
}

impl Cidr {
    /// The first bits of an address as a number, and the length of addresses.
    fn bits(address: IpAddr, length: u8) -> u128 {
        let (bits, width) = match address {
            IpAddr::V4(ip) => (u128::from(u32::from(ip)), 32),
            IpAddr::V6(ip) => (u128::from(ip), 128),
        };
        bits.checked_shr(width - u32::from(length)).unwrap_or(0)
    }

    /// Returns whether the address is in the network.
    pub(crate) fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4()
            && Self::bits(self.address, self.prefix_length)
                == Self::bits(address, self.prefix_length)
    }

    /// The network itself, with zeros beyond the prefix.
    pub(crate) fn masked(self) -> Self {
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

pub(crate) fn parse_ip(text: &str) -> Result<IpAddr, EvaluationError> {
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

pub(crate) fn parse_cidr(text: &str) -> Result<Cidr, EvaluationError> {
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
