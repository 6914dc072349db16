//! The engine: callers' calls go to the worker's thread, everything that waits or mends to the keeper's.
use crate::{
    config::{Config, MAX_TTL, MIN_TTL},
    error::Fault,
    filesystem,
    keeper::{Keeper, Order, Turned},
    session::{Shared, nanos, public},
    wire::{
        acquire::{Entered, Won, enter, refuse},
        cell,
        exchange::{Exchanged, Resized, downgrade, resize},
        look::{inspect, list},
        open::{connect, prepare},
        release::{force, release},
        scope::Scope,
        time::{HostTime, wall_micros},
    },
    worker::Worker,
};
use async_trait::async_trait;
use fencelock_core::{
    Busy, Capabilities, Cells, Claim, Conflict, Engine, EngineInfo, Error, ErrorKind, Fencing, Grant, HoldId, Kind,
    Lease, Listing, Name, Ordering, Outcome, Page, Released, Renewed, Reports, Request, Result, Status, TakenAway,
    Token, Version, Versioned, Waiting,
};
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
use std::{
    fs,
    os::{
        fd::OwnedFd,
        unix::fs::{DirBuilderExt, MetadataExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::sync::oneshot;

/// Locks of one host, in one SQLite file.
#[derive(Debug)]
pub struct SqliteEngine {
    info: EngineInfo,
    shared: Arc<Shared>,
    worker: Worker,
    keeper: Keeper,
}

impl SqliteEngine {
    /// Opens the database of a `sqlite:` URL.
    ///
    /// # Errors
    /// As [`open`](Self::open), and `InvalidConfig` for the URL.
    pub fn from_url(url: &str) -> Result<Self> {
        Self::open(Config::from_url(url)?)
    }
    /// Opens the database, making it and its folder when they are not there. Blocks for some milliseconds; longer, at most
    /// 5 s, when another process is inside a transaction.
    ///
    /// # Errors
    /// `InvalidConfig`, `PermissionDenied`, `Unsupported` (the file system), `LayoutMismatch`, `Unreachable`.
    pub fn open(config: Config) -> Result<Self> {
        let time = HostTime::read()?;
        let database = place(&config)?;
        let conn = connect(&database, config.sync_full, true)?;
        let id = prepare(&conn, &database, &time.boot, config.sync_full)?;
        // Links were resolved in the folder; the file itself may be one, and only now it is certainly there.
        let database = fs::canonicalize(&database).unwrap_or(database);
        check_file(&config, &database)?;
        let mut folder = database.clone().into_os_string();
        folder.push(".d");
        let endpoint = database.display().to_string();
        let info = EngineInfo {
            id,
            namespace: config.namespace.as_str().into(),
            scheme: "sqlite",
            endpoint: endpoint.as_str().into(),
            url: config.url(&database).map(Into::into),
            layout: "native",
            capabilities: Capabilities {
                read_write: true,
                downgrade: true,
                permits: true,
                cells: true,
                fixed_leases: true,
                tickets: false,
                fencing: Fencing::Durable,
                ordering: Ordering::Fifo,
                waiting: Waiting::Push,
                taken_away: TakenAway::Pushed,
                ttl_per_hold: true,
                renew_batch: usize::MAX,
                min_ttl: MIN_TTL,
                max_ttl: MAX_TTL,
                drift: 0.0,
            },
            default_ttl: config.ttl,
        };
        let no_thread =
            |e: std::io::Error| Error::new(ErrorKind::Unreachable, "connect", "no threads to be had").because(e);
        let shared = Shared::new(config, database, PathBuf::from(folder), time).map_err(no_thread)?;
        let shared = Arc::new(shared);
        let worker = Worker::start(conn, shared.clone()).map_err(no_thread)?;
        let keeper = Keeper::start(shared.clone()).map_err(no_thread)?;
        Ok(Self { info, shared, worker, keeper })
    }
    fn fault(&self, operation: &'static str, fault: Fault) -> Error {
        fault.tell(operation, &self.shared.database)
    }
    /// The session, once it is open. The keeper tries for some seconds, and then says why there is none.
    async fn session(&self, operation: &'static str) -> Result<i64> {
        let mut opened = self.shared.opened.subscribe();
        let state = opened.wait_for(Option::is_some).await.map(|state| state.clone());
        match state {
            Ok(Some(Ok(session))) => Ok(session),
            Ok(Some(Err(refusal))) => Err(refusal.tell(operation)),
            _ => Err(self.fault(operation, Fault::Closed)),
        }
    }
    fn granted(&self, request: &Request, session: i64, won: Won) -> Result<Outcome> {
        let Won { lock, token, since, from } = won;
        // Core counts `max_hold` from here, the record from its grant: a caller who polls this late begins anew.
        if request.max_hold().is_some() && self.shared.time.now() - since >= nanos(request.ttl()) / 2 {
            return Ok(Outcome::Displaced);
        }
        let token =
            Token::new(token).ok_or_else(|| Error::new(ErrorKind::Protocol, "lock", "a token is not positive"))?;
        let lease = match request.is_fixed() {
            true => Lease::Own { sent_at: self.shared.time.moment(from) },
            false => Lease::Session(public(session)),
        };
        Ok(Outcome::Granted(Grant {
            name: request.name().clone(),
            claim: request.claim(),
            hold: request.hold(),
            token,
            ttl: request.ttl(),
            lease,
            server_micros: wall_micros(),
            place: Some(format!("fencelock_lock.id={lock}").into()),
        }))
    }
    async fn wait(&self, request: &Request, session: i64, lock: i64, busy: Busy) -> Result<Outcome> {
        request.queued(busy.clone());
        let (reply, rx) = oneshot::channel();
        self.keeper.send(Order::Wait { request: request.clone(), session, lock, reply });
        let turned = tokio::select! {
            turned = rx => turned,
            () = request.stopped() => return Ok(Outcome::Busy(busy)),
        };
        match turned {
            Ok(Ok(Turned::Granted(won))) => self.granted(request, session, won),
            Ok(Ok(Turned::Stopped)) => Ok(Outcome::Busy(busy)),
            Ok(Ok(Turned::Displaced)) => Ok(Outcome::Displaced),
            Ok(Err(fault)) => Err(self.fault("lock", fault)),
            Err(_) => Err(self.fault("lock", Fault::Closed)),
        }
    }
    async fn order<T>(
        &self,
        order: Order,
        rx: oneshot::Receiver<Result<T, Fault>>,
        operation: &'static str,
    ) -> Result<T> {
        let sent = self.keeper.send(order);
        let answer = if sent { rx.await.unwrap_or(Err(Fault::Closed)) } else { Err(Fault::Closed) };
        answer.map_err(|fault| self.fault(operation, fault))
    }
}

#[async_trait]
impl Engine for SqliteEngine {
    fn info(&self) -> &EngineInfo {
        &self.info
    }
    async fn acquire(&self, request: &Request) -> Result<Outcome> {
        // Whose patience ends before there is one has not heard that the lock is taken: he is told why there is none; where that
        // is not known, core waits a little longer for an answer, and says that there was none.
        let session = tokio::select! {
            biased;
            session = self.session("lock") => session?,
            trouble = async {
                request.stopped().await;
                self.shared.trouble("lock")
            } => match trouble {
                Some(error) => return Err(error),
                None => self.session("lock").await?,
            },
        };
        if !request.wait() {
            let wish = request.clone();
            if let Ok(Some(busy)) = self.worker.read(move |scope| refuse(scope, &wish)).await {
                return Ok(Outcome::Busy(busy));
            }
        }
        let wish = request.clone();
        match self.worker.write(move |scope| enter(scope, &wish, session)).await {
            Ok(Entered::Granted(won)) => self.granted(request, session, won),
            Ok(Entered::Busy(busy)) => Ok(Outcome::Busy(busy)),
            Ok(Entered::Stopped) => Ok(Outcome::Busy(Busy::default())),
            Ok(Entered::OtherKind(kind)) => {
                Err(Error::other_kind("lock", request.name(), request.claim().kind(), kind))
            }
            Ok(Entered::OtherCapacity(size)) => Err(request.other_capacity(size)),
            Ok(Entered::Queued { lock, busy }) => self.wait(request, session, lock, busy).await,
            Err(Fault::SessionGone) => {
                // The keeper's next heartbeat would notice; a client that holds nothing has none.
                self.keeper.send(Order::Check);
                Ok(Outcome::Displaced)
            }
            Err(fault) => Err(self.fault("lock", fault)),
        }
    }
    async fn withdraw(&self, request: &Request) -> Result<()> {
        let (reply, rx) = oneshot::channel();
        self.order(Order::Withdraw { request: request.clone(), reply }, rx, "withdraw").await
    }
    async fn renew(&self, grants: &[Grant]) -> Result<Vec<Renewed>> {
        let (reply, rx) = oneshot::channel();
        self.order(Order::Renew { grants: grants.to_vec(), reply }, rx, "renew").await
    }
    async fn release(&self, grant: &Grant) -> Result<Released> {
        let (name, hold, token) = (grant.name.clone(), grant.hold, grant.token.get());
        // No heartbeat looks for it from here on.
        let own = self.shared.own(hold).filter(|own| own.token == token);
        if own.is_some() {
            self.shared.drop_hold(hold);
        }
        let answer = self.worker.write(move |scope| release(scope, own, name.as_str(), hold, token)).await;
        answer.map_err(|fault| self.fault("release", fault))
    }
    async fn exchange(&self, grant: &Grant, next: &Request) -> Result<Outcome> {
        let refuse = |what: &str| Err(Error::new(ErrorKind::Unsupported, "exchange", what).with("name", &grant.name));
        if next.hold() != grant.hold {
            return refuse("on sqlite a hold lives with its process");
        }
        if next.claim() != Claim::Read {
            return refuse("a hold can only become a reader's");
        }
        let session = self.session("downgrade").await?;
        let (old, wish) = (grant.clone(), next.clone());
        match self.worker.write(move |scope| downgrade(scope, &old, &wish, session)).await {
            Ok(Exchanged::Granted(won)) => self.granted(next, session, won),
            Ok(Exchanged::Gone(holder)) => Ok(Outcome::Busy(Busy::new(holder, None))),
            Ok(Exchanged::Never) => refuse("only a writer's hold can become a reader's"),
            Err(Fault::SessionGone) => {
                self.keeper.send(Order::Check);
                Ok(Outcome::Busy(Busy::default()))
            }
            Err(fault) => Err(self.fault("downgrade", fault)),
        }
    }
    async fn run(&self, reports: &Reports) -> Result<()> {
        if !self.keeper.send(Order::Attend(reports.clone())) {
            return Err(Error::new(ErrorKind::Closed, "run", "the engine was closed"));
        }
        // The thread does it all.
        std::future::pending().await
    }
    async fn inspect(&self, name: &Name) -> Result<Status> {
        let name = name.clone();
        let answer = self.worker.read(move |scope| inspect(scope, &name)).await;
        answer.map_err(|fault| self.fault("status", fault))
    }
    async fn list(&self, prefix: &str, page: &Page) -> Result<Listing> {
        let (prefix, page) = (prefix.to_owned(), page.clone());
        let answer = self.worker.read(move |scope| list(scope, &prefix, &page)).await;
        answer.map_err(|fault| self.fault("list", fault))
    }
    async fn observe(&self, name: &Name, seen: Option<Token>) -> Result<Status> {
        self.session("observe").await?;
        let (reply, rx) = oneshot::channel();
        self.order(Order::Observe { name: name.clone(), seen, reply }, rx, "observe").await
    }
    async fn force_release(&self, name: &Name, token: Token) -> Result<Released> {
        let name = name.clone();
        let answer = self.worker.write(move |scope| force(scope, name.as_str(), token.get())).await;
        answer.map_err(|fault| self.fault("release", fault))
    }
    async fn resize(&self, name: &Name, from: u32, to: u32) -> Result<()> {
        let wanted = name.clone();
        match self.worker.write(move |scope| resize(scope, wanted.as_str(), from, to)).await {
            Ok(Resized::Done) => Ok(()),
            Ok(Resized::OtherKind(kind)) => Err(Error::other_kind("resize", name, Kind::Semaphore, kind)),
            Ok(Resized::OtherCapacity(size)) => Err(Error::other_capacity("resize", name, from, size)),
            Err(fault) => Err(self.fault("resize", fault)),
        }
    }
    fn cells(&self) -> Option<&dyn Cells> {
        Some(self)
    }
    fn lifeline(&self) -> Result<OwnedFd> {
        let none = |why| Error::new(ErrorKind::Unreachable, "lifeline", why);
        match self.shared.lifeline() {
            // EINVAL: the limit is below the lowest number that it could get.
            Some(fd) => fd.map_err(|e| {
                none("no descriptor to be had for the job").because(e).hint("raise the limit of open files (ulimit -n)")
            }),
            None => Err(none("no session is open")),
        }
    }
    async fn close(&self) -> Result<()> {
        let (reply, rx) = oneshot::channel();
        if self.keeper.send(Order::Close { reply }) {
            let _ = rx.await;
        }
        Ok(())
    }
}

#[async_trait]
impl Cells for SqliteEngine {
    async fn load(&self, name: &Name) -> Result<Versioned> {
        let wanted = name.clone();
        match self.worker.read(move |scope| cell::load(scope, wanted.as_str())).await {
            Ok(answer) => answer.map_err(|kind| Error::other_kind("cell", name, Kind::Cell, kind)),
            Err(fault) => Err(self.fault("cell", fault)),
        }
    }
    async fn compare_exchange(
        &self,
        name: &Name,
        expected: Version,
        value: Option<Arc<[u8]>>,
        nonce: HoldId,
    ) -> Result<Result<Version, Conflict>> {
        let wanted = name.clone();
        let write = move |scope: &Scope<'_>| cell::swap(scope, wanted.as_str(), expected, value.as_deref(), nonce);
        match self.worker.write(write).await {
            Ok(Ok(answer)) => Ok(answer.map_err(|now| Conflict { now })),
            Ok(Err(kind)) => Err(Error::other_kind("cell", name, Kind::Cell, kind)),
            Err(fault) => Err(self.fault("cell", fault)),
        }
    }
}

/// Where the database is, with its folder made and looked at: before SQLite opens it, and by stat alone (SAFETY E4a).
fn place(config: &Config) -> Result<PathBuf> {
    let path = std::path::absolute(&config.path).unwrap_or_else(|_| config.path.clone());
    let refuse = |kind, what: &str| Error::new(kind, "connect", what).with("database", path.display());
    let (Some(folder), Some(file)) = (path.parent(), path.file_name()) else {
        return Err(refuse(ErrorKind::InvalidConfig, "this is no path of a file").hint("write sqlite:/folder/locks.db"));
    };
    let by_errno = |e: std::io::Error| {
        let kind = match e.kind() {
            std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => {
                ErrorKind::PermissionDenied
            }
            _ => ErrorKind::InvalidConfig,
        };
        refuse(kind, "its folder cannot be made")
            .because(e)
            .hint("give a path that this user can write, with --url sqlite:PATH or FENCELOCK_URL")
    };
    filesystem::check(config, folder, &path)?;
    make_folder(folder).map_err(by_errno)?;
    let folder = fs::canonicalize(folder).map_err(by_errno)?;
    let path = folder.join(file);
    if path.is_dir() {
        return Err(
            refuse(ErrorKind::InvalidConfig, "this is a folder").hint("name a file in it, for example locks.db")
        );
    }
    // A link may lead to a file that is to be made; one of several is looked at again when it is there.
    let led = || fs::canonicalize(&path).or_else(|_| fs::read_link(&path).map(|to| folder.join(to)));
    let target = led().unwrap_or_else(|_| path.clone());
    check_file(config, &target)?;
    Ok(path)
}
/// *Invariant (SAFETY T2):* a folder that we made is on the disk before a token is handed out, or a power cut takes the database
/// along, and the mark with it. SQLite syncs the folder that it writes into, not the one that this one stands in. *Invariant:* it is its user's
/// alone: whoever may only read the files there could lock them, and keep everybody from writing.
fn make_folder(folder: &Path) -> std::io::Result<()> {
    let missing: Vec<&Path> = folder.ancestors().take_while(|folder| !folder.exists()).collect();
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    for made in missing {
        fs::File::open(made.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")))?
            .sync_all()?;
    }
    Ok(())
}
/// Before it is opened, and after: a link may have led to a place that was not there yet. A file of two names has two logs and
/// two folders beside it, and so has one that is mounted by itself: its log is not in the folder that it came from.
fn check_file(config: &Config, path: &Path) -> Result<()> {
    filesystem::check(config, path.parent().unwrap_or(path), path)?;
    if fs::metadata(path).is_ok_and(|meta| meta.nlink() > 1) {
        let twice = Error::new(ErrorKind::InvalidConfig, "connect", "the database has a second name (a hard link)");
        return Err(twice.with("database", path.display()).hint("remove one of the names"));
    }
    // Kernels before 5.8 do not tell.
    let stat = statx(CWD, path, AtFlags::empty(), StatxFlags::empty());
    if stat.is_ok_and(|stat| stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)) {
        let alone = Error::new(ErrorKind::InvalidConfig, "connect", "the database is mounted without its folder");
        return Err(alone
            .with("database", path.display())
            .hint("mount the folder that it is in: its log lies beside it"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    //! Red on the code before, which told by the clock of before the snapshot.
    #![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
    use super::*;
    use fencelock_core::Client;
    use std::time::Duration;

    #[test]
    fn nobody_is_told_more_than_a_whole_lease() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let folder = std::env::temp_dir().join(format!("fencelock-told-{}", std::process::id()));
        let open = || SqliteEngine::open(Config::new(folder.join("locks.db"))).unwrap();
        let (ttl, holder, reader) = (Duration::from_secs(30), open(), open());
        let client = Client::builder(Arc::new(holder)).build().unwrap();
        let (handle, asks) = (runtime.handle().clone(), client.clone());
        let seen = runtime.block_on(reader.worker.read(move |scope| {
            // Its clock was read, its snapshot was not taken.
            let held = handle.block_on(asks.mutex("x").ttl(ttl).lock()).unwrap();
            let status = inspect(scope, held.name());
            handle.block_on(held.release()).unwrap();
            status
        }));
        let left = seen.unwrap_or_else(|fault| panic!("{}", fault.tell("status", &folder))).holders[0].left;
        assert!(left <= ttl && left > ttl / 2, "{left:?} of {ttl:?}");
        runtime.block_on(client.shutdown(ttl)).unwrap();
        runtime.block_on(reader.close()).unwrap();
        fs::remove_dir_all(folder).unwrap();
    }
}
