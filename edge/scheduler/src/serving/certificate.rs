//! The serving certificates: from files that may change, or self-signed.

use crate::exit::CommandFailure;
use crate::flags::{NamedCertKey, ServingFlags};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose,
};
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// The name of the pair in `--cert-dir`.
const PAIR_NAME: &str = "kube-scheduler";
/// The validity of a self-signed certificate.
const SELF_SIGNED_DAYS: i64 = 365;

/// The source of a certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
enum CertificateSource {
    /// Two PEM files.
    Files { cert: PathBuf, key: PathBuf },
    /// Made by this process and kept in memory.
    Memory,
}

/// One certificate and the names that it is for.
struct NamedCertificate {
    source: CertificateSource,
    /// The given names; empty for the names in the certificate.
    given_names: Vec<String>,
    /// The bytes that the files held when they were read last.
    seen: (Vec<u8>, Vec<u8>),
    names: Vec<String>,
    certified: Arc<CertifiedKey>,
}

/// The certificates to serve with. They are read again by [`Certificates::reload`].
pub(super) struct Certificates {
    provider: Arc<CryptoProvider>,
    /// The first entry is the default.
    entries: RwLock<Vec<NamedCertificate>>,
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Keys are secrets.
        f.debug_struct("Certificates").finish_non_exhaustive()
    }
}

impl Certificates {
    /// Reads or generates the certificates of the flags.
    ///
    /// # Errors
    /// A file cannot be read or written, or is not a certificate or key.
    pub(super) fn new(
        flags: &ServingFlags,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, CommandFailure> {
        let default = match (
            &flags.tls_cert_file.value,
            &flags.tls_private_key_file.value,
        ) {
            (Some(cert), Some(key)) => Some((cert.clone(), key.clone())),
            (None, None) => pair_in(&flags.cert_dir.value, PAIR_NAME)?,
            _ => {
                return Err(CommandFailure::Usage(
                    "--tls-cert-file and --tls-private-key-file must be given together".to_owned(),
                ));
            }
        };
        let mut entries = vec![match default {
            Some((cert, key)) => NamedCertificate::from_files(cert, key, Vec::new(), &provider)?,
            None => NamedCertificate::self_signed(&provider)?,
        }];
        for NamedCertKey { cert, key, names } in &flags.tls_sni_cert_key.value {
            let entry =
                NamedCertificate::from_files(cert.clone(), key.clone(), names.clone(), &provider)?;
            entries.push(entry);
        }
        Ok(Self {
            provider,
            entries: RwLock::new(entries),
        })
    }

    /// Reads the files again and applies changes. A broken file has no effect.
    pub(super) fn reload(&self) {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        for entry in entries.iter_mut() {
            let CertificateSource::Files { cert, key } = entry.source.clone() else {
                continue;
            };
            let (Ok(cert_pem), Ok(key_pem)) = (std::fs::read(&cert), std::fs::read(&key)) else {
                continue;
            };
            if entry.seen.0 == cert_pem && entry.seen.1 == key_pem {
                continue;
            }
            let names = entry.given_names.clone();
            match NamedCertificate::from_files(cert.clone(), key, names, &self.provider) {
                Ok(fresh) => {
                    tracing::info!(file = %cert.display(), "reloaded the serving certificate");
                    *entry = fresh;
                }
                // Most likely one of the two files has been replaced and the other has not yet.
                Err(_) => tracing::warn!(
                    file = %cert.display(),
                    "the serving certificate has changed and cannot be used yet; serving with the previous one"
                ),
            }
        }
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let named = hello.server_name().and_then(|server| {
            let has_name =
                |entry: &&NamedCertificate| entry.names.iter().any(|name| is_for(name, server));
            entries.iter().skip(1).find(has_name)
        });
        named
            .or(entries.first())
            .map(|entry| Arc::clone(&entry.certified))
    }
}

/// Returns whether a name of a certificate, possibly `*.domain`, matches a server.
fn is_for(name: &str, server: &str) -> bool {
    match name.strip_prefix("*.") {
        Some(domain) => server
            .split_once('.')
            .is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(domain)),
        None => name.eq_ignore_ascii_case(server),
    }
}

impl NamedCertificate {
    fn from_files(
        cert: PathBuf,
        key: PathBuf,
        given_names: Vec<String>,
        provider: &CryptoProvider,
    ) -> Result<Self, CommandFailure> {
        let seen = (read(&cert)?, read(&key)?);
        let place = format!("{} and {}", cert.display(), key.display());
        let certified = certified(&seen.0, &seen.1, provider)
            .map_err(|e| CommandFailure::Usage(format!("failed to use {place}: {e}")))?;
        Ok(Self {
            source: CertificateSource::Files { cert, key },
            names: names(&given_names, &certified),
            given_names,
            seen,
            certified: Arc::new(certified),
        })
    }

    fn self_signed(provider: &CryptoProvider) -> Result<Self, CommandFailure> {
        let (cert, key) = make_self_signed(PAIR_NAME)?;
        let certified = certified(cert.as_bytes(), key.as_bytes(), provider).map_err(|e| {
            CommandFailure::Environment(format!("failed to make a self-signed certificate: {e}"))
        })?;
        tracing::info!("generated a self-signed certificate in memory");
        Ok(Self {
            source: CertificateSource::Memory,
            given_names: Vec::new(),
            seen: Default::default(),
            names: Vec::new(),
            certified: Arc::new(certified),
        })
    }
}

/// The pair of this name in a directory, made when it is not there; `None` without a directory.
pub fn pair_in(directory: &str, name: &str) -> Result<Option<(PathBuf, PathBuf)>, CommandFailure> {
    if directory.is_empty() {
        return Ok(None);
    }
    let file = |ending| Path::new(directory).join(format!("{name}.{ending}"));
    let (cert, key) = (file("crt"), file("key"));
    // One file without the other is a mistake of the user, whose file is not replaced.
    if let (true, false) | (false, true) = (cert.exists(), key.exists()) {
        return Err(CommandFailure::Usage(format!(
            "{} and {} must be a pair, but one of them does not exist",
            cert.display(),
            key.display()
        )));
    }
    if !cert.exists() {
        let failed = |path: &Path, e: std::io::Error| {
            CommandFailure::Environment(format!("failed to write {}: {e}", path.display()))
        };
        let (cert_pem, key_pem) = make_self_signed(name)?;
        std::fs::create_dir_all(directory).map_err(|e| failed(Path::new(directory), e))?;
        write_secret(&key, &key_pem).map_err(|e| failed(&key, e))?;
        std::fs::write(&cert, cert_pem).map_err(|e| failed(&cert, e))?;
        tracing::info!(file = %cert.display(), "generated a self-signed certificate");
    }
    Ok(Some((cert, key)))
}

/// Writes a file that only its owner may read.
fn write_secret(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options.open(path)?.write_all(text.as_bytes())
}

fn read(path: &Path) -> Result<Vec<u8>, CommandFailure> {
    std::fs::read(path)
        .map_err(|e| CommandFailure::Usage(format!("failed to read {}: {e}", path.display())))
}

fn certified(
    cert_pem: &[u8],
    key_pem: &[u8],
    provider: &CryptoProvider,
) -> Result<CertifiedKey, String> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(cert_pem)
        .collect::<Result<_, _>>()
        .map_err(|e| format!("not a PEM certificate: {e}"))?;
    if chain.is_empty() {
        return Err("the file holds no certificate".to_owned());
    }
    let key = PrivateKeyDer::from_pem_slice(key_pem)
        .map_err(|e| format!("not a PEM private key: {e}"))?;
    let certified = CertifiedKey::from_der(chain, key, provider).map_err(|e| e.to_string())?;
    Ok(certified)
}

/// The server names of a certificate; without given names, the names in it.
fn names(given: &[String], certified: &CertifiedKey) -> Vec<String> {
    if !given.is_empty() {
        return given.to_vec();
    }
    let Some(first) = certified.cert.first() else {
        return Vec::new();
    };
    let Ok((_, certificate)) = X509Certificate::from_der(first) else {
        return Vec::new();
    };
    let alternatives = certificate.subject_alternative_name().ok().flatten();
    let alternatives = alternatives
        .iter()
        .flat_map(|extension| &extension.value.general_names);
    alternatives
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        })
        .collect()
}

/// A certificate for localhost and this machine, and its key, as PEM.
fn make_self_signed(name: &str) -> Result<(String, String), CommandFailure> {
    let failed = |e: rcgen::Error| {
        CommandFailure::Environment(format!("failed to make a self-signed certificate: {e}"))
    };
    let local = [
        IpAddr::from([127, 0, 0, 1]),
        IpAddr::from([0u16, 0, 0, 0, 0, 0, 0, 1]),
    ];
    let mut names = vec!["localhost".to_owned(), crate::runner::hostname()];
    names.extend(local.iter().map(ToString::to_string));
    names.dedup();
    let key = KeyPair::generate().map_err(failed)?;
    let mut params = CertificateParams::new(names).map_err(failed)?;
    params.distinguished_name = DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, format!("localhost@{name}"));
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyEncipherment,
    ];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let now = std::time::SystemTime::now();
    params.not_before = now.into();
    params.not_after =
        (now + std::time::Duration::from_secs(SELF_SIGNED_DAYS as u64 * 86_400)).into();
    let certificate = params.self_signed(&key).map_err(failed)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_stand_for_one_label() {
        for (name, server, expected) in [
            ("a.example", "a.example", true),
            ("A.example", "a.EXAMPLE", true),
            ("*.example", "a.example", true),
            ("*.example", "example", false),
            ("*.example", "a.b.example", false),
        ] {
            assert_eq!(is_for(name, server), expected, "{name} {server}");
        }
    }
}
