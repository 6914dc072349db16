//! The page of `bench --html`, as a browser without a network shows it: every plot is there, and can be read.

mod common;

use common::{Place, cannot_run, finish, finish_within};
use fencelock_testkit::{Etcd, MariaDb, Port, Postgres, Redis, RedisOptions, ZooKeeper};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::time::Duration;

/// What lies beside the page and looks into it. Its word is what `--dump-dom` prints.
const LOOK: &str = "<!doctype html><meta charset=utf-8><style>*{margin:0;border:0}iframe{display:block}</style>
<iframe src=page.html width=WIDTH height=3000></iframe><pre id=seen></pre><script>onload = () => {
  const frame = document.querySelector('iframe'), page = frame.contentDocument;
  const box = one => { const at = one.getBoundingClientRect(); return [at.left, at.top, at.right, at.bottom]; };
  const named = svg => svg.getAttribute('aria-labelledby').split(' ').map(id => page.getElementById(id).textContent);
  const plots = [...page.querySelectorAll('svg')].map(svg => ({ id: svg.id, named: named(svg), box: box(svg),
    marks: [...svg.querySelectorAll('.mark, .line')].map(one => ({ class: one.getAttribute('class'), d: one.getAttribute('d'), box: box(one) })),
    texts: [...svg.querySelectorAll('text')].map(one => ({ text: one.textContent, box: box(one) })) }));
  const fetched = frame.contentWindow.performance.getEntriesByType('resource').map(one => one.name);
  const rows = page.querySelectorAll('tr').length, wide = page.documentElement.scrollWidth;
  document.getElementById('seen').textContent = JSON.stringify({ plots, fetched, rows, wide });
}</script>";

/// Counts the dots of each colour in each box of a picture.
const COUNT: &str = "<!doctype html><img src=shot.png><pre id=seen></pre><script>onload = () => {
  const image = document.querySelector('img'), canvas = document.createElement('canvas');
  [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
  const picture = canvas.getContext('2d');
  picture.drawImage(image, 0, 0);
  const counts = BOXES.map(([left, top, right, bottom]) => {
    const dots = picture.getImageData(left, top, right - left, bottom - top).data, seen = {};
    for (let i = 0; i < dots.length; i += 4) {
      const colour = '#' + [0, 1, 2].map(n => dots[i + n].toString(16).padStart(2, '0')).join('');
      seen[colour] = (seen[colour] || 0) + 1;
    }
    return COLOURS.map(colour => seen[colour] || 0);
  });
  document.getElementById('seen').textContent = JSON.stringify(counts);
}</script>";

/// A real browser, in a network of its own in which there is nothing, not even itself. `None`: there is none here.
fn browser(place: &Place, arguments: &[&str], page: &str) -> Option<String> {
    const BROWSER: &str = "chromium-headless-shell";
    if finish(Command::new("sh").args(["-c", &format!("command -v {BROWSER}")])).0 != 0 {
        cannot_run(&format!("there is no {BROWSER}, which `cargo xtask test` installs where apt has it"));
        return None;
    }
    let mut command = Command::new("unshare");
    command.args(["--net", "--map-root-user", BROWSER, "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]);
    command.args(["--hide-scrollbars", "--allow-file-access-from-files"]).args(arguments);
    command.arg(format!("--user-data-dir={}", place.path("browser").display()));
    command.arg(format!("file://{}", place.path(page).display()));
    let (code, out, err) = finish_within(&mut command, Duration::from_secs(60));
    assert_eq!(code, 0, "{err}");
    Some(out)
}

/// What the page with a script has to say.
fn word(place: &Place, name: &str, page: &str) -> Option<Value> {
    fs::write(place.path(name), page).expect("a page");
    let dom = browser(place, &["--dump-dom"], name)?;
    let (_, seen) = dom.split_once("<pre id=\"seen\">").expect("its word");
    let (seen, _) = seen.split_once("</pre>").expect("its end");
    Some(serde_json::from_str(&seen.replace("&amp;", "&")).unwrap_or_else(|e| panic!("{e}: {dom}")))
}

fn sides(of: &Value) -> [f64; 4] {
    [0, 1, 2, 3].map(|n| of["box"][n].as_f64().expect("a side"))
}

fn contains([left, top, right, bottom]: [f64; 4], inner: [f64; 4]) -> bool {
    inner[0] >= left - 1.0 && inner[1] >= top - 1.0 && inner[2] <= right + 1.0 && inner[3] <= bottom + 1.0
}

fn overlap(a: [f64; 4], b: [f64; 4]) -> bool {
    a[0] + 1.0 < b[2] && b[0] + 1.0 < a[2] && a[1] + 1.0 < b[3] && b[1] + 1.0 < a[3]
}

fn plots(seen: &Value) -> &Vec<Value> {
    seen["plots"].as_array().expect("plots")
}

/// Every plot is where a reader sees it, with all its marks and words, none upon another.
fn can_be_read(seen: &Value, width: f64, height: f64) {
    assert!(seen["wide"].as_f64().is_some_and(|wide| wide <= width), "it is to be moved sideways: {}", seen["wide"]);
    assert_eq!(seen["fetched"], Value::Array(Vec::new()));
    let ids: Vec<_> = plots(seen).iter().map(|plot| plot["id"].as_str().expect("an id")).collect();
    assert_eq!(ids, ["throughput", "handoff", "commands", "renewals"]);
    for plot in plots(seen) {
        let (id, frame) = (&plot["id"], sides(plot));
        assert!(contains([0.0, 0.0, width, height], frame) && frame[2] - frame[0] > width / 3.0, "{id}: {frame:?}");
        assert!(frame[3] - frame[1] > 60.0, "{id}: {frame:?}");
        let (marks, texts) = (plot["marks"].as_array().expect("marks"), plot["texts"].as_array().expect("texts"));
        for mark in marks {
            let at = sides(mark);
            assert!(contains(frame, at) && at[2] > at[0] && at[3] >= at[1], "{id}: {mark} in {frame:?}");
        }
        for (n, text) in texts.iter().enumerate() {
            let at = sides(text);
            assert!(contains(frame, at) && at[3] - at[1] > 4.0, "{id}: {text} in {frame:?}");
            let upon = texts[..n].iter().find(|other| overlap(sides(other), at));
            assert!(upon.is_none(), "{id}: {text} is upon {upon:?}");
        }
    }
}

/// How many dots of each colour each plot has, where the reader likes it light (1) or dark (0).
fn dots(place: &Place, seen: &Value, width: u32, light: u8, colours: &[&str]) -> Vec<Vec<u64>> {
    let scheme = format!("--blink-settings=preferredColorScheme={light}");
    let shot = format!("--screenshot={}", place.path("shot.png").display());
    browser(place, &[&scheme, &shot, &format!("--window-size={width},3000")], "page.html").expect("it was there");
    let boxes: Vec<_> = plots(seen).iter().map(|plot| sides(plot).map(f64::round)).collect();
    let page = COUNT.replace("BOXES", &format!("{boxes:?}")).replace("COLOURS", &format!("{colours:?}"));
    let counts = word(place, "count.html", &page).expect("it was there");
    serde_json::from_value(counts).expect("counts")
}

// Planted: plots cut off at half their height; no dark colours; URLs as they were given.
#[test]
fn a_browser_without_a_network_shows_every_plot() {
    let (redis, place, nobody) = (Redis::start(), Place::on_disk(), Port::free());
    redis.ask(&["ACL", "SETUSER", "app", "on", ">hunter2", "~*", "&*", "+@all"]).expect("an answer");
    let mut command = place.fencelock();
    command.args(["bench", "--seconds", "0.5", "--tasks", "1,3", "--waiters", "2,4", "--holders", "20"]).args([
        "memory:".to_owned(),
        place.url(),
        format!("redis://app:hunter2@127.0.0.1:{}?ttl=20s", redis.port()),
        format!("redis://app:hunter2@127.0.0.1:{nobody}"),
    ]);
    let (code, out, err) = finish_within(command.args(["--html", "page.html"]), Duration::from_secs(120));
    // The last one is not there. The others are measured all the same.
    assert_eq!((code, out.lines().count()), (69, 3 * (2 + 5)), "{out}{err}");
    let page = fs::read_to_string(place.path("page.html")).expect("the page");
    for other in ["hunter2", "<script", "<img", "<link", "@import", "url(", "http:", "https:"] {
        assert!(!page.contains(other), "{other}: {page}");
    }
    for word in ["fencelock bench memory: sqlite:", &format!("…@127.0.0.1:{nobody}: "), " UTC", " core", "ratio"] {
        assert!(page.contains(word), "{word}: {page}");
    }

    for width in [1000, 600] {
        let Some(seen) = word(&place, "look.html", &LOOK.replace("WIDTH", &width.to_string())) else { return };
        can_be_read(&seen, width.into(), 3_000.0);
        assert_eq!(seen["rows"], 1 + 3 * 5);
        let marks = |n: usize, class: &str| {
            let marks = plots(&seen)[n]["marks"].as_array().expect("marks");
            marks.iter().filter(|mark| mark["class"] == class).count()
        };
        // With that of the legend. The memory engine has no driver below it.
        assert_eq!((marks(0, "mark ours"), marks(0, "mark bare")), (1 + 6, 1 + 4));
        assert_eq!((marks(1, "line c0"), marks(1, "line c0 dashed"), marks(1, "mark c2 dashed")), (2, 2, 1 + 2));
        assert_eq!((marks(2, "mark ours"), marks(3, "mark ours")), (1 + 2, 1 + 3));
        let said = plots(&seen)[0]["named"][1].as_str().expect("what a reader that cannot see it hears");
        assert!(said.contains("redis native, 3 tasks, ratio ") && said.contains(" bare driver"), "{said}");

        let (day, night) = (["#0b62c4", "#8b5a00", "#ffffff"], ["#6cb0ff", "#e0b050", "#14171b"]);
        let colours = [day, night].concat();
        for (light, mine) in [(1, 0..3), (0, 3..6)] {
            for (n, counts) in dots(&place, &seen, width, light, &colours).iter().enumerate() {
                for (colour, count) in counts.iter().enumerate() {
                    let wanted = match (mine.contains(&colour), colour % 3) {
                        (false, _) => *count == 0,
                        // The bare driver is in the first plot alone.
                        (true, 1) => (*count > 30) == (n == 0),
                        (true, _) => *count > 30,
                    };
                    assert!(wanted, "plot {n}, light {light}, {}: {count} dots", colours[colour]);
                }
            }
        }
    }
}

// Planted: a legend that does not grow with what it names; as many shapes as half the colours.
#[test]
fn every_engine_is_on_it_and_can_be_read() {
    let (place, redis, etcd) = (Place::on_disk(), Redis::start(), Etcd::start());
    let (postgres, mariadb, zookeeper) = (Postgres::start(), MariaDb::start(), ZooKeeper::start());
    let nodes = Redis::several(3, &RedisOptions::default());
    let redlock: Vec<_> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    let mut urls = vec!["memory:".to_owned(), place.url(), redis.url(), etcd.url(), zookeeper.url()];
    urls.push(format!("redlock://{}", redlock.join(",")));
    // Two of one place, which are told apart by more than that.
    urls.extend([postgres.url(), mariadb.url(), mariadb.url() + "?doorbell=on"]);
    let many = urls.len();
    let mut command = place.fencelock();
    command.args(["bench", "--seconds", "1", "--tasks", "16", "--waiters", "2,8", "--holders", "20"]);
    let (code, out, err) = finish_within(command.args(urls).args(["--html", "page.html"]), Duration::from_secs(240));
    assert_eq!((code, out.lines().count()), (0, many * (2 + 4)), "{out}{err}");
    for width in [1000, 600] {
        let look = LOOK.replace("WIDTH", &width.to_string()).replace("3000", "9000");
        let Some(seen) = word(&place, "look.html", &look) else { return };
        can_be_read(&seen, width.into(), 9_000.0);
        assert_eq!(seen["rows"], 1 + many * 4);
        // By its colour, its shape, and whether it is filled each line of the second plot is told from all others.
        let marks = plots(&seen)[1]["marks"].as_array().expect("marks").iter().map(|mark| [&mark["class"], &mark["d"]]);
        let looks: BTreeSet<_> = marks.map(|look| look.map(|part| part.as_str().expect("text"))).collect();
        assert_eq!(looks.iter().filter(|[class, _]| class.starts_with("mark ")).count(), 2 * many, "{looks:?}");
    }
}
