//! The shop: one article is left, and two machines sell it. Without a lock it is sold twice; with one it is not; a machine
//! that is paused between its check and its write sells it twice in spite of the lock, unless the write is fenced.
//!
//! `cargo run --example oversell [URL]`: locks in SQLite, or wherever the URL says (`redis://…?ttl=2s`, `postgres://…?ttl=2s`,
//! …): for so long a machine that is paused keeps the others waiting. The machines are processes, and the pause is a real
//! one: SIGSTOP.
use fencelock::sql::{Row, Tx, fence, seen};
use rusqlite::Connection;
use std::{
    env,
    error::Error,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let args: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["machine", way, shop, url] => machine(way, Path::new(shop), url).await,
        [] => stories(None).await,
        [url] => stories(Some(url)).await,
        _ => Err("usage: oversell [URL]".into()),
    }
}

/// Sells the article if there is one. After its look at the shelf it waits for a word: anything may happen there.
async fn machine(way: &str, shop: &Path, url: &str) -> Result<()> {
    let guard = if way == "unlocked" {
        None
    } else {
        let client = fencelock::connect(url).await?;
        Some(client.mutex("article/7").note("a machine of the shop").lock().await?)
    };
    let mut db = open(shop)?;
    let left: i64 = db.query_row("SELECT n FROM stock WHERE id = 7", [], |row| row.get(0))?;
    // Yes, it is still ours. And then the machine stands still.
    guard.as_ref().map_or(Ok(()), |guard| guard.check())?;
    say(if left > 0 { "there is one" } else { "sold out" })?;
    if left == 0 {
        return Ok(());
    }
    std::io::stdin().read_line(&mut String::new())?;

    let mut tx = Tx::new(seen(db.transaction())?);
    if let (Some(guard), "fenced") = (&guard, way) {
        // The shelf remembers the greatest token that it has seen, and refuses a lower one.
        if let Err(refused) = fence::check(&mut tx, Row::of("stock").key("id", 7), guard).await? {
            return say(&format!("refused: {refused}"));
        }
    }
    seen(tx.execute("UPDATE stock SET n = ?1 WHERE id = 7", [left - 1]))?;
    seen(tx.execute("INSERT INTO sale (article) VALUES (7)", []))?;
    tx.commit().await?;
    say("sold")
}

async fn stories(url: Option<&str>) -> Result<()> {
    let folder = Folder::new()?;
    let locks = format!("sqlite:{}?ttl=2s", folder.0.join("locks.db").display());
    let url = url.unwrap_or(&locks);

    let shop = folder.shop("unlocked")?;
    let (mut one, mut two) = (Machine::start("unlocked", &shop, url)?, Machine::start("unlocked", &shop, url)?);
    println!("no lock: the first machine sees that {}, the second that {}", one.hear()?, two.hear()?);
    one.tell()?;
    two.tell()?;
    println!("         {}, and {}", one.hear()?, two.hear()?);
    assert_eq!(sales(&shop)?, 2, "one article, sold twice");

    let shop = folder.shop("locked")?;
    let mut one = Machine::start("locked", &shop, url)?;
    let shelf = one.hear()?;
    let mut two = Machine::start("locked", &shop, url)?;
    one.tell()?;
    println!(
        "a lock: the first machine sees that {shelf}: {}. Then the second has its turn: {}",
        one.hear()?,
        two.hear()?
    );
    assert_eq!(sales(&shop)?, 1);

    for (way, all) in [("locked", 2), ("fenced", 1)] {
        let shop = folder.shop(&format!("{way} and paused"))?;
        let mut one = Machine::start(way, &shop, url)?;
        let shelf = one.hear()?;
        one.signal("STOP")?;
        println!("{way}, and the first machine is paused after it has seen that {shelf} …");
        // It has the lock when the lease of the first one is over.
        let mut two = Machine::start(way, &shop, url)?;
        let shelf = two.hear()?;
        two.tell()?;
        println!("   … the second has the lock, and sees that {shelf}: {}", two.hear()?);
        one.signal("CONT")?;
        one.tell()?;
        println!("   … the first goes on: {}", one.hear()?);
        assert_eq!(sales(&shop)?, all, "{way}");
    }
    Ok(())
}

fn say(word: &str) -> Result<()> {
    println!("{word}");
    Ok(std::io::stdout().flush()?)
}

fn open(shop: &Path) -> Result<Connection> {
    let db = Connection::open(shop)?;
    db.busy_timeout(Duration::from_secs(10))?;
    Ok(db)
}

fn sales(shop: &Path) -> Result<i64> {
    Ok(open(shop)?.query_row("SELECT count(*) FROM sale", [], |row| row.get(0))?)
}

struct Machine {
    child: Child,
    says: BufReader<std::process::ChildStdout>,
}
impl Machine {
    fn start(way: &str, shop: &Path, url: &str) -> Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        let mut child =
            command.args(["machine", way]).arg(shop).arg(url).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let says = BufReader::new(child.stdout.take().ok_or("it has no output")?);
        Ok(Self { child, says })
    }
    fn hear(&mut self) -> Result<String> {
        let mut line = String::new();
        self.says.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }
    fn tell(&mut self) -> Result<()> {
        Ok(self.child.stdin.as_mut().ok_or("it has no input")?.write_all(b"go on\n")?)
    }
    fn signal(&self, signal: &str) -> Result<()> {
        let sent = Command::new("kill").args(["-s", signal, &self.child.id().to_string()]).status()?;
        if sent.success() { Ok(()) } else { Err("it could not be signalled".into()) }
    }
}
impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
