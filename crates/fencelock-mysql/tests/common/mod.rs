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
    net::{SocketAddr, TcpListener, TcpStream},
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
/// Gives two sessions to each who connects, in turns: where it is.
pub fn two_for_each(port: u16) -> SocketAddr {
    fn packet(from: &mut TcpStream) -> std::io::Result<Vec<u8>> {
        let mut packet = vec![0; 4];
        from.read_exact(&mut packet)?;
        let length = u32::from_le_bytes([packet[0], packet[1], packet[2], 0]);
        packet.resize(4 + length as usize, 0);
        from.read_exact(&mut packet[4..]).map(|()| packet)
    }
    fn serve(mut client: TcpStream, port: u16) -> std::io::Result<()> {
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
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || serve(client, port));
        }
    });
    address
}
pub async fn client(url: &str) -> Client {
    client_with(Config::from_url(url).unwrap()).await
}
pub async fn client_with(config: Config) -> Client {
    patient_client(|| fencelock_mysql::connect(config.clone())).await
}
