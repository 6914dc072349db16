//! A pooler that is out of step: it hands each client what answers somebody else, or an earlier call.
//!
//! Which fault was planted to see one go red stands at it.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
mod common;
use common::*;
use fencelock_core::ErrorKind;
use fencelock_testkit::Postgres;
use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    thread,
};

/// One message, with its kind.
fn message(from: &mut TcpStream) -> Option<Vec<u8>> {
    let mut head = [0; 5];
    from.read_exact(&mut head).ok()?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    let mut whole = head.to_vec();
    whole.resize(1 + length, 0);
    from.read_exact(&mut whole[5..]).ok()?;
    Some(whole)
}
/// Until the server is ready for the next one.
fn answer(from: &mut TcpStream) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    loop {
        let one = message(from)?;
        whole.extend_from_slice(&one);
        if one[0] == b'Z' {
            return Some(whole);
        }
    }
}
/// It hands on what was asked, and while `mixes` says so an answer that was given to somebody before, of any connection.
struct Pooler {
    url: String,
    mixes: Arc<AtomicBool>,
    mixed: Arc<AtomicU32>,
}
impl Pooler {
    fn start(server: &Postgres) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, upstream) = (listener.local_addr().unwrap().port(), server.port());
        let (mixes, mixed, last) =
            (Arc::<AtomicBool>::default(), Arc::<AtomicU32>::default(), Arc::<Mutex<Vec<u8>>>::default());
        let (told, count) = (mixes.clone(), mixed.clone());
        thread::spawn(move || {
            for client in listener.incoming() {
                let (mut client, mut server) = (client.unwrap(), TcpStream::connect(("127.0.0.1", upstream)).unwrap());
                let (mixes, mixed, last) = (told.clone(), count.clone(), last.clone());
                thread::spawn(move || {
                    // The first message has no kind.
                    let mut length = [0; 4];
                    client.read_exact(&mut length).ok()?;
                    let mut first = vec![0; u32::from_be_bytes(length) as usize - 4];
                    client.read_exact(&mut first).ok()?;
                    server.write_all(&[&length[..], &first].concat()).ok()?;
                    client.write_all(&answer(&mut server)?).ok()?;
                    loop {
                        let asked = message(&mut client)?;
                        server.write_all(&asked).ok()?;
                        if asked[0] == b'X' {
                            return Some(());
                        }
                        let mut given = answer(&mut server)?;
                        let ours = asked.windows(10).any(|part| part == b"fencelock_");
                        if ours {
                            let (mut last, kept) = (last.lock().unwrap(), given.clone());
                            if mixes.load(SeqCst) && !last.is_empty() {
                                mixed.fetch_add(1, SeqCst);
                                given = std::mem::take(&mut *last);
                            }
                            *last = kept;
                        }
                        client.write_all(&given).ok()?;
                    }
                });
            }
        });
        Self { url: server.url().replace(&server.port().to_string(), &port.to_string()), mixes, mixed }
    }
}

/// Somebody else's grant, told to whoever asks: nobody is ever in who is not, whatever the pooler mixes up, and all is well when it is in step
/// again. (Red: answers that do not say what they answer.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_of_somebody_else_is_nobodys_grant() {
    let server = Postgres::start();
    let pooler = Pooler::start(&server);
    let (direct, a, b) = (client(&server.url()).await, client(&pooler.url).await, client(&pooler.url).await);
    for round in 0..3 {
        for (name, claim, other) in CLAIMS {
            let name = format!("{name}{round}");
            let held = Any::lock(&direct, &name, other, 60 * SEC).await.unwrap();
            // A grant and its end, which the next ones are answered with.
            let free = format!("{name} free");
            let own = Any::lock(&b, &free, claim, 60 * SEC).await.unwrap();
            pooler.mixes.store(true, SeqCst);
            let met = pooler.mixed.load(SeqCst);
            match Any::attempt(&a, &name, claim).await {
                Ok(None) => {}
                Ok(Some(_)) => panic!("{name} is somebody else's"),
                Err(error) => assert!(error.is_temporary() || error.kind() == ErrorKind::Ambiguous, "{error}"),
            }
            assert!(pooler.mixed.load(SeqCst) > met, "it was answered wrongly");
            pooler.mixes.store(false, SeqCst);
            own.release().await.unwrap();
            held.release().await.unwrap();
            let again = soon(Any::lock(&a, &name, claim, 60 * SEC)).await.unwrap();
            again.release().await.unwrap();
        }
    }
    println!("{} answers were mixed up", pooler.mixed.load(SeqCst));
}
