//! The API of each release: which resources and fields a server of a release serves, and which of them depend on a
//! feature gate.
//!
//! The facts are in `facts/releases.txt`, and in `later.txt` of the protobuf crate. The types of this crate have the
//! fields of every release. [`ApiRelease`] selects among them where objects of clients are read, published or listed.
//! Objects of this process (controllers, the first objects) are read with [`ApiRelease::EVERY`].

pub(crate) mod deprecated;

use berth_api::Release;
use berth_protobuf::facts::words;
use std::sync::LazyLock;

const FACTS: &str = include_str!("../facts/releases.txt");

/// The API of a server: a release, with the enabled feature gates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiRelease {
    /// `None` serves the resources and fields of all releases.
    release: Option<Release>,
    /// One bit for each gate of the table.
    on: u64,
}

/// The releases and the gate of a resource or a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Availability {
    /// The first release.
    pub(crate) since: Release,
    /// The last release.
    pub(crate) until: Release,
    /// The gate, by its place in the table.
    pub(crate) gate: Option<usize>,
}

/// A feature gate of the API.
struct GateFacts {
    name: &'static str,
    /// The defaults by release; `None` where the release does not have the gate.
    defaults: [Option<bool>; 3],
}

static GATES: LazyLock<Vec<GateFacts>> = LazyLock::new(|| {
    let lines = FACTS.lines().filter_map(|line| line.strip_prefix("gate "));
    let gates = lines.filter_map(|line| {
        let mut words = words(line);
        let name = words.next()?;
        let mut default = || match words.next() {
            Some("on") => Some(true),
            Some("off") => Some(false),
            _ => None,
        };
        Some(GateFacts {
            name,
            defaults: [default(), default(), default()],
        })
    });
    gates.collect()
});

// === impl Availability ===

impl Default for Availability {
    fn default() -> Self {
        Self {
            since: Release::OLDEST,
            until: Release::NEWEST,
            gate: None,
        }
    }
}

impl Availability {
    /// Returns whether the release has it, with some setting of its gate.
    pub(crate) fn is_in(self, api: ApiRelease) -> bool {
        api.release
            .is_none_or(|release| (self.since..=self.until).contains(&release))
    }

    /// Returns whether objects of the release have the field even if it is not set. Without a single served release,
    /// the newest release applies.
    pub(crate) fn is_written_in(self, api: ApiRelease) -> bool {
        (self.since..=self.until).contains(&api.release())
    }

    /// Returns whether its gate is on.
    pub(crate) fn is_enabled(self, api: ApiRelease) -> bool {
        self.gate
            .is_none_or(|gate| api.on.checked_shr(gate_bit(gate)).unwrap_or(0) & 1 == 1)
    }

    /// The name of its gate.
    pub(crate) fn gate_name(self) -> Option<&'static str> {
        GATES.get(self.gate?).map(|gate| gate.name)
    }

    /// The words `until=RELEASE` and `gate=NAME`.
    fn read(&mut self, words: impl Iterator<Item = &'static str>) -> Option<()> {
        for word in words {
            match word.split_once('=')? {
                ("until", name) => self.until = release_of(Some(name))?,
                ("gate", name) => self.gate = Some(GATES.iter().position(|g| g.name == name)?),
                _ => return None,
            }
        }
        Some(())
    }
}

fn gate_bit(gate: usize) -> u32 {
    u32::try_from(gate).unwrap_or(u32::MAX)
}

// === impl ApiRelease ===

impl ApiRelease {
    /// Everything that any release serves, with all gates on.
    pub const EVERY: Self = Self {
        release: None,
        on: u64::MAX,
    };

    /// The API of a release with the defaults of its gates.
    pub fn of(release: Release) -> Self {
        let mut api = Self {
            release: Some(release),
            on: 0,
        };
        for (i, gate) in GATES.iter().enumerate() {
            if gate.default_in(release) == Some(true) {
                api.put(i, true);
            }
        }
        api
    }

    /// Returns whether a single release is served.
    pub(crate) fn is_single(self) -> bool {
        self.release.is_some()
    }

    /// The release; the newest one if no single release is served.
    pub fn release(self) -> Release {
        self.release.unwrap_or(Release::NEWEST)
    }

    /// The same API with a gate on or off. Gates that no resource or field depends on have no effect.
    #[must_use]
    pub fn with_gate(mut self, name: &str, on: bool) -> Self {
        if let Some(gate) = GATES.iter().position(|g| g.name == name) {
            self.put(gate, on);
        }
        self
    }

    /// The gates of resources and fields in any release.
    pub fn gates() -> impl Iterator<Item = &'static str> {
        GATES.iter().map(|gate| gate.name)
    }

    /// The default of a gate in a release; `None` if the release does not have it, or if no resource or field depends
    /// on it.
    pub fn default_of_gate(name: &str, release: Release) -> Option<bool> {
        let gate = GATES.iter().find(|gate| gate.name == name)?;
        gate.default_in(release)
    }

    fn put(&mut self, gate: usize, on: bool) {
        let bit = 1_u64.checked_shl(gate_bit(gate)).unwrap_or(0);
        if on { self.on |= bit } else { self.on &= !bit }
    }

    /// Returns whether a resource is served.
    pub(crate) fn serves(self, availability: Availability) -> bool {
        availability.is_in(self) && availability.is_enabled(self)
    }
}

impl GateFacts {
    fn default_in(&self, release: Release) -> Option<bool> {
        let releases = Release::ALL.into_iter().zip(self.defaults);
        releases
            .into_iter()
            .find(|(r, _)| *r == release)
            .and_then(|(_, default)| default)
    }
}

/// A release by its name in the tables; the oldest release without a name. `None` for an unknown name.
pub(crate) fn release_of(name: Option<&str>) -> Option<Release> {
    name.map_or(Some(Release::OLDEST), |name| {
        Release::ALL.into_iter().find(|r| r.as_str() == name)
    })
}

/// The availability of a resource of a first release.
pub(crate) fn of_resource(
    since: Option<&str>,
    group: &str,
    version: &str,
    plural: &str,
) -> Option<Availability> {
    let mut availability = Availability {
        since: release_of(since)?,
        ..Availability::default()
    };
    for line in FACTS.lines() {
        let Some(rest) = line.strip_prefix("resource ") else {
            continue;
        };
        let mut words = words(rest);
        let (named, listed) = (words.next()?, words.next()?);
        let (of_group, of_version) = named.split_once('/').unwrap_or(("", named));
        if (of_group, of_version, listed) == (group, version, plural) {
            availability.read(words)?;
        }
    }
    if let Some(removed) = deprecated::removal(group, version, plural) {
        let served = Release::ALL.into_iter().filter(|r| r.minor() < removed);
        availability.until = served.max()?;
    }
    Some(availability)
}

/// Adds the releases and gates of fields to a model. Returns the lines that could not be read.
pub(crate) fn apply(
    mut field_of: impl FnMut(&str, &str, &mut dyn FnMut(&mut Availability)),
) -> Vec<String> {
    let mut faults = Vec::new();
    for line in FACTS.lines() {
        let Some(rest) = line.strip_prefix("field ") else {
            continue;
        };
        let mut words = words(rest);
        let (Some(type_name), Some(name)) = (words.next(), words.next()) else {
            faults.push(line.to_owned());
            continue;
        };
        let mut done = false;
        field_of(type_name, name, &mut |availability| {
            done = availability.read(words.clone()).is_some();
        });
        if !done {
            faults.push(line.to_owned());
        }
    }
    faults
}
