//! Members of a cluster that are cut off from the others, while a holder and a waiter are clients of theirs: what every engine with
//! several members has to show.
use crate::{
    Network,
    processes::{bar, eventually, tenth},
};
use fencelock_core::Client;
use std::{
    fmt,
    time::{Duration, Instant},
};
use tokio::{task::block_in_place, time::timeout};

const PATIENCE: Duration = Duration::from_secs(30);

/// A cluster in a [`Network`].
pub trait Members: Sync {
    /// Where it is.
    fn network(&self) -> &Network;
    /// Who leads by its own word.
    fn leader(&self) -> Option<usize>;
    /// It has a leader, or is it.
    fn serves(&self, member: usize) -> bool;
    /// A client that knows of these alone.
    fn client(&self, members: &[usize]) -> impl Future<Output = Client> + Send;
}
/// Who is cut off from the two others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The holder's member, which is no leader.
    Follower,
    /// The holder's member, which leads.
    Leader,
}
impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Leader { "leader" } else { "follower" })
    }
}

/// The holder knows of one member alone, which is cut off: it is told the loss before the next one is granted the lock.
///
/// # Panics
/// It is not.
pub async fn no_way_out(engine: &str, cluster: &impl Members, cut: Cut) {
    let (rounds, mut before) = (tenth(20), Vec::new());
    for round in 0..rounds {
        let leader = leader(cluster);
        let member = if cut == Cut::Leader { leader } else { (leader + 1 + round % 2) % 3 };
        let others: Vec<_> = (0..3).filter(|other| *other != member).collect();
        let (a, b) = (cluster.client(&[member]).await, cluster.client(&others).await);
        let name = format!("{cut} cut off {round}");
        let guard = a.mutex(&name).lock().await.unwrap_or_else(|e| panic!("{name}: {e}"));
        let lost = guard.lost();
        let told = tokio::spawn(async move { (lost.await, Instant::now()) });
        let mutex = b.mutex(&name);
        let waits = tokio::spawn(async move {
            let guard = mutex.lock().await;
            (guard, Instant::now())
        });
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..500))).await;
        assert!(guard.is_valid(), "{name}");
        block_in_place(|| cluster.network().cut_off(member, true));
        let (next, granted) = timeout(PATIENCE, waits).await.expect("nobody gets it").expect("no panic");
        assert!(!guard.is_valid(), "{name}: two hold it");
        let (why, lost) = timeout(PATIENCE, told).await.expect("nobody tells the loss").expect("no panic");
        assert!(lost < granted, "{name}: lost ({why:?}) {:?} after the next grant", lost - granted);
        before.push(granted - lost);
        let next = next.unwrap_or_else(|e| panic!("{name}: {e}"));
        block_in_place(|| cluster.network().cut_off(member, false));
        drop(guard);
        next.release().await.unwrap_or_else(|e| panic!("{name}: {e}"));
        // Whoever was cut off serves again; until he has heard of the others he may say that he cannot.
        let limit = Instant::now() + PATIENCE;
        loop {
            let said = match a.mutex(&name).try_lock_for(PATIENCE / 3).await {
                Ok(Ok(_)) => break,
                Ok(Err(busy)) => busy.to_string(),
                Err(e) => e.to_string(),
            };
            assert!(Instant::now() < limit, "{name}: it does not serve again: {said}");
        }
        for client in [a, b] {
            let _ = client.shutdown(Duration::from_secs(1)).await;
        }
    }
    let least = before.iter().min().copied().unwrap_or_default();
    let what = format!("{engine}: the {cut} that serves the holder cut off: lost() before the next grant");
    bar(&what, format!("{} of {rounds}, {least:?} before at least", before.len()), "all", before.len() == rounds);
}
/// The holder knows of all members: it keeps its lock, or is told the loss before the next one is granted it.
///
/// # Panics
/// Two hold it.
pub async fn a_way_out(engine: &str, cluster: &impl Members, cut: Cut) {
    // For two leases on end.
    const CUT_OFF: Duration = Duration::from_secs(9);
    let (rounds, mut kept) = (tenth(20), 0);
    for round in 0..rounds {
        let leader = leader(cluster);
        let member = if cut == Cut::Leader { leader } else { (leader + 1 + round % 2) % 3 };
        let (a, b) = (cluster.client(&[0, 1, 2]).await, cluster.client(&[0, 1, 2]).await);
        let name = format!("{cut} cut off {round}");
        let guard = a.mutex(&name).lock().await.unwrap_or_else(|e| panic!("{name}: {e}"));
        let lost = guard.lost();
        let told = tokio::spawn(async move { (lost.await, Instant::now()) });
        let mutex = b.mutex(&name);
        let mut waits = tokio::spawn(async move {
            let guard = mutex.lock().await;
            (guard, Instant::now())
        });
        block_in_place(|| cluster.network().cut_off(member, true));
        let cut_at = Instant::now();
        let early = timeout(CUT_OFF, &mut waits).await;
        let holds = guard.is_valid();
        assert!(early.is_err() || !holds, "{name}: two hold it");
        block_in_place(|| cluster.network().cut_off(member, false));
        let next = if holds {
            kept += 1;
            let _ = guard.release().await;
            timeout(PATIENCE, waits).await.expect("nobody gets it").expect("no panic").0
        } else {
            let waited = match early {
                Ok(waited) => waited,
                Err(_) => timeout(PATIENCE, waits).await.expect("nobody gets it"),
            };
            let (next, granted) = waited.expect("no panic");
            let (why, lost) = timeout(PATIENCE, told).await.expect("nobody tells the loss").expect("no panic");
            assert!(lost < granted, "{name}: lost ({why:?}) {:?} after the next grant", lost - granted);
            println!("{name}: lost after {:?}: {why:?}", lost - cut_at);
            next
        };
        next.unwrap_or_else(|e| panic!("{name}: {e}")).release().await.unwrap_or_else(|e| panic!("{name}: {e}"));
        for client in [a, b] {
            let _ = client.shutdown(Duration::from_secs(1)).await;
        }
    }
    let what =
        format!("{engine}: the {cut} of three members cut off for {CUT_OFF:?}, the holder knows of all: still held");
    // The others go on where it is no leader.
    let (limit, ok) =
        if cut == Cut::Follower { ("all", kept == rounds) } else { ("reported; never two at once", true) };
    bar(&what, format!("{kept} of {rounds}"), limit, ok);
}
/// Who leads, once all are there.
fn leader(cluster: &impl Members) -> usize {
    let mut leader = None;
    block_in_place(|| {
        eventually("all serve, and one leads", PATIENCE, || {
            leader = cluster.leader();
            leader.is_some() && (0..3).all(|member| cluster.serves(member))
        });
    });
    leader.unwrap_or_default()
}
