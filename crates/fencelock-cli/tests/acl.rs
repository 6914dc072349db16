//! `fencelock acl redis`: what is printed, said to the server, makes a user that does all that the program does, and nothing else.
//!
//! Red before it was right: a namespace of the command line that was refused for the layout of the URL, which another option replaces.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
#[path = "common/server.rs"]
mod server;
use fencelock_testkit::{Folder, Redis, RedisOptions};
use server::{done, eventually, fencelock, next, operators_meet_a_run, said, status};

/// What it prints, and what it says beside that.
fn printed(url: &str, words: &[&str]) -> (String, String) {
    let out = fencelock(url, &[&["acl", "redis"], words].concat()).output().unwrap();
    assert_eq!(out.status.code(), Some(0), "{words:?}: {}", said(&out));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&out.stdout), text(&out.stderr))
}
/// What is left of the lease of `job`, which is held, in ms.
fn left(url: &str) -> u64 {
    let status: serde_json::Value = serde_json::from_str(&status(url)).unwrap();
    status["holders"][0]["remaining_ms"].as_u64().unwrap()
}
/// A server whose configuration has this line, and a password for its user.
fn with_user(printed: &str) -> (Redis, Folder) {
    let (name, rules) = printed.strip_prefix("ACL SETUSER ").unwrap().split_once(' ').unwrap();
    let folder = Folder::new("acl");
    let file = folder.path().join("users.conf");
    std::fs::write(&file, format!("user {name} on >pw {rules}")).unwrap();
    let arguments = vec!["--include".to_owned(), file.to_str().unwrap().to_owned()];
    (Redis::with(RedisOptions { arguments, ..RedisOptions::default() }), folder)
}
fn may(server: &Redis, user: &str, words: &[&str]) -> bool {
    server.ask(&[&["ACL", "DRYRUN", user], words].concat()).unwrap() == "+OK"
}

#[test]
fn whoever_has_these_rights_has_all_that_there_is() {
    let server = Redis::start();
    let (line, told) = printed("", &["--user", "app", "--namespace", "shop"]);
    assert_eq!((line.lines().count(), told.as_str()), (1, ""), "{line}");
    // A user who may everything has no more than this any more.
    assert_eq!(server.ask(&["ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all"]).unwrap(), "+OK");
    assert_eq!(server.ask(&line.split_whitespace().collect::<Vec<_>>()).unwrap(), "+OK", "{line}");
    let url = format!("redis://app:pw@127.0.0.1:{}?namespace=shop", server.port());
    let (busy, next) = operators_meet_a_run(&url, &["--ttl", "6s"], || {
        let mut least = left(&url);
        eventually("it is renewed, too", || {
            let now = left(&url);
            least = least.min(now);
            now > least + 500
        });
        next(&url)
    });
    assert!(busy.contains("\"sleep\""), "{busy}");
    assert!(next.wait_with_output().unwrap().status.success());
    for mode in [&["-s"][..], &["--write"], &["--permits", "1/2"]] {
        let (code, told) = done(&url, &[&["run"], mode, &[mode[0].trim_start_matches('-'), "--", "true"]].concat());
        assert_eq!(code, Some(0), "{told}");
    }
    assert_eq!(server.ask(&["ACL", "LOG"]).unwrap(), "*0");
    for words in
        [&["FLUSHALL"][..], &["GET", "orders"], &["HGET", "fl:x", "o"], &["CONFIG", "GET", "*"], &["ACL", "LIST"]]
    {
        assert!(!may(&server, "app", words), "{words:?}");
    }
    // Elsewhere it is told where it gets them.
    let (code, told) = done(&url.replace("shop", "other"), &["status", "x"]);
    assert!(code == Some(78) && told.contains("fencelock acl redis"), "{told}");
}

#[test]
fn the_url_is_heeded_and_its_secrets_are_not_shown() {
    let url = "redis+sentinel://ann:hunter2@h1,h2/main/3?layout=plain&template=lock:{}:x&replicas=2&sentinel_user=bob&sentinel_password=hunter2";
    let (line, _) = printed(url, &[]);
    assert!(line.starts_with("ACL SETUSER ann resetkeys ") && line.contains(" ~fl:%id ~lock:*:x +"), "{line}");
    assert!(["+role", "+select", "+wait", "+getrange"].iter().all(|word| line.contains(word)), "{line}");
    let (sentinels, _) = printed(url, &["--sentinels"]);
    assert!(sentinels.starts_with("ACL SETUSER bob ") && sentinels.contains("&+switch-master"), "{sentinels}");
    assert!(!format!("{line}{sentinels}").contains("hunter2"));
    // The command line wins.
    let words = ["--layout", "native", "--topology", "cluster", "--user", "cy", "--namespace", "shop"];
    let (line, _) = printed(&url.replace("/main/3", "/main"), &words);
    assert!(line.starts_with("ACL SETUSER cy ") && line.contains(" ~fl.shop:* &{fl.shop:*}%* +asking"), "{line}");
    // As the issue has it.
    let (line, told) = printed("", &["--version", "7.0", "--prefix", "fl:", "--layout", "native"]);
    assert!(line.starts_with("ACL SETUSER fencelock resetkeys resetchannels ") && told.is_empty(), "{line}{told}");
    assert_eq!(printed("", &[]).0, line);
    assert!(printed("", &["--prefix", "fl.a%20b:"]).0.contains(" ~fl.a%20b:* "));
    assert!(!printed("", &["--version", "6.0"]).0.contains("channels"));
}

/// The server itself reads them. What is no blank and no letter that stands for others is meant as it is.
#[test]
fn odd_prefixes() {
    for (prefix, other) in
        [("*", "a"), ("a?[b]", "aab"), ("\\", "a"), ("a\"b'c ", "a\"b'"), ("\u{1b}\u{e9}(", "\u{1b}")]
    {
        let (line, told) = printed("", &["--layout", "plain", "--prefix", prefix]);
        assert_eq!((line.lines().count(), told.as_str()), (1, ""), "{line}");
        let (server, _folder) = with_user(&line);
        assert!(may(&server, "fencelock", &["GET", &format!("{prefix}x")]), "{prefix:?}: {line}");
        assert!(!may(&server, "fencelock", &["GET", &format!("{other}x")]), "{prefix:?}: {line}");
    }
    let (line, told) = printed("", &["--layout", "plain", "--prefix", ""]);
    assert!(line.contains(" ~* +") && told.contains("warning: these are the rights to every key"), "{line}{told}");
    let (_, told) = printed("", &["--user", "default"]);
    assert!(told.contains("warning: default is everybody"), "{told}");
}

#[test]
fn mistakes_are_told_with_the_way_out() {
    for (url, words, code, says) in [
        ("", &["--version", "banana"][..], 78, "\"banana\" is no version"),
        ("", &["--version", "5.0"], 78, "no access list"),
        ("", &["--version", "6.2", "--topology", "cluster"], 78, "7.0"),
        ("", &["--layout", "paper"], 64, "possible values: native, plain"),
        ("", &["--topology", "ring"], 64, "possible values: alone, sentinel, cluster"),
        ("", &["--prefix", "lock:"], 78, "--layout plain"),
        ("", &["--prefix", "fl"], 78, "fl.NAMESPACE:"),
        ("", &["--prefix", "fl.a b:"], 78, "fl.NAMESPACE:"),
        ("", &["--prefix", "fl.%zz:"], 78, "fl.NAMESPACE:"),
        ("", &["--prefix", "fl:", "--namespace", "x"], 64, "cannot be used with"),
        ("", &["--layout", "plain", "--prefix", "a{}"], 78, "write {} for it, once"),
        ("", &["--layout", "plain", "--namespace", "x"], 78, "no namespaces"),
        ("", &["--user", "a b"], 78, "\"a b\" is no user"),
        ("", &["--user", ""], 78, "\"\" is no user"),
        ("", &["--sentinels"], 78, "--topology sentinel"),
        ("sqlite:/x.db", &[], 78, "write redis://"),
        ("redis://h?colour=red", &[], 78, "colour"),
    ] {
        let (found, told) = done(url, &[&["acl", "redis"], words].concat());
        assert!(found == Some(code) && told.contains(says), "{url} {words:?}: {found:?} {told}");
        assert!(!told.contains("SETUSER"), "{told}");
    }
    assert_eq!(done("", &["acl"]).0, Some(64));
    let (code, told) = done("", &["acl", "etcd"]);
    assert!(code == Some(64) && told.contains("etcd"), "{told}");
}
