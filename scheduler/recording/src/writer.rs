//! Writes the files of a run: blocks, new files when one is full, and no more bytes than allowed.

use crate::entry::{Entry, Start};
use crate::segment::{BlockBuilder, file_header, file_name, parse_file_name};
use berth_api::{Kind, Object, Str};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The objects of the cluster as received by the recorded core. A new file begins with them.
#[derive(Debug, Default)]
pub(crate) struct RecordedObjects(BTreeMap<(Kind, Str, Str), Object>);

fn key(object: &Object) -> (Kind, Str, Str) {
    let metadata = object.metadata();
    let (namespace, name) = (metadata.namespace.clone(), metadata.name.clone());
    (object.kind(), namespace, name)
}

impl RecordedObjects {
    pub(crate) fn set(&mut self, object: &Object) {
        self.0.insert(key(object), object.clone());
    }

    /// Another object may have the name now.
    pub(crate) fn unset(&mut self, object: &Object) {
        let key = key(object);
        let uid = &object.metadata().uid;
        if self.0.get(&key).is_some_and(|o| o.metadata().uid == *uid) {
            self.0.remove(&key);
        }
    }

    pub(crate) fn clear(&mut self, of: Kind) {
        self.0.retain(|(kind, _, _), _| *kind != of);
    }

    fn iter(&self) -> impl Iterator<Item = &Object> {
        self.0.values()
    }
}

/// The limits of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The maximum number of bytes of all recordings in the directory, without the current file. The oldest files are
    /// removed when a new one begins.
    pub bytes: u64,
    /// A file of more bytes is followed by a new one.
    pub file_bytes: u64,
}

impl Limits {
    /// A recording of a size in bytes, in eight files.
    pub fn of_bytes(bytes: u64) -> Self {
        Self {
            bytes,
            file_bytes: (bytes / 8).max(64 * 1024),
        }
    }
}

/// Writes the entries of a run.
pub(crate) struct Writer {
    dir: PathBuf,
    run: u64,
    start: Start,
    limits: Limits,
    file: File,
    number: u32,
    /// The length of the file, and of its preamble.
    len: u64,
    preamble: u64,
    block: BlockBuilder,
    entries: u64,
    pub(crate) objects: RecordedObjects,
    pub(crate) bytes_total: u64,
}

impl Writer {
    /// Begins a run.
    pub(crate) fn new(dir: &Path, run: u64, start: Start, limits: Limits) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let mut writer = Self {
            file: create(dir, run, 0)?,
            dir: dir.to_owned(),
            run,
            start,
            limits,
            number: 0,
            len: 0,
            preamble: 0,
            block: BlockBuilder::default(),
            entries: 0,
            objects: RecordedObjects::default(),
            bytes_total: 0,
        };
        writer.raw(&file_header(run, 0))?;
        let start = Entry::Start(Box::new(writer.start.clone()));
        writer.push(writer.start.at_nanos, &start)?;
        Ok(writer)
    }

    /// Adds an entry.
    pub(crate) fn push(&mut self, nanos: i64, entry: &Entry) -> io::Result<()> {
        self.block.push(self.entries, nanos, entry);
        self.entries += 1;
        if self.block.is_full() {
            self.flush()?;
        }
        Ok(())
    }

    /// Follows the objects and the configuration, with which the next file begins.
    pub(crate) fn follow(&mut self, entry: &Entry) {
        match entry {
            Entry::Apply(object) | Entry::Item(object) => self.objects.set(object),
            Entry::Delete(object) => self.objects.unset(object),
            Entry::List(kind, _) => self.objects.clear(*kind),
            // JSON is YAML.
            Entry::Reconfigure(text) => self.start.configuration.clone_from(text),
            _ => {}
        }
    }

    /// Returns whether the next input begins a new file.
    pub(crate) fn is_full(&self) -> bool {
        self.len - self.preamble >= self.limits.file_bytes
    }

    /// Begins a new file with the objects of the cluster. `dropped` inputs are missing before it.
    pub(crate) fn next_file(&mut self, nanos: i64, dropped: u64) -> io::Result<()> {
        self.flush()?;
        self.number += 1;
        self.file = create(&self.dir, self.run, self.number)?;
        self.len = 0;
        self.raw(&file_header(self.run, self.number))?;
        let start = Entry::Start(Box::new(self.start.clone()));
        self.push(nanos, &start)?;
        let objects: Vec<Object> = self.objects.iter().cloned().collect();
        let count = objects.len();
        let checkpoint = Entry::Checkpoint {
            objects: count,
            dropped,
        };
        self.push(nanos, &checkpoint)?;
        for object in objects {
            self.push(nanos, &Entry::Item(object))?;
        }
        self.flush()?;
        self.preamble = self.len;
        self.remove_old()
    }

    /// Writes the buffered entries.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let block = self.block.take()?;
        self.raw(&block)
    }

    fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.len += bytes.len() as u64;
        self.bytes_total += bytes.len() as u64;
        Ok(())
    }

    /// Removes the oldest files while there are too many bytes. The file that is being written stays.
    fn remove_old(&self) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            if let Some(id) = entry.file_name().to_str().and_then(parse_file_name) {
                files.push((id, entry.metadata()?.len()));
            }
        }
        files.sort_unstable();
        let mut total: u64 = files.iter().map(|(_, len)| len).sum();
        for ((run, number), len) in files {
            if total <= self.limits.bytes || (run, number) == (self.run, self.number) {
                break;
            }
            let path = self.dir.join(file_name(run, number));
            tracing::info!(
                file = %path.display(),
                "removed the oldest file of the recording: the limit of bytes is reached"
            );
            fs::remove_file(path)?;
            total -= len;
        }
        Ok(())
    }
}

fn create(dir: &Path, run: u64, number: u32) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // A recording names every pod of the cluster, so only its owner may read it.
        options.mode(0o600);
    }
    options.open(dir.join(file_name(run, number)))
}
