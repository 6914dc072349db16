//! One server: how it is reached, and what its answers tell of its clock and of its pace.
use super::{Address, Wire, whole_micros};
use crate::{
    config::{Config, Tls},
    error::Fault,
};
use fencelock_core::{BootClock, Clock, Connections, Moment, Result, ServerTime, config::host_port};
use fencelock_tls::{chain, key};
use redis::{
    Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo, TlsCertificates,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// For so long an answer is waited for, at least: four times the slowest recent one if that is longer. A server that forks to
/// save, or a busy host, is silent for a second now and then; a caller who is told so can do nothing with it.
const LEAST_PATIENCE: Duration = Duration::from_secs(2);
const MOST_PATIENCE: Duration = Duration::from_secs(5);
/// Whoever could not be reached is not tried again by those who have much to do for so long.
const RESTS: Duration = Duration::from_millis(250);

/// How servers are talked to: all of one deployment alike.
#[derive(Clone)]
pub(crate) struct Login {
    certificates: Option<TlsCertificates>,
    settings: RedisConnectionInfo,
}
impl Login {
    pub(crate) fn new(config: &Config) -> Result<Self> {
        let mut settings = RedisConnectionInfo::default().set_db(i64::from(config.database));
        settings = signed(settings, config.user.as_deref(), config.password.as_deref());
        let certificates = config.tls.as_ref().map(certificates).transpose()?;
        if certificates.is_some() {
            // The first one wins; one that the program chose stays.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let protocol = if config.resp3 { ProtocolVersion::RESP3 } else { ProtocolVersion::RESP2 };
        Ok(Self { certificates, settings: settings.set_protocol(protocol) })
    }
    /// The same certificates, another user: a sentinel has a list of its own, and no databases.
    pub(crate) fn of_sentinels(&self, user: Option<&str>, password: Option<&str>) -> Self {
        let settings = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP2);
        Self { certificates: self.certificates.clone(), settings: signed(settings, user, password) }
    }
    pub(crate) fn client(&self, (host, port): &Address) -> Result<Client, Fault> {
        let (host, port) = (host.clone(), *port);
        let addr = match self.certificates {
            None => ConnectionAddr::Tcp(host, port),
            Some(_) => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
        };
        let info: ConnectionInfo = addr.into_connection_info().map_err(Fault::Connect)?;
        let info = info.set_redis_settings(self.settings.clone());
        match &self.certificates {
            None => Client::open(info),
            Some(certificates) => Client::build_with_tls(info, certificates.clone()),
        }
        .map_err(Fault::Connect)
    }
}
fn signed(settings: RedisConnectionInfo, user: Option<&str>, password: Option<&str>) -> RedisConnectionInfo {
    let mut settings = settings.set_skip_set_lib_name();
    if let Some(user) = user {
        settings = settings.set_username(user);
    }
    if let Some(password) = password {
        settings = settings.set_password(password);
    }
    settings
}
fn certificates(tls: &Tls) -> Result<TlsCertificates> {
    let client_tls = match &tls.client {
        None => None,
        Some((cert, file)) => Some(redis::ClientTlsConfig { client_cert: chain(cert)?, client_key: key(file)? }),
    };
    Ok(TlsCertificates { client_tls, root_cert: tls.ca.as_deref().map(chain).transpose()? })
}

pub(crate) struct Server {
    pub(crate) address: Address,
    pub(crate) client: Client,
    pub(crate) time: ServerTime,
    /// Those that lead to it, in a cluster.
    pub(super) connections: Arc<Connections<Arc<Wire>, Fault>>,
    slowest: AtomicU64,
    /// Since when, by the boot clock, it was last not to be reached; 0: never.
    unreached: AtomicU64,
}
impl Server {
    pub(crate) fn new(address: Address, login: &Login) -> Result<Arc<Self>, Fault> {
        let client = login.client(&address)?;
        let (time, connections) = (ServerTime::default(), Connections::new());
        let (slowest, unreached) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Arc::new(Self { address, client, time, connections, slowest, unreached }))
    }
    /// How long an answer may take.
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_micros(self.slowest.load(Relaxed).saturating_mul(4)).clamp(LEAST_PATIENCE, MOST_PATIENCE)
    }
    pub(super) fn answered(&self, sent: Moment, received: Moment) {
        let took = whole_micros(sent.until(received));
        // Decays by an eighth with each faster one.
        let _ = self.slowest.fetch_update(Relaxed, Relaxed, |slowest| Some(took.max(slowest - slowest / 8)));
    }
    pub(super) fn was_not_reached(&self) {
        self.unreached.store(BootClock.now().as_nanos(), Relaxed);
    }
    /// Somebody could not reach it a moment ago.
    pub(super) fn rests(&self) -> bool {
        let unreached = Moment::from_nanos(self.unreached.load(Relaxed));
        unreached > Moment::ZERO && unreached.until(BootClock.now()) < RESTS
    }
    /// One that is only slow gets more time from the next command.
    pub(super) fn was_silent(&self, limit: Duration) {
        self.slowest.fetch_max(whole_micros(limit), Relaxed);
    }
}
impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&host_port(&self.address.0, self.address.1))
    }
}
