//! consensus.md 6: ours, from its runs.
use super::prelude::*;

cases! {
    "nobody/sigstop-past-ttl" => sigstop_past_ttl, needs: [Crash];
    "nobody/slash-names" => slash_names, needs: [Waiters];
    "nobody/non-utf-8-data" => non_utf_8_data, needs: [LongNotes];
}
roles! {}

async fn sigstop_past_ttl(cx: Context) {
    let (client, mut stopped, name) = (cx.client().await, cx.puppet().await, cx.name("m"));
    let old = stopped.lock(&name).await;
    cx.silence(stopped.peer()).await;
    let next = within("another is in", client.mutex(&name).lock()).await.unwrap();
    assert!(next.token() > old);
    stopped.peer().silence(false);
    // Told by his own clock, whatever the engine says. (How soon is a bar of its own.)
    stopped.lost(&name).await;
    assert!(!stopped.is_valid(&name).await);
    assert!(!stopped.release(&name).await, "it was not his any more");
    next.check().unwrap();
    next.release().await.unwrap();
}

async fn slash_names(cx: Context) {
    let (a, b) = (cx.client().await, cx.client().await);
    let names = ["a", "a/", "a/b", "a/b/c", "a//b", "/a", "a/b/", "ab", "a.b", "a%2Fb"].map(|what| cx.name(what));
    let mut guards = Vec::new();
    for name in &names {
        guards.push(a.mutex(name).note(name.as_str()).try_lock().await.unwrap().expect("a lock of its own"));
    }
    for (name, guard) in names.iter().zip(&guards) {
        let status = b.inspect(name).await.unwrap();
        let held: Vec<_> = status.holders.iter().map(|holder| (holder.hold, &*holder.note)).collect();
        assert_eq!((held, status.name.as_str()), (vec![(guard.id(), name.as_str())], name.as_str()));
    }
    // Who waits for one of them gets that one, and no other one is touched.
    let mut waits = Vec::new();
    for name in &names {
        waits.push(tokio::spawn(b.mutex(name).lock()));
        cx.queued(&a, name, 1).await;
    }
    for (i, (guard, wait)) in guards.into_iter().zip(waits).enumerate() {
        guard.release().await.unwrap();
        let next = within("his turn", wait).await.unwrap().unwrap();
        assert_eq!(next.name().as_str(), names[i]);
        for other in &names[i + 1..] {
            assert_eq!(a.inspect(other).await.unwrap().waiters.len(), 1, "{other} beside {}", names[i]);
        }
        next.release().await.unwrap();
    }
    let listing = a.list(&cx.name("a/"), &Page::default()).await.unwrap();
    assert!(listing.items.is_empty(), "{listing:?}");
}

/// Whoever reads it, in whatever language: names, notes and hosts come back as they were written, whole characters only.
async fn non_utf_8_data(cx: Context) {
    let (client, mut peer) = (cx.client().await, cx.puppet_with(60 * SEC).await);
    let room = cx.longest_name() - cx.name("").len();
    let full = format!("{}{}", "🐎".repeat(room / 4), "x".repeat(room % 4));
    let raw = String::from_utf8_lossy(b"not \xff\xfe utf-8 \xc3").into_owned();
    for text in ["Süd", "日本語", "e\u{301}", "\u{202e}gnp", "🐎🐎", &raw, &full] {
        let name = cx.name(text);
        assert!(name.len() <= cx.longest_name());
        // As long as a note can be, and not cut in the middle of a character.
        for note in [text.to_owned(), text.repeat(20)] {
            let guard = client.mutex(&name).note(note.as_str()).lock().await.unwrap();
            let status = client.inspect(&name).await.unwrap();
            let holder = status.exclusive().expect("held");
            assert_eq!((status.name.as_str(), &*holder.note), (name.as_str(), note.as_str()));
            assert!(!holder.host.contains(char::REPLACEMENT_CHARACTER), "{}", holder.host);
            assert!(peer.try_lock(&name).await.is_none(), "another process reads it");
            guard.release().await.unwrap();
        }
        assert!(peer.try_lock(&name).await.is_some());
        let listed = listed(&client, &name).await;
        assert_eq!(listed.iter().map(|status| status.name.as_str()).collect::<Vec<_>>(), [name.as_str()]);
        assert!(peer.release(&name).await);
    }
}
