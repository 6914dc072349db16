//! One of three nodes leads; when it goes, another one does. `cargo run --example leader [URL]`
//!
//! Each term has a number, the fencing token: what a leader writes carries it, and a leader that was paused over the end of
//! its term is refused where it writes.
use fencelock::{Client, Result};
use std::{env, sync::Arc, time::Duration};
use tokio::sync::Mutex;

/// What the leader writes to: it refuses a term that is over.
#[derive(Default)]
struct Plan {
    term: i64,
    first: Option<i64>,
    steps: Vec<String>,
}
impl Plan {
    fn write(&mut self, term: i64, step: String) -> bool {
        if term < self.term {
            return false;
        }
        self.term = term;
        self.first.get_or_insert(term);
        self.steps.push(step);
        true
    }
}

/// A node: waits for its term, leads for a while, and makes way.
async fn node(name: &'static str, client: Client, plan: Arc<Mutex<Plan>>) -> Result<()> {
    let term = client.election("scheduler").campaign(name).await?;
    // Stopped where it stands when the term is over.
    let led = term
        .run(async {
            for step in 1..=3 {
                let accepted = plan.lock().await.write(term.token().get(), format!("{name}: step {step}"));
                assert!(accepted, "nobody leads at the same time");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    println!("{name} has led in term {}", term.token());
    led?;
    term.resign().await
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let url = env::args().nth(1).unwrap_or_else(|| "sqlite:".to_owned());
    let client = fencelock::connect(&url).await?;
    let plan = Arc::new(Mutex::new(Plan::default()));

    // Whoever wants to know who leads.
    let mut observer = client.election("scheduler").observe();
    let watching = tokio::spawn(async move {
        while let Ok(leader) = observer.changed().await {
            println!("   {} leads", leader.as_ref().map_or("nobody", |leader| &leader.candidate));
        }
    });

    let nodes = ["one", "two", "three"].map(|name| tokio::spawn(node(name, client.clone(), plan.clone())));
    for node in nodes {
        node.await??;
    }
    watching.abort();

    let mut plan = plan.lock().await;
    assert_eq!(plan.steps.len(), 9, "each of them, one after the other");
    // What the first of them wrote if it had been paused in its term, and went on only now.
    let first = plan.first.unwrap_or_default();
    assert!(!plan.write(first, "too late".to_owned()), "a term that is over is refused");
    for led in plan.steps.chunks(3) {
        let name = led[0].split(':').next().unwrap_or_default();
        assert!(led.iter().all(|step| step.starts_with(name)), "nobody in between: {:?}", plan.steps);
    }
    Ok(())
}
