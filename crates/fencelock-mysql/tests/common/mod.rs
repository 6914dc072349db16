//! What the tests of this crate share.
#![allow(dead_code, unused_imports, unreachable_pub, reason = "each test file uses its part")]
#![allow(clippy::unwrap_used, missing_docs, missing_debug_implementations, reason = "a test fails where it unwraps")]
#[path = "../../../fencelock-testkit/stories/common.rs"]
mod stories;
use fencelock_conformance::proxy::Proxy;
use fencelock_core::Client;
use fencelock_mysql::Config;
use fencelock_testkit::MariaDb;
pub use fencelock_testkit::Session;
use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
};
pub use stories::*;

/// In front of the server, and the URL that leads through it.
pub fn proxied(server: &MariaDb) -> (Proxy, String) {
    let proxy = Proxy::mysql(([127, 0, 0, 1], server.port()).into());
    let url = server.url().replace(&format!("127.0.0.1:{}", server.port()), &proxy.address().to_string());
    (proxy, url)
}
fn call(procedure: &str) -> String {
    format!("CALL fencelock_{procedure}(")
}
fn packet(from: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut packet = vec![0; 4];
    from.read_exact(&mut packet)?;
    let length = u32::from_le_bytes([packet[0], packet[1], packet[2], 0]);
    packet.resize(4 + length as usize, 0);
    from.read_exact(&mut packet[4..]).map(|()| packet)
}
/// Everybody who connects is served by this, each in a thread: where.
fn serving(serve: impl Fn(TcpStream) -> std::io::Result<()> + Copy + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || serve(client));
        }
    });
    address
}
/// Gives two sessions to each who connects, in turns: where it is.
pub fn two_for_each(port: u16) -> SocketAddr {
    serving(move |mut client| {
        let mut servers = [TcpStream::connect(("127.0.0.1", port))?, TcpStream::connect(("127.0.0.1", port))?];
        client.write_all(&packet(&mut servers[0])?)?;
        packet(&mut servers[1])?;
        let who = packet(&mut client)?;
        for server in &mut servers {
            server.write_all(&who)?;
        }
        client.write_all(&packet(&mut servers[0])?)?;
        packet(&mut servers[1])?;
        for server in &servers {
            let (mut from, mut to) = (server.try_clone()?, client.try_clone()?);
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        }
        for turn in 0.. {
            let command = packet(&mut client)?;
            servers[turn % 2].write_all(&command)?;
        }
        Ok(())
    })
}
/// Tells the server of each who connects that rows which match are to count as affected, too, as some drivers and proxies do: where it is.
pub fn found_rows(port: u16) -> SocketAddr {
    serving(move |mut client| {
        let mut server = TcpStream::connect(("127.0.0.1", port))?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        client.write_all(&packet(&mut server)?)?;
        let mut who = packet(&mut client)?;
        // Behind the packet's head come the capabilities: CLIENT_FOUND_ROWS is the second one.
        who[4] |= 2;
        server.write_all(&who)?;
        let (mut from, mut to) = (server.try_clone()?, client.try_clone()?);
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Both);
        });
        let done = std::io::copy(&mut client, &mut server);
        let _ = server.shutdown(Shutdown::Both);
        done.map(drop)
    })
}
pub async fn client(url: &str) -> Client {
    client_with(Config::from_url(url).unwrap()).await
}
pub async fn client_with(config: Config) -> Client {
    patient_client(|| fencelock_mysql::connect(config.clone())).await
}
