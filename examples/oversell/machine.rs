//! A process of the shop, and how the story leads it: it says a line, and waits for one where anything may happen.
use std::{
    env,
    error::Error,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

pub(crate) struct Machine {
    child: Child,
    says: BufReader<ChildStdout>,
}
impl Machine {
    /// This program again, with these words.
    pub(crate) fn start(words: &[&str]) -> Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        let mut child = command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let says = BufReader::new(child.stdout.take().ok_or("it has no output")?);
        Ok(Self { child, says })
    }
    pub(crate) fn hear(&mut self) -> Result<String> {
        let mut line = String::new();
        self.says.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }
    pub(crate) fn tell(&mut self) -> Result<()> {
        Ok(self.child.stdin.as_mut().ok_or("it has no input")?.write_all(b"go on\n")?)
    }
    pub(crate) fn signal(&self, signal: &str) -> Result<()> {
        let sent = Command::new("kill").args(["-s", signal, &self.child.id().to_string()]).status()?;
        if sent.success() { Ok(()) } else { Err("it could not be signalled".into()) }
    }
    /// As when its power fails.
    pub(crate) fn crash(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}
impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A machine's word.
pub(crate) fn say(word: &str) -> Result<()> {
    println!("{word}");
    Ok(std::io::stdout().flush()?)
}

/// A machine waits here until the story goes on.
pub(crate) fn wait() -> Result<()> {
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}

/// The story waits for what comes by itself.
pub(crate) fn until(what: &str, mut so: impl FnMut() -> Result<bool>) -> Result<()> {
    let began = Instant::now();
    while !so()? {
        if began.elapsed() > Duration::from_secs(20) {
            return Err(what.into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// A machine that does it with fencelock: the same places to stop at as those that do it by hand.
pub(crate) async fn ours(way: &str, url: &str) -> Result<()> {
    let client = fencelock::connect(url).await?;
    let lock = client.mutex("article/7").note("a machine of the shop");
    if way == "try" {
        return say(if lock.try_lock().await?.is_ok() { "has it" } else { "busy" });
    }
    let guard = lock.lock().await?;
    say("has it")?;
    if way == "works" {
        // A third of its ttl after the other: by now it has worked for longer than one.
        for _ in 0..4 {
            guard.renewed().await;
        }
        say("still works")?;
    }
    wait()?;
    match guard.release().await {
        Ok(()) => say("has given it back"),
        Err(e) => say(&format!("is told: {e}")),
    }
}
