//! The report in a real browser: nothing on the console, every chart drawn; pictures are kept under the target folder.

use crate::fixture;
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
fn the_report_opens_in_a_browser_without_complaint() {
    let Some(browser) = chromium() else {
        println!("not run: no Chromium in PATH (on Debian: apt-get install chromium-headless-shell)");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let run = fixture::write(folder.path(), fixture::record(), &fixture::points());
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report");
    std::fs::create_dir_all(&kept).unwrap();
    let page = kept.join("report.html");
    std::fs::write(&page, report::page::html(&run)).unwrap();
    // Its light pictures, on a desk and on a phone, are drawn from a real run (crates/straingauge/tests/report_page.rs).
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
    // Two sweeps with five charts each and the model's two, in two sizes.
    assert_eq!(dom.matches("<svg").count(), 24);
    assert!(!dom.contains("NaN") && !dom.contains("Infinity"));
}
