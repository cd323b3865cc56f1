//! Formats of texts.

/// A format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NamedFormat {
    Dns1123Label,
    Dns1123Subdomain,
    Dns1035Label,
    QualifiedName,
    Dns1123LabelPrefix,
    Dns1123SubdomainPrefix,
    Dns1035LabelPrefix,
    LabelValue,
    Uri,
    Uuid,
    Byte,
    Date,
    DateTime,
}

impl NamedFormat {
    /// The length of the regular expression that upstream uses for the format, or would use.
    pub(crate) const fn regex_length(self) -> u64 {
        match self {
            Self::Dns1123Label
            | Self::Dns1035Label
            | Self::Dns1123LabelPrefix
            | Self::Dns1035LabelPrefix => 30,
            Self::Dns1123Subdomain | Self::Dns1123SubdomainPrefix | Self::QualifiedName => 60,
            Self::LabelValue => 40,
            Self::Uri => 1103,
            Self::Uuid => 70,
            Self::Byte => 84,
            Self::Date | Self::DateTime => 71,
        }
    }
}
