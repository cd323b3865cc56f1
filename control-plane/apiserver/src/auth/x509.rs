//! The client certificate of a connection, and its user.

use super::user::RequestUser;
use berth_tls::{Authorities, CertificateUser};
use std::sync::Arc;
use tokio_rustls::rustls::pki_types::CertificateDer;

/// The client certificate of a connection.
#[derive(Debug, Clone)]
pub(crate) enum Presented {
    /// An authority has signed it.
    Accepted(Arc<CertificateUser>),
    /// It is not accepted.
    Refused,
}

impl Presented {
    /// The certificate in a chain, if there is one.
    pub(crate) fn in_chain(
        authorities: &Authorities,
        chain: Option<&[CertificateDer<'static>]>,
    ) -> Option<Self> {
        let chain = chain.filter(|chain| !chain.is_empty())?;
        Some(match authorities.verified(chain) {
            Some(identity) => Self::Accepted(Arc::new(identity)),
            None => Self::Refused,
        })
    }

    /// The user, while the certificate is valid.
    pub(super) fn user(&self, now: i64) -> Option<RequestUser> {
        let Self::Accepted(identity) = self else {
            return None;
        };
        let authenticated = "system:authenticated";
        let mut groups = identity.groups.clone();
        if !groups.iter().any(|group| group == authenticated) {
            groups.push(authenticated.to_owned());
        }
        (now <= identity.not_after).then(|| RequestUser {
            name: identity.name.clone(),
            groups,
            ..RequestUser::default()
        })
    }
}
