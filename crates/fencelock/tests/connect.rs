//! What `connect` says to URLs. Planted to see it go red: the arm for a scheme whose feature is off removed.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
use fencelock::ErrorKind;

#[tokio::test]
async fn a_scheme_that_is_not_known_is_told_with_the_way_out() {
    for (url, says) in [
        ("locks.db", "is no URL"),
        ("tikv://h", "known here: "),
        ("sqlit:x", "did you mean sqlite:?"),
        ("memory:?ttl=3s", "unknown key \"ttl\""),
        ("memory", "is no URL"),
        ("", "is no URL"),
        ("redis://user:hunter2@h:99999", "is no host"),
    ] {
        let error = fencelock::connect(url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{error}");
        assert!(error.to_string().contains(says), "{url}: {error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
        assert!(!error.to_string().contains('\n'), "one line: {error}");
    }
}

#[tokio::test]
async fn memory_is_always_there() {
    let client = fencelock::connect("memory:").await.unwrap();
    assert_eq!(client.info().scheme, "memory");
    client.mutex("x").lock().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn an_engine_that_is_not_built_in_says_which_feature_has_it() {
    let engines = [
        ("sqlite:", "sqlite", cfg!(feature = "sqlite")),
        ("redis://h", "redis", cfg!(feature = "redis")),
        ("rediss://h", "redis", cfg!(feature = "redis")),
        ("mysql://u@h/d", "mysql", cfg!(feature = "mysql")),
        ("mariadb://u@h/d", "mysql", cfg!(feature = "mysql")),
        ("etcd://h", "etcd", cfg!(feature = "etcd")),
        ("etcds://h", "etcd", cfg!(feature = "etcd")),
        ("postgres://h", "postgres", cfg!(feature = "postgres")),
        ("zookeeper://h", "zookeeper", cfg!(feature = "zookeeper")),
        ("zookeepers://h", "zookeeper", cfg!(feature = "zookeeper")),
    ];
    for (url, feature, built) in engines {
        if !built {
            let error = fencelock::connect(url).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains(&format!("feature {feature:?}")), "{error}");
        }
    }
}

#[cfg(feature = "sqlite")]
#[tokio::test]
async fn two_clients_of_one_url_exclude_each_other() {
    let folder = std::env::temp_dir().join(format!("fencelock-facade-{}", std::process::id()));
    let url = format!("sqlite:{}/locks.db?namespace=team&ttl=5s", folder.display());
    let (a, b) = (fencelock::connect(&url).await.unwrap(), fencelock::connect(&url).await.unwrap());
    assert_eq!(a.ttl(), std::time::Duration::from_secs(5));
    let guard = a.mutex("x").lock().await.unwrap();
    assert!(b.mutex("x").try_lock().await.unwrap().is_err());
    // The URL that it tells leads to the same locks.
    let c = fencelock::connect(a.info().url.as_deref().unwrap()).await.unwrap();
    assert!(c.inspect("x").await.unwrap().is_held());
    guard.release().await.unwrap();
    drop((a, b, c));
    std::fs::remove_dir_all(folder).unwrap();
}
