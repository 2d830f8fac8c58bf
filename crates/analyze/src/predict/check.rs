//! Chooses a model by cross-validation: each level is predicted by a model fitted to the others. A model fitted up to
//! half the yield point must also predict everything beyond.

use super::readings::{Readings, levels, typical, typicals};
use crate::Refused;
use rand::RngExt;
use serde::Serialize;
use statistics::server::{Form, ModelPoint, Server, fit};
use statistics::{interval_of, median, random};

/// A model passes if half of its cross-validated throughputs have at most this error,
pub const MEDIAN_ERROR: f64 = 0.10;
/// and none has a larger error than this,
pub const LARGEST_ERROR: f64 = 0.30;
/// and half of its cross-validated demands have at most this error.
pub const DEMAND_ERROR: f64 = 0.20;
/// Weight of a demand's error relative to that of a throughput, as in the fit.
const DEMAND_WEIGHT: f64 = 0.7;
/// Smaller differences of errors never count.
const LEAST_TIE: f64 = 0.01;
/// Larger differences always count.
const MOST_TIE: f64 = 0.05;
/// The difference that counts for extrapolation, where errors are larger.
const FAR_TIE: f64 = 0.003;
/// The difference that counts if no load was measured twice.
const UNKNOWN_TIE: f64 = 0.02;
/// Number of bootstrap resamples.
pub const RESAMPLES: usize = 1000;
/// Largest difference of predictions for the low loads at which models count as equal there.
const ALIKE_ERROR: f64 = 0.03;
const EVALUATIONS: usize = 400;
const SEED: u64 = 0x5052;

/// The errors of a model on points that it was not fitted to.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Check {
    /// Model that was checked.
    pub form: Form,
    /// Number of fitted parameters.
    pub parameters: usize,
    /// Median over the levels of |predicted / measured - 1|, each level predicted from the others.
    pub median_error_ratio: Option<f64>,
    /// Largest error of a level's throughput, |predicted / measured - 1|.
    pub largest_error_ratio: Option<f64>,
    /// Load with the largest error.
    pub worst_load: Option<f64>,
    /// Median over the levels of the demand's error, |predicted / measured - 1|; absent for the law of throughput,
    /// which has no demand.
    pub median_demand_error_ratio: Option<f64>,
    /// Root mean square of the throughputs' and demands' errors; the model with the smallest one is chosen.
    pub rms_error_ratio: Option<f64>,
    /// Root mean square of the throughputs' errors.
    pub rms_throughput_error_ratio: Option<f64>,
    /// Whether the model passed the check and may be used.
    pub is_offered: bool,
    /// Reason why the model did not pass; absent if it passed.
    pub refused: Option<String>,
}

/// Predictions for the higher loads by a model that was fitted up to half the yield point.
#[derive(Debug, Clone, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Extrapolation {
    /// Model that cross-validation on the low loads chose; absent if none could be fitted.
    pub form: Option<Form>,
    /// The server fitted to the low levels.
    #[serde(skip)]
    pub server: Option<Server>,
    /// Levels up to half the yield point.
    pub levels: usize,
    /// Highest load that the models were fitted to.
    pub up_to_load: f64,
    /// (load, measured, predicted) throughput of each higher level.
    pub beyond: Vec<(f64, f64, f64)>,
    /// Median of |predicted / measured - 1| over the higher levels.
    pub median_error_ratio: Option<f64>,
    /// Whether the yield point that separates the loads was measured, not predicted.
    pub yield_is_measured: bool,
    /// Measured and predicted yield point, connections; absent if none was measured.
    pub yield_connections: Option<(f64, Option<f64>)>,
    /// Lowest and highest yield point of the models that fit the low loads about equally well.
    pub yield_range: Option<(f64, f64)>,
    /// Lowest and highest CPU time of a request on a full CPU by these models, seconds.
    pub demand_range_s: Option<(f64, f64)>,
    /// Busy share of the CPUs at the highest of the low loads; higher shares are extrapolated.
    pub most_busy_ratio: Option<f64>,
    /// Why the extrapolation was impossible or is unreliable; absent if neither.
    pub doubt: Option<String>,
}

/// The chosen model and the checks.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelChoice {
    /// The model fitted to all levels.
    pub server: Server,
    /// Every model's check.
    pub checks: Vec<Check>,
    /// All queueing models whose errors on these points equal those of the chosen one within the scatter, including
    /// it.
    pub alike: Vec<Server>,
}

/// The smallest significant difference of errors: the standard error of a level's median throughput.
fn tie(readings: &[ModelPoint]) -> f64 {
    let (mut squares, mut freedom, mut counts) = (0.0, 0usize, Vec::new());
    for level in levels(readings).iter().filter(|level| level.len() > 1) {
        let logs: Vec<f64> = level.iter().map(|reading| reading.throughput_per_sec.ln()).collect();
        let mean = logs.iter().sum::<f64>() / logs.len() as f64;
        squares += logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>();
        freedom += logs.len() - 1;
        counts.push(logs.len() as f64);
    }
    // A median's standard error is 1.25 times that of a mean.
    let error = median(&counts).map(|n| 1.25 * (squares / freedom as f64).sqrt() / n.sqrt());
    error.filter(|error| error.is_finite()).map_or(UNKNOWN_TIE, |error| error.clamp(LEAST_TIE, MOST_TIE))
}

fn is_near(error: f64, least: f64, tie: f64) -> bool {
    error <= (least * 1.1).max(least + tie)
}

/// Fits the model with the smallest error; of those within the scatter, the one with the fewest parameters. The law
/// of throughput is chosen only if it is clearly better than every queueing model.
pub fn choose(readings: &[ModelPoint], cpus: f64) -> Result<ModelChoice, Refused> {
    let levels = typicals(readings);
    enough(&levels, "closed-loop")?;
    let checks: Vec<Check> = Form::ALL.into_iter().map(|form| check(form, &levels, cpus)).collect();
    let tie = tie(readings);
    let error = |check: &Check| check.rms_error_ratio.unwrap_or(f64::INFINITY);
    let queues = || checks.iter().filter(|check| check.is_offered && check.form != Form::Usl);
    let least = queues().map(error).fold(f64::INFINITY, f64::min);
    let near: Vec<&Check> = queues().filter(|check| is_near(error(check), least, tie)).collect();
    let queue =
        near.iter().copied().min_by(|a, b| a.parameters.cmp(&b.parameters).then_with(|| error(a).total_cmp(&error(b))));
    let of_rate = |check: &Check| check.rms_throughput_error_ratio.unwrap_or(f64::INFINITY);
    let law = checks.iter().find(|check| check.is_offered && check.form == Form::Usl);
    let law = law.filter(|law| queue.is_none_or(|queue| !is_near(of_rate(queue), of_rate(law), tie)));
    let fitted = |check: &Check| fit(check.form, &levels, cpus, EVALUATIONS * 5);
    match law.or(queue).and_then(fitted) {
        Some(server) if server.form == Form::Usl => Ok(ModelChoice { server, checks, alike: Vec::new() }),
        Some(server) => {
            let alike = near.iter().filter(|check| check.form != server.form).filter_map(|check| fitted(check));
            let alike = std::iter::once(server).chain(alike).collect();
            Ok(ModelChoice { server, checks, alike })
        }
        None => {
            let best = checks.iter().filter_map(|check| Some((check.median_error_ratio?, check)));
            let words = best.min_by(|a, b| a.0.total_cmp(&b.0)).map_or_else(
                || "no model could be fitted; measure more loads".to_string(),
                |(median, check)| {
                    format!(
                        "the best, '{}', is {:.0} % off at the median in the throughput of levels and {:.0} % at \
                         most{}; measure on a quieter machine, with more repeats",
                        check.form.word(),
                        median * 100.0,
                        check.largest_error_ratio.unwrap_or(median) * 100.0,
                        check.median_demand_error_ratio.map_or(String::new(), |error| {
                            format!(", {:.0} % at the median in their demand", error * 100.0)
                        })
                    )
                },
            );
            Err(Refused(format!("no model passed the check on this run's own points: {words}")))
        }
    }
}

/// Refuses too few levels, and levels at a single load. `kind` of loop: `closed-loop` or `open-loop`.
pub fn enough(levels: &[ModelPoint], kind: &str) -> Result<(), Refused> {
    let mut loads: Vec<f64> = levels.iter().map(|level| level.load).collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    match loads[..] {
        [load] => {
            let load = match kind {
                "open-loop" => format!("{}/s", record::units::format_si(load)),
                _ => record::units::count(load as u64, "connection"),
            };
            Err(Refused(format!(
                "all points are at one load, {load}: a model needs at least 3 loads; measure a sweep with find"
            )))
        }
        [] | [_, _] => Err(Refused(format!(
            "{} {kind} loads are too few for a model (at least 3): measure more with find",
            loads.len()
        ))),
        _ => Ok(()),
    }
}

fn check(form: Form, levels: &[ModelPoint], cpus: f64) -> Check {
    let mut errors: Vec<(f64, f64)> = Vec::new();
    let mut demands: Vec<f64> = Vec::new();
    let (mut failed, mut limited) = (0, 0);
    for left in 0..levels.len() {
        let others: Vec<ModelPoint> =
            levels.iter().enumerate().filter(|(at, _)| *at != left).map(|(_, level)| *level).collect();
        match fit(form, &others, cpus, EVALUATIONS) {
            Some(server) => {
                let level = levels[left];
                let state = server.closed(level.load, level.cold);
                limited += usize::from(server.is_limited(level.cold));
                errors.push((level.load, (state.throughput_per_sec / level.throughput_per_sec - 1.0).abs()));
                demands.extend((form != Form::Usl).then_some((state.demand_s / level.demand_s - 1.0).abs()));
            }
            None => failed += 1,
        }
    }
    let values: Vec<f64> = errors.iter().map(|(_, error)| *error).collect();
    let median_error_ratio = median(&values);
    let worst = errors.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
    let mean_square = |values: &[f64]| values.iter().map(|e| e * e).sum::<f64>() / values.len().max(1) as f64;
    let rms_of = |square: f64| (!values.is_empty()).then(|| square.sqrt());
    let rms = rms_of(mean_square(&values) + DEMAND_WEIGHT * DEMAND_WEIGHT * mean_square(&demands));
    let median_demand = median(&demands);
    let refused = match (median_error_ratio, worst) {
        _ if failed > 0 => Some("too few levels, or no fit".to_string()),
        (Some(median), _) if median > MEDIAN_ERROR => Some(format!("median above {:.0} %", MEDIAN_ERROR * 100.0)),
        (_, Some((_, worst))) if worst > LARGEST_ERROR => Some(format!("largest above {:.0} %", LARGEST_ERROR * 100.0)),
        // The demand does not matter if something other than the CPU limits the server.
        _ if 2 * limited < levels.len() && median_demand.is_some_and(|median| median > DEMAND_ERROR) => {
            Some(format!("median of demand above {:.0} %", DEMAND_ERROR * 100.0))
        }
        (None, _) => Some("no level could be predicted".to_string()),
        _ => None,
    };
    Check {
        form,
        parameters: form.parameters(),
        median_error_ratio,
        largest_error_ratio: worst.map(|(_, error)| error),
        worst_load: worst.map(|(load, _)| load),
        median_demand_error_ratio: median_demand,
        rms_error_ratio: rms,
        rms_throughput_error_ratio: rms_of(mean_square(&values)),
        is_offered: refused.is_none(),
        refused,
    }
}

/// Forms by how well they extrapolate, best first. The error is that of fits to the lowest levels at the higher
/// levels. Below saturation forms differ only in the demand. The simplest form within a tenth of the best comes
/// first.
fn farsighted(low: &[ModelPoint], cpus: f64) -> Vec<(f64, Form)> {
    // Loads far below saturation do not distinguish the others.
    let forms = Form::ALL.into_iter().filter(|form| !matches!(form, Form::BackgroundGrowing | Form::Usl));
    let errors = |form: Form| {
        let begun = (low.len() / 2).max(form.parameters().div_ceil(2) + 1);
        let errors: Vec<f64> = (begun..low.len())
            .filter_map(|count| Some((count, fit(form, &low[..count], cpus, EVALUATIONS)?)))
            .flat_map(|(count, server)| low[count..].iter().map(move |level| (server, level)))
            .map(|(server, level)| {
                let state = server.closed(level.load, level.cold);
                let rate = (state.throughput_per_sec / level.throughput_per_sec).ln();
                rate.powi(2) + (state.demand_s / level.demand_s).ln().powi(2)
            })
            .collect();
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        mean.is_finite().then(|| mean.sqrt())
    };
    let mut checked: Vec<(f64, Form)> = forms.filter_map(|form| Some((errors(form)?, form))).collect();
    checked.sort_by(|a, b| a.0.total_cmp(&b.0));
    let least = checked.first().map_or(0.0, |(error, _)| *error);
    let near = checked.iter().enumerate().filter(|(_, (error, _))| is_near(*error, least, FAR_TIE));
    if let Some((at, _)) = near.min_by_key(|(_, (_, form))| form.parameters()) {
        let chosen = checked.remove(at);
        checked.insert(0, chosen);
    }
    checked
}

fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    statistics::range(values.filter(|value| value.is_finite()))
}

/// Fits to the levels up to half of the yield point and predicts the others. If no yield point was measured, that of
/// the model is used.
pub fn extrapolate(
    readings: &Readings,
    measured_yield: Option<f64>,
    predicted_yield: Option<f64>,
) -> Option<Extrapolation> {
    let (cpus, gain) = (readings.parallel_cpus, readings.criteria.elastic_gain_ratio);
    let yields = measured_yield.or(predicted_yield)?;
    let levels = typicals(&readings.closed);
    let (low, beyond): (Vec<ModelPoint>, Vec<ModelPoint>) = levels.iter().partition(|level| level.load <= yields / 2.0);
    let mut found = Extrapolation {
        levels: low.len(),
        up_to_load: low.last().map_or(0.0, |level| level.load),
        yield_is_measured: measured_yield.is_some(),
        ..Extrapolation::default()
    };
    if low.len() < 3 {
        found.doubt = Some(format!(
            "only {} of the loads are at most half the yield point ({yields:.1} connections{}), and a model needs \
             three: on such a short path the server saturates at once, so the models use points beyond it",
            low.len(),
            if found.yield_is_measured { "" } else { "by the model, because none was measured" }
        ));
        return Some(found);
    }
    let seen = farsighted(&low, cpus);
    let Some(form) = seen.first().map(|(_, form)| *form) else {
        found.doubt = Some("no model could be fitted to the low loads".into());
        return Some(found);
    };
    let as_good = seen.iter().filter(|(error, _)| *error <= ALIKE_ERROR.max(seen[0].0 * 1.5));
    let as_good: Vec<Server> = as_good.filter_map(|(_, form)| fit(*form, &low, cpus, EVALUATIONS * 5)).collect();
    found.yield_range = range(as_good.iter().filter_map(|server| server.yield_connections(gain, 0.0)));
    found.demand_range_s = range(as_good.iter().map(|server| cpus / server.capacity_per_sec(0.0)));
    found.most_busy_ratio = range(low.iter().map(|level| level.busy_cpus / cpus)).map(|(_, most)| most);
    let server = fit(form, &low, cpus, EVALUATIONS * 5)?;
    let predicted = |level: &ModelPoint| server.closed(level.load, level.cold).throughput_per_sec;
    (found.form, found.server) = (Some(form), Some(server));
    found.beyond = beyond.iter().map(|level| (level.load, level.throughput_per_sec, predicted(level))).collect();
    let errors: Vec<f64> =
        found.beyond.iter().map(|(_, measured, predicted)| (predicted / measured - 1.0).abs()).collect();
    found.median_error_ratio = median(&errors);
    found.yield_connections = measured_yield.map(|measured| (measured, server.yield_connections(gain, 0.0)));
    if found.beyond.is_empty() {
        let of_whom = if found.yield_is_measured { "" } else { " of the model (none was measured)" };
        found.doubt = Some(format!(
            "all {} loads are at most half the yield point{of_whom}: no higher load checks the model",
            found.levels
        ));
    }
    let worst = found.beyond.iter().zip(&errors).max_by(|a, b| a.1.total_cmp(b.1));
    if let (Some(median), Some(((load, ..), largest))) = (found.median_error_ratio, worst)
        && (median > MEDIAN_ERROR || *largest > LARGEST_ERROR)
    {
        found.doubt = Some(format!(
            "loads up to half the yield point do not show how this server behaves above it: a model fitted to them is \
             {:.0} % off at {} connections",
            largest * 100.0,
            record::units::grouped(*load)
        ));
    }
    Some(found)
}

/// Servers fitted to resampled points, drawn with replacement within each level. A level with one point is moved by
/// the scatter of the others. Deterministic.
pub fn resampled(readings: &[ModelPoint], server: &Server, resamples: usize) -> Vec<Server> {
    let groups = levels(readings);
    let mut random = random(SEED);
    let scatter: Vec<f64> = groups
        .iter()
        .flat_map(|level| {
            let middle = typical(level).throughput_per_sec;
            level.iter().filter(|_| level.len() > 1).map(move |r| (r.throughput_per_sec / middle).ln())
        })
        .collect();
    (0..resamples)
        .filter_map(|_| {
            let drawn: Vec<ModelPoint> = groups
                .iter()
                .map(|level| {
                    let mut pick = || level[random.random_range(0..level.len())];
                    let drawn: Vec<ModelPoint> = (0..level.len()).map(|_| pick()).collect();
                    let mut middle = typical(&drawn);
                    if level.len() == 1 && !scatter.is_empty() {
                        middle.throughput_per_sec *= scatter[random.random_range(0..scatter.len())].exp();
                    }
                    middle
                })
                .collect();
            fit(server.form, &drawn, server.cpus, 60)
        })
        .collect()
}

/// The interval of a quantity over resampled servers; `None` if a tenth of them has no value.
pub fn interval(servers: &[Server], confidence: f64, value: impl Fn(&Server) -> Option<f64>) -> Option<(f64, f64)> {
    let values: Vec<f64> = servers.iter().filter_map(value).filter(|value| value.is_finite()).collect();
    if servers.is_empty() || values.len() * 10 < servers.len() * 9 {
        return None;
    }
    interval_of(&values, confidence)
}
