//! The files of a configuration's [`Tls`], read and looked at. Users take the facade crate `fencelock`: this one is for its engines
//! alone, and may change at any time.
//!
//! They are looked at here: what a driver makes of a file that holds something else looks like a server that cannot be reached.
use fencelock_core::{
    Error, Result,
    config::{Tls, invalid},
};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use std::{path::Path, sync::Arc};

/// This file cannot be used.
pub fn refuse(path: &Path, why: &str) -> Error {
    invalid(why).with("file", path.display())
}
fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|e| refuse(path, "a file of the URL cannot be read").because(e))
}
fn certificates_in(path: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let all: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        _ => Err(refuse(path, "it holds no certificate").hint("give a file in PEM: -----BEGIN CERTIFICATE-----")),
    }
}
fn private_key_in(path: &Path, pem: &[u8]) -> Result<PrivateKeyDer<'static>> {
    let refuse = |_| refuse(path, "it holds no private key").hint("give a file in PEM: -----BEGIN PRIVATE KEY-----");
    PrivateKeyDer::from_pem_slice(pem).map_err(refuse)
}
/// The certificates of a file.
///
/// # Errors
/// `InvalidConfig` with the file.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    certificates_in(path, &read(path)?)
}
/// A file that holds certificates, for a driver that takes it as it is.
///
/// # Errors
/// `InvalidConfig` with the file.
pub fn chain(path: &Path) -> Result<Vec<u8>> {
    let pem = read(path)?;
    certificates_in(path, &pem).map(|_| pem)
}
/// A file that holds a private key, for a driver that takes it as it is.
///
/// # Errors
/// `InvalidConfig` with the file.
pub fn key(path: &Path) -> Result<Vec<u8>> {
    let pem = read(path)?;
    private_key_in(path, &pem).map(|_| pem)
}
/// What rustls takes.
///
/// # Errors
/// `InvalidConfig` with the file.
pub fn client_config(tls: &Tls) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    match &tls.ca {
        Some(ca) => {
            for certificate in certificates(ca)? {
                let refuse = |e: rustls::Error| refuse(ca, "a certificate cannot be used").because(e);
                roots.add(certificate).map_err(refuse)?;
            }
        }
        // Those that cannot be read are not trusted.
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
    }
    // This crate's own provider: a program may have several.
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions();
    let builder = builder.map_err(|e| invalid("TLS cannot be set up").because(e))?.with_root_certificates(roots);
    let Some((cert, key)) = &tls.client else { return Ok(builder.with_no_client_auth()) };
    let private = private_key_in(key, &read(key)?)?;
    let refuse = |e: rustls::Error| refuse(cert, "certificate and key do not go together").because(e);
    builder.with_client_auth_cert(certificates(cert)?, private).map_err(refuse)
}
