//! The report over a simulation, as a page.

use crate::browser::{chromium, open};
use crate::fixture;
use record::simulation::Simulation;
use report::simulated::{page, text};
use std::path::Path;

fn stored() -> Simulation {
    Simulation::parse(include_bytes!("../../../analyze/tests/recorded/simulation.json"))
        .expect("what `straingauge simulate --out` wrote")
}

#[test]
fn a_recorded_simulation_is_drawn_without_script_and_says_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let run = fixture::write(folder.path(), fixture::record(), &[]);
    let mut simulation = stored();
    simulation.kernel = "<script>6.1".into();
    let page = page::html(&run, &simulation);
    assert!(!page.contains("<script>6.1") && page.contains("&lt;script&gt;6.1"), "text from outside is escaped");
    for wanted in [
        "Everything here is simulated",
        "Figure 4",
        "Figure 5",
        "Figure 6",
        "Figure 7",
        "after Table 1",
        "after Table 2",
        "after Table 3",
        "tcp_sock",
        "snd_nxt",
    ] {
        assert!(page.contains(wanted), "{wanted}");
    }
    assert!(!page.contains("NaN") && !page.contains("inf"), "numbers are numbers");
    let said = text::run(&simulation, 10);
    assert!(said.starts_with("Simulated, nothing measured"), "{said}");
    for wanted in ["tcp_sock", "Overall Stack", "From 4 to"] {
        assert!(said.contains(wanted), "{wanted} in {said}");
    }
}

#[test]
fn a_simulation_of_nothing_has_a_page_too() {
    let folder = tempfile::tempdir().unwrap();
    let run = fixture::write(folder.path(), fixture::record(), &[]);
    let nothing = Simulation::parse(b"{\"origin\": \"simulated\"}").unwrap();
    assert!(page::html(&run, &nothing).contains("Everything here is simulated"));
}

#[test]
fn the_simulations_page_opens_in_a_browser_without_complaint() {
    let Some(browser) = chromium() else {
        println!("not run: no Chromium in PATH (on Debian: apt-get install chromium-headless-shell)");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let run = fixture::write(folder.path(), fixture::record(), &[]);
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("simulated");
    std::fs::create_dir_all(&kept).unwrap();
    let file = kept.join("report.html");
    std::fs::write(&file, page::html(&run, &stored())).unwrap();
    for (name, size) in [("wide", "1200,5200"), ("phone", "500,8600")] {
        let picture = kept.join(format!("{name}.png"));
        let arguments = [format!("--window-size={size}"), format!("--screenshot={}", picture.display())];
        let said = open(&browser, folder.path(), &file, &arguments).stderr;
        let said = String::from_utf8_lossy(&said);
        assert!(!said.contains("CONSOLE"), "{said}");
        let bytes = std::fs::metadata(&picture).unwrap_or_else(|_| panic!("no picture: {said}")).len();
        assert!(bytes > 50_000, "{name} is nearly empty: {bytes} bytes");
    }
}
