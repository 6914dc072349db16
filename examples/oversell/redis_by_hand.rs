//! What is often written by hand over Redis, and where it breaks: each time at the same place, since the machine is made to stop there.
use crate::machine::{Machine, Result, say, until, wait};
use redis::{Commands, Connection};

/// A lease by hand that is over soon, and one that is not over in this story.
const SHORT: &str = "500";
const LONG: &str = "60000";

/// A machine that does it by hand.
pub(crate) fn machine(way: &str, url: &str) -> Result<()> {
    let mut redis = open(url)?;
    let (key, me) = (key(way), std::process::id().to_string());
    if way == "setnx" {
        if !redis.set_nx::<_, _, bool>(&key, &me)? {
            return say("busy");
        }
        say("has it")?;
        // Between the two commands there is a network, and a process that may end.
        wait()?;
        redis.expire::<_, ()>(&key, 2)?;
        return say("has set its end");
    }
    let (way, lease) = way.split_once(' ').unwrap_or((way, LONG));
    if !take(&mut redis, self::key(way), &me, lease)? {
        return say("busy");
    }
    say("has it")?;
    wait()?;
    // Whoever's it is by now.
    redis.del::<_, ()>(self::key(way))?;
    say("has given it back")
}

fn take(redis: &mut Connection, key: String, me: &str, lease: &str) -> Result<bool> {
    let answer: Option<String> = redis::cmd("SET").arg(key).arg(me).arg("NX").arg("PX").arg(lease).query(redis)?;
    Ok(answer.is_some())
}

fn open(url: &str) -> Result<Connection> {
    // The driver knows no keys of ours.
    let url = url.split('?').next().unwrap_or(url);
    Ok(redis::Client::open(url)?.get_connection()?)
}
fn key(way: &str) -> String {
    format!("by hand/{way}/article/7")
}

pub(crate) fn stories(url: &str) -> Result<()> {
    let mut redis = open(url)?;
    for way in ["setnx", "delete", "lease"] {
        redis.del::<_, ()>(key(way))?;
    }
    let by_hand = |way: &str| Machine::start(&["redis", way, url]);
    let ours = |way: &str| Machine::start(&["ours", way, url]);

    let mut one = by_hand("setnx")?;
    println!("SETNX, then EXPIRE: the first machine {}, and its power fails before EXPIRE …", one.hear()?);
    one.crash()?;
    let end: i64 = redis.pttl(key("setnx"))?;
    assert_eq!(end, -1, "a key without an end");
    let busy = by_hand("setnx")?.hear()?;
    println!("   … it is locked for ever: its key has no end, and to whoever comes it is {busy}");
    assert_eq!(busy, "busy");
    let mut one = ours("holds")?;
    println!("   ours: the first machine {}, and its power fails …", one.hear()?);
    one.crash()?;
    let mut two = ours("holds")?;
    println!("   … the second {} when the lease is over, which was given together with the lock", two.hear()?);
    two.tell()?;
    two.hear()?;

    let mut one = by_hand(&format!("delete {SHORT}"))?;
    println!(
        "a release that does not look: the first machine {}, and is paused until its lease is over …",
        one.hear()?
    );
    one.signal("STOP")?;
    until("its lease is over", || Ok(!redis.exists::<_, bool>(key("delete"))?))?;
    let mut two = by_hand(&format!("delete {LONG}"))?;
    println!("   … the second {} …", two.hear()?);
    one.signal("CONT")?;
    one.tell()?;
    println!("   … the first goes on, and {}: the second one's …", one.hear()?);
    let mut three = by_hand(&format!("delete {LONG}"))?;
    let third = three.hear()?;
    println!("   … the third {third}, beside the second");
    assert_eq!(third, "has it");
    let mut one = ours("holds")?;
    println!("   ours: the first machine {}, and is paused …", one.hear()?);
    one.signal("STOP")?;
    let mut two = ours("holds")?;
    println!("   … the second {} …", two.hear()?);
    one.signal("CONT")?;
    one.tell()?;
    println!("   … the first goes on, and {} …", one.hear()?);
    let third = ours("try")?.hear()?;
    println!("   … to the third it is {third}");
    assert_eq!(third, "busy");
    two.tell()?;
    two.hear()?;

    let mut one = by_hand(&format!("lease {SHORT}"))?;
    println!("a lease that nobody renews: the first machine {}, and works …", one.hear()?);
    until("its lease is over", || Ok(!redis.exists::<_, bool>(key("lease"))?))?;
    let second = by_hand(&format!("lease {LONG}"))?.hear()?;
    println!("   … and works; the second {second} meanwhile");
    assert_eq!(second, "has it");
    let mut one = ours("works")?;
    println!("   ours: the first machine {}, and works …", one.hear()?);
    println!("   … for longer than its lease: it {} …", one.hear()?);
    let second = ours("try")?.hear()?;
    println!("   … to the second it is {second}");
    assert_eq!(second, "busy");
    one.tell()?;
    let end = one.hear()?;
    println!("   … until the first {end}");
    assert_eq!(end, "has given it back");
    Ok(())
}
