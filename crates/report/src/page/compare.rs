//! The page of a comparison: both curves with their zones, ratios with intervals, changed facts, and the layers and
//! functions that grew.

use super::frame::{PageFrame, render};
use super::tables::{FactGroup, criteria, facts};
use super::{Section, beside, draw, key_numbers, loads};
use crate::flame;
use crate::text::table::Table;
use crate::text::unbroken;
use analyze::compare::costs::{Costs, costs};
use analyze::compare::{Comparison, headline};
use analyze::growth::CpuChange;
use analyze::zones::{self, Findings, SweepFindings};
use record::text::plain;
use record::{RunDir, Sweep};
use serde::Serialize;
use verdict::{self, Verdict};

const LETTERS: [&str; 2] = ["A", "B"];
const FUNCTIONS: usize = 20;

#[derive(Serialize)]
struct ComparePage {
    #[serde(flatten)]
    frame: PageFrame,
    runs: Vec<ComparedRun>,
    points: Table,
    doubts: Vec<String>,
    sections: Vec<Section>,
    changes: Vec<Table>,
    costs: Vec<Table>,
    /// Flame graph; empty if there is none, for the reason in `no_flame`.
    flame: String,
    no_flame: String,
}

#[derive(Serialize)]
struct ComparedRun {
    letter: &'static str,
    place: String,
    headline: String,
}

/// The comparison of B with A as one HTML document.
pub fn html(a: &RunDir, b: &RunDir, comparison: &Comparison) -> String {
    let (of_a, of_b) = (zones::of_run(a), zones::of_run(b));
    let mut counter = 0;
    let costs = costs(a, b, comparison.confidence_ratio);
    let (flame, no_flame) = match &costs.stacks {
        Ok((before, after)) => (flame::draw_cost_difference(before, after), String::new()),
        Err(why) => (String::new(), format!("No flame graph: {}.", plain(why, 600))),
    };
    let mut sentences = vec![headline(comparison)];
    sentences.extend(crate::compare::left_out(comparison).map(|said| said + "."));
    let said = (verdict::sentences(a, &of_a), verdict::sentences(b, &of_b));
    let run = |letter, run: &RunDir, verdict: &Verdict| ComparedRun {
        letter,
        place: plain(&format!("{} ({})", run.path.display(), run.record.scenario.url()), 300),
        headline: unbroken(&verdict.headline),
    };
    let page = ComparePage {
        frame: PageFrame::of_two(a, b, &first_sentence(&sentences[0]), sentences),
        runs: vec![run("A", a, &said.0), run("B", b, &said.1)],
        points: points((&of_a, &said.0), (&of_b, &said.1)),
        doubts: comparison.doubts.iter().map(|doubt| unbroken(&plain(doubt, 600))).collect(),
        sections: sections((a, b), (&of_a, &of_b), comparison, &mut counter),
        changes: changes((a, &of_a), (b, &of_b)),
        costs: cost_tables(&costs),
        flame,
        no_flame,
    };
    render("compare.html", &page, || crate::compare::text(comparison))
}

fn first_sentence(text: &str) -> String {
    text.split_inclusive(". ").next().unwrap_or_default().trim().to_string()
}

fn points(a: (&Findings, &Verdict), b: (&Findings, &Verdict)) -> Table {
    let [of_a, of_b] = [a, b].map(|(findings, verdict)| key_numbers(findings, verdict.answer.as_ref()));
    let mut names: Vec<&'static str> = of_a.iter().map(|number| number.name).collect();
    names.extend(of_b.iter().map(|number| number.name).filter(|name| !of_a.iter().any(|known| known.name == *name)));
    let cells = |numbers: &[super::KeyNumber], name: &str| match numbers.iter().find(|number| number.name == name) {
        Some(found) => [found.value_and_unit(), found.details()],
        None => ["\u{2013}".to_string(), "not measured".into()],
    };
    let row = |name: &&'static str| {
        let [(a, of_a), (b, of_b)] = [cells(&of_a, name), cells(&of_b, name)].map(|[value, detail]| (value, detail));
        vec![name.to_string(), a, of_a, b, of_b]
    };
    let columns = ["", "A", "", "B", ""].map(|heading| (heading, ""));
    Table::titled("", columns, names.iter().map(row).collect(), "Intervals have 95 % confidence.")
}

fn sections(
    (a, b): (&RunDir, &RunDir),
    (of_a, of_b): (&Findings, &Findings),
    comparison: &Comparison,
    counter: &mut usize,
) -> Vec<Section> {
    let compared = comparison.figures.iter().flat_map(|figure| &figure.loads).map(|at| at.sweep).next();
    let known = |sweep: Sweep| compared == Some(sweep) || of_both(sweep, of_a, of_b).is_some();
    let one = |sweep: Sweep| {
        let mut figures = Vec::new();
        let mut of_loads = Vec::new();
        if let Some((found_a, found_b)) = of_both(sweep, of_a, of_b) {
            figures = beside::figures(LETTERS, &[(a, found_a), (b, found_b)]);
            for (run, found, letter) in [(a, found_a, "A"), (b, found_b, "B")] {
                of_loads.extend(loads::of_sweep_in(run, found, letter));
            }
        }
        let is_compared = compared == Some(sweep);
        figures.extend(beside::ratios(LETTERS, comparison).filter(|_| is_compared));
        let tables = [
            Table { note: APART.into(), ..crate::compare::figures(LETTERS, comparison) },
            beside::by_load(LETTERS, comparison),
        ];
        Section {
            title: match sweep {
                Sweep::Connections => "Closed loop over connections",
                Sweep::Rate => "Open loop over rate",
                _ => "Single points",
            },
            figures: draw(figures, counter),
            tables: tables.into_iter().filter(|_| is_compared).collect(),
            loads: of_loads,
            ..Section::default()
        }
    };
    [Sweep::Connections, Sweep::Rate, Sweep::Single].into_iter().filter(|sweep| known(*sweep)).map(one).collect()
}

const APART: &str = "Geometric means over loads and repeats. The interval (Student's t over the repeats of both runs) \
                     decides. docs/compare.md explains the results.";

fn of_both<'a>(sweep: Sweep, a: &'a Findings, b: &'a Findings) -> Option<(&'a SweepFindings, &'a SweepFindings)> {
    match sweep {
        Sweep::Connections => a.connections.as_ref().zip(b.connections.as_ref()),
        Sweep::Rate => a.rate.as_ref().zip(b.rate.as_ref()),
        _ => None,
    }
}

/// Facts that differ, by group, with a dash for a missing one.
fn changes((a, of_a): (&RunDir, &Findings), (b, of_b): (&RunDir, &Findings)) -> Vec<Table> {
    let groups = |run: &RunDir, findings: &Findings| -> Vec<FactGroup> {
        let scenario = &run.record.scenario;
        let mut measured = vec![
            ("command".to_string(), plain(&scenario.repeat_command, 600)),
            ("URL".into(), plain(&scenario.url(), 300)),
        ];
        measured.extend(criteria(&findings.criteria).into_iter().map(|(name, value, _)| (name.to_string(), value)));
        std::iter::once(("Scenario", measured)).chain(facts(run)).collect()
    };
    let (of_a, of_b) = (groups(a, of_a), groups(b, of_b));
    ["Server", "Scenario", "Client", "Machine", "Kernel settings"]
        .into_iter()
        .filter_map(|title| {
            let of = |groups: &[FactGroup]| -> Vec<(String, String)> {
                groups.iter().filter(|group| group.0 == title).flat_map(|group| group.1.clone()).collect()
            };
            let rows = differing(&of(&of_a), &of(&of_b));
            (!rows.is_empty()).then(|| Table::titled(title, ["", "A", "B"].map(|heading| (heading, "")), rows, ""))
        })
        .collect()
}

fn differing(a: &[(String, String)], b: &[(String, String)]) -> Vec<Vec<String>> {
    let value = |facts: &[(String, String)], name: &str| {
        facts.iter().find(|(known, _)| known == name).map_or("\u{2013}".to_string(), |(_, value)| value.clone())
    };
    let only_b = b.iter().filter(|(name, _)| !a.iter().any(|(known, _)| known == name));
    a.iter()
        .chain(only_b)
        .map(|(name, _)| vec![name.clone(), value(a, name), value(b, name)])
        .filter(|row| row[1] != row[2])
        .collect()
}

fn cost_tables(costs: &Costs) -> Vec<Table> {
    let row = |cost: &CpuChange| {
        let ratio = match (cost.from_us > 0.0, cost.to_us > 0.0) {
            (true, _) => format!("{:.3}", cost.to_us / cost.from_us),
            (false, true) => "new".into(),
            (false, false) => String::new(),
        };
        let interval = cost.difference_us.interval().map(|(low, high)| format!("{low:+.2} to {high:+.2}"));
        vec![
            plain(&cost.name, 80),
            format!("{:.2}", cost.from_us),
            format!("{:.2}", cost.to_us),
            format!("{:+.2}", cost.difference_us.value),
            interval.unwrap_or_default(),
            ratio,
            cost.difference_us.n.to_string(),
        ]
    };
    let table = |title: &'static str, what: &str, rows: Vec<Vec<String>>, note: &str| {
        let headings = [what, "A", "B", "B \u{2212} A", "interval", "B / A", "n"];
        let units = ["", "us/request", "us/request", "us/request", "95 %", "ratio", "repeats"];
        Table::titled(title, headings.into_iter().zip(units), rows, note)
    };
    let layers = table(
        "Layers",
        "layer",
        costs.layers.iter().map(row).collect(),
        "Sampled CPU time; means over the common loads. An interval needs two repeats of each run.",
    );
    let functions = table(
        "Functions that changed most",
        "function",
        costs.functions.iter().take(FUNCTIONS).map(row).collect(),
        "Sampled CPU time without callees. A point lists only its most expensive functions; others count as 0.",
    );
    [layers, functions].into_iter().filter(|table| !table.rows.is_empty()).collect()
}
