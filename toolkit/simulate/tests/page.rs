//! Tests that a kept simulation is drawn.

use record::run::{RunRecord, RunWriter};
use record::scenario::ToolRun;
use record::{RunDir, RunKind, Scenario, Status};
use simulate::render::{self, page, text};
use simulate::simulation::Simulation;
use std::path::Path;

fn stored() -> Simulation {
    Simulation::parse(include_bytes!("simulation.json")).expect("what `straingauge simulate --out` wrote")
}

fn run_in(folder: &Path) -> RunDir {
    let kind = RunKind::Tool(ToolRun { tool: "simulate".into(), argv: Vec::new() });
    let scenario = Scenario { name: "simulate".into(), repeat_command: "straingauge simulate".into(), kind };
    let place = folder.join("run");
    let mut writer = RunWriter::create(folder, Some(&place), RunRecord::begin(scenario)).expect("a run directory");
    writer.finish(Status::Complete, None).expect("a run directory");
    RunDir::open(&place).expect("just written")
}

#[test]
fn a_kept_simulation_is_drawn_and_labelled() {
    let folder = tempfile::tempdir().unwrap();
    let run = run_in(folder.path());
    let mut simulation = stored();
    simulation.kernel = "<script>6.1".into();
    let page = page(&run, &simulation);
    assert!(!page.contains("<script>6.1") && page.contains("&lt;script&gt;6.1"), "text from outside is escaped");
    for wanted in [
        "All figures here are simulated",
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
    let json = render::json(&run, &simulation);
    assert_eq!((&json["kind"], &json["record"]["scenario"]["tool"]), (&"simulation".into(), &"simulate".into()));
}

#[test]
fn an_empty_simulation_has_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let nothing = Simulation::parse(b"{\"origin\": \"simulated\"}").unwrap();
    assert!(page(&run_in(folder.path()), &nothing).contains("All figures here are simulated"));
}
