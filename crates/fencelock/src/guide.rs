#![cfg_attr(not(doctest), doc = include_str!("links.md"))]
#![doc = include_str!("../../../docs/guide/introduction.md")]
// Pages link to each other by reference, and end with where that is in the book and in the repository. Of two definitions the first one counts:
// links.md has where it is here. A doctest has the lines of its page.

/// Here for a page of `docs/guide`, whose snippets are compiled and run.
macro_rules! page {
    ($name:ident, $file:literal) => {
        #[cfg_attr(not(doctest), doc = include_str!("links.md"))]
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
page!(command_line, "command-line.md");

/// The programs of `examples` that pages link to: tests run them.
pub mod examples {
    macro_rules! example {
        ($name:ident, $file:literal) => {
            #[doc = concat!("`examples/", $file, "`\n\n```text")]
            #[doc = include_str!(concat!("../../../examples/", $file))]
            #[doc = "```"]
            pub mod $name {}
        };
    }
    example!(cron, "cron.sh");
    example!(deploy, "deploy.sh");
    example!(fenced_store, "fenced_store.rs");
    example!(leader, "leader.rs");
    example!(metrics, "metrics.rs");
    example!(oversell, "oversell/main.rs");
    example!(testing, "testing.rs");
}
