//! What a program shows of its locks to Prometheus: `cargo run --example metrics [-- --stay]`, and with `--stay` it goes on, to be looked at
//! with curl. It takes and releases some locks, has one taken away, asks itself as Prometheus would, and fails if a figure is missing.
use fencelock::{Client, LossReason};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use std::{env, error::Error, net::Ipv4Addr, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Each of these is there after a minute of work, whatever the engine.
const FIGURES: [&str; 7] = [
    r#"fencelock_acquire_wait_seconds_bucket{engine="memory",claim="mutex",outcome="granted""#,
    r#"fencelock_hold_seconds_bucket{engine="memory",claim="mutex""#,
    r#"fencelock_held{engine="memory"} 1"#,
    r#"fencelock_waiting{engine="memory"} 0"#,
    r#"fencelock_lost_total{engine="memory",reason="taken_over"} 1"#,
    r#"fencelock_renewals_total{engine="memory",outcome="extended"}"#,
    r#"fencelock_engine_seconds_bucket{engine="memory",operation="acquire""#,
];

#[tokio::main]
async fn main() -> Result<()> {
    // Free a moment ago; the exporter itself takes no listener.
    let at = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?.local_addr()?;
    // Histograms with buckets can be added up over the processes of a service; summaries, which come without, cannot.
    let buckets = [0.001, 0.01, 0.1, 1.0, 10.0, 60.0];
    PrometheusBuilder::new()
        .with_http_listener(at)
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &buckets)?
        .install()?;
    // After the recorder: who connects tells it what the figures mean.
    let client = fencelock::connect("memory:").await?;
    work(&client).await?;
    let held = client.mutex("nightly-report").lock().await?;

    println!("http://{at}/metrics");
    let told = scrape_until_complete(at).await?;
    for line in told.lines().filter(|line| line.contains("fencelock") && !line.contains("_bucket")) {
        println!("{line}");
    }
    if env::args().any(|arg| arg == "--stay") {
        loop {
            work(&client).await?;
            sleep(Duration::from_secs(1)).await;
        }
    }
    held.release().await?;
    Ok(())
}

/// Some orders, one after the other and beside each other, and one whose lock an operator takes away.
async fn work(client: &Client) -> Result<()> {
    for order in 1..=5 {
        client.mutex(format!("orders/{order}")).lock().await?.release().await?;
    }
    let first = client.mutex("orders/42").lock().await?;
    let second = tokio::spawn(client.mutex("orders/42").lock());
    sleep(Duration::from_millis(20)).await;
    if client.mutex("orders/42").try_lock().await?.is_ok() {
        return Err("two have it".into());
    }
    first.release().await?;
    second.await??.release().await?;

    let taken = client.mutex("orders/43").lock().await?;
    client.force_release("orders/43", taken.token()).await?;
    if taken.lost().await != LossReason::TakenOver {
        return Err("it was taken away".into());
    }
    Ok(())
}

/// What is told of a loss is told a moment after the holder has heard.
async fn scrape_until_complete(at: std::net::SocketAddr) -> Result<String> {
    let (mut told, mut missing) = (String::new(), String::new());
    let complete = async {
        loop {
            told = scrape(at).await.unwrap_or_default();
            match FIGURES.iter().find(|figure| !told.contains(*figure)) {
                None => return,
                Some(figure) => missing = (*figure).to_owned(),
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    if timeout(Duration::from_secs(10), complete).await.is_err() {
        return Err(format!("{missing} is missing in\n{told}").into());
    }
    Ok(told)
}

/// Just enough HTTP.
async fn scrape(at: std::net::SocketAddr) -> Result<String> {
    let mut stream = TcpStream::connect(at).await?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
