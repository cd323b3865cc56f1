//! The names of pods or nodes of a trace. An item with a count above one has the names `NAME-0`, `NAME-1`, ….

use berth_api::Str;
use rustc_hash::FxHashMap;
use std::fmt;

/// The used names, with their lines.
#[derive(Debug, Default)]
pub(crate) struct Names {
    given: FxHashMap<(Str, Str), Given>,
    /// Single items whose name ends with a number, by the part before the hyphen: each number with its line.
    numbered: FxHashMap<(Str, Str), Vec<(u32, u64)>>,
}

/// The count of a generator or node group: the number of its pods or nodes is not known, so it has all names `NAME-0`,
/// `NAME-1`, ….
pub(crate) const DRAWN: u32 = u32::MAX;

/// An item with a name.
#[derive(Debug, Clone, Copy)]
struct Given {
    count: u32,
    line: u64,
}

/// Two items have one name.
#[derive(Debug)]
pub(crate) struct SameName {
    /// The name that both have.
    pub(crate) name: String,
    /// The line of the earlier item.
    line: u64,
    /// The item with a count whose names include this name, and whether it is the earlier one.
    several: Option<(Str, u32, bool)>,
}

impl Names {
    /// Adds the names of an item; nodes have no namespace.
    ///
    /// # Errors
    /// An earlier item has one of them.
    pub(crate) fn add(
        &mut self,
        namespace: &Str,
        name: &Str,
        count: u32,
        line: u64,
    ) -> Result<(), SameName> {
        let key = (namespace.clone(), name.clone());
        if let Some(before) = self.given.insert(key.clone(), Given { count, line }) {
            return Err(SameName {
                name: name.to_string(),
                line: before.line,
                several: None,
            });
        }
        if count > 1 {
            let singles = self.numbered.get(&key).into_iter().flatten();
            let own = singles.copied().find(|(number, _)| *number < count);
            return own.map_or(Ok(()), |(number, line)| {
                Err(SameName {
                    name: format!("{name}-{number}"),
                    line,
                    several: Some((name.clone(), count, false)),
                })
            });
        }
        let Some((first, number)) = split(name) else {
            return Ok(());
        };
        let several = (namespace.clone(), first);
        if let Some(before) = self.given.get(&several)
            && before.count > 1
            && number < before.count
        {
            return Err(SameName {
                name: name.to_string(),
                line: before.line,
                several: Some((several.1, before.count, true)),
            });
        }
        let numbers = self.numbered.entry(several).or_default();
        numbers.push((number, line));
        Ok(())
    }
}

/// The parts of a name such as `web-3`, as a count gives it.
fn split(name: &str) -> Option<(Str, u32)> {
    let (first, digits) = name.rsplit_once('-')?;
    let number: u32 = digits.parse().ok()?;
    (number.to_string() == digits).then(|| (first.into(), number))
}

impl fmt::Display for SameName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            name,
            line,
            several,
        } = self;
        let names = |of: &Str, count: u32| match count {
            DRAWN => format!("numbered names of {of:?}"),
            count => format!("{count} names of {of:?}"),
        };
        match several {
            None => write!(f, "the name {name:?} is given in line {line} already"),
            Some((of, count, true)) => write!(
                f,
                "the name {name:?} is one of the {} in line {line}",
                names(of, *count)
            ),
            Some((of, count, false)) => write!(
                f,
                "the name {name:?}, one of the {}, is given in line {line} already",
                names(of, *count)
            ),
        }?;
        f.write_str("; give each a name of its own")
    }
}
