//! A prediction as text for a terminal: the answer, then its basis.

use crate::json::{Content, Output};
use crate::page::predicted::table;
use crate::text::table::Table;
use crate::text::{list, wrap};
use analyze::predict::Prediction;
use analyze::predict::demand::Demand;
use analyze::predict::question::{Predicted, PredictedAnswer};
use analyze::predict::validate::CheckedNumber;
use analyze::predict::what_if::WhatIfAnswer;
use record::Estimate;
use record::text::plain;
use record::units::{format_nanos, format_si, grouped};
use statistics::server::Form;
use statistics::usl::Usl;

fn number(value: f64, unit: &str) -> String {
    match unit {
        "1/s" => format!("{}/s", format_si(value)),
        "s" => format_nanos(value * 1e9),
        "ratio" => format!("{:.0} %", value * 100.0),
        "connections" if value < 10.0 => format!("{value:.1} connections"),
        "connections" => format!("{} connections", grouped(value)),
        _ => format_si(value),
    }
}

fn between(estimate: &Estimate, words: impl Fn(f64) -> String) -> String {
    estimate.interval().map_or_else(|| "-".into(), |(low, high)| format!("{} to {}", words(low), words(high)))
}

fn answer(answer: &PredictedAnswer, name: &str) -> String {
    let name = if name.is_empty() { String::new() } else { format!("'{}': ", plain(name, 100)) };
    let mut out = wrap(&format!("{name}predicted for {}", plain(&answer.question, 300)), "", "");
    let mut table = Table::new(["", "value", "95 % interval"], 1);
    for Predicted { name, unit, estimate, .. } in &answer.numbers {
        let value = estimate.map_or_else(|| "none".into(), |estimate| number(estimate.value, unit));
        let ends = estimate.map_or_else(|| "-".into(), |estimate| between(&estimate, |end| number(end, unit)));
        table.row(vec![name.to_string(), value, ends]);
    }
    out.push_str(&table.lines());
    let mut reasons: Vec<&String> = answer.numbers.iter().filter_map(|n| n.not_predicted.as_ref()).collect();
    reasons.dedup();
    for reason in reasons {
        out.push_str(&wrap(reason, "  none: ", "        "));
    }
    out.push_str(&wrap(&answer.bottleneck, "bottleneck: ", "            "));
    out.push_str(&list("assumes that", &answer.assumptions));
    out
}

/// The scenario's questions, each with its answer or the reason why there is none.
pub fn what_ifs_text(what_ifs: &[WhatIfAnswer]) -> String {
    let mut out = String::new();
    for (at, kept) in what_ifs.iter().enumerate() {
        out.push('\n');
        match (&kept.answer, &kept.not_predicted) {
            (Some(found), _) => out.push_str(&answer(found, &kept.name)),
            (None, why) => {
                let name =
                    if kept.name.is_empty() { format!("{}", at + 1) } else { format!("'{}'", plain(&kept.name, 100)) };
                let why = plain(why.as_deref().unwrap_or("no reason is known"), 600);
                out.push_str(&wrap(&format!("what-if {name}: not predicted: {why}"), "", "  "));
            }
        }
    }
    out
}

/// Answers, assumptions, doubts, the model and its checks, demands and lines.
pub fn text(prediction: &Prediction) -> String {
    let mut out = answer(&prediction.answer, "");
    out.push_str(&what_ifs_text(&prediction.what_ifs));
    out.push_str(&list("doubts", &prediction.doubts));
    out.push('\n');
    out.push_str(&model(prediction));
    out.push_str(&checks(prediction));
    out.push_str(&validation(prediction));
    out.push_str(&open_points(prediction));
    for measured in &prediction.measured {
        out.push_str(&format!(
            "\n{}: CPU time of a request (demand law), us, mean and 95 % interval\n",
            measured.sweep
        ));
        out.push_str(&demands(&measured.demands));
        for regression in &measured.regressions {
            let line = &regression.line;
            let mut words = format!(
                "{} CPUs = {:.3} {:+.3} us x rate (slope {}, r = {:.3}, n = {})",
                regression.part,
                line.intercept.value,
                line.slope.value * 1e6,
                between(&line.slope, |end| format!("{:.3}", end * 1e6)),
                line.correlation,
                line.slope.n,
            );
            let falls = line.slope.high.is_some_and(|high| high < 0.0);
            if regression.part == "idle" && !falls {
                words.push_str("; it does not fall clearly with the rate, so no capacity is extrapolated");
            } else if let ("idle", Some(x)) = (regression.part, line.x_intercept) {
                let range = between(&x, |end| format!("{}/s", format_si(end)));
                words.push_str(&format!("; none left at {}/s ({range})", format_si(x.value)));
            }
            out.push_str(&wrap(&words, "  ", "    "));
        }
    }
    out
}

/// The prediction as JSON, with units next to the numbers.
pub fn json(prediction: &Prediction) -> serde_json::Value {
    Output::from(Content::Prediction { prediction }).value()
}

fn model(prediction: &Prediction) -> String {
    let server = &prediction.model;
    let words = match (server.form, server.usl) {
        (Form::Usl, Some(Usl { alpha, beta, gamma })) => {
            format!("alpha (contention) {alpha:.4}, beta (coherency) {beta:.3e}, gamma {}/s", format_si(gamma))
        }
        _ => {
            let mut parts = vec![format!("{:.2} us of CPU per request", server.base_s * 1e6)];
            let parts_of = [
                (server.wake_s * 1e6, "us more when the CPU is idle"),
                (server.growth_s * 1e9, "us more for each 1,000 connections"),
                (server.doubling_s * 1e6, "us more for each doubling of the connections"),
                (server.cold_growth_s * 1e9, "us more for each 1,000 cold connections"),
            ];
            parts.extend(parts_of.iter().filter(|(v, _)| *v > 0.0).map(|(v, words)| format!("{v:.2} {words}")));
            if server.cooling_s > 0.0 {
                parts.push(format!("it cools down in {}", format_nanos(server.cooling_s * 1e9)));
            }
            if server.background_cpus > 0.0 {
                parts.push(format!("{:.3} CPUs busy with other work than requests", server.background_cpus));
            }
            parts.push(format!("{} outside of the CPU", format_nanos(server.path_s * 1e9)));
            if server.in_flight > 1.0 {
                parts.push(format!("{} requests in flight per connection", server.in_flight));
            }
            parts.push(format!("squared variation of service {:.2}", server.cv_squared));
            parts.extend(
                server.limit_per_sec.map(|limit| format!("at most {}/s regardless of the CPUs", format_si(limit))),
            );
            parts.push(if server.cpus == 1.0 { "1 CPU".into() } else { format!("{} CPUs", server.cpus) });
            parts.join(", ")
        }
    };
    wrap(&format!("{}: {words}; {} resamples", server.form.word(), prediction.resamples), "model: ", "       ")
}

fn checks(prediction: &Prediction) -> String {
    format!(
        "errors of the models on points that they were not fitted to:\n|predicted / measured - 1| of throughput and \
         demand\n{}",
        table(&prediction.checks, prediction.model.form).aligned(1).lines()
    )
}

/// Compares a fit up to half the yield point with the measurements at higher loads.
fn validation(prediction: &Prediction) -> String {
    let Some(found) = &prediction.validation else { return String::new() };
    let passing = found.numbers.iter().filter(|number| number.passes()).count();
    let mut out = wrap(
        &format!(
            "fitted to {} loads up to {}, checked on the higher ones: {passing} of {} numbers within their error limit",
            found.fitted.0,
            grouped(found.fitted.1),
            found.numbers.len()
        ),
        "",
        "  ",
    );
    out.push_str(&checked_table(&found.numbers));
    out.push_str(&list("why", &found.doubts));
    out
}

/// Every open-loop point with the prediction of the model, which was fitted to the closed loop.
fn open_points(prediction: &Prediction) -> String {
    if prediction.open_points.is_empty() {
        return String::new();
    }
    format!("open-loop points predicted by the closed loop's model\n{}", checked_table(&prediction.open_points))
}

fn checked_table(numbers: &[CheckedNumber]) -> String {
    let mut table = Table::new(["", "loop", "at", "measured", "predicted", "error", "limit", ""], 2);
    for one in numbers {
        let at = match (one.load, one.sweep) {
            (Some(load), "open") => format!("{}/s", format_si(load)),
            (Some(load), _) => grouped(load),
            (None, _) => String::new(),
        };
        table.row(vec![
            one.name.into(),
            one.sweep.into(),
            at,
            number(one.measured, one.unit),
            one.predicted.map_or_else(|| "none".into(), |value| number(value, one.unit)),
            one.error_ratio.map(|error| format!("{:+.1} %", error * 100.0)).unwrap_or_default(),
            format!("{:.0} %", one.limit_ratio * 100.0),
            if one.passes() { String::new() } else { "off".into() },
        ]);
    }
    table.lines()
}

fn demands(demands: &[Demand]) -> String {
    let mut loads: Vec<f64> = demands.iter().map(|demand| demand.load).collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    let mut table = Table::new(["load", "cpu", "", "user", "", "kernel", "", "n"], 0);
    for load in loads {
        let of = |resource: &str| demands.iter().find(|demand| demand.load == load && demand.resource == resource);
        let mut row = vec![if load >= 1e4 { format_si(load) } else { grouped(load) }];
        for resource in ["cpu", "user", "kernel"] {
            row.push(of(resource).map(|demand| format!("{:.2}", demand.demand_us.value)).unwrap_or_default());
            let interval = of(resource).and_then(|demand| demand.demand_us.interval());
            row.push(interval.map(|(low, high)| format!("{low:.2} to {high:.2}")).unwrap_or_default());
        }
        row.push(of("cpu").map(|demand| demand.demand_us.n.to_string()).unwrap_or_default());
        table.row(row);
    }
    table.lines()
}
