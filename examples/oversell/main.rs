//! The shop: one article is left, and two machines sell it. Without a lock it is sold twice; with one it is not; a machine
//! that is paused between its check and its write sells it twice in spite of the lock, unless the write is fenced. Two answers
//! need no lock: a write that goes nowhere when somebody else has written, and one transaction for all of it.
//!
//! `cargo run --example oversell [URL]`: locks in SQLite, or wherever the URL says (`redis://…?ttl=2s`, `postgres://…?ttl=2s`,
//! …): for so long a machine that is paused keeps the others waiting. The machines are processes, and the pause is a real
//! one: SIGSTOP. Over Redis and ZooKeeper it shows as well what is often written there by hand, each beside ours.
mod machine;
mod redis_by_hand;
mod zookeeper_by_hand;

use fencelock::{
    Guard,
    sql::{Row, Tx, fence, seen},
};
use machine::{Machine, Result, say, wait};
use rusqlite::{Connection, TransactionBehavior};
use std::{
    env,
    path::{Path, PathBuf},
    time::Duration,
};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["machine", way, shop, url] => machine(way, Path::new(shop), url).await,
        ["ours", way, url] => machine::ours(way, url).await,
        ["redis", way, url] => redis_by_hand::machine(way, url),
        ["zookeeper", _, url] => zookeeper_by_hand::machine(url),
        [] => stories(None).await,
        [url] => stories(Some(url)).await,
        _ => Err("usage: oversell [URL]".into()),
    }
}

/// Sells the article if there is one, under a lock that it gives back before it says how that went.
async fn machine(way: &str, shop: &Path, url: &str) -> Result<()> {
    let guard = if matches!(way, "locked" | "fenced") {
        let client = fencelock::connect(url).await?;
        Some(client.mutex("article/7").note("a machine of the shop").lock().await?)
    } else {
        None
    };
    let told = sell(way, shop, guard.as_ref()).await?;
    if let Some(guard) = guard {
        // It may have been lost since: the story is about that.
        let _ = guard.release().await;
    }
    say(&told)
}
/// After its look at the shelf it waits for a word: anything may happen there.
async fn sell(way: &str, shop: &Path, guard: Option<&Guard>) -> Result<String> {
    let mut db = open(shop)?;
    let look = |db: &Connection| -> Result<i64> {
        Ok(db.query_row("SELECT n FROM stock WHERE id = 7", [], |row| row.get(0))?)
    };
    if way == "transaction" {
        // Whoever comes meanwhile waits here.
        let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let left = look(&tx)?;
        if left == 0 {
            return Ok("sold out".into());
        }
        say("there is one")?;
        wait()?;
        tx.execute("UPDATE stock SET n = ?1 WHERE id = 7", [left - 1])?;
        tx.execute("INSERT INTO sale (article) VALUES (7)", [])?;
        tx.commit()?;
        return Ok("sold".into());
    }
    let left = look(&db)?;
    // Yes, it is still ours. And then the machine stands still.
    guard.map_or(Ok(()), |guard| guard.check())?;
    if left == 0 {
        return Ok("sold out".into());
    }
    say("there is one")?;
    wait()?;

    let mut tx = Tx::new(seen(db.transaction())?);
    if let (Some(guard), "fenced") = (guard, way) {
        // The shelf remembers the greatest token that it has seen, and refuses a lower one.
        if let Err(refused) = fence::check(&mut tx, Row::of("stock").key("id", 7), guard).await? {
            return Ok(format!("refused: {refused}"));
        }
    }
    // With a version the write says what was seen, and goes nowhere when that has changed.
    let unchanged = if way == "version" { " AND n = ?1 + 1" } else { "" };
    let write = format!("UPDATE stock SET n = ?1 WHERE id = 7{unchanged}");
    if seen(tx.execute(&write, [left - 1]))? == 0 {
        return Ok("not sold, for somebody else has written since".into());
    }
    seen(tx.execute("INSERT INTO sale (article) VALUES (7)", []))?;
    tx.commit().await?;
    Ok("sold".into())
}

async fn stories(url: Option<&str>) -> Result<()> {
    let folder = Folder::new()?;
    let locks = format!("sqlite:{}?ttl=2s", folder.0.join("locks.db").display());
    let url = url.unwrap_or(&locks);
    let start = |way: &str, shop: &Path| Machine::start(&["machine", way, shop.to_str().ok_or("a path")?, url]);

    for (way, told, all) in [("unlocked", "no lock", 2), ("version", "no lock, but a version", 1)] {
        let shop = folder.shop(way)?;
        let (mut one, mut two) = (start(way, &shop)?, start(way, &shop)?);
        println!("{told}: the first machine sees that {}, the second that {}", one.hear()?, two.hear()?);
        one.tell()?;
        let first = one.hear()?;
        two.tell()?;
        println!("   … the first: {first}; the second: {}", two.hear()?);
        assert_eq!(sales(&shop)?, all, "{way}");
    }

    for (way, told) in [("locked", "a lock"), ("transaction", "one transaction")] {
        let shop = folder.shop(way)?;
        let mut one = start(way, &shop)?;
        let shelf = one.hear()?;
        let mut two = start(way, &shop)?;
        one.tell()?;
        let first = one.hear()?;
        println!("{told}: the first machine sees that {shelf}: {first}. Then the second has its turn: {}", two.hear()?);
        assert_eq!(sales(&shop)?, 1, "{way}");
    }

    for (way, all) in [("locked", 2), ("fenced", 1)] {
        let shop = folder.shop(&format!("{way} and paused"))?;
        let mut one = start(way, &shop)?;
        let shelf = one.hear()?;
        one.signal("STOP")?;
        println!("{way}, and the first machine is paused after it has seen that {shelf} …");
        // It has the lock when the lease of the first one is over.
        let mut two = start(way, &shop)?;
        let shelf = two.hear()?;
        two.tell()?;
        println!("   … the second has the lock, and sees that {shelf}: {}", two.hear()?);
        one.signal("CONT")?;
        one.tell()?;
        println!("   … the first goes on: {}", one.hear()?);
        assert_eq!(sales(&shop)?, all, "{way}");
    }

    if url.starts_with("redis://") {
        redis_by_hand::stories(url)?;
    }
    if url.starts_with("zookeeper://") {
        zookeeper_by_hand::stories(url).await?;
    }
    Ok(())
}

fn open(shop: &Path) -> Result<Connection> {
    let db = Connection::open(shop)?;
    db.busy_timeout(Duration::from_secs(10))?;
    Ok(db)
}

fn sales(shop: &Path) -> Result<i64> {
    Ok(open(shop)?.query_row("SELECT count(*) FROM sale", [], |row| row.get(0))?)
}

/// Gone at the end.
struct Folder(PathBuf);
impl Folder {
    fn new() -> Result<Self> {
        let folder = env::temp_dir().join(format!("fencelock-oversell-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }
    /// A shop with one article on its shelf.
    fn shop(&self, name: &str) -> Result<PathBuf> {
        let path = self.0.join(format!("{name}.db"));
        open(&path)?.execute_batch(
            "CREATE TABLE stock (id INTEGER PRIMARY KEY, n INTEGER, fence_token INTEGER, fence_owner TEXT);
             CREATE TABLE sale (article INTEGER);
             INSERT INTO stock (id, n) VALUES (7, 1)",
        )?;
        Ok(path)
    }
}
impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
