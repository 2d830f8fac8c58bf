//! The report in a browser: no console message, no fetch, all charts drawn. Pictures are kept in artefacts/.

use crate::find::SMALL;
use crate::rig::{needs_server, open_dir, program, repository, run, skip_unless, straingauge};
use crate::server::{Kind, Server};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const NAMES: [&str; 4] = ["chromium", "chromium-headless-shell", "google-chrome", "google-chrome-stable"];

/// Arguments for a browser without screen and network.
pub const ARGUMENTS: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-sync",
];

pub fn browser() -> Option<PathBuf> {
    NAMES.iter().find_map(|name| program(name))
}

/// Standard output and log of a browser run.
pub struct Seen {
    out: String,
    log: String,
}

impl Seen {
    /// Messages of the page: script errors, refused fetches.
    pub fn console(&self) -> Vec<&str> {
        self.log.lines().filter(|line| line.contains(":CONSOLE") || line.contains("CONSOLE(")).collect()
    }
}

/// Opens a page without a screen and without a network: no name resolves.
pub fn look(page: &Path, options: &[String]) -> Seen {
    let browser = browser().expect("looked for before");
    let dir = open_dir();
    let file = |name: &str| std::fs::File::create(dir.path().join(name)).expect("a file in a temporary folder");
    let mut command = Command::new(browser);
    command.args(ARGUMENTS);
    command.args([
        "--enable-logging=stderr",
        "--v=0",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        "--virtual-time-budget=3000",
    ]);
    command.arg(format!("--user-data-dir={}", dir.path().join("profile").display()));
    command.args(options).arg(format!("file://{}", page.display()));
    command.stdin(Stdio::null()).stdout(file("out")).stderr(file("log")).env("HOME", dir.path());
    let mut child = command.spawn().expect("the browser starts");
    let started = Instant::now();
    while matches!(child.try_wait(), Ok(None)) {
        if started.elapsed() > Duration::from_secs(180) {
            let _ = child.kill();
            let _ = child.wait();
            panic!("the browser hangs: {}", std::fs::read_to_string(dir.path().join("log")).unwrap_or_default());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let text =
        |name: &str| String::from_utf8_lossy(&std::fs::read(dir.path().join(name)).unwrap_or_default()).into_owned();
    Seen { out: text("out"), log: text("log") }
}

/// Keeps a page in artefacts/, with pictures for a desktop and a phone.
pub fn keep(page: &Path, name: &str) {
    let artefacts = repository().join("artefacts");
    std::fs::create_dir_all(&artefacts).expect("artefacts/ is ours");
    std::fs::copy(page, artefacts.join(format!("{name}.html"))).expect("artefacts/ is ours");
    for (kind, window) in [("", "1280,4200"), ("-phone", "400,4200")] {
        let name = format!("{name}{kind}.png");
        let picture = artefacts.join(&name);
        let _ = std::fs::remove_file(&picture);
        let seen = look(page, &[format!("--screenshot={}", picture.display()), format!("--window-size={window}")]);
        assert_eq!(seen.console(), Vec::<&str>::new(), "the page says something on the console");
        let bytes = std::fs::read(&picture).unwrap_or_else(|why| panic!("no picture ({why}): {}", seen.log));
        assert_is_drawn(&name, &bytes);
    }
}

#[test]
fn the_report_is_drawn_in_a_browser_without_console_messages() {
    skip_unless!(browser().is_some(), "no Chromium here (apt-get install chromium-headless-shell)");
    needs_server!(Kind::Nginx);
    let dir = open_dir();
    let out = dir.path().join("run");
    let server = Server::start(Kind::Nginx);
    // A name from outside that would run if it were not escaped.
    let name = "<script>console.log('escaped?')</script><b>";
    let scenario = dir.path().join("scenario.toml");
    std::fs::write(&scenario, format!("name = \"{name}\"\n")).expect("our own folder");
    let mut command = straingauge(["find", &server.url("1k.bin"), "--quiet", "--budget", "6s", "--out"]);
    run(command.arg(&out).arg("--scenario").arg(&scenario).args(SMALL)).exits_with(0);
    let page = out.join("report.html");

    let seen = look(&page, &["--dump-dom".into()]);
    assert_eq!(seen.console(), Vec::<&str>::new(), "the page says something on the console");
    let dom = &seen.out;
    assert!(dom.contains("</html>"), "no page: {}", seen.log);
    assert!(!dom.contains("<script>console.log("), "text from outside is not escaped");
    let charts = dom.matches("<svg viewBox").count();
    let lines = dom.matches("<path").count() + dom.matches("<polyline").count() + dom.matches("<circle").count();
    assert!(charts >= 4, "{charts} charts: throughput, response times, CPU, latencies are wanted");
    assert!(lines >= 3 * charts, "{lines} lines and dots in {charts} charts");
    assert!(!dom.contains("NaN"), "a chart computes with a number that is none");

    keep(&page, "report");
}

/// Asserts that a PNG has the requested size, and more compressed pixels than a blank page.
fn assert_is_drawn(name: &str, png: &[u8]) {
    assert!(png.starts_with(b"\x89PNG\r\n\x1a\n"), "{name} is no PNG");
    let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().expect("four bytes"));
    let (width, height) = (u64::from(number(16)), u64::from(number(20)));
    let pixels = width * height;
    assert!(pixels > 400 * 1000, "{name} is {width} x {height}");
    // A blank page takes about a byte for 300 pixels; text and charts take ten times that.
    assert!(png.len() as u64 > pixels / 100, "{name}: {} bytes for {pixels} pixels look blank", png.len());
}

#[test]
fn console_messages_are_detected() {
    skip_unless!(browser().is_some(), "no Chromium here (apt-get install chromium-headless-shell)");
    let dir = open_dir();
    let page = dir.path().join("page.html");
    std::fs::write(&page, "<html><script>undefined_function()</script></html>").expect("our own folder");
    let seen = look(&page, &["--dump-dom".into()]);
    assert_eq!(seen.console().len(), 1, "{}", seen.log);
}
