//! The report in a real browser: no console message, and every chart is drawn. Pictures are kept in the target
//! folder.

use crate::fixture;
use crate::person::{DESK, Desk, Person};
use record::point::FunctionCost;
use record::{DoubtKind, Figure, Origin, names};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub const ARGUMENTS: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
];

pub fn chromium() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .flat_map(|folder| {
            ["chromium", "chromium-headless-shell", "chromium-browser", "google-chrome"].map(|name| folder.join(name))
        })
        .find(|candidate| candidate.is_file())
}

pub fn open(browser: &Path, profile: &Path, page: &Path, arguments: &[String]) -> Output {
    Command::new(browser)
        .args(ARGUMENTS)
        .args(["--enable-logging=stderr", "--log-level=0"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(arguments)
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("the browser starts")
}

#[test]
fn the_report_opens_in_a_browser_without_errors() {
    let Some(browser) = chromium() else {
        println!("not run: no Chromium in PATH (on Debian: apt-get install chromium-headless-shell)");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let run = fixture::write_whole(folder.path(), fixture::record(), &fixture::points());
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report");
    std::fs::create_dir_all(&kept).unwrap();
    let page = kept.join("report.html");
    std::fs::write(&page, report::page::html(&run)).unwrap();
    // The light pictures for desktop and phone show a real run (crates/straingauge/tests/report_page.rs).
    let picture = kept.join("dark.png");
    let _ = std::fs::remove_file(&picture);
    let mut arguments =
        ["--window-size=1200,3400", "--blink-settings=preferredColorScheme=0"].map(String::from).to_vec();
    arguments.push(format!("--screenshot={}", picture.display()));
    let output = open(&browser, folder.path(), &page, &arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("CONSOLE"), "{said}");
    let bytes = std::fs::metadata(&picture).unwrap_or_else(|_| panic!("no picture: {said}")).len();
    assert!(bytes > 50_000, "nearly empty: {bytes} bytes");
    let output = open(&browser, folder.path(), &page, &["--dump-dom".to_string()]);
    let dom = String::from_utf8_lossy(&output.stdout);
    // Two sweeps with five charts each, and the model's two charts, all in two sizes.
    assert_eq!(dom.matches("<svg viewBox").count(), 24);
    assert!(!dom.contains("NaN") && !dom.contains("Infinity"));
}

/// Path for pictures and pages.
pub fn kept(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report");
    std::fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

/// The fixture's report with layers, functions and a doubt at 64 connections, and a connection state that would be
/// markup.
fn answering(name: &str) -> Option<(PathBuf, PathBuf)> {
    let Some(browser) = chromium() else {
        println!("not run: no Chromium in PATH (on Debian: apt-get install chromium-headless-shell)");
        return None;
    };
    let mut points = fixture::points();
    for point in points.iter_mut().filter(|point| point.connections == 64) {
        point.figures.set(names::LAYER_TCP, Figure::new(3.25, "us", 90, Origin::Sampled));
        point.functions.push(FunctionCost {
            function: "tcp_<b>sendmsg".into(),
            module: None,
            layer: Some(record::layers::Layer::Tcp),
            us_per_request: 1.5,
            samples: 40,
        });
        point.doubts.push(DoubtKind::NoisyNeighbour.warning("the <i>neighbour</i> was loud", "stop it"));
        point.connection_states.insert("<img src=x>=1+1".into(), Figure::new(9.0, "connections", 10, Origin::Sampled));
    }
    let folder = tempfile::tempdir().unwrap();
    let run = fixture::write_whole(folder.path(), fixture::record(), &points);
    let page = kept(&format!("{name}.html"));
    std::fs::write(&page, report::page::html(&run)).unwrap();
    Some((browser, page))
}

/// A chart by its title, in the visible size.
pub fn chart(title: &str, what: &str) -> String {
    format!(
        "(() => {{ const all = [...document.querySelectorAll('figure.chart')].filter(f => \
         f.querySelector('h3').textContent === '{title}'); \
         const isClosed = f => f.closest('section').querySelector('h2').textContent.startsWith('Closed'); \
         return all.find(isClosed) || all[0]; }})()\
         .querySelector('{what}')"
    )
}

/// The button with these words in a chart.
pub fn button(title: &str, words: &str) -> String {
    format!("[...{}.querySelectorAll('button')].find(b => b.textContent === '{words}')", chart(title, ".tools"))
}

#[test]
fn a_chart_shows_the_point_under_the_pointer_and_a_click_opens_its_load() {
    let Some((browser, page)) = answering("report-hover") else { return };
    let mut person = Person::opens(&browser, &page, &DESK);
    // The first dot at 64 connections.
    let row = person.reads(
        "[...[...document.querySelectorAll('figure.chart')].find(f => \
         f.closest('section').querySelector('h2').textContent.startsWith('Closed')).querySelector('tbody').rows]\
         .findIndex(r => \
         r.cells[1].textContent === '64' && r.cells[6].textContent.includes(', point ')).toString()",
    );
    let at = person.finds(&chart("Throughput", &format!(".wide circle[data-rows^=\"{row} \"]")));
    person.hovers(at);
    let told = person.reads(&format!("{}.innerText", chart("Throughput", ".tip")));
    for words in ["Throughput", "connections: 64", " 1/s", "n = ", "counted, point "] {
        assert!(told.contains(words), "{words}: {told}");
    }
    person.keeps_window(&kept("hover.png"));
    person.clicks(at);
    // The address changes before the page follows it.
    person.waits_for("document.activeElement.id === 'load-connections-64'");
    let load = person.reads("document.activeElement.innerText");
    for words in ["TCP", "3.25", "tcp_<b>sendmsg", "1.50", "the <i>neighbour</i> was loud", "not watched"] {
        assert!(load.contains(words), "{words}: {load}");
    }
    let link = person.finds("document.activeElement.querySelector('a[href^=\"#point\"]')");
    person.clicks(link);
    person.waits_for("document.activeElement.id.startsWith('point-')");
    assert!(person.reads("document.activeElement.parentElement.innerText").contains("client.response_p50_us"));
    assert_eq!(person.complaints(), Vec::<String>::new());
}

#[test]
fn pointer_and_keys_zoom_a_range_and_hide_a_series() {
    let Some((browser, page)) = answering("report-zoomed") else { return };
    let mut person = Person::opens(&browser, &page, &DESK);
    let title = "Response time";
    let ticks = format!(
        "[...{}.querySelectorAll('.x-ticks:not([style*=none]) text')].map(t => t.textContent).join(' ')",
        chart(title, ".wide svg")
    );
    let told = format!("{}.textContent", chart(title, ".told"));
    assert_eq!(person.reads(&ticks), "1 4 16 64 256 1,024 4,096");
    let middle = person.finds(&chart(title, ".wide svg"));
    person.drags((middle.0 - 60.0, middle.1), (middle.0 + 60.0, middle.1));
    let near = person.reads(&ticks);
    assert!(near.contains("64") && !near.contains("4,096"), "{near}");
    assert!(person.reads(&told).ends_with("% of the range."));
    person.keeps_window(&kept("zoomed.png"));
    let whole = person.finds(&button(title, "all"));
    person.clicks(whole);
    assert_eq!(person.reads(&ticks), "1 4 16 64 256 1,024 4,096");

    person.sees(&format!("{}.focus()", chart(title, ".wide svg")));
    let tip = format!("{}.innerText", chart(title, ".tip"));
    person.presses("ArrowRight");
    assert!(person.reads(&tip).starts_with("p50\nconnections: 1\n"), "{}", person.reads(&tip));
    person.presses("ArrowRight");
    person.presses("ArrowDown");
    let second = person.reads(&tip);
    assert!(second.starts_with("p90\nconnections: 2\n") && second.contains("range: "), "{second}");
    person.presses("+");
    person.presses("+");
    assert_eq!(person.reads(&told), "25 % of the range.");
    person.presses("End");
    assert!(person.reads(&ticks).contains("4,096"), "the view follows: {}", person.reads(&ticks));
    person.presses("0");
    assert_eq!(person.reads(&told), "Whole range.");

    let shown = format!(
        "[...{}.querySelectorAll('.line[data-series]:not(.off)')].length.toString()",
        chart(title, ".wide svg")
    );
    assert_eq!(person.reads(&shown), "4");
    let toggle = button(title, "p99");
    let at = person.finds(&toggle);
    person.clicks(at);
    assert_eq!(person.reads(&shown), "3");
    assert_eq!(person.reads(&format!("{toggle}.getAttribute('aria-pressed')")), "false");
    person.sees(&format!("{toggle}.focus()"));
    person.presses(" ");
    assert_eq!(person.reads(&shown), "4");
    assert_eq!(person.complaints(), Vec::<String>::new());
}

#[test]
fn the_copied_table_is_complete_and_its_text_cannot_become_formulas() {
    let Some((browser, page)) = answering("report-copied") else { return };
    let mut person = Person::opens(&browser, &page, &DESK);
    let granted = serde_json::json!({ "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"] });
    person.call("Browser.grantPermissions", granted);
    for (title, head, wanted) in [
        ("Throughput", "series,connections,value (1/s),range from (1/s),to (1/s),n,origin", "Throughput,64,"),
        ("Connection states", "series,connections,value (sockets),", "<img src=x>"),
    ] {
        let at = person.finds(&button(title, "Copy as CSV"));
        person.clicks(at);
        let copied = person.reads("navigator.clipboard.readText()");
        assert!(copied.starts_with(head) && copied.contains(wanted), "{copied}");
        let rows = person.sees(&format!("{}.rows.length", chart(title, "tbody"))).as_u64().unwrap();
        assert_eq!(copied.lines().count() as u64, rows + 1);
        assert!(copied.lines().all(|line| !line.starts_with(['=', '+', '-', '@'])), "{copied}");
        assert_eq!(person.reads(&format!("{}.textContent", chart(title, ".told"))), format!("Copied {rows} rows."));
    }
    assert_eq!(person.sees("document.querySelectorAll('main img, main script, .parts b, .load i').length"), 0);
    // Missing values are empty fields, and numbers have no unit in their field.
    let rows = chart("Throughput", "tbody");
    person.sees(&format!(
        "(['-', '\u{2013}', '-3.2 us', '-1+cmd'].forEach((text, at) => {{ {rows}.rows[at].cells[0].textContent = text \
         }}), 1)"
    ));
    let at = person.finds(&button("Throughput", "Copy as CSV"));
    person.clicks(at);
    let copied = person.reads("navigator.clipboard.readText()");
    let first: Vec<&str> = copied.lines().skip(1).take(4).filter_map(|line| line.split(',').next()).collect();
    assert_eq!(first, ["", "", "-3.2 us", "'-1+cmd"]);
    assert_eq!(person.complaints(), Vec::<String>::new());
}

#[test]
fn without_scripts_every_number_is_visible_and_links_open_their_loads() {
    let Some((browser, page)) = answering("report-scriptless") else { return };
    let mut person = Person::opens(&browser, &page, &Desk { has_script: false, ..DESK });
    assert_eq!(person.sees("document.querySelectorAll('button, .tools, .tip').length"), 0);
    assert_eq!(
        person.sees("document.querySelectorAll('figure.chart').length"),
        person.sees("document.querySelectorAll('figure.chart details.data').length")
    );
    let summary = person.finds(&chart("Throughput", "summary"));
    person.clicks(summary);
    let link = person.finds(&chart("Throughput", "a[href=\"#load-connections-64\"]"));
    person.clicks(link);
    person.waits_for("document.getElementById('load-connections-64').checkVisibility()");
    assert_eq!(person.complaints(), Vec::<String>::new());
}

/// Asserts that no element is wider than the window, and that every control has an accessible name.
pub fn fits_and_is_named(browser: &Path, page: &Path, name: &str) {
    for (width, is_dark) in [(400, false), (400, true), (1280, false), (1280, true)] {
        let mut person = Person::opens(browser, page, &Desk { width, is_dark, ..DESK });
        let widest = person.sees("document.documentElement.scrollWidth").as_u64().unwrap();
        assert!(widest <= u64::from(width), "{widest} pixels in a window of {width}");
        let tree = person.call("Accessibility.getFullAXTree", serde_json::json!({}));
        let roles = ["button", "application", "link", "DisclosureTriangle", "table"];
        let is_control = |node: &&serde_json::Value| {
            node["ignored"] != true && roles.iter().any(|role| node["role"]["value"] == *role)
        };
        let controls: Vec<_> = tree["nodes"].as_array().unwrap().iter().filter(is_control).collect();
        assert!(controls.iter().any(|node| node["role"]["value"] == "application"), "no chart is a control");
        for node in controls.iter().filter(|node| node["role"]["value"] != "table") {
            assert!(node["name"]["value"].as_str().is_some_and(|name| !name.trim().is_empty()), "{node}");
        }
        person.keeps(&kept(&format!("{name}-{width}-{}.png", if is_dark { "dark" } else { "light" })), 6000.0);
        assert_eq!(person.complaints(), Vec::<String>::new());
    }
}

#[test]
fn the_report_fits_a_phone_and_a_desk_by_day_and_by_night() {
    let Some((browser, page)) = answering("report-fits") else { return };
    fits_and_is_named(&browser, &page, "report");
}
