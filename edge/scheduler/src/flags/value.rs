//! The types of flag values: parsing, and formatting in kube-scheduler's notation.

use crate::args::EvaluatorArg;
use berth_api::{GoDuration, Quantity};
use clap::ValueEnum;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// A type of flag value.
pub trait FlagValue: Sized {
    /// The name of the type in the help text; empty for booleans.
    const TYPE: &'static str;

    /// Reads the values of all occurrences of the flag, at least one.
    ///
    /// # Errors
    /// The fault of the text.
    fn read(texts: &[&str]) -> Result<Self, String>;

    /// The value in kube-scheduler's notation, as `/flagz` shows it.
    fn show(&self) -> String;
}

/// The last occurrence of a flag counts.
fn last<'a>(texts: &[&'a str]) -> &'a str {
    texts.last().copied().unwrap_or_default()
}

fn parse<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

/// Splits a list at its commas. An empty text is an empty list.
fn comma_separated<'a>(texts: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    texts
        .iter()
        .filter(|text| !text.is_empty())
        .flat_map(|text| text.split(','))
        .map(str::trim)
}

fn show_list<T: Display>(list: &[T]) -> String {
    let list: Vec<String> = list.iter().map(ToString::to_string).collect();
    format!("[{}]", list.join(","))
}

macro_rules! scalar {
    ($($type:ty, $name:literal;)*) => {
        $(impl FlagValue for $type {
            const TYPE: &'static str = $name;

            fn read(texts: &[&str]) -> Result<Self, String> {
                parse(last(texts))
            }

            fn show(&self) -> String {
                self.to_string()
            }
        })*
    };
}

scalar! {
    String, "string";
    u16, "int";
    u32, "int";
    i32, "int32";
    u64, "int";
    f32, "float32";
    IpAddr, "ip";
    GoDuration, "duration";
}

impl FlagValue for bool {
    const TYPE: &'static str = "";

    fn read(texts: &[&str]) -> Result<Self, String> {
        match last(texts) {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
            _ => Err("must be true or false".to_owned()),
        }
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

/// The path of a file; `None` when the flag is empty.
impl FlagValue for Option<PathBuf> {
    const TYPE: &'static str = "string";

    fn read(texts: &[&str]) -> Result<Self, String> {
        let text = last(texts);
        Ok((!text.is_empty()).then(|| text.into()))
    }

    fn show(&self) -> String {
        self.as_ref()
            .map_or_else(String::new, |path| path.display().to_string())
    }
}

/// A number that may be left to chance.
impl FlagValue for Option<u64> {
    const TYPE: &'static str = "int";

    fn read(texts: &[&str]) -> Result<Self, String> {
        match last(texts) {
            "" => Ok(None),
            text => parse(text).map(Some),
        }
    }

    fn show(&self) -> String {
        self.map_or_else(String::new, |number| number.to_string())
    }
}

/// A list of texts.
impl FlagValue for Vec<String> {
    const TYPE: &'static str = "strings";

    fn read(texts: &[&str]) -> Result<Self, String> {
        Ok(comma_separated(texts).map(str::to_owned).collect())
    }

    fn show(&self) -> String {
        show_list(self)
    }
}

/// Numbers of key exchange groups, as in the TLS registry of IANA.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Curves(pub(crate) Vec<u16>);

impl FlagValue for Curves {
    const TYPE: &'static str = "int32Slice";

    fn read(texts: &[&str]) -> Result<Self, String> {
        comma_separated(texts)
            .map(parse)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    fn show(&self) -> String {
        show_list(&self.0)
    }
}

/// A certificate and its key for some server names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedCertKey {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
    /// The server names; empty for the names in the certificate.
    pub(crate) names: Vec<String>,
}

impl FlagValue for Vec<NamedCertKey> {
    const TYPE: &'static str = "namedCertKey";

    fn read(texts: &[&str]) -> Result<Self, String> {
        let entry = |text: &&str| {
            let (files, names) = text.split_once(':').unwrap_or((text, ""));
            let (cert, key) = files
                .split_once(',')
                .filter(|(cert, key)| !cert.is_empty() && !key.is_empty())
                .ok_or("expected cert.pem,key.pem or cert.pem,key.pem:name,...")?;
            Ok(NamedCertKey {
                cert: cert.into(),
                key: key.into(),
                names: comma_separated(&[names]).map(str::to_owned).collect(),
            })
        };
        let texts = texts.iter().filter(|text| !text.is_empty());
        texts.map(entry).collect()
    }

    fn show(&self) -> String {
        let shown: Vec<String> = self
            .iter()
            .map(|entry| {
                let files = format!("{},{}", entry.cert.display(), entry.key.display());
                if entry.names.is_empty() {
                    files
                } else {
                    format!("{files}:{}", entry.names.join(","))
                }
            })
            .collect();
        format!("[{}]", shown.join(";"))
    }
}

/// The allowed values of labels of metrics, by `metric,label`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LabelValues(pub(crate) BTreeMap<(String, String), Vec<String>>);

impl LabelValues {
    /// Adds one entry.
    ///
    /// # Errors
    /// When the key is not a metric and a label.
    pub(crate) fn add(&mut self, key: &str, values: &str) -> Result<(), String> {
        let (metric, label) = key
            .split_once(',')
            .filter(|(metric, label)| !metric.trim().is_empty() && !label.trim().is_empty())
            .ok_or_else(|| format!("{key:?} is not a metric and a label, as in metric,label"))?;
        let values = values.trim_matches(|c| matches!(c, '"' | '\''));
        let values = comma_separated(&[values]).map(str::to_owned).collect();
        let key = (metric.trim().to_owned(), label.trim().to_owned());
        self.0.insert(key, values);
        Ok(())
    }
}

impl FlagValue for LabelValues {
    const TYPE: &'static str = "stringToString";

    fn read(texts: &[&str]) -> Result<Self, String> {
        let mut lists = Self::default();
        for text in texts.iter().filter(|text| !text.is_empty()) {
            let text = text.trim_matches('"');
            // The values of one label may be given with their commas; several labels are separated by quotes.
            let entries = match text.matches('=').count() {
                1 => vec![text],
                _ => outside_quotes(text),
            };
            for entry in entries {
                let (key, values) = entry
                    .split_once('=')
                    .ok_or("expected metric,label=value,value")?;
                lists.add(key.trim_matches(|c| matches!(c, '"' | '\'' | ' ')), values)?;
            }
        }
        Ok(lists)
    }

    fn show(&self) -> String {
        let entries = self.0.iter();
        let entries: Vec<String> = entries
            .map(|((metric, label), values)| format!("{metric},{label}={}", values.join(",")))
            .collect();
        format!("[{}]", entries.join(" "))
    }
}

/// Splits `a,l='x,y', b,l='z'` behind each closing quote.
fn outside_quotes(text: &str) -> Vec<&str> {
    let mut entries = Vec::new();
    let (mut start, mut quote) = (0, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if open == c => {
                quote = None;
                entries.push(text[start..=at].trim_start_matches([',', ' ']));
                start = at + 1;
            }
            _ => {}
        }
    }
    let rest = text[start..].trim_matches([',', ' ']);
    if !rest.is_empty() {
        entries.push(rest);
    }
    entries
}

/// `--feature-gates`, which may be repeated.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct GateList(pub(crate) String);

impl FlagValue for GateList {
    const TYPE: &'static str = "colonSeparatedMultimapStringString";

    fn read(texts: &[&str]) -> Result<Self, String> {
        Ok(Self(comma_separated(texts).collect::<Vec<_>>().join(",")))
    }

    fn show(&self) -> String {
        self.0.clone()
    }
}

/// A number of bytes, written as a quantity such as `64Ki`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Bytes(pub(crate) usize);

impl FlagValue for Bytes {
    const TYPE: &'static str = "quantity";

    fn read(texts: &[&str]) -> Result<Self, String> {
        let quantity: Quantity = parse(last(texts))?;
        usize::try_from(quantity.value())
            .map(Self)
            .map_err(|_| "must not be negative".to_owned())
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}

/// A log verbosity, as in klog: 0 logs least.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(pub u8);

impl FlagValue for Level {
    const TYPE: &'static str = "Level";

    fn read(texts: &[&str]) -> Result<Self, String> {
        parse(last(texts)).map(Self)
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}

/// Log verbosities of single source files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct VModule(pub(crate) Vec<(String, Level)>);

impl FlagValue for VModule {
    const TYPE: &'static str = "pattern=N,...";

    fn read(texts: &[&str]) -> Result<Self, String> {
        comma_separated(texts)
            .map(|entry| {
                let (pattern, level) = entry.split_once('=').ok_or("expected pattern=N")?;
                if pattern.is_empty() {
                    return Err("expected pattern=N".to_owned());
                }
                Ok((pattern.to_owned(), Level(parse(level)?)))
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }

    fn show(&self) -> String {
        let entries = self.0.iter();
        let entries: Vec<String> = entries
            .map(|(pattern, level)| format!("{pattern}={}", level.0))
            .collect();
        entries.join(",")
    }
}

/// `--version`: print the version, or report another one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum VersionFlag {
    /// Run.
    #[default]
    Off,
    /// Print the version and exit.
    Print,
    /// Print all there is to the version and exit.
    PrintRaw,
    /// Report this version.
    Report(String),
}

impl FlagValue for VersionFlag {
    const TYPE: &'static str = "version";

    fn read(texts: &[&str]) -> Result<Self, String> {
        match last(texts) {
            "false" => Ok(Self::Off),
            "true" => Ok(Self::Print),
            "raw" => Ok(Self::PrintRaw),
            text if text.starts_with('v') => Ok(Self::Report(text.to_owned())),
            _ => Err("must be true, raw or a version such as v1.36.2".to_owned()),
        }
    }

    fn show(&self) -> String {
        match self {
            Self::Off => "false".to_owned(),
            Self::Print => "true".to_owned(),
            Self::PrintRaw => "raw".to_owned(),
            Self::Report(version) => version.clone(),
        }
    }
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// As klog writes them.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl FlagValue for LogFormat {
    const TYPE: &'static str = "string";

    fn read(texts: &[&str]) -> Result<Self, String> {
        match texts.last().copied() {
            Some("text") => Ok(Self::Text),
            Some("json") => Ok(Self::Json),
            _ => Err("must be text or json".to_owned()),
        }
    }

    fn show(&self) -> String {
        match self {
            Self::Text => "text".to_owned(),
            Self::Json => "json".to_owned(),
        }
    }
}

impl FlagValue for EvaluatorArg {
    const TYPE: &'static str = "KIND";

    fn read(texts: &[&str]) -> Result<Self, String> {
        let text = texts.last().copied().unwrap_or_default();
        Self::from_str(text, false).map_err(|_| "must be plain or incremental".to_owned())
    }

    fn show(&self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown<T: FlagValue>(texts: &[&str]) -> String {
        match T::read(texts) {
            Ok(value) => value.show(),
            Err(error) => format!("error: {error}"),
        }
    }

    #[test]
    fn values_are_read_as_kube_scheduler_reads_them() {
        for (shown, expected) in [
            (shown::<bool>(&["T"]), "true"),
            (shown::<bool>(&["yes"]), "error: must be true or false"),
            (shown::<GoDuration>(&["90s"]), "1m30s"),
            (shown::<u16>(&["1", "2"]), "2"),
            (shown::<f32>(&["0.5"]), "0.5"),
            (shown::<f32>(&["50"]), "50"),
            (shown::<Vec<String>>(&["a,b", "c"]), "[a,b,c]"),
            (shown::<Vec<String>>(&[""]), "[]"),
            (shown::<Curves>(&["29, 23"]), "[29,23]"),
            (
                shown::<GateList>(&["A=true", "kube:B=false"]),
                "A=true,kube:B=false",
            ),
            (shown::<Bytes>(&["64Ki"]), "65536"),
            (shown::<Bytes>(&["-1"]), "error: must not be negative"),
            (shown::<VModule>(&["queue*=5,cache=2"]), "queue*=5,cache=2"),
            (shown::<VModule>(&["=5"]), "error: expected pattern=N"),
            (shown::<VersionFlag>(&["v1.2.3"]), "v1.2.3"),
            (
                shown::<Vec<NamedCertKey>>(&["a.crt,a.key", "b.crt,b.key:*.b,c"]),
                "[a.crt,a.key;b.crt,b.key:*.b,c]",
            ),
            (
                shown::<Vec<NamedCertKey>>(&["a.crt"]),
                "error: expected cert.pem,key.pem or cert.pem,key.pem:name,...",
            ),
        ] {
            assert_eq!(shown, expected);
        }
    }

    #[test]
    fn quotes_delimit_the_values_of_labels() {
        for (texts, expected) in [
            (&["m,l=a,b"][..], "[m,l=a,b]"),
            (&["m,l='a,b'"], "[m,l=a,b]"),
            (&["m,l='a,b', n,k='c'"], "[m,l=a,b n,k=c]"),
            (&["m,l=a", "n,k=b"], "[m,l=a n,k=b]"),
            (&[""], "[]"),
            (
                &["m=a"],
                "error: \"m\" is not a metric and a label, as in metric,label",
            ),
        ] {
            assert_eq!(shown::<LabelValues>(texts), expected, "{texts:?}");
        }
    }
}
