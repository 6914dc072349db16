//! sql.md 12.9: new cases, ours.
use super::prelude::*;

cases! {
    "nobody/n8-token-over-clean-up" => token_over_clean_up, needs: [Records];
    "nobody/n6-permits-never-above" => permits_never_above, needs: [Permits];
    "nobody/n18-trust-timer" => trust_timer;
    "nobody/n22-sqlite-16-processes" => sixteen_processes, needs: [Alone, Processes, Store], limit: 120;
    "nobody/n22-sqlite-busy-snapshot" => readers_and_writers_of_all_sorts, needs: [Processes];
}
roles! {
    "n6-permits" => some_of_three;
    "n22-operations" => timed_operations;
    "n22-all-sorts" => all_sorts;
}

async fn token_over_clean_up(cx: Context) {
    let (client, names) = (cx.client().await, ["m", "n"].map(|what| cx.name(what)));
    for name in &names {
        client.mutex(name).lock().await.unwrap().release().await.unwrap();
    }
    // The time of day alone would not make them rise.
    let idle = names.each_ref().map(String::as_str);
    let high = cx.fixture().records().unwrap().raise(&idle).await;
    let other = super::consul::cleaned_up(&cx, &idle).await;
    for name in &names {
        let mut last = high;
        for client in [&other, &client, &cx.client().await] {
            let guard = client.mutex(name).lock().await.unwrap();
            assert!(guard.token() > last, "{last}, and then {}", guard.token());
            last = guard.token();
            guard.release().await.unwrap();
        }
    }
}

async fn permits_never_above(cx: Context) {
    let (judge, name, rounds) = (cx.judge("three"), cx.name("three"), tenth(200));
    let mut peers = Vec::new();
    for i in 0..4 {
        let words = [&name, judge.place().to_str().unwrap(), &format!("peer-{i}"), &rounds.to_string()];
        peers.push(cx.peer_with(60 * SEC, "n6-permits", &words).await);
    }
    let mut tasks = Vec::new();
    for i in 0..8 {
        let (client, name, judge) = (cx.client().await, name.clone(), judge.clone());
        let rounds = u64::try_from(rounds).unwrap();
        tasks.push(tokio::spawn(async move { share(&client, &name, &judge, &format!("t{i}"), rounds).await }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    for peer in peers {
        peer.finish().await;
    }
    judge.permits(3);
    assert_eq!(judge.history.intervals().len(), 12 * rounds);
}
/// `n6-permits NAME JUDGE WHO ROUNDS`
async fn some_of_three(me: RoleContext) {
    let judge = Judge::at(me.words[1].as_ref());
    share(&me.client, &me.words[0], &judge, &me.words[2], me.number(3)).await;
}
async fn share(client: &Client, name: &str, judge: &Judge, who: &str, rounds: u64) {
    let three = client.semaphore(name, 3);
    for round in 0..rounds {
        let guard = three.acquire(1 + u32::from(round % 5 == 4)).await.unwrap();
        judge.share(who, &guard).await;
        if round % 3 == 0 { drop(guard) } else { guard.release().await.unwrap() }
    }
}

/// A renewal hangs.
async fn trust_timer(cx: Context) {
    super::river::trust_runs_out(cx, Trouble::Delay(60 * SEC)).await;
}

async fn sixteen_processes(cx: Context) {
    let (shared, rounds) = (cx.name("shared"), if full() { "100" } else { "3" });
    let mut peers = Vec::new();
    for i in 0..16 {
        peers.push(cx.peer_with(60 * SEC, "n22-operations", &[&shared, &cx.name(&format!("own-{i}")), rounds]).await);
    }
    peers.iter_mut().for_each(|peer| peer.tell("go"));
    let mut slowest = 0;
    for peer in &mut peers {
        let took: u64 = peer.hear("took").await.parse().unwrap();
        slowest = slowest.max(took);
    }
    for peer in peers {
        peer.finish().await;
    }
    println!("slowest single operation of 16 processes: {slowest} ms");
    cx.in_time("the slowest operation", MS * slowest.try_into().unwrap(), 250 * MS);
}
/// `n22-operations SHARED OWN ROUNDS`: says how many ms the slowest took.
async fn timed_operations(mut me: RoleContext) {
    let (shared, own, rounds) = (me.words[0].clone(), me.words[1].clone(), me.number(2));
    let client = me.client.clone();
    // The first one opens a session.
    client.mutex(&own).lock().await.unwrap().release().await.unwrap();
    me.hear().await.unwrap();
    let mut slowest = Duration::ZERO;
    for _ in 0..rounds {
        let mut took = Vec::new();
        let mut lap = Instant::now();
        let mut done = || took.push(std::mem::replace(&mut lap, Instant::now()).elapsed());
        let guard = client.mutex(&own).try_lock().await.unwrap().expect("nobody else has it");
        done();
        let tried = client.mutex(&shared).try_lock().await.unwrap();
        done();
        guard.release().await.unwrap();
        done();
        if let Ok(guard) = tried {
            guard.release().await.unwrap();
            done();
        }
        client.inspect(&shared).await.unwrap();
        done();
        slowest = slowest.max(took.into_iter().max().unwrap());
    }
    me.say(format!("took {}", slowest.as_millis()));
}

/// What one reads another has changed before it writes: no error of that reaches anybody.
async fn readers_and_writers_of_all_sorts(cx: Context) {
    let rounds = tenth(100).to_string();
    let mut peers = Vec::new();
    for _ in 0..4 {
        peers.push(cx.peer_with(60 * SEC, "n22-all-sorts", &[cx.prefix(), &rounds]).await);
    }
    for peer in peers {
        peer.finish().await;
    }
    let client = cx.client().await;
    let cell = client.cell(cx.name("cell"));
    let written = cell.load().await.unwrap();
    let count = std::str::from_utf8(&written.value.unwrap()).unwrap().parse::<u64>().unwrap();
    assert_eq!(count, 4 * u64::try_from(tenth(100)).unwrap());
    cell.remove(written.version).await.unwrap().unwrap();
}
/// `n22-all-sorts PREFIX ROUNDS`
async fn all_sorts(me: RoleContext) {
    let (client, prefix) = (&me.client, &me.words[0]);
    let name = |what: &str| format!("{prefix}/{what}");
    for round in 0..me.number(1) {
        let one_more = |value: Option<&[u8]>| {
            let count: u64 = value.map_or(0, |value| std::str::from_utf8(value).unwrap().parse().unwrap());
            (count + 1).to_string().into_bytes()
        };
        client.cell(name("cell")).update(one_more).await.unwrap();
        client.list(prefix, &Page::default()).await.unwrap();
        drop(client.mutex(name("m")).try_lock().await.unwrap());
        client.inspect(name("rw")).await.unwrap();
        let rw = client.rw_lock(name("rw"));
        if round % 2 == 0 {
            rw.read().await.unwrap().release().await.unwrap();
        } else {
            rw.write().await.unwrap().downgrade().await.unwrap().release().await.unwrap();
        }
        drop(client.semaphore(name("few"), 2).acquire(1).await.unwrap());
    }
}
