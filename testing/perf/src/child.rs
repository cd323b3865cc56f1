//! Processes of a run. They are killed at the end of the run, even after a failure.

use crate::workload::{Process, RunError};
use berth_edge::tasks;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// The time that a process may take to be ready.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// The time that a process may take to end.
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// The bytes of the log of a process that are shown when it fails.
const LOG_SHOWN_MAX: usize = 2_000;

/// A process.
pub(crate) struct ChildProcess {
    name: &'static str,
    child: Child,
    log: PathBuf,
    /// The output that a process of berth printed until it was ready.
    pub(crate) greeting: String,
}

impl ChildProcess {
    /// Starts a process. Its standard error is written to `log`, and its standard output too unless a greeting is
    /// expected.
    fn start(
        name: &'static str,
        mut command: Command,
        log: PathBuf,
        greets: bool,
    ) -> Result<Self, RunError> {
        let fail = |e: std::io::Error| RunError::Start(format!("failed to start the {name}: {e}"));
        let file = File::create(&log).map_err(fail)?;
        let output = if greets {
            Stdio::piped()
        } else {
            Stdio::from(file.try_clone().map_err(fail)?)
        };
        let child = command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(Stdio::from(file))
            .kill_on_drop(true)
            .spawn()
            .map_err(fail)?;
        Ok(Self {
            name,
            child,
            log,
            greeting: String::new(),
        })
    }

    /// Starts a command of the shell.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn shell(name: &'static str, line: &str, log: PathBuf) -> Result<Self, RunError> {
        let mut command = Command::new("/bin/sh");
        // The process keeps its id, so that its own CPU time is measured.
        command.args(["-c", &format!("exec {line}")]);
        Self::start(name, command, log, false)
    }

    /// Starts a build of berth, and waits until it is ready.
    ///
    /// # Errors
    /// When it cannot be started, ends, or is not ready in time.
    pub(crate) async fn berth(
        name: &'static str,
        program: &Path,
        args: &[&str],
        log: PathBuf,
    ) -> Result<Self, RunError> {
        let mut command = Command::new(program);
        command.args(args);
        let mut running = Self::start(name, command, log, true)?;
        let Some(stdout) = running.child.stdout.take() else {
            return Err(RunError::Start(format!("the {name} has no output")));
        };
        let mut lines = BufReader::new(stdout).lines();
        let ready = async {
            while let Ok(Some(line)) = lines.next_line().await {
                running.greeting.push_str(&line);
                running.greeting.push('\n');
                if line.starts_with("Ctrl-C") {
                    return true;
                }
            }
            false
        };
        match timeout(READY_LIMIT, ready).await {
            Ok(true) => {}
            Ok(false) => return Err(RunError::Start(running.ended().await)),
            Err(_) => {
                return Err(RunError::Start(format!(
                    "the {name} is not ready after {} s",
                    READY_LIMIT.as_secs()
                )));
            }
        }
        // Later output is not used, but must not fill the pipe.
        tasks::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        Ok(running)
    }

    /// The word that follows `label` at the beginning of a line of the greeting.
    ///
    /// # Errors
    /// When no line begins with `label`.
    pub(crate) fn greeted(&self, label: &str) -> Result<String, RunError> {
        let line = self.greeting.lines().find_map(|l| l.strip_prefix(label));
        let word = line.and_then(|rest| rest.split_whitespace().next());
        word.map(str::to_owned)
            .ok_or_else(|| RunError::Start(format!("the {} did not print its {label}", self.name)))
    }

    /// The process for reports.
    pub(crate) fn process(&self) -> Option<Process> {
        Some(Process {
            name: self.name.to_owned(),
            pid: self.child.id()?,
        })
    }

    /// Resolves when the process has ended by itself, with the end of its log.
    pub(crate) async fn ended(&mut self) -> String {
        let status = match self.child.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        format!("the {} ended ({status}): {}", self.name, last(&self.log))
    }

    /// Ends the process.
    pub(crate) async fn stop(mut self) {
        let _ = self.child.start_kill();
        let _ = timeout(STOP_LIMIT, self.child.wait()).await;
    }
}

/// The end of a log, as one line.
fn last(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let from = text.len().saturating_sub(LOG_SHOWN_MAX);
    let from = (from..text.len())
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0);
    let lines: Vec<&str> = text[from..].lines().map(str::trim).collect();
    match lines.join(" | ") {
        empty if empty.is_empty() => "it logged nothing".to_owned(),
        lines => lines,
    }
}
