//! The faults that a script may have.

use std::fmt;
use std::str::FromStr;

/// The faults that a script may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Faults {
    /// Correct calls fail: 409, 429, 500, timeouts; jobs fail.
    pub calls: bool,
    /// Watches repeat events, and break.
    pub watches: bool,
    /// The scheduler exits and starts again; sent calls may still arrive.
    pub restarts: bool,
    /// A second scheduler is on standby and begins to lead.
    pub failovers: bool,
}

impl Faults {
    /// All of them.
    pub const ALL: Self = Self {
        calls: true,
        watches: true,
        restarts: true,
        failovers: true,
    };
    /// None of them.
    pub const NONE: Self = Self {
        calls: false,
        watches: false,
        restarts: false,
        failovers: false,
    };

    fn named(&self) -> [(&'static str, bool); 4] {
        [
            ("calls", self.calls),
            ("watches", self.watches),
            ("restarts", self.restarts),
            ("failovers", self.failovers),
        ]
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chosen: Vec<&str> = self
            .named()
            .into_iter()
            .filter_map(|(name, chosen)| chosen.then_some(name))
            .collect();
        match chosen.len() {
            0 => f.write_str("off"),
            4 => f.write_str("on"),
            _ => f.write_str(&chosen.join(",")),
        }
    }
}

/// The fault does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownFault(String);

impl fmt::Display for UnknownFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "there are no faults {:?}; use on, off, or some of calls,watches,restarts,failovers",
            self.0
        )
    }
}

impl std::error::Error for UnknownFault {}

impl FromStr for Faults {
    type Err = UnknownFault;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "on" => return Ok(Self::ALL),
            "off" => return Ok(Self::NONE),
            _ => {}
        }
        let mut faults = Self::NONE;
        for name in text.split(',') {
            match name.trim() {
                "calls" => faults.calls = true,
                "watches" => faults.watches = true,
                "restarts" => faults.restarts = true,
                "failovers" => faults.failovers = true,
                other => return Err(UnknownFault(other.to_owned())),
            }
        }
        Ok(faults)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_chosen_by_name() {
        for (text, shown) in [
            ("on", "on"),
            ("off", "off"),
            ("restarts,calls", "calls,restarts"),
            ("calls,watches,restarts,failovers", "on"),
        ] {
            let faults: Result<Faults, _> = text.parse();
            assert_eq!(faults.map(|f| f.to_string()).as_deref(), Ok(shown));
        }
        let error = "calls,wtches".parse::<Faults>().map_err(|e| e.to_string());
        let expected = "there are no faults \"wtches\"; use on, off, or some of calls,watches,restarts,failovers";
        assert_eq!(error, Err(expected.to_owned()));
    }
}
