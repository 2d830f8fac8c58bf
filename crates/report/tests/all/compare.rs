//! A comparison as text and JSON.

use crate::browser::{button, chart, chromium, fits_and_is_named, kept};
use crate::fixture;
use crate::person::{DESK, Desk, Person};
use analyze::compare::costs;
use record::layers::Layer;
use record::point::FunctionCost;
use record::profile::{CpuMode, Frame, Ran, SampledProcess, Stack, Stacks};
use record::{DoubtKind, Figure, Origin, RunDir, names};
use report::{compare, page, text};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[test]
fn a_comparison_has_its_headline_and_every_doubt_in_both_formats() {
    let folder = tempfile::tempdir().unwrap();
    let a = fixture::write(folder.path(), fixture::record(), &fixture::points());
    let mut b = a.clone();
    b.record.server_facts.insert("program".into(), "another".into());
    b.record.machine.kernel = "other".into();
    for point in b.points.iter_mut().take(3) {
        let what = "other processes used 1.70 CPUs of those under test";
        point.doubts.push(DoubtKind::NoisyNeighbour.warning(what, "stop them"));
    }
    let found = analyze::compare::runs(&a, &b, 0.05).unwrap();
    assert!(found.doubts.len() >= 2, "{:?}", found.doubts);
    let words = compare::text(&found);
    assert!(words.lines().all(|line| line.chars().count() <= text::width()), "{words}");
    let flat = words.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.starts_with(&analyze::compare::headline(&found)), "{flat}");
    for doubt in &found.doubts {
        assert!(flat.contains(doubt.as_str()), "{doubt} is not in: {flat}");
    }
    let json = compare::json(&found);
    assert_eq!(json["kind"], "comparison");
    assert_eq!(json["comparison"]["doubts"], serde_json::json!(found.doubts));
}

#[test]
fn a_count_of_one_is_printed_in_the_singular() {
    let folder = tempfile::tempdir().unwrap();
    let a = fixture::write(folder.path(), fixture::record(), &fixture::points());
    let mut b = a.clone();
    b.points.retain(|point| point.sweep == record::Sweep::Rate || point.connections > 1);
    let mut disturbed = b.points.iter().find(|point| point.connections == 2).expect("two connections").clone();
    disturbed.doubts.push(DoubtKind::Steal.warning("the hypervisor took 9 %", "wait"));
    b.points.insert(0, disturbed);
    let found = analyze::compare::runs(&a, &b, 0.05).unwrap();
    assert_eq!(found.unmatched, 1);
    let left_out =
        "1 load was measured in one run only and is left out; 1 disturbed point was measured again and is left out";
    let forms =
        [compare::text(&found), page::compare::html(&a, &b, &found), report::markdown::comparison(["a", "b"], &found)];
    let flat = |form: &String| form.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(forms.iter().all(|form| flat(form).contains(left_out)), "{}", forms[0]);
    let mut point = a.points[0].clone();
    point.figures.set(names::SILENT, Figure::new(1.0, "count", 1, Origin::Counted));
    assert!(report::run::point(&point, &[]).contains("1 connection "), "{}", report::run::point(&point, &[]));
    assert_eq!(text_of_a_watch().matches("1 process, 1 thread,").count(), 2);
}

/// Both screens of a watch on a server with one process.
fn text_of_a_watch() -> String {
    use record::watch::{CpuTotals, Headroom, Rates, Reading, Watching};
    let cpu = CpuTotals { processes: 1, threads: 1, ..CpuTotals::default() };
    let now = Reading { cpu: Some(cpu), ..Reading::default() };
    let rates = Rates { server_cpus: Some(0.5), ..Rates::default() };
    let frame = report::watch::Screen {
        watch: &Watching::default(),
        first: &now,
        now: &now,
        rates: &rates,
        headroom: &Headroom::default(),
        doubts: &[],
    };
    report::watch::screen::tables(&frame) + &report::watch::screen::live(&frame, &Reading::default())
}

/// Stacks with the server's cost per request by function, in nanoseconds. Names have every difficult character.
fn stacks(requests: u64, costs: &[(&str, Layer, u64)]) -> Stacks {
    let stack = |(at, (_, layer, ns)): (usize, &(&str, Layer, u64))| Stack {
        functions: vec![at as u32],
        process: Some(0),
        ran: Ran::Server,
        mode: CpuMode::Kernel,
        layer: Some(*layer),
        part: Default::default(),
        samples: 100,
        cpu_ns: ns * requests,
        events: Vec::new(),
    };
    Stacks {
        processes: vec![SampledProcess { pid: 7, name: "nginx".into() }],
        functions: costs
            .iter()
            .map(|(name, ..)| Frame { function: (*name).into(), module: None, is_kernel: true })
            .collect(),
        stacks: costs.iter().enumerate().map(stack).collect(),
        ..Stacks::default()
    }
}

/// A run whose requests have these costs by function, at every closed-loop load.
fn sampled(folder: &Path, factor: f64, costs: &[(&str, Layer, u64)]) -> RunDir {
    let mut points = fixture::points();
    for point in &mut points {
        for name in [names::THROUGHPUT, names::GOODPUT] {
            let figure = point.figures.get(name).cloned();
            if let Some(figure) = figure {
                point.figures.set(name, Figure { value: figure.value.map(|rate| rate / factor), ..figure });
            }
        }
        point.figures.set(names::LAYER_USER, Figure::new(4.0, "us", 90, Origin::Sampled));
        let tcp = costs.iter().filter(|(_, layer, _)| *layer == Layer::Tcp).map(|(.., ns)| *ns as f64 / 1e3).sum();
        point.figures.set(names::LAYER_TCP, Figure::new(tcp, "us", 90, Origin::Sampled));
        point.functions = costs
            .iter()
            .map(|(name, layer, ns)| FunctionCost {
                function: name.to_string(),
                module: None,
                layer: Some(*layer),
                us_per_request: *ns as f64 / 1e3,
                samples: 100,
            })
            .collect();
    }
    let run = fixture::write(folder, fixture::record(), &points);
    for point in &run.points {
        let requests = point.figures.get(names::THROUGHPUT).and_then(|figure| figure.n).unwrap_or(1);
        let folder = run.path.join("points").join(format!("{:03}", point.index));
        std::fs::write(folder.join("stacks.json"), serde_json::to_vec(&stacks(requests, costs)).unwrap()).unwrap();
    }
    run
}

const HOSTILE: &str = "</title><script>alert(1)</script><img src=x>";

fn two(folder: &Path) -> (RunDir, RunDir) {
    let a = sampled(&folder.join("a"), 1.0, &[("tcp_sendmsg", Layer::Tcp, 2000), ("tcp_ack", Layer::Tcp, 1000)]);
    let costs = [("tcp_sendmsg", Layer::Tcp, 5000), ("tcp_ack", Layer::Tcp, 500), (HOSTILE, Layer::User, 700)];
    let mut b = sampled(&folder.join("b"), 1.3, &costs);
    b.record.server_facts.insert("version".into(), HOSTILE.into());
    b.record.machine.sysctls.insert("net.core.somaxconn".into(), "128".into());
    (a, b)
}

fn folders() -> (tempfile::TempDir, RunDir, RunDir) {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    let (a, b) = two(folder.path());
    (folder, a, b)
}

#[test]
fn costs_of_a_request_are_means_over_the_loads_and_not_over_the_requests() {
    let (_folder, a, b) = folders();
    let found = costs::costs(&a, &b, 0.95);
    let first = &found.functions[0];
    assert_eq!(first.name, "tcp_sendmsg");
    assert!((first.from_us - 2.0).abs() < 1e-9 && (first.to_us - 5.0).abs() < 1e-9, "{first:?}");
    let (low, high) = first.difference_us.interval().expect("both runs have two repeats and more");
    assert!(low > 2.9 && high < 3.1, "{first:?}");
    let tcp = found.layers.iter().find(|layer| layer.name == "TCP").unwrap();
    assert!((tcp.from_us - 3.0).abs() < 1e-9 && (tcp.to_us - 5.5).abs() < 1e-9, "{tcp:?}");
    let (before, after) = found.stacks.unwrap();
    // Picoseconds per request, independent of the rates of the two runs.
    assert_eq!((before.total(), after.total()), (3_000_000, 6_200_000));
}

#[test]
fn a_run_without_stacks_gets_a_sentence_and_no_empty_picture() {
    let folder = tempfile::tempdir().unwrap();
    let a = fixture::write(folder.path(), fixture::record(), &fixture::points());
    let found = analyze::compare::runs(&a, &a, 0.05).unwrap();
    let page = page::compare::html(&a, &a, &found);
    assert!(page.contains("No flame graph: A has no stacks: ") && page.contains("; B has no stacks: "), "{page}");
    assert!(!page.contains("class=\"scroll flame\"") && page.contains("No layer and no function was sampled"));
    assert!(page.contains("Nothing that the runs recorded of server, scenario and machine differs."));
}

/// The page of two runs that differ.
fn compared() -> String {
    let (_folder, a, b) = folders();
    let found = analyze::compare::runs(&a, &b, 0.05).unwrap();
    page::compare::html(&a, &b, &found)
}

#[test]
fn the_page_of_a_comparison_is_complete_and_shows_untrusted_text_as_text() {
    let page = compared();
    for part in [
        "<h2>Zones of both</h2>",
        "<h3>Throughput</h3>",
        "<h3>B &#x2f; A</h3>",
        "<h3>Server</h3>",
        "<h3>Kernel settings</h3>",
        "<h3>Layers</h3>",
        "<h3>Functions that changed most</h3>",
        "tcp_sendmsg (2.000 us -> 5.000 us per request)",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains("<h3>Machine</h3>"), "the machine is the same");
    assert_eq!(page.matches("<script").count(), 1, "the page's own");
    for forbidden in ["<script>alert", "<img", "</title><script", "style=\"", "unsafe-inline"] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    assert!(page.contains("&lt;script&gt;alert(1)"), "it is shown as text");
    assert!(!page.contains("NaN<") && !page.contains("inf<"));
}

#[test]
fn only_different_facts_are_changes_and_a_missing_fact_is_not_a_value() {
    let folder = tempfile::tempdir().unwrap();
    let mut a = fixture::write(folder.path(), fixture::record(), &fixture::points());
    let mut b = a.clone();
    let facts = |of: [(&str, &str); 3]| BTreeMap::from(of.map(|(name, value)| (name.to_string(), value.to_string())));
    a.record.server_facts = facts([("version", "1.22"), ("same", "x"), ("gone", "y")]);
    b.record.server_facts = facts([("version", "1.23"), ("same", "x"), ("new", "z")]);
    let page = page::compare::html(&a, &b, &analyze::compare::runs(&a, &b, 0.05).unwrap());
    let table = page.split("<h3>Server</h3>").nth(1).expect("the table").split("</tbody>").next().unwrap();
    let rows: Vec<&str> = table.split("<tr>").skip(2).map(str::trim).collect();
    let row = |name: &str, a: &str, b: &str| format!("<th class=\"l\">{name}</th><td>{a}</td><td>{b}</td></tr>");
    assert_eq!(rows, [row("gone", "y", "\u{2013}"), row("version", "1.22", "1.23"), row("new", "\u{2013}", "z")]);
}

fn opened(name: &str) -> Option<(PathBuf, PathBuf)> {
    let Some(browser) = chromium() else {
        println!("not run: no Chromium in PATH (on Debian: apt-get install chromium-headless-shell)");
        return None;
    };
    let page = kept(&format!("{name}.html"));
    std::fs::write(&page, compared()).unwrap();
    Some((browser, page))
}

#[test]
fn the_page_of_a_comparison_supports_hover_zoom_hiding_and_clicks() {
    let Some((browser, page)) = opened("compare-answers") else { return };
    let mut person = Person::opens(&browser, &page, &DESK);
    let lanes = "[...document.querySelectorAll('figure.chart .wide svg')][0].querySelectorAll('.zone').length";
    assert!(person.sees(lanes).as_u64().unwrap() >= 4, "zones of both");

    let of_b = chart("Throughput", ".wide .line.s2");
    let series = person.reads(&format!("{of_b}.dataset.series"));
    person.sees(&format!("{}.focus()", chart("Throughput", ".wide svg")));
    person.presses("ArrowRight");
    person.presses("ArrowDown");
    let told = person.reads(&format!("{}.innerText", chart("Throughput", ".tip")));
    assert!(
        told.starts_with("B\nconnections: 1\n") && told.contains("range: ") && told.contains("n = 3 points"),
        "{told}"
    );
    person.presses("Enter");
    person.waits_for("document.activeElement.id === 'b-load-connections-1'");
    let load = person.reads("document.activeElement.innerText");
    assert!(load.contains("tcp_sendmsg") && load.contains("5.00"), "the load of B: {load}");

    let hide = person.finds(&button("Throughput", "B"));
    person.clicks(hide);
    let hidden =
        format!("{}.querySelectorAll('[data-series=\"{series}\"].off').length > 0", chart("Throughput", ".wide svg"));
    assert_eq!(person.sees(&hidden), true);
    let at = person.finds(&chart("B / A", ".wide circle[data-rows]"));
    person.hovers(at);
    let told = person.reads(&format!("{}.innerText", chart("B / A", ".tip")));
    assert!(told.contains("interval: ") && told.contains("ratio of geometric means"), "{told}");
    let middle = person.finds(&chart("B / A", ".wide svg"));
    person.drags((middle.0 - 80.0, middle.1), (middle.0 + 40.0, middle.1));
    assert!(person.reads(&format!("{}.textContent", chart("B / A", ".told"))).ends_with("% of the range."));
    person.keeps_window(&kept("compare-zoomed.png"));
    assert_eq!(person.complaints(), Vec::<String>::new());
}

#[test]
fn the_page_of_a_comparison_fits_phone_and_desktop_and_is_complete_without_scripts() {
    let Some((browser, page)) = opened("compare") else { return };
    fits_and_is_named(&browser, &page, "compare");
    let mut person = Person::opens(&browser, &page, &Desk { has_script: false, ..DESK });
    assert_eq!(person.sees("document.querySelectorAll('button').length"), 0);
    let tables = person.sees("document.querySelectorAll('figure.chart details.data').length");
    assert_eq!(tables, person.sees("document.querySelectorAll('figure.chart').length"));
    assert_eq!(person.complaints(), Vec::<String>::new());
}

#[test]
fn a_price_table_fits_80_columns() {
    let folder = tempfile::tempdir().unwrap();
    let a = fixture::write(folder.path(), fixture::record(), &fixture::points());
    let mut b = a.clone();
    fixture::found(&mut b.record).beside = ["agent", "--all"].map(String::from).to_vec();
    let price = analyze::compare::price(&b, 0.95).expect("a price");
    let comparison = analyze::compare::interleaved(&a, &b, 0.05).unwrap();
    let words = report::price::text(&a, &b, &price, &comparison);
    let (over_all, by_load) = words.split_once("with / without by load\n").expect("both tables");
    assert!(over_all.lines().all(|line| line.chars().count() <= 80), "{over_all}");
    assert!(over_all.starts_with("The price of 'agent --all' for nginx"), "{over_all}");
    let flat = over_all.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains(&analyze::compare::price_words(&price, &comparison)), "{flat}");
    for row in ["CPU/request", "throughput", "p50", "p99", "yield point"] {
        assert!(over_all.contains(row), "{row}: {over_all}");
    }
    let columns: Vec<&str> = by_load.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(columns[..4], ["throughput", "CPU/request", "p50", "p99"]);
    assert_eq!(serde_json::json!(price)["command"], "agent --all");
}
