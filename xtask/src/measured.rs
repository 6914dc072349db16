//! `docs/MEASURED.md`: lines that tests and benchmarks print, and the page they end in.
//!
//! A line is `MEASURED | <bar> | <figure> | <limit> | <ok|MISSED>`.

use std::collections::BTreeMap;

const HEAD: &str = "\
# Measured

Written by `cargo xtask prove`; a section is what one test target or benchmark printed when it last ran. `cargo xtask
prove NAME` runs the targets with NAME in their title again and leaves the other sections as they are.
";

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Figure {
    pub(crate) bar: String,
    pub(crate) figure: String,
    pub(crate) limit: String,
    pub(crate) missed: bool,
}

/// The figures in what a target printed, and the lines that look like one and are none.
pub(crate) fn figures(output: &str) -> (Vec<Figure>, Vec<String>) {
    let (mut figures, mut malformed) = (Vec::new(), Vec::new());
    for line in output.lines() {
        // Not only at the line's begin: with one thread libtest has written `test name ... ` before it.
        let Some(at) = line.find("MEASURED |") else { continue };
        let fields: Vec<&str> = line[at..].split(" | ").map(str::trim).collect();
        match fields[..] {
            ["MEASURED", bar, figure, limit, verdict @ ("ok" | "MISSED")] => figures.push(Figure {
                bar: bar.to_owned(),
                figure: figure.to_owned(),
                limit: limit.to_owned(),
                missed: verdict == "MISSED",
            }),
            _ => malformed.push(line[at..].to_owned()),
        }
    }
    (figures, malformed)
}

/// How and where a section came about.
pub(crate) struct Origin<'a> {
    pub(crate) command: &'a str,
    pub(crate) commit: &'a str,
    pub(crate) machine: &'a str,
    pub(crate) compiler: &'a str,
    pub(crate) date: &'a str,
    pub(crate) failure: Option<&'a str>,
}

/// A section without its title.
pub(crate) fn section(origin: &Origin<'_>, figures: &[Figure]) -> String {
    let Origin { command, commit, machine, compiler, date, failure } = origin;
    let mut text = format!("`{command}`\n\n");
    if let Some(failure) = failure {
        text.push_str(&format!("**The run failed: {failure}.**\n\n"));
    }
    text.push_str(&format!("{date}, commit {commit}, {compiler}; {machine}\n\n"));
    text.push_str("| bar | figure | limit | |\n|---|---|---|---|\n");
    for Figure { bar, figure, limit, missed } in figures {
        let verdict = if *missed { "**MISSED**" } else { "ok" };
        text.push_str(&format!("| {} | {} | {} | {verdict} |\n", cell(bar), cell(figure), cell(limit)));
    }
    text
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// What the page has under a title.
pub(crate) fn kept(page: &str, title: &str) -> Option<String> {
    let parts = page.split("\n## ").skip(1).filter_map(|part| part.split_once('\n'));
    parts.filter(|(found, _)| found.trim() == title).map(|(_, text)| text.to_owned()).next()
}

/// The page with these sections in place of what it had under their titles; without a text the section goes.
pub(crate) fn replace(page: &str, sections: &BTreeMap<String, Option<String>>) -> String {
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for part in page.split("\n## ").skip(1) {
        if let Some((title, text)) = part.split_once('\n') {
            all.insert(title.trim().to_owned(), text.trim().to_owned());
        }
    }
    for (title, text) in sections {
        match text {
            Some(text) => all.insert(title.clone(), text.trim().to_owned()),
            None => all.remove(title),
        };
    }
    let sections: String = all.iter().map(|(title, text)| format!("\n## {title}\n\n{text}\n")).collect();
    format!("{HEAD}{sections}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_wherever_they_stand() {
        let output = "running 1 test\ntest crash ... MEASURED | crash | p99 12 ms | ≤ 150 ms | ok\nok\n\
                      MEASURED | pairs | 9,000/s | ≥ 10,000/s | MISSED\nMEASURED | half | a line\n";
        let (figures, malformed) = figures(output);
        assert_eq!(
            figures.iter().map(|f| (f.bar.as_str(), f.missed)).collect::<Vec<_>>(),
            [("crash", false), ("pairs", true)]
        );
        assert_eq!(malformed, ["MEASURED | half | a line"]);
    }

    #[test]
    fn only_what_ran_is_replaced() {
        let some = |title: &str, text: &str| BTreeMap::from([(title.to_owned(), Some(text.to_owned()))]);
        let page = replace("", &some("b", "old b"));
        let page = replace(&page, &some("a", "old a"));
        let page = replace(&page, &some("b", "new b"));
        assert_eq!(page, format!("{HEAD}\n## a\n\nold a\n\n## b\n\nnew b\n"));
        assert_eq!(replace(&page, &BTreeMap::new()), page);
        assert_eq!(replace(&page, &BTreeMap::from([("a".to_owned(), None)])), format!("{HEAD}\n## b\n\nnew b\n"));
    }

    #[test]
    fn a_failed_run_says_so() {
        let origin = Origin {
            command: "c",
            commit: "1",
            machine: "m",
            compiler: "r",
            date: "d",
            failure: Some("exit status: 101"),
        };
        assert!(section(&origin, &[]).contains("**The run failed: exit status: 101.**"));
    }
}
