//! The section of a run that was measured in turn with another one: both curves, and the ratio at each load.

use super::charts::{self, Figure};
use super::tables::Table;
use super::{Section, draw};
use crate::chart::{Chart, Scale, Series};
use crate::text::unbroken;
use analyze::compare::{self, Comparison, Price, server_words};
use analyze::verdict;
use analyze::zones::{self, Findings, SweepFindings};
use record::units::format_si;
use record::{Point, RunDir, Sweep, names};

pub(super) fn section(a: &RunDir, b: &RunDir, counter: &mut usize) -> Option<Section> {
    let comparison = compare::interleaved(a, b, compare::THRESHOLD_RATIO).ok()?;
    let (of_a, of_b) = (zones::of_run(a), zones::of_run(b));
    let said = |run: &RunDir, findings: &Findings| verdict::sentences(run, findings).headline;
    let price = compare::price(a, b, compare::THRESHOLD_RATIO);
    let of_figures = |names| match (&of_a.connections, &of_b.connections) {
        (Some(a_found), Some(b_found)) => figures(names, &[(a, a_found), (b, b_found)]),
        _ => Vec::new(),
    };
    if let Some(price) = price {
        let note = format!(
            "The same server, {}, without and with '{}' beside it, in turn. {}",
            server_words(a),
            price.command,
            compare::price_words(&price)
        );
        return Some(Section {
            title: "The price of what ran beside it",
            note: unbroken(&note),
            figures: draw(of_figures(["without", "with"]), counter),
            tables: vec![price_table(a, b, &price), table(["without", "with"], &comparison)],
            ..Section::default()
        });
    }
    let note = format!(
        "A: {}. {} B: {}. {} {}",
        server_words(a),
        said(a, &of_a),
        server_words(b),
        said(b, &of_b),
        compare::headline(&comparison)
    );
    Some(Section {
        title: "Side by side",
        note: unbroken(&note),
        figures: draw(of_figures(["A", "B"]), counter),
        tables: vec![table(["A", "B"], &comparison)],
        ..Section::default()
    })
}

fn price_table(a: &RunDir, b: &RunDir, price: &Price) -> Table {
    Table {
        title: "Over all loads",
        headings: crate::price::HEADINGS.map(String::from).into(),
        units: vec!["", "geometric mean", "geometric mean", "with / without", "", "Student's t, Holm", ""],
        rows: crate::price::rows(a, b, price),
        note: "Of each round the mean over the loads is a pair. What the command used itself is the mean over the windows in which it ran; memory is the proportional set size at their ends.".into(),
    }
}

fn table([a, b]: [&str; 2], comparison: &Comparison) -> Table {
    Table {
        title: "",
        headings: ["load", "figure", a, b, &format!("{b} / {a}"), "interval", "p", "pairs", ""].map(String::from).into(),
        units: vec!["", "", "geometric mean", "geometric mean", "ratio", "95 %", "Student's t, Holm", "A/B", ""],
        rows: comparison.differences.iter().map(crate::compare::row).collect(),
        note: "Of each round the points at one load are a pair; the test is Student's t on the logarithms of their ratios, p corrected for the number of tests (Holm).".into(),
    }
}

fn figures(names: [&str; 2], runs: &[(&RunDir, &SweepFindings); 2]) -> Vec<Figure> {
    let of = |title: &'static str,
              y_name: &str,
              words: fn(f64) -> String,
              level: fn(&zones::Level) -> Option<zones::Spread>,
              value: &dyn Fn(&Point) -> Option<f64>| {
        let series: Vec<Series> = runs
            .iter()
            .zip(names.into_iter().zip(["s1", "s2"]))
            .map(|((run, found), (name, class))| Series {
                name: name.into(),
                class,
                line: found.levels.iter().filter_map(|one| Some((one.load, level(one)?.median))).collect(),
                dots: charts::dots(&charts::of(run, Sweep::Connections), value),
                is_reference: false,
            })
            .collect();
        let all = series.iter().flat_map(|one| one.line.iter().chain(&one.dots));
        let loads: Vec<f64> = all.clone().map(|(x, _)| *x).collect();
        let y: Vec<f64> = all.map(|(_, y)| *y).collect();
        (!y.is_empty()).then(|| Figure {
            title,
            caption: "Dots: points; lines: medians. Both took turns, round by round, at the same loads.".into(),
            chart: Chart {
                series,
                ..Chart::empty(
                    &format!("{title} of both against connections"),
                    "connections",
                    y_name,
                    Scale::doublings(loads.into_iter()),
                    Scale::linear(y.into_iter(), words),
                )
            },
        })
    };
    let throughput = of("Throughput", "responses per second", format_si, |level| level.throughput_per_sec, &|point| {
        point.value(names::THROUGHPUT)
    });
    let cpu = of(
        "CPU time per request",
        "server CPU, us per request",
        |us| format!("{us:.1}"),
        |level| level.cpu_us_per_request,
        &zones::cpu_us,
    );
    throughput.into_iter().chain(cpu).collect()
}
