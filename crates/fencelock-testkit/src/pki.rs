//! Certificates of two authorities, of which a server trusts one.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
use crate::Folder;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use std::{fs, path::PathBuf};

/// Files, in PEM, gone afterwards: `ours` and `others` each have `.ca`, `.server.crt`, `.server.key`, `.client.crt` and `.client.key`;
/// `nothing` is no certificate.
#[derive(Debug)]
pub struct Pki {
    folder: Folder,
}
impl Pki {
    /// Its servers have these names and addresses, and may show their certificates as clients, too.
    ///
    /// # Panics
    /// No file can be written.
    #[must_use]
    pub fn new(names: &[&str]) -> Self {
        use ExtendedKeyUsagePurpose::{ClientAuth, ServerAuth};
        let folder = Folder::new("pki");
        let write = |name: &str, text: String| fs::write(folder.path().join(name), text).unwrap();
        for who in ["ours", "others"] {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.distinguished_name.push(DnType::CommonName, who);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
            write(&format!("{who}.ca"), ca.pem());
            for (side, purposes) in [("server", vec![ServerAuth, ClientAuth]), ("client", vec![ClientAuth])] {
                let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
                let (key, mut params) = (KeyPair::generate().unwrap(), CertificateParams::new(names).unwrap());
                params.distinguished_name.push(DnType::CommonName, side);
                params.extended_key_usages = purposes;
                let cert = params.signed_by(&key, &ca).unwrap();
                write(&format!("{who}.{side}.crt"), cert.pem());
                write(&format!("{who}.{side}.key"), key.serialize_pem());
            }
        }
        write("nothing", "no certificate\n".to_owned());
        Self { folder }
    }
    /// The path of one of them.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}
