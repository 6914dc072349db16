//! Encrypted connections.
use crate::config::{Config, Tls};
use fencelock_core::{Error, ErrorKind, Result};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use std::{
    io,
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, split},
    net::{TcpStream, lookup_host, tcp::OwnedWriteHalf},
};
use tokio_rustls::TlsConnector;

/// A connection to a server, as it is or encrypted.
pub(crate) struct Connected {
    pub(crate) reader: Box<dyn AsyncRead + Send + Sync + Unpin>,
    pub(crate) writer: Box<dyn AsyncWrite + Send + Sync + Unpin>,
    /// The writer's, where whoever writes may do so by himself.
    pub(crate) socket: Option<Arc<OwnedWriteHalf>>,
}
/// A socket that several write to.
struct Plain(Arc<OwnedWriteHalf>);
impl AsyncWrite for Plain {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.as_ref().as_ref().poll_write_ready(cx))?;
            match self.0.try_write(bytes) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    /// It is closed when the last of us lets go of it.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// How connections are made.
#[derive(Clone)]
pub(crate) struct Connector(Option<TlsConnector>);
impl Connector {
    pub(crate) fn new(config: &Config) -> Result<Self> {
        Ok(Self(config.tls.as_ref().map(client).transpose()?))
    }
    /// To one of the addresses that it has, by this number.
    pub(crate) async fn connect(&self, host: &str, port: u16, which: usize) -> io::Result<Connected> {
        let all: Vec<_> = lookup_host((host, port)).await?.collect();
        let address = all.get(which % all.len().max(1)).ok_or_else(|| io::Error::other("the name has no address"))?;
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let Some(connector) = &self.0 else {
            let (reader, writer) = stream.into_split();
            let socket = Arc::new(writer);
            let writer = Box::new(Plain(socket.clone()));
            return Ok(Connected { reader: Box::new(reader), writer, socket: Some(socket) });
        };
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let (reader, writer) = split(connector.connect(name, stream).await?);
        Ok(Connected { reader: Box::new(reader), writer: Box::new(writer), socket: None })
    }
}
fn client(tls: &Tls) -> Result<TlsConnector> {
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
    Ok(TlsConnector::from(Arc::new(config)))
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
