//! Encrypted connections.
use crate::config::Tls;
use fencelock_core::{Error, ErrorKind, Result};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use std::{path::Path, sync::Arc};
use tokio_postgres_rustls::MakeRustlsConnect;

pub(crate) fn connector(tls: &Tls) -> Result<MakeRustlsConnect> {
    let mut roots = RootCertStore::empty();
    match &tls.ca {
        Some(ca) => {
            for certificate in certificates(ca)? {
                let refuse = |e: rustls::Error| of(ca, "a certificate cannot be used").because(e);
                roots.add(certificate).map_err(refuse)?;
            }
        }
        // Those that cannot be read are not trusted.
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
    }
    // This crate's own provider: a program may have several.
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let refuse = |e: rustls::Error| Error::new(ErrorKind::InvalidConfig, "connect", "TLS cannot be set up").because(e);
    let builder = builder.with_safe_default_protocol_versions().map_err(refuse)?.with_root_certificates(roots);
    let config = match &tls.client {
        Some((cert, key)) => {
            let private = PrivateKeyDer::from_pem_slice(&read(key)?);
            let private = private.map_err(|_| {
                of(key, "it holds no private key").hint("give a file in PEM: -----BEGIN PRIVATE KEY-----")
            })?;
            let refuse = |e: rustls::Error| of(cert, "certificate and key do not go together").because(e);
            builder.with_client_auth_cert(certificates(cert)?, private).map_err(refuse)?
        }
        None => builder.with_no_client_auth(),
    };
    Ok(MakeRustlsConnect::new(config))
}
fn of(path: &Path, why: &str) -> Error {
    Error::new(ErrorKind::InvalidConfig, "connect", why).with("file", path.display())
}
fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|e| of(path, "a file of the URL cannot be read").because(e))
}
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let all: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        _ => Err(of(path, "it holds no certificate").hint("give a file in PEM: -----BEGIN CERTIFICATE-----")),
    }
}
