//! The guide has one table of contents, and every page of it is compiled. Planted to see it go red: a page that neither names; a
//! heading of an engine's page that is another one.
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
    }
}

// Planted: a link to a page that is not there, to one outside of the folder, to one that is not defined, and to one of which rustdoc knows
// nothing; a link that is written in place, which leads nowhere in rustdoc.
#[test]
fn links_lead_to_pages_in_the_book_and_in_the_documentation() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide");
    let here = include_str!("../src/links.md");
    let mut links = 0;
    for page in fs::read_dir(&folder).unwrap().map(|page| page.unwrap().path()) {
        let name = page.file_name().unwrap().to_str().unwrap();
        if !name.ends_with(".md") || name == "SUMMARY.md" {
            continue;
        }
        let text = fs::read_to_string(&page).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            assert!(target.starts_with("https://"), "{name}: ({target}) is not by reference");
        }
        let used = text.split("][").skip(1).filter_map(|rest| rest.split(']').next());
        for label in used.filter(|label| !label.starts_with(|c: char| c.is_ascii_punctuation())) {
            let definition = format!("[{label}]: ");
            let target = text.lines().find_map(|line| line.strip_prefix(&definition));
            let target = target.unwrap_or_else(|| panic!("{name}: {definition}is missing"));
            assert!(!target.contains("..") && folder.join(target).is_file(), "{name}: there is no {target}");
            assert!(here.lines().any(|line| line.starts_with(&definition)), "links.md has no {label}, of {name}");
            links += 1;
        }
    }
    assert!(links > 10, "{links}");
}
