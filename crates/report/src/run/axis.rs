//! The table of an axis.

use crate::text::wrap;
use analyze::axis::{AxisFindings, AxisLevel};
use analyze::zones::percent;
use record::Estimate;
use record::units::{format_bytes, format_nanos, format_si};

/// A column: heading, unit on the page, and the cell of a level.
pub(crate) type AxisColumn = (&'static str, &'static str, fn(&AxisLevel) -> String);

fn cell(estimate: Option<Estimate>, words: impl Fn(f64) -> String) -> String {
    estimate.map(|found| words(found.value)).unwrap_or_default()
}

fn range(estimate: Option<Estimate>, words: impl Fn(f64) -> String) -> String {
    let interval = estimate.and_then(|found| found.interval());
    interval.map(|(low, high)| format!("{}..{}", words(low), words(high))).unwrap_or_default()
}

fn us(us: f64) -> String {
    format!("{us:.1}")
}

fn time(us: f64) -> String {
    format_nanos(us * 1e3)
}

/// Columns of the table; those without content are left out.
pub(crate) const COLUMNS: &[AxisColumn] = &[
    ("present", "counted", |level| cell(level.present, record::units::grouped)),
    ("conform", "of connections", |level| cell(level.conforming_ratio, percent)),
    ("each", "bit/s", |level| cell(level.connection_bits_per_sec, format_si)),
    ("req/s", "1/s", |level| cell(level.throughput_per_sec, format_si)),
    ("interval", "1/s", |level| range(level.throughput_per_sec, format_si)),
    ("goodput", "1/s", |level| match (level.goodput_per_sec, level.throughput_per_sec) {
        (Some(good), Some(all)) if good.value < all.value => format_si(good.value),
        _ => String::new(),
    }),
    ("p50", "response", |level| cell(level.response_p50_us, time)),
    ("p99", "response", |level| cell(level.response_p99_us, time)),
    ("reap p99", "of the client", |level| cell(level.reap_p99_us, time)),
    ("CPU", "us/request", |level| cell(level.cpu_us_per_request, us)),
    ("interval", "us/request", |level| range(level.cpu_us_per_request, us)),
    ("user", "us/request", |level| cell(level.cpu_user_us_per_request, us)),
    ("sys", "us/request", |level| cell(level.cpu_system_us_per_request, us)),
    ("soft", "us/request", |level| cell(level.softirq_us_per_request, us)),
    ("kernel", "memory", |level| cell(level.kernel_bytes, format_bytes)),
    ("failed", "of requests", |level| match level.failed_ratio {
        Some(failed) if failed.value > 0.0 => percent(failed.value),
        _ => String::new(),
    }),
];

pub(super) fn table(axis: &AxisFindings) -> String {
    let layers = axis.layers.as_ref().map_or(String::new(), |layers| super::layers::table(axis, layers));
    if !has_columns(axis) {
        return layers;
    }
    let between = if layers.is_empty() { "" } else { "\n" };
    let title = format!(
        "{}, {}: medians with their intervals; CPU, user, sys, soft(irq) in us per request",
        axis.axis.name(),
        super::repeats_words(axis.repeats)
    );
    layers + between + &wrap(&title, "", "") + &crate::page::axis::table(axis).aligned(0).lines()
}

/// Whether the axis has measurements other than layers.
pub(crate) fn has_columns(axis: &AxisFindings) -> bool {
    COLUMNS.iter().any(|(.., words)| axis.levels.iter().any(|level| !words(level).is_empty()))
}
