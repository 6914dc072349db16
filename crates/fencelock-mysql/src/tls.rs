//! Encrypted connections.
use crate::config::Tls;
use fencelock_core::Result;
use fencelock_tls::certificates;
use mysql_async::{ClientIdentity, SslOpts};
use rustls::{
    RootCertStore,
    crypto::{CryptoProvider, ring},
    pki_types::CertificateDer,
};

/// What the driver is told. It asks for the process' provider of cryptography, and stops the program where there are two and none was
/// chosen: then this crate's own is.
pub(crate) fn options(tls: &Tls) -> Result<SslOpts> {
    if CryptoProvider::get_default().is_none() {
        // Somebody may be quicker: then that one is it.
        let _ = ring::default_provider().install_default();
    }
    let mut roots = RootCertStore::empty();
    let trusted: Vec<CertificateDer<'static>> = match &tls.ca {
        Some(ca) => {
            let certificates = certificates(ca)?;
            for certificate in &certificates {
                let refuse = |e: rustls::Error| fencelock_tls::refuse(ca, "a certificate cannot be used").because(e);
                roots.add(certificate.clone()).map_err(refuse)?;
            }
            certificates
        }
        // Those that cannot be read are not trusted.
        None => {
            let all = rustls_native_certs::load_native_certs().certs;
            all.into_iter().filter(|certificate| roots.add(certificate.clone()).is_ok()).collect()
        }
    };
    let trusted = trusted.into_iter().map(|certificate| certificate.to_vec().into()).collect();
    let options = SslOpts::default().with_disable_built_in_roots(true).with_root_certs(trusted);
    let Some((cert, key)) = &tls.client else { return Ok(options) };
    let (chain, secret) = (fencelock_tls::chain(cert)?, fencelock_tls::key(key)?);
    Ok(options.with_client_identity(Some(ClientIdentity::new(chain.into(), secret.into()))))
}
