//! `berth up --detach`: the same command in the background, and the wait until the cluster is ready.

use crate::cli::{ClusterName, UpArgs};
use crate::clusters::Folder;
use berth_edge::exit::CommandFailure;
use berth_edge::print::{self, program};
use std::ffi::OsString;
use std::fs::File;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The time limit of the start, in addition to the time of `--wait`.
const START_PATIENCE: Duration = Duration::from_secs(300);
/// The pause between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// The number of lines of the log that are printed when the start fails.
const LOG_LINES: usize = 20;

/// Starts the cluster in the background, and prints its greeting when it is ready.
///
/// # Errors
/// When it does not start; the end of its log states why.
pub(crate) fn start(args: &UpArgs) -> Result<(), CommandFailure> {
    let name = args.placement.name.clone().unwrap_or_default();
    let folder = Folder::of(&name)?;
    if folder.is_running() {
        return Err(folder.runs_already());
    }
    folder.create()?;
    let path = folder.log();
    let unwritable = |e: std::io::Error| {
        CommandFailure::Environment(format!("failed to write {}: {e}", path.display()))
    };
    let log = File::create(&path).map_err(unwritable)?;
    let errors = log.try_clone().map_err(unwritable)?;
    let program_file = std::env::current_exe().map_err(|e| {
        CommandFailure::Environment(format!("failed to find the program itself: {e}"))
    })?;
    let reads_input = args.all_files().iter().any(|file| file.as_os_str() == "-");
    let mut command = Command::new(program_file);
    command
        .args(arguments(std::env::args_os().skip(1), &name))
        .stdin(if reads_input {
            Stdio::inherit()
        } else {
            Stdio::null()
        })
        .stdout(log)
        .stderr(errors);
    // Ctrl-C in this terminal is not for the cluster.
    #[cfg(unix)]
    {
        use std::os::unix::process::CommandExt;
        command.process_group(0);
    }
    let mut child = command
        .spawn()
        .map_err(|e| CommandFailure::Environment(format!("failed to start {}: {e}", program())))?;
    let patience = START_PATIENCE.saturating_add(args.placement.wait.unwrap_or_default());
    let begun = Instant::now();
    loop {
        let ready = folder.record().filter(|record| record.pid == child.id());
        if let Some(record) = ready {
            let stop = format!(
                "{} down --name {} stops everything.\n",
                program(),
                name.as_str()
            );
            let greeting = record.greeting.trim_end();
            let lines = greeting.rsplit_once('\n').map_or("", |(lines, _)| lines);
            return print::text(format_args!("{lines}\n{stop}"));
        }
        if let Ok(Some(status)) = child.try_wait() {
            return Err(ended(&path, status));
        }
        if begun.elapsed() > patience {
            return Err(late(&mut child, &path, patience));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// The arguments of the command in the foreground: without `--detach`, with the name.
fn arguments(given: impl Iterator<Item = OsString>, name: &ClusterName) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = Vec::new();
    let mut is_named = false;
    for argument in given {
        let text = argument.to_string_lossy();
        if text == "--detach" || text == "-d" {
            continue;
        }
        is_named |= text == "--name" || text.starts_with("--name=");
        arguments.push(argument);
    }
    if !is_named {
        // After the subcommand: the following arguments may be files.
        let at = arguments.len().min(1);
        arguments.insert(at, format!("--name={}", name.as_str()).into());
    }
    arguments
}

fn tail(path: &std::path::Path) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

/// The failure of a cluster that has ended at its start: with its exit code, and the end of its log.
fn ended(log: &std::path::Path, status: ExitStatus) -> CommandFailure {
    let text = tail(log);
    let own = format!("{}: ", program());
    let text = text.strip_prefix(&own).unwrap_or(&text).to_owned();
    match status.code() {
        Some(2) => CommandFailure::Usage(text),
        _ => CommandFailure::Environment(if text.is_empty() {
            format!("the cluster has ended at its start ({status})")
        } else {
            text
        }),
    }
}

fn late(child: &mut Child, log: &std::path::Path, patience: Duration) -> CommandFailure {
    let _ = child.kill();
    let _ = child.wait();
    CommandFailure::Environment(format!(
        "the cluster was not ready after {} s and is stopped; the end of its log {}:\n{}",
        patience.as_secs(),
        log.display(),
        tail(log)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_in_the_background_is_the_same_with_a_name() {
        for (given, expect) in [
            ("up -d", "up --name=berth"),
            (
                "up --detach --nodes 10 a.yaml",
                "up --name=berth --nodes 10 a.yaml",
            ),
            ("up --name dev -d", "up --name dev"),
            ("up --name=dev -d -f -", "up --name=dev -f -"),
        ] {
            let words = given.split(' ').map(OsString::from);
            let got = arguments(words, &ClusterName::default());
            let got: Vec<_> = got.iter().map(|a| a.to_string_lossy()).collect();
            assert_eq!(got.join(" "), expect, "{given}");
        }
    }
}
