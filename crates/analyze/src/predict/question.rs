//! What-ifs: other loads, more CPUs, a longer path, cold connections. Questions that the data cannot answer are
//! refused.

use super::cheaper::Cheaper;
use super::check::{ModelChoice, interval, typicals};
use super::demand::{Shape, shape};
use super::mix::Mix;
use super::open::Queue;
use super::open_points;
use super::readings::{ModelPoint, Readings};
use super::server::{Form, LoadedServer, Server, first};
use crate::Refused;
use record::Estimate;
use record::units::{count, format_si, percent};
use serde::Serialize;

/// Rates above this multiple of the highest measured one are not predicted, for each CPU.
const REACH: f64 = 10.0;

/// The rate of a question.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, schemars::JsonSchema)]
pub enum Rate {
    /// Requests per second.
    PerSec(f64),
    /// A multiple of the highest throughput of the run.
    Times(f64),
}

/// A question. The default asks about the server as it was measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Question {
    /// Number of CPUs for the server.
    pub cpus: Option<f64>,
    /// Rate of an open loop.
    pub rate: Option<Rate>,
    /// Connections of a closed loop.
    pub connections: Option<f64>,
    /// Time added to each round trip of the path, seconds.
    pub delay_s: f64,
    /// Cold connections during the load.
    pub cold: Option<f64>,
    /// Whether scalable select removes all cost that grows with idle connections.
    pub scaled_select: bool,
    /// Layers and functions that become cheaper: name, and saved share of the cost.
    pub cheaper: Vec<(String, f64)>,
    /// Another mix: shares by class label, or class number from 1 on. Empty = as measured.
    pub mix: Vec<(String, f64)>,
}

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
pub struct Answer {
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
    pub mix: Option<Mix>,
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
    question: &Question,
    costs: &CostEffect,
) -> Result<Answer, Refused> {
    let server = choice.server;
    let mut assumptions = refuse(readings, &server, question)?;
    assumptions.extend(costs.assumptions());
    let situation = Situation { readings, question, shapes: shapes(readings, &server), costs };
    let mut numbers = Vec::new();
    let cold = question.cold.unwrap_or(0.0);
    let too_far = situation.too_far(&server);
    let asks_for_load = question.connections.is_some() || question.rate.is_some();
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
    if let Some(n) = question.connections {
        put("throughput", "1/s", &|s| Some(s.closed(n, cold).throughput_per_sec), "");
        if server.form != Form::Usl {
            put("utilisation", "ratio", &|s| Some(s.closed(n, cold).utilisation), "");
        }
        let why = "the points have no response times";
        put("response mean", "s", &|s| situation.closed_time(s, n, |_| 1.0), why);
        put("response p50", "s", &|s| situation.closed_time(s, n, |shape| shape.p50), why);
        put("response p99", "s", &|s| situation.closed_time(s, n, |shape| shape.p99), why);
    }
    if let Some(rate) = situation.rate() {
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
                Some(open_points::quantile_s(s, &queue, question.delay_s, situation.shapes[0], quantile))
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
    Ok(Answer {
        question: question_words(question, situation.rate()),
        numbers,
        bottleneck: bottleneck(&situation, &server, too_far.is_some_and(|(_, load)| load || !asks_for_load)),
        assumptions,
    })
}

pub(super) fn pick(shapes: &[Option<Shape>; 2], server: &Server, state: &LoadedServer, ratio: f64) -> Option<Shape> {
    let is_full = server.is_full(state.throughput_per_sec, state.utilisation * server.cpus, ratio);
    shapes[usize::from(is_full)]
}

struct Situation<'a> {
    readings: &'a Readings,
    question: &'a Question,
    shapes: [Option<Shape>; 2],
    costs: &'a CostEffect,
}

pub(super) fn shapes(readings: &Readings, server: &Server) -> [Option<Shape>; 2] {
    let ratio = readings.criteria.saturation_ratio;
    let is_full = |reading: &ModelPoint| server.is_full(reading.throughput_per_sec, reading.busy_cpus, ratio);
    [false, true].map(|wanted| shape(&readings.closed, is_full, wanted))
}

impl Situation<'_> {
    fn change(&self, server: &Server) -> Server {
        let mut changed = *server;
        for cost_s in [&mut changed.base_s, &mut changed.growth_s, &mut changed.doubling_s] {
            *cost_s *= self.costs.demand_ratio();
        }
        changed.cpus = self.question.cpus.unwrap_or(server.cpus);
        changed.path_s += self.question.delay_s;
        if self.question.scaled_select {
            changed.cold_growth_s = 0.0;
        }
        changed
    }

    fn rate(&self) -> Option<f64> {
        let highest = |readings: &[ModelPoint]| {
            typicals(readings).iter().map(|level| level.throughput_per_sec).fold(0.0, f64::max)
        };
        match self.question.rate? {
            Rate::PerSec(rate) => Some(rate),
            Rate::Times(times) => Some(times * highest(&self.readings.closed).max(highest(&self.readings.open))),
        }
    }

    /// The rate at which the run failed, if the question asks about the unchanged server at that rate or more.
    fn failed_at(&self, rate: f64) -> Option<f64> {
        let Question { rate: asked, connections, .. } = *self.question;
        let is_same = *self.question == Question { rate: asked, connections, ..Question::default() };
        open_points::fails_at(self.readings).filter(|fails| is_same && rate >= *fails)
    }

    /// Refuses loads far beyond the measured ones, with a sentence. The flag: whether the requested load was measured.
    fn too_far(&self, server: &Server) -> Option<(String, bool)> {
        let highest = self.readings.highest_per_sec();
        let cold = self.question.cold.unwrap_or(0.0);
        let changed = self.change(server);
        let more = (changed.cpus / server.cpus).max(1.0) / self.costs.mix_ratio().min(1.0);
        let asked = match (self.question.connections, self.rate()) {
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
        server.open_queue(rate, self.question.cold.unwrap_or(0.0))
    }

    /// A quantile of the response time: Little's law gives the cycle, the measured shape gives the distribution, and
    /// a longer path shifts it.
    fn closed_time(&self, server: &Server, n: f64, part: impl Fn(&Shape) -> f64) -> Option<f64> {
        let (state, cycle_s) = server.cycle(n, self.question.cold.unwrap_or(0.0));
        let shape = pick(&self.shapes, server, &state, self.readings.criteria.saturation_ratio)?;
        Some((cycle_s - self.question.delay_s) * shape.mean * part(&shape) + self.question.delay_s)
    }
}

/// Refuses questions that the data cannot answer, and returns the assumptions for others.
fn refuse(readings: &Readings, server: &Server, question: &Question) -> Result<Vec<String>, Refused> {
    let no = |words: &str| Err(Refused(words.into()));
    let asks_for_structure = question.cpus.is_some()
        || question.delay_s > 0.0
        || question.rate.is_some()
        || question.scaled_select
        || !question.cheaper.is_empty()
        || !question.mix.is_empty();
    if server.form == Form::Usl && asks_for_structure {
        return no("these points fit the Universal Scalability Law, which has no CPUs, paths or open loops: only \
                   --connections can be answered");
    }
    if question.delay_s > 0.0 && readings.reconnects {
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
    match server.limit_per_sec.filter(|_| server.is_limited(question.cold.unwrap_or(0.0))) {
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
    if let Some(cpus) = question.cpus {
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
    if question.delay_s > 0.0 {
        assumed.push("a longer path costs no server CPU time, and bandwidth and windows suffice".into());
    }
    if question.rate.is_some() {
        assumed.push("requests arrive independently (a Poisson process) on open connections".into());
        assumed.push("the variance of service times is that fitted to the closed loop".into());
        if server.is_limited(question.cold.unwrap_or(0.0)) {
            assumed.push(
                "requests do not queue for the limit other than the CPU: near it, response times are \
                    longer"
                    .into(),
            );
        }
    }
    if let Some(cold) = question.cold {
        let most = colds.last().copied().unwrap_or(0.0);
        if cold > 2.0 * most {
            assumed.push(format!("the cost grows in a straight line from {most:.0} to {cold:.0} cold connections"));
        }
    }
    if question.scaled_select {
        assumed.push("all cost that grows with cold connections is that of select or poll".into());
    }
    let highest = readings.closed.iter().map(|reading| reading.load).fold(0.0, f64::max);
    if question.connections.is_some_and(|n| n > 2.0 * highest) {
        assumed.push(format!("the trend up to {highest:.0} connections continues beyond them"));
    }
    assumed.push("response times have the measured distribution around their mean".into());
    Ok(assumed)
}

fn question_words(question: &Question, rate: Option<f64>) -> String {
    let mut parts = Vec::new();
    if let Some(n) = question.connections {
        parts.push(record::units::count(n.round() as u64, "connection"));
    }
    if let Some(rate) = rate {
        parts.push(format!("{}/s offered", format_si(rate)));
    }
    if let Some(cpus) = question.cpus {
        parts.push(if cpus == 1.0 { "1 CPU".into() } else { format!("{cpus} CPUs") });
    }
    if question.delay_s > 0.0 {
        parts.push(format!("{} more delay", record::units::format_nanos(question.delay_s * 1e9)));
    }
    if let Some(cold) = question.cold {
        parts.push(format!("{} cold connections", record::units::grouped(cold)));
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
    let changed = situation.change(server);
    let cold = situation.question.cold.unwrap_or(0.0);
    let capacity = changed.capacity_per_sec(cold);
    let (rate, busy) = match (situation.question.connections, situation.rate()) {
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
