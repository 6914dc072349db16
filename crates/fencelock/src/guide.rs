#![doc = include_str!("../../../docs/guide/introduction.md")]

/// Here for a page of `docs/guide`, whose snippets are compiled and run.
macro_rules! page {
    ($name:ident, $file:literal) => {
        #[doc = include_str!(concat!("../../../docs/guide/", $file))]
        pub mod $name {}
    };
}
page!(choosing_a_lock, "choosing-a-lock.md");
page!(choosing_an_engine, "choosing-an-engine.md");
page!(promises, "promises.md");
page!(fenced_writes, "fenced-writes.md");
page!(waiting, "waiting.md");
page!(re_entry, "re-entry.md");
page!(testing, "testing.md");
page!(observability, "observability.md");
page!(cron_and_deploys, "cron-and-deploys.md");
page!(moving, "moving.md");
