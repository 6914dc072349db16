//! A service that is fenced: every write says the token of its writer's lock, and one that is lower than another that the
//! service has seen is refused (412). `cargo run --example fenced_store -- [--stay] [URL]`
//!
//! It speaks just enough HTTP to be asked by curl, too, with `--stay`: `PUT /NAME` with the header `Fence-Token: N`.
use fencelock::Token;
use std::{
    collections::HashMap,
    env,
    error::Error,
    io,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// The value, and the greatest token of whoever wrote it. Kept together: a token that is remembered elsewhere may be lost
/// when the value is not.
type Objects = Arc<Mutex<HashMap<String, (i64, String)>>>;

/// Writes, unless somebody with a greater token has.
fn put(objects: &Objects, name: &str, token: i64, value: String) -> std::result::Result<(), i64> {
    let mut objects = objects.lock().unwrap_or_else(PoisonError::into_inner);
    match objects.get(name) {
        Some((newest, _)) if token < *newest => Err(*newest),
        _ => {
            objects.insert(name.to_owned(), (token, value));
            Ok(())
        }
    }
}

async fn serve(mut stream: TcpStream, objects: Objects) -> io::Result<()> {
    let (reader, mut writer) = stream.split();
    let mut lines = BufReader::new(reader);
    let (mut first, mut line, mut token, mut length) = (String::new(), String::new(), None, 0);
    lines.read_line(&mut first).await?;
    loop {
        line.clear();
        lines.read_line(&mut line).await?;
        match line.trim().split_once(':').map(|(key, value)| (key.to_ascii_lowercase(), value.trim())) {
            Some((key, value)) if key == "fence-token" => token = value.parse().ok(),
            Some((key, value)) if key == "content-length" => length = value.parse().unwrap_or(0),
            Some(_) => {}
            None => break,
        }
    }
    let mut value = vec![0; length.min(1 << 20)];
    lines.read_exact(&mut value).await?;
    let name = first.split(' ').nth(1).unwrap_or_default();
    let answer = match token {
        // Whoever forgets the token is not let through: then it would protect nothing.
        None => "428 Precondition Required".to_owned(),
        Some(token) => match put(&objects, name, token, String::from_utf8_lossy(&value).into_owned()) {
            Ok(()) => "204 No Content".to_owned(),
            Err(newest) => format!("412 Precondition Failed\r\nFence-Token: {newest}"),
        },
    };
    writer.write_all(format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").as_bytes()).await
}

/// A client of it: what it is answered.
async fn write(address: &str, token: Option<Token>, value: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let fence = token.map(|token| format!("Fence-Token: {token}\r\n")).unwrap_or_default();
    let head = format!("PUT /orders/42 HTTP/1.1\r\nHost: {address}\r\n{fence}Content-Length: {}\r\n\r\n", value.len());
    stream.write_all((head + value).as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.lines().next().unwrap_or_default().to_owned())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let (listener, objects) = (TcpListener::bind("127.0.0.1:0").await?, Objects::default());
    let address = listener.local_addr()?.to_string();
    let served = objects.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, served.clone()));
        }
    });

    let mut words = env::args().skip(1).peekable();
    let stays = words.next_if_eq("--stay").is_some();
    let url = words.next().unwrap_or_else(|| "sqlite:".to_owned());
    let client = fencelock::connect(&url).await?;
    let first = client.mutex("orders/42").lock().await?;
    println!("the first holder writes: {}", write(&address, Some(first.token()), "paid").await?);

    // An operator takes the lock away, or its holder is paused for longer than its lease: it is somebody else's now.
    client.force_release("orders/42", first.token()).await?;
    let second = client.mutex("orders/42").lock().await?;
    println!("the second holder writes: {}", write(&address, Some(second.token()), "shipped").await?);

    // The first one wakes up, and goes on where it stood.
    let late = write(&address, Some(first.token()), "cancelled").await?;
    println!("the first holder, late: {late}");
    assert!(late.contains("412"), "{late}");
    let without = write(&address, None, "cancelled").await?;
    println!("somebody without a lock: {without}");
    assert!(without.contains("428"), "{without}");

    {
        let objects = objects.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(objects.get("/orders/42").map(|(_, value)| value.as_str()), Some("shipped"));
    }
    if stays {
        println!("http://{address}/orders/42 may be asked, until this is ended");
        std::future::pending::<()>().await;
    }
    Ok(())
}
