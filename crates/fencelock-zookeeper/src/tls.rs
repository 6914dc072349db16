//! Encrypted connections.
use crate::config::Config;
use fencelock_core::Result;
use fencelock_tls::client_config;
use rustls::pki_types::ServerName;
use std::{
    io,
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
        Ok(Self(config.tls.as_ref().map(client_config).transpose()?.map(|tls| TlsConnector::from(Arc::new(tls)))))
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
