//! Reads recordings: the runs of a directory, and the entries of a run up to its end or to the first damage.

use crate::entry::{Entry, Kinds};
use crate::segment::{
    Block, FILE_HEADER_LEN, check_file_header, file_name, parse_file_name, read_block,
};
use berth_api::Time;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// A directory has no recording that can be read.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory cannot be read.
    #[error("failed to read {dir}: {source}")]
    Unreadable {
        /// The directory.
        dir: String,
        /// The error.
        source: std::io::Error,
    },
    /// It contains no recording.
    #[error("{dir} contains no recording: files of one are named like {example}")]
    Nothing {
        /// The directory.
        dir: String,
        /// The name of a file of a recording.
        example: String,
    },
}

/// A run of a scheduler in a directory of recordings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedRun {
    /// The time at which it began, in milliseconds since 1970.
    pub id: u64,
    /// Its files with their numbers, in order.
    pub files: Vec<(u32, PathBuf)>,
}

/// The runs in a directory, the oldest first; at least one.
///
/// # Errors
/// When the directory cannot be read or contains no recording.
pub fn runs(dir: &Path) -> Result<Vec<RecordedRun>, OpenError> {
    let shown = || dir.display().to_string();
    let unreadable = |source| OpenError::Unreadable {
        dir: shown(),
        source,
    };
    let mut found: BTreeMap<u64, Vec<(u32, PathBuf)>> = BTreeMap::new();
    for entry in fs::read_dir(dir).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        if let Some((run, number)) = entry.file_name().to_str().and_then(parse_file_name) {
            found.entry(run).or_default().push((number, entry.path()));
        }
    }
    if found.is_empty() {
        return Err(OpenError::Nothing {
            dir: shown(),
            example: file_name(0, 0),
        });
    }
    Ok(found
        .into_iter()
        .map(|(id, mut files)| {
            files.sort_unstable();
            RecordedRun { id, files }
        })
        .collect())
}

/// A recording cannot be read from here on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub file: PathBuf,
    /// The first byte that cannot be read.
    pub byte: u64,
    /// The fault.
    pub what: String,
    /// The number of the first entry that is lost.
    pub first_lost: u64,
    /// The number of bytes from there on that are lost, in this and later files.
    pub bytes_lost: u64,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, byte {}: {}; entry {} and later ones are lost ({} bytes)",
            self.file.display(),
            self.byte,
            self.what,
            self.first_lost,
            self.bytes_lost
        )
    }
}

/// An entry with its place.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundEntry {
    /// Its number in the run, from 0.
    pub number: u64,
    /// The time of the input.
    pub at: Time,
    /// The entry.
    pub entry: Entry,
}

/// The entries of a run, in order. Ends after the first damage.
pub struct RunEntries {
    files: VecDeque<(u32, PathBuf)>,
    current: Option<Opened>,
    pending: VecDeque<FoundEntry>,
    /// The entries after the pending ones.
    late: Option<Damage>,
    kinds: Kinds,
    next_file: Option<u32>,
    next_entry: u64,
    is_over: bool,
}

struct Opened {
    path: PathBuf,
    bytes: Vec<u8>,
    at: usize,
}

impl RunEntries {
    /// Reads a run from its first file on.
    pub fn of(run: &RecordedRun) -> Self {
        Self {
            files: run.files.iter().cloned().collect(),
            current: None,
            pending: VecDeque::new(),
            late: None,
            kinds: Kinds::default(),
            next_file: None,
            next_entry: 0,
            is_over: false,
        }
    }

    /// Continues with the next file after a damage. The next entries are its options and its objects.
    pub fn skip_file(&mut self) {
        self.current = None;
        self.next_file = None;
        self.is_over = false;
    }

    fn damage(&mut self, path: &Path, byte: usize, len: usize, what: String) -> Damage {
        self.is_over = true;
        let later = self
            .files
            .iter()
            .filter_map(|(_, path)| fs::metadata(path).ok());
        let later: u64 = later.map(|metadata| metadata.len()).sum();
        Damage {
            file: path.to_owned(),
            byte: byte as u64,
            what,
            first_lost: self.next_entry,
            bytes_lost: len.saturating_sub(byte) as u64 + later,
        }
    }

    fn open_next(&mut self) -> Option<Result<(), Damage>> {
        let (number, path) = self.files.pop_front()?;
        if let Some(expected) = self.next_file
            && number != expected
        {
            let what = format!("file {expected} of the run is missing before it");
            return Some(Err(self.damage(&path, 0, 0, what)));
        }
        self.next_file = Some(number + 1);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) => {
                let what = format!("the file cannot be read: {error}");
                return Some(Err(self.damage(&path, 0, 0, what)));
            }
        };
        if let Err(what) = check_file_header(&bytes) {
            return Some(Err(self.damage(&path, 0, bytes.len(), what)));
        }
        self.current = Some(Opened {
            path,
            bytes,
            at: FILE_HEADER_LEN,
        });
        Some(Ok(()))
    }

    fn read_block(&mut self, opened: &Opened) -> Result<usize, Damage> {
        let (at, len) = (opened.at, opened.bytes.len());
        let Block {
            lines,
            entries,
            first,
            base,
            len: block_len,
        } = match read_block(&opened.bytes[at..]) {
            Ok(block) => block,
            Err(bad) => {
                let mut what = bad.what;
                if let Some((first, entries)) = bad.claims {
                    what += &format!(
                        " with the entries {first} to {}",
                        first + u64::from(entries)
                    );
                }
                return Err(self.damage(&opened.path, at, len, what));
            }
        };
        let (mut number, mut nanos) = (first, base);
        let mut read = VecDeque::with_capacity(entries as usize);
        for line in lines.lines() {
            let (since, entry) = match Entry::read(line, &mut self.kinds) {
                Ok(entry) => entry,
                Err(error) => {
                    let what = format!("entry {number} of the block there is wrong: {error}");
                    self.pending.append(&mut read);
                    self.next_entry = number;
                    let damage = self.damage(&opened.path, at, len, what);
                    self.late = Some(damage);
                    return Ok(len - at);
                }
            };
            nanos = nanos.wrapping_add(since);
            read.push_back(FoundEntry {
                number,
                at: Time::from_nanos(nanos),
                entry,
            });
            number += 1;
        }
        self.pending.append(&mut read);
        self.next_entry = number;
        Ok(block_len)
    }
}

impl Iterator for RunEntries {
    type Item = Result<FoundEntry, Damage>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(found) = self.pending.pop_front() {
                return Some(Ok(found));
            }
            if let Some(damage) = self.late.take() {
                return Some(Err(damage));
            }
            if self.is_over {
                return None;
            }
            match self.current.take() {
                Some(mut opened) if opened.at < opened.bytes.len() => {
                    match self.read_block(&opened) {
                        Ok(len) => {
                            opened.at += len;
                            self.current = Some(opened);
                        }
                        Err(damage) => return Some(Err(damage)),
                    }
                }
                _ => match self.open_next()? {
                    Ok(()) => {}
                    Err(damage) => return Some(Err(damage)),
                },
            }
        }
    }
}
