//! The scripts. Each reads and writes one record, but those that renew, which take several; each may be sent again with one effect.
use redis::Script as Hashed;
use std::sync::LazyLock;

/// A script as the server knows it.
pub(crate) struct Script {
    pub(crate) text: &'static str,
    pub(crate) sha: String,
}
macro_rules! script {
    ($name:ident: $($part:literal)+) => {
        pub(crate) static $name: LazyLock<Script> = LazyLock::new(|| {
            const TEXT: &str = concat!($(include_str!(concat!("lua/", $part, ".lua"))),+);
            Script { text: TEXT, sha: Hashed::new(TEXT).get_hash().to_owned() }
        });
    };
}
script!(ACQUIRE: "acquire_head" "common" "acquire_tail");
script!(CELL_LOAD: "start" "common" "cell_load");
script!(CELL_SWAP: "start" "common" "cell_swap");
script!(EXCHANGE: "start" "common" "exchange");
script!(FORCE: "start" "common" "force");
script!(PLAIN_ACQUIRE: "plain_acquire");
script!(PLAIN_RELEASE: "plain_release");
script!(PLAIN_RENEW: "plain_renew");
script!(REDISSON_ACQUIRE: "redisson_common" "redisson_acquire");
script!(REDISSON_DOWNGRADE: "redisson_common" "redisson_downgrade");
script!(REDISSON_RELEASE: "redisson_common" "redisson_release");
script!(REDISSON_RENEW: "redisson_renew");
script!(REFRESH: "start" "common" "refresh");
script!(RELEASE: "release_head" "common" "release_tail");
script!(REMEMBER: "remember");
script!(RENEW: "renew");
script!(RESIZE: "start" "common" "resize");
