//! The kubeconfig of the administrator.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The reason why a kubeconfig could not be written.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot write the kubeconfig {path}: {source}; choose a path in a directory that exists and can be written"
)]
pub struct KubeconfigError {
    /// The file.
    pub path: PathBuf,
    /// The error.
    pub source: io::Error,
}

pub(super) fn write(
    path: &Path,
    server: &str,
    ca_pem: &str,
    token: &str,
    extensions: &[(&str, String)],
) -> Result<(), KubeconfigError> {
    replace_private_file(path, &text(server, ca_pem, token, extensions)).map_err(|source| {
        KubeconfigError {
            path: path.to_owned(),
            source,
        }
    })
}

/// A kubeconfig of an administrator: cluster, user and context `berth`.
pub fn kubeconfig_text(server: &str, ca_pem: &str, token: &str) -> String {
    text(server, ca_pem, token, &[])
}

fn text(server: &str, ca_pem: &str, token: &str, extensions: &[(&str, String)]) -> String {
    let ca = STANDARD.encode(ca_pem);
    let mut named = String::new();
    for (name, url) in extensions {
        named += &format!("    - name: {name}\n      extension:\n        url: {url}\n");
    }
    // The key may only be there if it has entries.
    if !named.is_empty() {
        named.insert_str(0, "    extensions:\n");
    }
    format!(
        "apiVersion: v1\n\
         kind: Config\n\
         clusters:\n\
         - name: berth\n\
         \x20 cluster:\n\
         \x20   server: {server}\n\
         \x20   certificate-authority-data: {ca}\n\
         {named}\
         users:\n\
         - name: berth\n\
         \x20 user:\n\
         \x20   token: {token}\n\
         contexts:\n\
         - name: berth\n\
         \x20 context:\n\
         \x20   cluster: berth\n\
         \x20   user: berth\n\
         current-context: berth\n"
    )
}

/// Writes a file that only its owner can read. A temporary file in the same directory is renamed, so that no reader
/// sees a partial file.
///
/// # Errors
/// The file cannot be written; an existing file is unchanged.
pub fn replace_private_file(path: &Path, text: &str) -> io::Result<()> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "it names no file"))?;
    if path.is_dir() {
        return Err(io::Error::new(
            io::ErrorKind::IsADirectory,
            "it is a directory",
        ));
    }
    let mut beside = name.to_owned();
    beside.push(format!(".{}.tmp", std::process::id()));
    let beside = path.with_file_name(beside);
    let written = write_private(&beside, text).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
