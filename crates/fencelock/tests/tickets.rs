//! A hold that goes from one process to another as a text, and ends with the one that has it.
//!
//! Planted to see them go red: a ticket that may be adopted twice; an adoption that keeps the token.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
use fencelock::{Client, ErrorKind, Ticket};
use fencelock_testkit as kit;
use libtest_mimic::{Arguments, Trial};
use std::{
    env,
    io::{BufRead, BufReader},
    process::{Child, ChildStdin, Command, Stdio},
    time::{Duration, Instant},
};

/// Of a hold that is left to itself.
const TTL: Duration = Duration::from_secs(6);

fn main() {
    let args: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    if let ["adopt", url, ticket] = words[..] {
        return runtime().block_on(other_process(url, ticket));
    }
    let mut trials = Vec::new();
    trials.push(trial("redis", || {
        let server = kit::Redis::start();
        story(&server.url());
    }));
    trials.push(trial("postgres", || {
        let server = kit::Postgres::start();
        story(&server.url());
    }));
    trials.push(trial("mariadb", || {
        let server = kit::MariaDb::start();
        story(&server.url());
    }));
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
fn trial(name: &str, story: fn()) -> Trial {
    Trial::test(format!("tickets_between_processes_on_{name}"), move || {
        story();
        Ok(())
    })
}
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Takes it over, says its token, and gives it back when it hears a word; or why it cannot have it.
async fn other_process(url: &str, ticket: &str) {
    let client = fencelock::connect(url).await.unwrap();
    let ticket: Ticket = ticket.parse().unwrap();
    match client.adopt(&ticket).await {
        Ok(guard) => {
            println!("{}", guard.token());
            std::io::stdin().read_line(&mut String::new()).unwrap();
            guard.release().await.unwrap();
        }
        Err(e) => {
            assert_eq!(e.kind(), ErrorKind::NotHeld, "{e}");
            println!("refused");
        }
    }
}
struct Other {
    child: Child,
    says: String,
    input: Option<ChildStdin>,
}
impl Other {
    fn adopts(url: &str, ticket: &str) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["adopt", url, ticket]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut says = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut says).unwrap();
        let input = child.stdin.take();
        Self { child, says: says.trim().to_owned(), input }
    }
}
impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn story(url: &str) {
    runtime().block_on(async {
        let (here, third) = (fencelock::connect(url).await.unwrap(), fencelock::connect(url).await.unwrap());
        let guard = here.mutex("t").ttl(TTL).lock().await.unwrap();
        let first = guard.token().get();
        let ticket = guard.into_ticket().await.unwrap().to_string();
        assert!(third.mutex("t").try_lock().await.unwrap().is_err(), "whoever has the ticket has the lock");

        // Another process has it, for longer than the ticket's ttl, under a token that is greater.
        let mut other = Other::adopts(url, &ticket);
        assert!(other.says.parse::<i64>().unwrap() > first, "{} after {first}", other.says);
        assert_eq!(here.inspect("t").await.unwrap().holders[0].pid, other.child.id());
        assert_eq!(Other::adopts(url, &ticket).says, "refused");
        let until = Instant::now() + TTL * 3 / 2;
        while Instant::now() < until {
            assert!(third.mutex("t").try_lock().await.unwrap().is_err());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        drop(other.input.take());
        assert!(other.child.wait().unwrap().success());
        let next = third.mutex("t").ttl(TTL).lock().await.unwrap();
        assert!(next.token().get() > other.says.parse().unwrap());

        // One that dies with it leaves it to its lease; one that nobody adopts, too.
        let ticket = next.into_ticket().await.unwrap().to_string();
        let other = Other::adopts(url, &ticket);
        assert!(other.says.parse::<i64>().is_ok(), "{}", other.says);
        drop(other);
        is_free_in_time(&third).await;
        let guard = third.mutex("t").ttl(TTL).lock().await.unwrap();
        let ticket = guard.into_ticket().await.unwrap().to_string();
        is_free_in_time(&third).await;
        assert_eq!(Other::adopts(url, &ticket).says, "refused");
    });
}
async fn is_free_in_time(client: &Client) {
    let limit = Duration::from_secs(30);
    let got = client.mutex("t").try_lock_for(limit).await.unwrap();
    got.unwrap_or_else(|busy| panic!("not within {limit:?}: {busy}")).release().await.unwrap();
}
