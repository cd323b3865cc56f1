//! TLS according to the flags: versions, cipher suites, key exchange groups, certificates of both sides.

use super::certificate::Certificates;
use crate::exit::CommandFailure;
use crate::flags::ServingFlags;
use berth_tls::AnyClient;
use std::sync::Arc;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{Error, NamedGroup, ServerConfig, SupportedProtocolVersion};

/// The cipher suites of kube-scheduler's help text that Berth does not have: they are not forward secret, or use CBC,
/// 3DES or RC4.
const WEAK: [&str; 5] = ["_CBC_", "_RC4_", "_3DES_", "TLS_RSA_", "TLS_DHE_"];

/// The versions that are served: older versions are not secure.
static ALL_VERSIONS: &[&SupportedProtocolVersion] = &[&TLS12, &TLS13];
static VERSION_1_3: &[&SupportedProtocolVersion] = &[&TLS13];

/// Sets up TLS. The certificates are shared with the task that reloads them.
///
/// # Errors
/// When a flag names something that does not exist, or a certificate cannot be used.
pub(super) fn configure(
    flags: &ServingFlags,
    warnings: &mut Vec<String>,
) -> Result<(ServerConfig, Arc<Certificates>), CommandFailure> {
    let provider = Arc::new(provider(flags, warnings)?);
    let certificates = Arc::new(Certificates::new(flags, Arc::clone(&provider))?);
    let failed = |e: Error| CommandFailure::Usage(format!("failed to set up TLS: {e}"));
    let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions(&flags.tls_min_version.value)?)
        .map_err(failed)?
        .with_client_cert_verifier(Arc::new(AnyClient::new(provider, Vec::new())))
        .with_cert_resolver(Arc::clone(&certificates) as _);
    config.alpn_protocols = if flags.disable_http2_serving.value {
        vec![b"http/1.1".to_vec()]
    } else {
        vec![b"h2".to_vec(), b"http/1.1".to_vec()]
    };
    Ok((config, certificates))
}

fn versions(minimum: &str) -> Result<&'static [&'static SupportedProtocolVersion], CommandFailure> {
    match minimum {
        "" | "VersionTLS12" => Ok(ALL_VERSIONS),
        "VersionTLS13" => Ok(VERSION_1_3),
        "VersionTLS10" | "VersionTLS11" => Err(CommandFailure::Usage(format!(
            "invalid argument {minimum:?} for --tls-min-version: Berth serves TLS 1.2 and newer; use VersionTLS12"
        ))),
        _ => Err(CommandFailure::Usage(format!(
            "invalid argument {minimum:?} for --tls-min-version: must be VersionTLS12 or VersionTLS13"
        ))),
    }
}

/// The cryptography that the flags allow.
fn provider(
    flags: &ServingFlags,
    warnings: &mut Vec<String>,
) -> Result<CryptoProvider, CommandFailure> {
    let mut provider = ring::default_provider();
    let wanted = &flags.tls_cipher_suites.value;
    if !wanted.is_empty() {
        let all = provider.cipher_suites.clone();
        let iana = |name: &str| name.replace("TLS13_", "TLS_");
        // An old name of the suites that kube-scheduler still knows.
        let long = |name: &str| {
            if name.ends_with("_CHACHA20_POLY1305") {
                format!("{name}_SHA256")
            } else {
                name.to_owned()
            }
        };
        let mut chosen: Vec<_> = all
            .iter()
            .filter(|suite| suite.version() == &TLS13)
            .copied()
            .collect();
        let mut missing: Vec<&str> = Vec::new();
        for name in wanted {
            let found = all
                .iter()
                .find(|suite| iana(&format!("{:?}", suite.suite())) == long(name));
            match found {
                Some(suite) if !chosen.contains(suite) => chosen.push(*suite),
                Some(_) => {}
                None if WEAK.iter().any(|weak| name.contains(weak)) => missing.push(name),
                None => {
                    let known: Vec<String> = all
                        .iter()
                        .map(|suite| iana(&format!("{:?}", suite.suite())))
                        .collect();
                    return Err(CommandFailure::Usage(format!(
                        "invalid argument {name:?} for --tls-cipher-suites: there are {}",
                        known.join(", ")
                    )));
                }
            }
        }
        if !missing.is_empty() {
            warnings.push(format!(
                "cipher suites of --tls-cipher-suites that Berth does not offer: {}",
                missing.join(", ")
            ));
        }
        provider.cipher_suites = chosen;
    }
    let groups = &flags.tls_curve_preferences.value.0;
    if !groups.is_empty() {
        let wanted: Vec<NamedGroup> = groups.iter().map(|id| NamedGroup::from(*id)).collect();
        let (known, unknown): (Vec<&NamedGroup>, Vec<_>) = wanted
            .iter()
            .partition(|group| provider.kx_groups.iter().any(|kx| kx.name() == **group));
        if known.is_empty() {
            return Err(CommandFailure::Usage(
                "--tls-curve-preferences: Berth offers 23 (P-256), 24 (P-384) and 29 (X25519)"
                    .to_owned(),
            ));
        }
        if !unknown.is_empty() {
            let unknown: Vec<String> = unknown.iter().map(|id| format!("{id:?}")).collect();
            warnings.push(format!(
                "key exchange groups of --tls-curve-preferences that Berth does not offer: {}",
                unknown.join(", ")
            ));
        }
        provider.kx_groups.retain(|kx| wanted.contains(&kx.name()));
    }
    Ok(provider)
}
