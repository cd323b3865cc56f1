//! `berth envtest DIR`: a folder for KUBEBUILDER_ASSETS, with links to Berth under the names of envtest's programs.

use super::{ETCD, KUBE_APISERVER};
use crate::args::EnvtestArgs;
use berth_edge::exit::CommandFailure;
use berth_edge::print::print_line;
use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};

/// Writes the folder.
///
/// # Errors
/// When it cannot be written, or something else has the name of one of the programs.
pub fn run(args: &EnvtestArgs) -> Result<(), CommandFailure> {
    let unwritable = |e: io::Error| {
        CommandFailure::Environment(format!(
            "failed to write {}: {e}; choose a directory that can be written",
            args.dir.display()
        ))
    };
    std::fs::create_dir_all(&args.dir).map_err(unwritable)?;
    let dir = std::path::absolute(&args.dir).map_err(unwritable)?;
    let berth = std::env::current_exe().map_err(|e| {
        CommandFailure::Environment(format!("failed to find the program itself: {e}"))
    })?;
    for name in [KUBE_APISERVER, ETCD] {
        put(&berth, &dir.join(with_extension(name)), args)?;
    }
    let kubectl = with_extension("kubectl");
    let found = on_path(&kubectl).filter(|found| found.parent() != Some(&dir));
    match &found {
        Some(found) => put(found, &dir.join(&kubectl), args)?,
        None if dir.join(&kubectl).exists() => {}
        None => berth_edge::print::remark(
            "kubectl is not on the PATH: tests that call it through envtest need it in that directory",
        ),
    }
    print_line!(
        "export KUBEBUILDER_ASSETS={}",
        quoted(&dir.to_string_lossy())
    )
}

/// A word for `eval` in a shell, quoted if it contains special characters.
fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,=".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.into();
    }
    // Single quotes prevent all expansions; a single quote ends them.
    format!("'{}'", word.replace('\'', r"'\''")).into()
}

fn with_extension(name: &str) -> String {
    format!("{name}{}", std::env::consts::EXE_SUFFIX)
}

/// The first program of this name in the directories of PATH.
fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut candidates = std::env::split_paths(&path).map(|dir| dir.join(name));
    candidates.find(|candidate| candidate.is_file())
}

/// Writes a program to a path. Replaces only programs of an earlier run of the command.
fn put(program: &Path, at: &Path, args: &EnvtestArgs) -> Result<(), CommandFailure> {
    let exists = at.symlink_metadata().is_ok();
    if exists && !is_ours(at) && !args.force {
        return Err(CommandFailure::Usage(format!(
            "{} exists and is not a link to Berth; choose an empty directory, or replace it with --force",
            at.display()
        )));
    }
    let placed = if exists {
        std::fs::remove_file(at)
    } else {
        Ok(())
    };
    placed
        .and_then(|()| {
            if args.copy {
                std::fs::copy(program, at).map(drop)
            } else {
                link(program, at)
            }
        })
        .map_err(|e| {
            CommandFailure::Environment(format!(
                "failed to write {}: {e}; choose a directory that can be written",
                at.display()
            ))
        })
}

/// Returns whether a file is a link, as this command makes them. Real programs of envtest are files.
fn is_ours(at: &Path) -> bool {
    at.symlink_metadata()
        .is_ok_and(|metadata| metadata.file_type().is_symlink())
}

#[cfg(unix)]
fn link(program: &Path, at: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(program, at)
}

/// Links need privileges on Windows.
#[cfg(not(unix))]
fn link(program: &Path, at: &Path) -> io::Result<()> {
    std::fs::copy(program, at).map(drop)
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_directory_is_one_word_of_the_shell() {
        for (directory, expected) in [
            ("/tmp/assets-1.36_a", "/tmp/assets-1.36_a"),
            ("/tmp/my assets", "'/tmp/my assets'"),
            ("/tmp/$(touch x)`y`", "'/tmp/$(touch x)`y`'"),
            ("/tmp/it's", r"'/tmp/it'\''s'"),
            ("/tmp/ä", "'/tmp/ä'"),
            ("/tmp/~a;b&c", "'/tmp/~a;b&c'"),
        ] {
            assert_eq!(quoted(directory), expected);
        }
    }
}
