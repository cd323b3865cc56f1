//! Checks of certificates in PEM. Without the feature `certificates`, which brings the crates for TLS, every certificate is
//! rejected.

#[cfg(feature = "certificates")]
pub(crate) use checked::{check_bundle, check_certificates, check_request};
#[cfg(not(feature = "certificates"))]
pub(crate) use unread::{
    reject as check_bundle, reject as check_certificates, reject as check_request,
};

#[cfg(feature = "certificates")]
mod checked {
    use crate::authorities;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, CertificateSigningRequestDer};
    use x509_parser::certification_request::X509CertificationRequest;
    use x509_parser::prelude::{FromDer, X509Certificate};

    /// Checks the authorities of a bundle.
    pub(crate) fn check_bundle(pem: &[u8]) -> Result<(), String> {
        authorities::read(pem).map(drop)
    }

    /// Reads a certificate request and checks its signature.
    pub(crate) fn check_request(pem: &[u8]) -> Result<(), String> {
        let der = CertificateSigningRequestDer::from_pem_slice(pem)
            .map_err(|_| "PEM block type must be CERTIFICATE REQUEST".to_owned())?;
        let (_, request) = X509CertificationRequest::from_der(&der).map_err(|e| e.to_string())?;
        request.verify_signature().map_err(|e| e.to_string())
    }

    /// Checks a chain of certificates.
    pub(crate) fn check_certificates(pem: &[u8]) -> Result<(), String> {
        let mut blocks = 0;
        for der in CertificateDer::pem_slice_iter(pem) {
            let der = der.map_err(|e| e.to_string())?;
            X509Certificate::from_der(&der).map_err(|e| e.to_string())?;
            blocks += 1;
        }
        match blocks {
            0 => Err("must contain at least one CERTIFICATE PEM block".to_owned()),
            _ => Ok(()),
        }
    }
}

#[cfg(not(feature = "certificates"))]
mod unread {
    pub(crate) fn reject(_pem: &[u8]) -> Result<(), String> {
        Err("this build of berth-objects does not read certificates: its feature certificates is off".to_owned())
    }
}
