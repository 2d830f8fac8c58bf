//! What-ifs: other loads, more CPUs, a longer path, cold connections. Questions that the data cannot answer are
//! refused.

use super::cheaper::Cheaper;
use super::check::{ModelChoice, interval};
use super::demand::{Shape, shape};
use super::mix::MixCost;
use super::open_points;
use super::readings::Readings;
use crate::Refused;
use record::units::{count, format_si, percent};
use record::{Estimate, WhatIf};
use serde::Serialize;
use statistics::queue::Queue;
use statistics::server::{Form, LoadedServer, ModelPoint, Server, first};

/// Rates above this multiple of the highest measured one are not predicted, for each CPU.
const REACH: f64 = 10.0;

/// A predicted number.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Predicted {
    /// Name of the number.
    pub name: &'static str,
    /// Unit of the number: `1/s`, `s`, `ratio`, `connections`.
    pub unit: &'static str,
    /// The number, with its bootstrap interval if the points have repeats; absent if there is a reason in
    /// `not_predicted`.
    pub estimate: Option<Estimate>,
    /// Why the number was not predicted; absent if it was.
    pub not_predicted: Option<String>,
}

/// The answer to a question.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct PredictedAnswer {
    /// The question in words.
    pub question: String,
    /// Predicted numbers with intervals.
    pub numbers: Vec<Predicted>,
    /// Limit of the server in that situation.
    pub bottleneck: String,
    /// Assumptions of the numbers.
    pub assumptions: Vec<String>,
}

/// Changes of cost that the question asks about.
#[derive(Debug, Default)]
pub struct CostEffect {
    /// Another mix.
    pub mix: Option<MixCost>,
    /// Cheaper layers and functions.
    pub cheaper: Option<Cheaper>,
}

impl CostEffect {
    /// Demand of a request in the asked mix, relative to a measured one.
    fn mix_ratio(&self) -> f64 {
        self.mix.as_ref().map_or(1.0, |mix| mix.demand_ratio)
    }

    fn demand_ratio(&self) -> f64 {
        self.mix_ratio() * self.cheaper.as_ref().map_or(1.0, Cheaper::demand_ratio)
    }

    fn assumptions(&self) -> Vec<String> {
        let of_mix = self.mix.iter().map(|mix| {
            let class = |(label, share, demand): &(String, f64, f64)| {
                format!("{:.1} % '{}' at {:.1} us", share * 100.0, record::text::plain(label, 60), demand * 1e6)
            };
            let classes: Vec<String> = mix.classes.iter().map(class).collect();
            format!(
                "the cost of each class comes from all runs together ({}); path and growth with load are those of the \
                 first run",
                classes.join(", ")
            )
        });
        of_mix.chain(self.cheaper.iter().map(Cheaper::assumption)).collect()
    }
}

/// Answers a question with the chosen model; the `resampled` servers give the intervals.
pub fn answer(
    readings: &Readings,
    choice: &ModelChoice,
    resampled: &[Server],
    question: &WhatIf,
    costs: &CostEffect,
) -> Result<PredictedAnswer, Refused> {
    let server = choice.server;
    let situation = Situation::new(readings, question, shapes(readings, &server), costs);
    let mut assumptions = refuse(&situation, &server)?;
    assumptions.extend(costs.assumptions());
    let mut numbers = Vec::new();
    let cold = situation.cold;
    let too_far = situation.too_far(&server);
    let asks_for_load = situation.connections.is_some() || situation.rate.is_some();
    let mut put = |name, unit, value: &dyn Fn(&Server) -> Option<f64>, why: &str| {
        let is_of_load = !matches!(name, "plan for" | "breaks at" | "capacity" | "yield point" | "failure point");
        let refused = too_far.as_ref().filter(|(_, load)| *load || !is_of_load);
        let changed = |server: &Server| value(&situation.change(server)).filter(|_| refused.is_none());
        let value = changed(&server).filter(|value| value.is_finite());
        let why = refused.map_or(why, |(words, _)| words.as_str());
        let confidence = readings.criteria.confidence_ratio;
        let estimate = value
            .map(|value| Estimate::new(value, interval(resampled, confidence, changed), confidence, resampled.len()));
        numbers.push(Predicted { name, unit, estimate, not_predicted: value.is_none().then(|| why.to_string()) });
    };
    let criteria = &readings.criteria;
    if let Some(n) = situation.connections {
        put("throughput", "1/s", &|s| Some(s.closed(n, cold).throughput_per_sec), "");
        if server.form != Form::Usl {
            put("utilisation", "ratio", &|s| Some(s.closed(n, cold).utilisation), "");
        }
        let why = "the points have no response times";
        put("response mean", "s", &|s| situation.closed_time(s, n, |_| 1.0), why);
        put("response p50", "s", &|s| situation.closed_time(s, n, |shape| shape.p50), why);
        put("response p99", "s", &|s| situation.closed_time(s, n, |shape| shape.p99), why);
    }
    if let Some(rate) = situation.rate {
        let over = match situation.failed_at(rate) {
            Some(fails) => format!("the run failed at {}/s offered", format_si(fails)),
            None => "the offered rate is beyond the capacity: the queue grows as long as the load lasts".to_string(),
        };
        let over = over.as_str();
        put("throughput", "1/s", &|s| Some(rate.min(s.capacity_per_sec(cold))), "");
        put("utilisation", "ratio", &|s| Some(s.open_utilisation(rate, cold)), "");
        put("response mean", "s", &|s| Some(situation.queue(s, rate)?.response_s + s.path_s), over);
        for (name, quantile) in [("response p50", 0.5), ("response p99", 0.99)] {
            let time = |s: &Server| {
                let queue = situation.queue(s, rate)?;
                Some(open_points::quantile_s(s, &queue, situation.delay_s, situation.shapes[0], quantile))
            };
            put(name, "s", &time, over);
        }
    }
    if server.form != Form::Usl {
        let rate_at = |s: &Server| Some(criteria.saturation_ratio * s.capacity_per_sec(cold));
        put("plan for", "1/s", &rate_at, "");
        put("breaks at", "1/s", &|s| Some(s.capacity_per_sec(cold) / criteria.goodput_ratio), "");
        put("capacity", "1/s", &|s| Some(s.capacity_per_sec(cold)), "");
    }
    put(
        "yield point",
        "connections",
        &|s| s.yield_connections(criteria.elastic_gain_ratio, cold),
        "not below 1M connections",
    );
    let limit_s = criteria.p99_limit_ns as f64 * 1e-9;
    let late = |s: &Server| {
        first(1.0, 1e6, |n| situation.closed_time(s, n, |shape| shape.p99).is_some_and(|p99| p99 > limit_s))
    };
    put("failure point", "connections", &late, "no response time beyond the limit below 1M connections");
    Ok(PredictedAnswer {
        question: question_words(&situation),
        numbers,
        bottleneck: bottleneck(&situation, &server, too_far.is_some_and(|(_, load)| load || !asks_for_load)),
        assumptions,
    })
}

pub(super) fn pick(shapes: &[Option<Shape>; 2], server: &Server, state: &LoadedServer, ratio: f64) -> Option<Shape> {
    let is_full = server.is_full(state.throughput_per_sec, state.utilisation * server.cpus, ratio);
    shapes[usize::from(is_full)]
}

/// A question in the models' units.
struct Situation<'a> {
    readings: &'a Readings,
    question: &'a WhatIf,
    shapes: [Option<Shape>; 2],
    costs: &'a CostEffect,
    connections: Option<f64>,
    /// Offered rate, requests per second.
    rate: Option<f64>,
    cpus: Option<f64>,
    cold: f64,
    delay_s: f64,
}

pub(super) fn shapes(readings: &Readings, server: &Server) -> [Option<Shape>; 2] {
    let ratio = readings.criteria.saturation_ratio;
    let is_full = |reading: &ModelPoint| server.is_full(reading.throughput_per_sec, reading.busy_cpus, ratio);
    [false, true].map(|wanted| shape(&readings.closed, is_full, wanted))
}

impl<'a> Situation<'a> {
    fn new(
        readings: &'a Readings,
        question: &'a WhatIf,
        shapes: [Option<Shape>; 2],
        costs: &'a CostEffect,
    ) -> Situation<'a> {
        let number = |count: Option<u64>| count.map(|count| count as f64);
        Situation {
            readings,
            question,
            shapes,
            costs,
            connections: number(question.connections),
            rate: question.rate_per_sec.or(question.rate_times.map(|times| times * readings.highest_per_sec())),
            cpus: number(question.cpus),
            cold: number(question.cold).unwrap_or(0.0),
            delay_s: question.delay_ns.unwrap_or(0) as f64 / 1e9,
        }
    }

    fn change(&self, server: &Server) -> Server {
        let mut changed = *server;
        for cost_s in [&mut changed.base_s, &mut changed.growth_s, &mut changed.doubling_s] {
            *cost_s *= self.costs.demand_ratio();
        }
        changed.cpus = self.cpus.unwrap_or(server.cpus);
        changed.path_s += self.delay_s;
        if self.question.scaled_select {
            changed.cold_growth_s = 0.0;
        }
        changed
    }

    /// The rate at which the run failed, if the question asks about the unchanged server at that rate or more.
    fn failed_at(&self, rate: f64) -> Option<f64> {
        let WhatIf { cpus, cold, scaled_select, cheaper, mix, .. } = self.question;
        let is_same = (cpus, cold, scaled_select) == (&None, &None, &false) && self.delay_s == 0.0;
        let is_same = is_same && cheaper.is_empty() && mix.is_empty();
        open_points::fails_at(self.readings).filter(|fails| is_same && rate >= *fails)
    }

    /// Refuses loads far beyond the measured ones, with a sentence. The flag: whether the requested load was measured.
    fn too_far(&self, server: &Server) -> Option<(String, bool)> {
        let (highest, cold) = (self.readings.highest_per_sec(), self.cold);
        let changed = self.change(server);
        let more = (changed.cpus / server.cpus).max(1.0) / self.costs.mix_ratio().min(1.0);
        let asked = match (self.connections, self.rate) {
            (Some(n), _) => changed.closed(n, cold).throughput_per_sec,
            (None, Some(rate)) => rate.min(changed.capacity_per_sec(cold)),
            (None, None) => 0.0,
        };
        let words = |what: &str, rate: f64| {
            format!(
                "{what} would be {}/s, more than {REACH:.0} times the highest throughput measured ({}/s): measure \
                 higher loads",
                format_si(rate),
                format_si(highest)
            )
        };
        if asked > REACH * highest * more {
            return Some((words("the throughput", asked), true));
        }
        let capacity = changed.capacity_per_sec(cold);
        (server.form != Form::Usl && capacity > REACH * highest * more)
            .then(|| (words("the capacity of the CPUs", capacity), false))
    }

    fn queue(&self, server: &Server, rate: f64) -> Option<Queue> {
        if self.failed_at(rate).is_some() {
            return None;
        }
        server.open_queue(rate, self.cold)
    }

    /// A quantile of the response time: Little's law gives the cycle, the measured shape gives the distribution, and
    /// a longer path shifts it.
    fn closed_time(&self, server: &Server, n: f64, part: impl Fn(&Shape) -> f64) -> Option<f64> {
        let (state, cycle_s) = server.cycle(n, self.cold);
        let shape = pick(&self.shapes, server, &state, self.readings.criteria.saturation_ratio)?;
        Some((cycle_s - self.delay_s) * shape.mean * part(&shape) + self.delay_s)
    }
}

/// Refuses questions that the data cannot answer, and returns the assumptions for others.
fn refuse(situation: &Situation<'_>, server: &Server) -> Result<Vec<String>, Refused> {
    let Situation { readings, question, cold, delay_s, .. } = *situation;
    let no = |words: &str| Err(Refused(words.into()));
    let asks_for_structure = question.cpus.is_some()
        || delay_s > 0.0
        || situation.rate.is_some()
        || question.scaled_select
        || !question.cheaper.is_empty()
        || !question.mix.is_empty();
    if server.form == Form::Usl && asks_for_structure {
        return no("these points fit the Universal Scalability Law, which has no CPUs, paths or open loops: only \
                   --connections can be answered");
    }
    if delay_s > 0.0 && readings.reconnects {
        return no("--round-trip needs a run without --requests-per-connection: no model includes the round trips of \
             connecting");
    }
    let mut colds: Vec<f64> = readings.closed.iter().map(|reading| reading.cold).collect();
    colds.sort_by(f64::total_cmp);
    colds.dedup();
    if question.cold.is_some() && colds.len() < 2 {
        return no(
            "--cold needs runs with different numbers of cold connections: measure one with find --cold and give both \
                   runs",
        );
    }
    if question.scaled_select && server.cold_growth_s <= 0.0 {
        return no(
            "--scaled-select needs runs in which a request costs more with cold connections: measure one with find \
                   --cold and give both runs, or try it with straingauge scale",
        );
    }
    let stays = if question.mix.is_empty() {
        "the mix of requests and the machine's speed stay as measured"
    } else {
        "the machine's speed stays as measured"
    };
    let mut assumed = vec![stays.to_string()];
    match server.limit_per_sec.filter(|_| server.is_limited(cold)) {
        Some(limit) => assumed.push(format!(
            "the limit of {}/s, which is not a CPU limit, stays as measured; more CPUs do not raise it",
            format_si(limit)
        )),
        None if server.form == Form::Usl => {
            assumed.push("the throughput law also holds beyond the measured loads, up to the limit of the CPUs".into());
        }
        None => assumed.push(format!(
            "only the CPU limits the server above {}/s, the highest measured throughput: other limits are not visible \
             below their knee",
            format_si(readings.highest_per_sec())
        )),
    }
    if let Some(cpus) = situation.cpus {
        assumed.push("the CPUs do not contend with each other (only one number of CPUs was measured)".into());
        if let Some(workers) = readings.workers {
            let words = count(workers.count as u64, workers.kind);
            assumed.push(format!("{words} did nearly all of the work: their number grows with that of the CPUs"));
        } else if cpus > readings.parallel_cpus {
            assumed.push(format!("the server keeps {cpus} CPUs busy as it did {}", readings.parallel_cpus));
        }
        if let Some(quota) = readings.quota_cpus.filter(|quota| *quota < cpus) {
            assumed.push(format!("the server's CPU time limit of {quota} CPUs is raised to {cpus}"));
        }
        assumed.push("the network and the client keep up".into());
    }
    if delay_s > 0.0 {
        assumed.push("a longer path costs no server CPU time, and bandwidth and windows suffice".into());
    }
    if situation.rate.is_some() {
        assumed.push("requests arrive independently (a Poisson process) on open connections".into());
        assumed.push("the variance of service times is that fitted to the closed loop".into());
        if server.is_limited(cold) {
            let words = "requests do not queue for the limit other than the CPU: near it, response times are longer";
            assumed.push(words.into());
        }
    }
    let most_cold = colds.last().copied().unwrap_or(0.0);
    if cold > 2.0 * most_cold {
        assumed.push(format!("the cost grows in a straight line from {most_cold:.0} to {cold:.0} cold connections"));
    }
    if question.scaled_select {
        assumed.push("all cost that grows with cold connections is that of select or poll".into());
    }
    let highest = readings.closed.iter().map(|reading| reading.load).fold(0.0, f64::max);
    if situation.connections.is_some_and(|n| n > 2.0 * highest) {
        assumed.push(format!("the trend up to {highest:.0} connections continues beyond them"));
    }
    assumed.push("response times have the measured distribution around their mean".into());
    Ok(assumed)
}

fn question_words(situation: &Situation<'_>) -> String {
    let question = situation.question;
    let mut parts: Vec<String> = question.connections.iter().map(|n| count(*n, "connection")).collect();
    if let Some(rate) = situation.rate {
        parts.push(format!("{}/s offered", format_si(rate)));
    }
    if let Some(cpus) = question.cpus {
        parts.push(if cpus == 1 { "1 CPU".into() } else { format!("{cpus} CPUs") });
    }
    if situation.delay_s > 0.0 {
        parts.push(format!("{} more delay", record::units::format_nanos(situation.delay_s * 1e9)));
    }
    if question.cold.is_some() {
        parts.push(format!("{} cold connections", record::units::grouped(situation.cold)));
    }
    if question.scaled_select {
        parts.push("scalable select".into());
    }
    for (name, share) in &question.cheaper {
        parts.push(format!("{} {:.0} % cheaper", record::text::plain(name, 60), share * 100.0));
    }
    if !question.mix.is_empty() {
        let shares: Vec<String> = question
            .mix
            .iter()
            .map(|(class, share)| format!("{} {:.1} %", record::text::plain(class, 60), share * 100.0))
            .collect();
        parts.push(format!("a mix of {}", shares.join(", ")));
    }
    if parts.is_empty() { "as measured".into() } else { parts.join(", ") }
}

fn bottleneck(situation: &Situation<'_>, server: &Server, is_too_far: bool) -> String {
    if is_too_far {
        return "not known: no load near the server's limit was measured".into();
    }
    if server.form == Form::Usl {
        return "not known: the law that fits these points describes only throughput".into();
    }
    let (changed, cold) = (situation.change(server), situation.cold);
    let capacity = changed.capacity_per_sec(cold);
    let (rate, busy) = match (situation.connections, situation.rate) {
        (Some(n), _) => {
            let state = changed.closed(n, cold);
            (state.throughput_per_sec, state.utilisation)
        }
        (None, rate) => {
            let rate = rate.unwrap_or(capacity).min(capacity);
            (rate, changed.open_utilisation(rate, cold))
        }
    };
    let what = if changed.cpus <= 1.0 { "the server's CPU" } else { "the server's CPUs" };
    let full = situation.readings.criteria.saturation_ratio;
    if changed.is_limited(cold) && rate >= full * capacity {
        format!(
            "a limit of {}/s other than the CPU (threads, a pool, a lock, a rate limit, the client, other work): \
             {what} {} busy",
            format_si(capacity),
            percent(busy)
        )
    } else if busy >= full {
        format!("{what}: {} busy", percent(busy))
    } else {
        format!("none: {what} would be {} busy; the path limits a single connection", percent(busy))
    }
}
