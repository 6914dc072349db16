//! The guide has one table of contents, and every page of it is compiled. Planted to see it go red: a page that neither names; a link to a
//! page that is not there.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps")]
use std::{collections::BTreeSet, fs, path::Path};

/// What every engine's page has, in this order.
const USUAL: [&str; 6] = ["URL", "What it writes", "What it guarantees", "Shared with", "Rights", "Limits"];

#[test]
fn every_page_is_in_the_contents_and_in_the_documentation() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide");
    let contents = fs::read_to_string(folder.join("SUMMARY.md")).unwrap();
    let compiled = include_str!("../src/guide.rs");
    let names = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    let pages: BTreeSet<String> = names.filter(|name| name.ends_with(".md") && name != "SUMMARY.md").collect();
    assert!(pages.len() > 5, "{pages:?}");
    // An engine's page is that of its crate: there it is compiled.
    for engine in ["sqlite", "postgres", "mysql", "etcd", "zookeeper", "redis"] {
        let page = format!("engines/{engine}.md");
        assert!(contents.contains(&format!("]({page})")), "{page} is not in the contents");
        let of_crate = folder.join(format!("../../crates/fencelock-{engine}/src/docs.md"));
        let text = fs::read_to_string(folder.join(&page)).unwrap();
        assert_eq!(text, fs::read_to_string(of_crate).unwrap(), "{page}");
        // Whoever knows one of them finds his way on the others.
        let headings = text.lines().filter_map(|line| line.strip_prefix("# ")).filter(|it| USUAL.contains(it));
        assert_eq!(headings.collect::<Vec<_>>(), USUAL, "{page}");
    }
    for page in &pages {
        assert!(contents.contains(&format!("]({page})")), "{page} is not in the contents");
        assert!(compiled.contains(&format!("{page}\"")), "{page} is not compiled");
        let text = fs::read_to_string(folder.join(page)).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            assert!(link.contains("://") || folder.join(link).is_file(), "{page}: there is no {link}");
        }
    }
}
