//! A comparison as text for a terminal: the sentence first, then a table.

use super::{Comparison, Difference, Outcome};
use crate::text::table::Table;
use crate::text::{grouped, plain, wrap};
use record::Sweep;
use record::units::{format_nanos, format_si};

/// Headline, table, doubts.
pub fn text(comparison: &Comparison) -> String {
    let mut out = wrap(&headline(comparison), "", "");
    out.push('\n');
    let mut table = Table::new(&["load", "figure", "A", "B", "B / A", "95 % interval", "p", "n", ""], 2);
    for difference in &comparison.differences {
        table.row(row(difference));
    }
    out.push_str(&table.lines());
    if comparison.unmatched > 0 {
        out.push_str(&format!("  {} loads were measured in one run only and are left out\n", comparison.unmatched));
    }
    if !comparison.doubts.is_empty() {
        out.push_str("doubts\n");
        for doubt in &comparison.doubts {
            out.push_str(&wrap(&plain(doubt, 400), "  - ", "    "));
        }
    }
    out
}

pub(crate) fn headline(comparison: &Comparison) -> String {
    let count = |outcome| comparison.differences.iter().filter(|difference| difference.outcome == outcome).count();
    let tests = comparison.differences.len() - count(Outcome::Untested);
    let limit = comparison.threshold_ratio * 100.0;
    let worst = comparison.regressions().max_by(|a, b| a.ratio.ln().abs().total_cmp(&b.ratio.ln().abs()));
    match worst {
        Some(worst) => format!(
            "B is worse than A by more than {limit:.0} % in {} of {tests} tests; most in {} at {}: {:+.1} %.",
            count(Outcome::Regression),
            worst.word,
            load(worst),
            (worst.ratio - 1.0) * 100.0
        ),
        None if tests == 0 => "Nothing could be tested.".into(),
        None => {
            let improved =
                comparison.differences.iter().filter(|difference| difference.outcome == Outcome::Improvement);
            let best = improved.max_by(|a, b| a.ratio.ln().abs().total_cmp(&b.ratio.ln().abs()));
            let most = best.map_or(String::new(), |best| {
                format!("; most in {} at {}: {:+.1} %", best.word, load(best), (best.ratio - 1.0) * 100.0)
            });
            format!(
                "No regression beyond {limit:.0} % in {tests} tests; {} better by more than that{most}.",
                count(Outcome::Improvement)
            )
        }
    }
}

fn load(difference: &Difference) -> String {
    match difference.sweep {
        Sweep::Rate => format!("{}/s", format_si(difference.load)),
        _ => format!("{} conns", grouped(difference.load)),
    }
}

pub(crate) fn row(difference: &Difference) -> Vec<String> {
    let value = |value: f64| match difference.word {
        "throughput" => format!("{}/s", format_si(value)),
        _ => format_nanos(value * 1e3),
    };
    let verdict = match difference.outcome {
        Outcome::Regression => "worse",
        Outcome::Improvement => "better",
        Outcome::Small => "within the threshold",
        Outcome::Same => "",
        Outcome::Untested => "not tested",
    };
    vec![
        load(difference),
        difference.word.into(),
        value(difference.means.0),
        value(difference.means.1),
        format!("{:.3}", difference.ratio),
        difference.interval.map(|i| format!("{:.3} to {:.3}", i.low, i.high)).unwrap_or_default(),
        difference.p_value.map(|p| if p < 0.001 { "<0.001".into() } else { format!("{p:.3}") }).unwrap_or_default(),
        format!("{}/{}", difference.n.0, difference.n.1),
        verdict.into(),
    ]
}
