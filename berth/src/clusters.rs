//! The clusters of this machine that have a name or run in the background: their records, and the commands that list
//! and stop them.
//!
//! Each has a folder in the state directory. A running cluster holds the lock of its folder. The entry of a killed
//! process is therefore recognized as stale, and a reused process ID stops no other process.

use crate::cli::{ClusterName, GetArgs, GetCommand, NamedArgs};
use crate::kubeconfig;
use berth_apiserver::replace_private_file;
use berth_edge::exit::CommandFailure;
use berth_edge::print::Output;
use berth_edge::print::{print_line, program};
use berth_edge::signal;
use serde::{Deserialize, Serialize};
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The variable that names another state directory.
const HOME: &str = "BERTH_STATE_DIR";
const LOCK: &str = "lock";
const RECORD: &str = "cluster.json";
const LOG: &str = "log";
const KUBECONFIG: &str = "kubeconfig";
/// The time that a cluster may take to stop.
const STOP_PATIENCE: Duration = Duration::from_secs(20);
/// The number of attempts to take a lock that another process holds: a process that checks whether a cluster runs holds
/// it briefly.
const LOCK_ATTEMPTS: usize = 10;
/// The pause between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The record of a running cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ClusterRecord {
    /// The process.
    pub(crate) pid: u32,
    /// The URL of the API server.
    pub(crate) server: String,
    /// The file that has the context of the cluster, and the name of the context.
    pub(crate) kubeconfig: PathBuf,
    pub(crate) context: String,
    /// The lines that `berth up` prints when the cluster is ready.
    pub(crate) greeting: String,
}

fn failed(what: &str, path: &Path, e: impl std::fmt::Display) -> CommandFailure {
    CommandFailure::Environment(format!(
        "failed to {what} {}: {e}; {HOME} names another state directory",
        path.display()
    ))
}

/// The state directory: `BERTH_STATE_DIR`, `$XDG_STATE_HOME/berth` or `~/.local/state/berth`.
fn root() -> Result<PathBuf, CommandFailure> {
    let given = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(dir) = given(HOME) {
        return Ok(dir.into());
    }
    if let Some(dir) = given("XDG_STATE_HOME") {
        return Ok(Path::new(&dir).join("berth"));
    }
    let home = std::env::home_dir().filter(|home| !home.as_os_str().is_empty());
    home.map(|home| home.join(".local/state/berth"))
        .ok_or_else(|| CommandFailure::Usage(format!("there is no home directory; set {HOME}")))
}

/// The folder of a cluster.
#[derive(Debug, Clone)]
pub(crate) struct Folder {
    name: ClusterName,
    path: PathBuf,
}

impl Folder {
    /// The folder of this name. It need not exist.
    ///
    /// # Errors
    /// There is no state directory.
    pub(crate) fn of(name: &ClusterName) -> Result<Self, CommandFailure> {
        let path = root()?.join("clusters").join(name.as_str());
        Ok(Self {
            name: name.clone(),
            path,
        })
    }

    /// The log of a cluster that runs in the background.
    pub(crate) fn log(&self) -> PathBuf {
        self.path.join(LOG)
    }

    /// Makes the folder.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn create(&self) -> Result<(), CommandFailure> {
        std::fs::create_dir_all(&self.path).map_err(|e| failed("write", &self.path, e))
    }

    /// The record of the cluster, if there is one.
    pub(crate) fn record(&self) -> Option<ClusterRecord> {
        let text = std::fs::read_to_string(self.path.join(RECORD)).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Returns whether a process runs the cluster.
    pub(crate) fn is_running(&self) -> bool {
        // An exclusive lock would make a cluster that starts at the same moment fail; a shared lock does not.
        match File::open(self.path.join(LOCK)) {
            Ok(lock) => matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)),
            Err(_) => false,
        }
    }

    /// Takes the name for this process.
    ///
    /// # Errors
    /// When a cluster of that name runs, or the folder cannot be written.
    pub(crate) fn acquire(&self) -> Result<RunningName, CommandFailure> {
        self.create()?;
        let path = self.path.join(LOCK);
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|e| failed("write", &path, e))?;
        let mut attempts = 1;
        loop {
            match lock.try_lock() {
                Ok(()) => break,
                Err(TryLockError::Error(e)) => return Err(failed("lock", &path, e)),
                Err(TryLockError::WouldBlock) if attempts < LOCK_ATTEMPTS => {
                    attempts += 1;
                    std::thread::sleep(LOOK_AGAIN);
                }
                Err(TryLockError::WouldBlock) => return Err(self.runs_already()),
            }
        }
        // The record that an earlier process has left.
        let _ = std::fs::remove_file(self.path.join(RECORD));
        Ok(RunningName {
            folder: self.clone(),
            _lock: lock,
        })
    }

    /// The error of a second cluster of the same name.
    pub(crate) fn runs_already(&self) -> CommandFailure {
        let (program, name) = (program(), self.name.as_str());
        CommandFailure::Environment(format!(
            "a cluster named {name} is running; stop it with {program} down --name {name}, or choose another --name"
        ))
    }

    fn remove(&self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// A name that this process has.
pub(crate) struct RunningName {
    folder: Folder,
    _lock: File,
}

impl RunningName {
    /// The kubeconfig of the process itself. The current context of the user's kubeconfig may change.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.path.join(KUBECONFIG)
    }

    /// Notes that the cluster is ready.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub(crate) fn publish(&self, record: &ClusterRecord) -> Result<(), CommandFailure> {
        let path = self.folder.path.join(RECORD);
        let text = serde_json::to_string_pretty(record).map_err(|e| failed("write", &path, e))?;
        replace_private_file(&path, &text).map_err(|e| failed("write", &path, e))
    }
}

impl Drop for RunningName {
    fn drop(&mut self) {
        if let Some(record) = self.folder.record() {
            let _ = kubeconfig::remove(&record.kubeconfig, &record.context);
        }
        let _ = std::fs::remove_file(self.folder.path.join(RECORD));
    }
}

/// The clusters of this machine that run, by name.
fn all() -> Result<Vec<(String, Option<ClusterRecord>)>, CommandFailure> {
    let dir = root()?.join("clusters");
    let entries = match std::fs::read_dir(&dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|e| failed("read", &dir, e))?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|e| failed("read", &dir, e))?;
        let Ok(name) = entry.file_name().to_string_lossy().parse::<ClusterName>() else {
            continue;
        };
        let folder = Folder::of(&name)?;
        if folder.is_running() {
            found.push((name.as_str().to_owned(), folder.record()));
        }
    }
    found.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(found)
}

/// `berth get clusters`.
///
/// # Errors
/// When the state directory cannot be read.
pub(crate) fn get(args: &GetArgs) -> Result<(), CommandFailure> {
    let GetCommand::Clusters { output } = &args.what;
    let clusters = all()?;
    if *output == Output::Json {
        let list: Vec<_> = clusters
            .iter()
            .map(|(name, record)| {
                let status = status(record.as_ref());
                serde_json::json!({"name": name, "status": status, "cluster": record})
            })
            .collect();
        return print_line!("{}", serde_json::Value::from(list));
    }
    // An empty table would not explain how clusters get into it.
    if clusters.is_empty() {
        berth_edge::print::remark(format_args!(
            "no cluster has a name or runs in the background; {} up -d starts one",
            program()
        ));
        return Ok(());
    }
    print_line!(
        "{:<20} {:<9} {:>8}  {:<28} CONTEXT",
        "NAME",
        "STATUS",
        "PID",
        "API SERVER"
    )?;
    for (name, record) in &clusters {
        let (pid, server, context) = match record {
            Some(record) => (record.pid.to_string(), &*record.server, &*record.context),
            None => (String::new(), "", ""),
        };
        let status = status(record.as_ref());
        print_line!("{name:<20} {status:<9} {pid:>8}  {server:<28} {context}")?;
    }
    Ok(())
}

fn status(record: Option<&ClusterRecord>) -> &'static str {
    match record {
        Some(_) => "Ready",
        None => "Starting",
    }
}

/// `berth down`: stops a cluster and removes its entries from the kubeconfig.
///
/// # Errors
/// When there is none of that name, or it does not stop.
pub(crate) fn down(args: &NamedArgs) -> Result<(), CommandFailure> {
    let folder = Folder::of(&args.name)?;
    let name = args.name.as_str();
    let record = folder.record();
    if !folder.is_running() {
        if let Some(record) = record {
            // Its process was killed.
            kubeconfig::remove(&record.kubeconfig, &record.context)?;
            folder.remove();
            return print_line!("cluster {name} was not running any more; its context is removed");
        }
        return Err(CommandFailure::Usage(format!(
            "no cluster named {name} runs with a name or in the background; {} get clusters lists them",
            program()
        )));
    }
    let Some(record) = record else {
        return Err(CommandFailure::Environment(format!(
            "cluster {name} is starting; try again when {} get clusters shows it as Ready",
            program()
        )));
    };
    signal::terminate(record.pid).map_err(|e| {
        CommandFailure::Environment(format!("failed to stop process {}: {e}", record.pid))
    })?;
    let begun = Instant::now();
    while folder.is_running() {
        if begun.elapsed() > STOP_PATIENCE {
            return Err(CommandFailure::Environment(format!(
                "cluster {name} (process {}) has not stopped after {} s",
                record.pid,
                STOP_PATIENCE.as_secs()
            )));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    kubeconfig::remove(&record.kubeconfig, &record.context)?;
    folder.remove();
    print_line!("cluster {name} is stopped")
}
