//! The data directory: one redb database with every version that is live or needed by the kept history.
//!
//! The table `versions` is a log: revision → event, kind, key and object. A restart replays it in order. Compaction
//! removes the versions that neither the live objects nor the kept history need, and the table `compacted` records how
//! far the history of each kind has been dropped.

use super::history::EventKind;
use super::journal::JournalEntry;
use super::version::{Draft, ObjectVersion, TypeMeta};
use redb::backends::FileBackend;
use redb::{
    Builder, Database, DatabaseError, ReadableDatabase, ReadableTable, ReadableTableMetadata,
    StorageBackend, TableDefinition, TableError,
};
use serde::Deserialize;
use serde_json::Value;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// The format that this version of Berth writes, and the newest that it reads.
const FORMAT: u64 = 1;
/// The name of the database in the directory.
const FILE: &str = "berth.redb";
/// Its name while it is created: a database that was created halfway cannot be opened.
const NEW_FILE: &str = "berth.redb.new";
/// The file whose lock a process holds while it uses the directory.
const LOCK: &str = "lock";
/// The part of the database that redb keeps in memory. The live objects are in memory anyway.
const PAGE_CACHE_BYTES: usize = 16 * 1024 * 1024;
/// A file is compacted at start-up when it is larger than this …
const COMPACT_FILE_BYTES_MIN: u64 = 64 * 1024 * 1024;
/// … and than its contents this many times.
const COMPACT_FILE_RATIO: u64 = 3;

const VERSIONS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("versions");
const COMPACTED: TableDefinition<'_, &str, u64> = TableDefinition::new("compacted");
const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");
const META_FORMAT: &str = "format";

/// The reason why a data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// Another process has it open.
    #[error(
        "the data directory {dir} is in use by another process; stop that process, or choose another directory"
    )]
    InUse {
        /// The directory.
        dir: PathBuf,
    },
    /// It cannot be created, read or written.
    #[error("cannot use the data directory {dir}: {source}{hint}", hint = hint(source))]
    Io {
        /// The directory.
        dir: PathBuf,
        /// The error that the operating system reports.
        source: io::Error,
    },
    /// A newer version of Berth wrote it.
    #[error(
        "the data directory {dir} has format {format}, but this version of Berth reads formats up to {FORMAT}; start the version that wrote it, or choose another directory"
    )]
    Newer {
        /// The directory.
        dir: PathBuf,
        /// The format that it has.
        format: u64,
    },
    /// Its contents cannot be read.
    #[error(
        "the data directory {dir} is damaged: {detail}; restore it from a backup, or move it away to start with an empty cluster"
    )]
    Damaged {
        /// The directory.
        dir: PathBuf,
        /// The fault.
        detail: String,
    },
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull => "; free some space on that disk",
        io::ErrorKind::PermissionDenied => "; change its permissions, or choose another directory",
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => "; choose a directory",
        _ => "",
    }
}

/// An open data directory. No other process can open it at the same time.
#[derive(Debug)]
pub struct DataDir {
    dir: PathBuf,
    database: Database,
    /// Dropped after the database.
    _lock: Option<File>,
}

/// One entry of the log.
#[derive(Debug)]
pub(super) struct LogRecord {
    pub(super) event: EventKind,
    pub(super) kind: usize,
    pub(super) key: String,
    pub(super) version: ObjectVersion,
}

impl DataDir {
    /// Opens a data directory, or creates it.
    ///
    /// # Errors
    /// See [`DataDirError`].
    pub fn open(dir: &Path) -> Result<Self, DataDirError> {
        let io = |source| DataDirError::Io {
            dir: dir.to_owned(),
            source,
        };
        private(DirBuilder::new().recursive(true))
            .create(dir)
            .map_err(io)?;
        let open = |name: &str| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            private_file(&mut options).open(dir.join(name))
        };
        let lock = open(LOCK).map_err(io)?;
        lock.try_lock().map_err(|e| match e {
            TryLockError::WouldBlock => DataDirError::InUse {
                dir: dir.to_owned(),
            },
            TryLockError::Error(source) => io(source),
        })?;
        let database = |name: &str| {
            let file = open(name).map_err(io)?;
            if name == NEW_FILE {
                file.set_len(0).map_err(io)?;
            }
            let backend = FileBackend::new(file).map_err(|e| failed(dir, e.into()))?;
            Self::with_backend(dir, backend)
        };
        let path = dir.join(FILE);
        if !path.try_exists().map_err(io)? {
            drop(database(NEW_FILE)?);
            std::fs::rename(dir.join(NEW_FILE), &path).map_err(io)?;
            // The name must be durable too.
            File::open(dir)
                .and_then(|directory| directory.sync_all())
                .map_err(io)?;
        }
        let bytes = std::fs::metadata(&path).map_err(io)?.len();
        // A database never is empty: it is created under another name.
        if bytes == 0 {
            return Err(DataDirError::Damaged {
                dir: dir.to_owned(),
                detail: format!("the file {FILE} is empty"),
            });
        }
        let mut opened = database(FILE)?;
        opened._lock = Some(lock);
        opened.compact_file(&path)?;
        Ok(opened)
    }

    /// As [`DataDir::open`], with another place for the bytes. `dir` only names it in messages.
    pub(super) fn with_backend(
        dir: &Path,
        backend: impl StorageBackend,
    ) -> Result<Self, DataDirError> {
        let fail = |error: redb::Error| failed(dir, error);
        let database = Builder::new()
            .set_cache_size(PAGE_CACHE_BYTES)
            // The checksum of every page in use is compared. All objects are read next anyway.
            .set_check_integrity_on_open(true)
            .create_with_backend(backend)
            .map_err(|e| match e {
                DatabaseError::UpgradeRequired(version) => DataDirError::Damaged {
                    dir: dir.to_owned(),
                    detail: format!("its file has version {version} of the redb format"),
                },
                other => fail(other.into()),
            })?;
        let opened = Self {
            dir: dir.to_owned(),
            database,
            _lock: None,
        };
        // The file is only changed after its format is known.
        match opened.format().map_err(fail)? {
            Some(FORMAT) => Ok(opened),
            Some(format) if format > FORMAT => Err(DataDirError::Newer {
                dir: dir.to_owned(),
                format,
            }),
            Some(format) => Err(opened.damaged(format!("format {format} does not exist"))),
            None => {
                opened.initialise().map_err(fail)?;
                Ok(opened)
            }
        }
    }

    fn damaged(&self, detail: String) -> DataDirError {
        DataDirError::Damaged {
            dir: self.dir.clone(),
            detail,
        }
    }

    fn failed(&self, error: impl Into<redb::Error>) -> DataDirError {
        failed(&self.dir, error.into())
    }

    fn format(&self) -> Result<Option<u64>, redb::Error> {
        Ok(self.value(META_FORMAT)?.map(|bytes| {
            bytes
                .as_slice()
                .try_into()
                .map_or(u64::MAX, u64::from_le_bytes)
        }))
    }

    fn initialise(&self) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        transaction.open_table(VERSIONS)?;
        transaction.open_table(COMPACTED)?;
        transaction
            .open_table(META)?
            .insert(META_FORMAT, FORMAT.to_le_bytes().as_slice())?;
        transaction.commit()?;
        Ok(())
    }

    fn value(&self, name: &str) -> Result<Option<Vec<u8>>, redb::Error> {
        let transaction = self.database.begin_read()?;
        let table = match transaction.open_table(META) {
            Err(TableError::TableDoesNotExist(_)) => return Ok(None),
            other => other?,
        };
        Ok(table.get(name)?.map(|value| value.value().to_vec()))
    }

    /// Returns free space within the file to the disk, where that is much of it.
    fn compact_file(&mut self, path: &Path) -> Result<(), DataDirError> {
        let size = |source| DataDirError::Io {
            dir: self.dir.clone(),
            source,
        };
        let file_bytes = std::fs::metadata(path).map_err(size)?.len();
        if file_bytes < COMPACT_FILE_BYTES_MIN {
            return Ok(());
        }
        let stored = || -> Result<u64, redb::Error> {
            let transaction = self.database.begin_read()?;
            let table = transaction.open_table(VERSIONS)?;
            Ok(table.stats()?.stored_bytes())
        };
        let stored_bytes = stored().map_err(|e| self.failed(e))?;
        if file_bytes / COMPACT_FILE_RATIO > stored_bytes {
            self.database
                .compact()
                .map_err(|e| failed(&self.dir, e.into()))?;
        }
        Ok(())
    }

    /// A value that was stored with [`DataDir::set`].
    ///
    /// # Errors
    /// [`DataDirError::Io`] and [`DataDirError::Damaged`].
    pub fn get(&self, name: &str) -> Result<Option<Vec<u8>>, DataDirError> {
        self.value(name).map_err(|e| self.failed(e))
    }

    /// Stores a value of the cluster that is not an object, such as the key of its certificate authority.
    ///
    /// # Errors
    /// [`DataDirError::Io`] and [`DataDirError::Damaged`].
    pub fn set(&self, name: &str, value: &[u8]) -> Result<(), DataDirError> {
        let set = || -> Result<(), redb::Error> {
            let transaction = self.database.begin_write()?;
            transaction.open_table(META)?.insert(name, value)?;
            transaction.commit()?;
            Ok(())
        };
        set().map_err(|e| self.failed(e))
    }

    /// The revision up to which the history of each kind was dropped, and every entry of the log in order.
    pub(super) fn load(
        &self,
        kinds: &[String],
        mut compacted: impl FnMut(usize, u64),
        mut entry: impl FnMut(LogRecord),
    ) -> Result<(), DataDirError> {
        let transaction = self.database.begin_read().map_err(|e| self.failed(e))?;
        let table = transaction
            .open_table(COMPACTED)
            .map_err(|e| self.failed(e))?;
        for row in table.iter().map_err(|e| self.failed(e))? {
            let (kind, revision) = row.map_err(|e| self.failed(e))?;
            compacted(self.kind(kinds, kind.value())?, revision.value());
        }
        let table = transaction
            .open_table(VERSIONS)
            .map_err(|e| self.failed(e))?;
        let now = Instant::now();
        for row in table.iter().map_err(|e| self.failed(e))? {
            let (revision, bytes) = row.map_err(|e| self.failed(e))?;
            let revision = revision.value();
            let Some(parts) = Parts::read(bytes.value()) else {
                return Err(self.damaged(format!("revision {revision} cannot be read")));
            };
            // After a restart, the clock of the process and the times on the disk are not related; a clock that was set
            // back must not result in a time in the future.
            let age = SystemTime::now().duration_since(parts.written);
            let written = now.checked_sub(age.unwrap_or_default()).unwrap_or(now);
            let version = stored_version(parts.object, revision, written)
                .map_err(|e| self.damaged(format!("revision {revision} cannot be read: {e}")))?;
            entry(LogRecord {
                event: parts.event,
                kind: self.kind(kinds, parts.kind)?,
                key: parts.key.to_owned(),
                version,
            });
        }
        Ok(())
    }

    fn kind(&self, kinds: &[String], name: &str) -> Result<usize, DataDirError> {
        kinds.iter().position(|k| k == name).ok_or_else(|| {
            self.damaged(format!(
                "it holds objects of {name}, which this version of Berth does not serve"
            ))
        })
    }

    /// Writes entries in one transaction; they are on the disk when this returns.
    pub(super) fn commit(
        &self,
        kinds: &[String],
        entries: &[JournalEntry],
    ) -> Result<(), DataDirError> {
        self.write(kinds, entries).map_err(|e| self.failed(e))
    }

    fn write(&self, kinds: &[String], entries: &[JournalEntry]) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        {
            let mut versions = transaction.open_table(VERSIONS)?;
            let mut bytes = Vec::new();
            for entry in entries {
                match entry {
                    JournalEntry::Write { kind, event, .. } => {
                        bytes.clear();
                        let name = kinds.get(*kind).map_or("", String::as_str);
                        put(&mut bytes, event.kind, name, &event.key, &event.version);
                        versions.insert(event.revision(), bytes.as_slice())?;
                    }
                    JournalEntry::Compact {
                        kind,
                        up_to,
                        versions: removed,
                    } => {
                        for revision in removed {
                            versions.remove(revision)?;
                        }
                        let name = kinds.get(*kind).map_or("", String::as_str);
                        transaction.open_table(COMPACTED)?.insert(name, up_to)?;
                    }
                }
            }
        }
        // One transaction for all entries: after a crash, all or none of them exist.
        transaction.commit()?;
        Ok(())
    }
}

#[cfg(unix)]
fn private(builder: &mut DirBuilder) -> &mut DirBuilder {
    use std::os::unix::fs::DirBuilderExt;
    builder.mode(0o700)
}

#[cfg(not(unix))]
fn private(builder: &mut DirBuilder) -> &mut DirBuilder {
    builder
}

#[cfg(unix)]
fn private_file(options: &mut OpenOptions) -> &mut OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    options.mode(0o600)
}

#[cfg(not(unix))]
fn private_file(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

fn failed(dir: &Path, error: redb::Error) -> DataDirError {
    let dir = dir.to_owned();
    match error {
        redb::Error::DatabaseAlreadyOpen => DataDirError::InUse { dir },
        redb::Error::Io(source)
            if !matches!(
                source.kind(),
                io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
            ) =>
        {
            DataDirError::Io { dir, source }
        }
        other => DataDirError::Damaged {
            dir,
            detail: other.to_string(),
        },
    }
}

/// The parts of one value of the log: event (1 byte), milliseconds since 1970 (8), length of the kind (2), kind,
/// length of the key (4), key, and the object as JSON. Numbers are little-endian.
struct Parts<'a> {
    event: EventKind,
    written: SystemTime,
    kind: &'a str,
    key: &'a str,
    object: &'a [u8],
}

impl<'a> Parts<'a> {
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let (event, rest) = bytes.split_first()?;
        let event = match event {
            b'c' => EventKind::Created,
            b'u' => EventKind::Updated,
            b'd' => EventKind::Deleted,
            _ => return None,
        };
        let (millis, rest) = rest.split_first_chunk::<8>()?;
        let written = SystemTime::UNIX_EPOCH
            .checked_add(Duration::from_millis(u64::from_le_bytes(*millis)))?;
        let (len, rest) = rest.split_first_chunk::<2>()?;
        let (kind, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*len)))?;
        let (len, rest) = rest.split_first_chunk::<4>()?;
        let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
        let (key, object) = rest.split_at_checked(len)?;
        Some(Self {
            event,
            written,
            kind: std::str::from_utf8(kind).ok()?,
            key: std::str::from_utf8(key).ok()?,
            object,
        })
    }
}

fn put(out: &mut Vec<u8>, event: EventKind, kind: &str, key: &str, version: &ObjectVersion) {
    out.push(match event {
        EventKind::Created => b'c',
        EventKind::Updated => b'u',
        EventKind::Deleted => b'd',
    });
    let written = SystemTime::now()
        .checked_sub(version.written().elapsed())
        .and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok())
        .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(0));
    out.extend_from_slice(&written.to_le_bytes());
    // Kinds are named by this program, and keys are two names of Kubernetes: both are far shorter than their limits.
    out.extend_from_slice(&u16::try_from(kind.len()).unwrap_or(u16::MAX).to_le_bytes());
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(&u32::try_from(key.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(key.as_bytes());
    out.push(b'{');
    put_type_meta(out, version.type_meta());
    match version.body().strip_prefix(b"{") {
        Some(rest) if rest != b"}" => out.extend_from_slice(rest),
        _ => {
            if out.last() == Some(&b',') {
                out.pop();
            }
            out.push(b'}');
        }
    }
}

/// The fields before the body, each with a comma behind it.
fn put_type_meta(out: &mut Vec<u8>, TypeMeta { api_version, kind }: &TypeMeta) {
    for (field, text) in [("apiVersion", api_version), ("kind", kind)] {
        if !text.is_empty() {
            // Writing into a vector cannot fail.
            let _ = write!(out, "\"{field}\":{},", Value::from(&**text));
        }
    }
}

/// The version of an object in the log, which begins with the fields that the body leaves out.
fn stored_version(object: &[u8], revision: u64, written: Instant) -> Result<ObjectVersion, String> {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Head {
        api_version: Box<str>,
        kind: Box<str>,
    }
    let text = std::str::from_utf8(object).map_err(|e| e.to_string())?;
    // All of it must be JSON.
    let Head { api_version, kind } = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let type_meta = TypeMeta { api_version, kind };
    let mut head = vec![b'{'];
    put_type_meta(&mut head, &type_meta);
    let Some(rest) = object.strip_prefix(&*head) else {
        let object = serde_json::from_str(text).map_err(|e| e.to_string())?;
        let (version, _) = Draft::new(object).version(Some(revision), written);
        return Ok(version);
    };
    let body = [b"{", rest].concat();
    Ok(ObjectVersion::of_body(
        type_meta,
        body.into(),
        revision,
        written,
    ))
}
