//! Compares the run's open-loop points with the chosen model: a limit that only they show, and a prediction for each.

use super::demand::Shape;
use super::question::shapes;
use super::readings::{Readings, typicals};
use super::validate::{CheckedNumber, RATE_ERROR, checked};
use record::units::{format_nanos, format_si};
use statistics::queue::Queue;
use statistics::server::{FULL, Server};

/// The lowest offered rate that failed with no higher rate held, requests per second.
pub fn fails_at(readings: &Readings) -> Option<f64> {
    let levels = typicals(&readings.open);
    let held = levels.iter().filter(|level| !level.failed).map(|level| level.load).fold(0.0, f64::max);
    levels.iter().map(|level| level.load).find(|load| *load > held)
}

/// The limit of something other than the CPU: the highest rate that was answered well, if a higher one failed while
/// CPUs were idle. At least the closed loop's throughput. `None` if no rate failed, or if CPUs were full.
pub fn limit(readings: &Readings) -> Option<f64> {
    let fails = fails_at(readings)?;
    let levels = typicals(&readings.open);
    let first = levels.iter().find(|level| level.load == fails)?;
    let is_cpu_full = first.busy_cpus >= FULL * readings.parallel_cpus;
    Some(readings.highest_per_sec()).filter(|limit| *limit > 0.0 && !is_cpu_full)
}

/// The server with this limit, if it is lower than its own.
pub fn limited(server: Server, limit: Option<f64>) -> Server {
    let lower = [server.limit_per_sec, limit].into_iter().flatten().reduce(f64::min);
    Server { limit_per_sec: lower, ..server }
}

/// The response time that the share `quantile` of an open loop does not exceed, seconds: the time of a request
/// without waiting, distributed as in the closed loop below saturation, plus the quantile of the wait. `delay_s` of
/// the path is constant.
pub fn quantile_s(server: &Server, queue: &Queue, delay_s: f64, shape: Option<Shape>, quantile: f64) -> f64 {
    let part = shape.map_or(1.0, |shape| if quantile > 0.5 { shape.p99 } else { shape.p50 });
    let alone_s = queue.response_s - queue.wait_s + server.path_s - delay_s;
    alone_s * part + delay_s + queue.wait_quantile_s(quantile)
}

/// Predicts every open-loop level: throughput, and the response times if it held.
pub fn checks(readings: &Readings, server: &Server) -> Vec<CheckedNumber> {
    let capacity = server.capacity_per_sec(0.0);
    let [below, _] = shapes(readings, server);
    let mut numbers = Vec::new();
    for level in typicals(&readings.open) {
        let predicted = Some(level.load.min(capacity));
        numbers.push(checked(("throughput", "open"), Some(level.load), level.throughput_per_sec, predicted));
        let queue = server.open_queue(level.load, level.cold);
        for (name, measured, quantile) in [("p50", level.p50_s, 0.5), ("p99", level.p99_s, 0.99)] {
            if let (Some(measured), Some(queue), false) = (measured, &queue, level.failed) {
                let predicted = quantile_s(server, queue, 0.0, below, quantile);
                numbers.push(checked((name, "open"), Some(level.load), measured, Some(predicted)));
            }
        }
    }
    numbers
}

/// Doubts from open-loop points that contradict the model.
pub fn doubts(readings: &Readings, server: &Server, numbers: &[CheckedNumber]) -> Vec<String> {
    let mut doubts = Vec::new();
    let capacity = server.capacity_per_sec(0.0);
    let highest = readings.highest_per_sec();
    if highest * (1.0 - RATE_ERROR) > capacity {
        doubts.push(format!("the run served {}/s, more than the model's capacity", format_si(highest)));
    }
    if let Some(fails) = fails_at(readings).filter(|fails| *fails < (1.0 - RATE_ERROR) * capacity) {
        doubts.push(format!(
            "the run failed at {}/s offered, below the model's capacity: its predictions beyond that rate are wrong",
            format_si(fails)
        ));
    }
    for name in ["throughput", "p50", "p99"] {
        let all: Vec<&CheckedNumber> = numbers.iter().filter(|number| number.name == name).collect();
        let off: Vec<&&CheckedNumber> = all.iter().filter(|number| !number.passes()).collect();
        let error = |number: &CheckedNumber| number.error_ratio.map_or(f64::INFINITY, |error| (1.0 + error).ln().abs());
        let worst = off.iter().max_by(|a, b| error(a).total_cmp(&error(b)));
        if let Some((worst, predicted)) = worst.and_then(|worst| Some((worst, worst.predicted?))) {
            let words = |value: f64| match worst.unit {
                "s" => format_nanos(value * 1e9),
                _ => format!("{}/s", format_si(value)),
            };
            doubts.push(format!(
                "at {} of {} open-loop loads, the predicted {name} is off by more than {:.0} %, most at {}/s: {} \
                 measured, {} predicted",
                off.len(),
                all.len(),
                worst.limit_ratio * 100.0,
                format_si(worst.load.unwrap_or_default()),
                words(worst.measured),
                words(predicted)
            ));
        }
    }
    doubts
}
