//! Certificate authorities in PEM, as definitions, webhooks and APIServices state them.

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// The authorities of a bundle, as roots and as certificates. There is at least one.
///
/// # Errors
/// The fault of the bundle, as kube-apiserver reports it.
pub fn read(bundle: &[u8]) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), String> {
    let (mut roots, mut given) = (RootCertStore::empty(), Vec::new());
    for certificate in CertificateDer::pem_slice_iter(bundle) {
        let certificate =
            certificate.map_err(|e| format!("unable to load root certificates: {e}"))?;
        roots
            .add(certificate.clone())
            .map_err(|e| format!("unable to load root certificates: {e}"))?;
        given.push(certificate);
    }
    if given.is_empty() {
        let fault = "unable to load root certificates: unable to parse bytes as PEM block";
        return Err(fault.to_owned());
    }
    Ok((roots, given))
}
