//! Layers and functions that become cheaper: the saved share of a request's CPU time, from the samples of a run's
//! points.

use crate::Refused;
use crate::growth::LAYERS;
use crate::point::{costs_are_of_answers, good_per_sec};
use record::layers::Layer;
use record::point::FunctionCost;
use record::text::plain;
use record::{Pace, Point, RunDir};
use statistics::median;

/// Points with at least this share of the highest throughput are used, because their cost determines the capacity.
const NEAR: f64 = 0.8;
const LISTED: usize = 5;

/// A layer or function that gets cheaper.
#[derive(Debug, Clone, PartialEq)]
pub struct CheaperPart {
    /// Name as asked for.
    pub name: String,
    /// Saved share of its cost.
    pub saved_ratio: f64,
    /// Its cost, microseconds per request.
    pub cost_us: f64,
}

/// Layers and functions that get cheaper, with the CPU time saved.
#[derive(Debug, Clone, PartialEq)]
pub struct Cheaper {
    /// The layers and functions.
    pub parts: Vec<CheaperPart>,
    /// Share of a request's CPU time that all parts save together.
    pub saved_ratio: f64,
    /// Number of points used.
    pub n: usize,
}

impl Cheaper {
    /// Demand of a request as a share of today's.
    pub fn demand_ratio(&self) -> f64 {
        // A request without any cost would have no finite capacity.
        (1.0 - self.saved_ratio).max(0.01)
    }

    /// Describes the assumption behind the numbers.
    pub fn assumption(&self) -> String {
        let part = |part: &CheaperPart| {
            format!("{:.0} % of {:.1} us of {}", part.saved_ratio * 100.0, part.cost_us, plain(&part.name, 60))
        };
        let parts: Vec<String> = self.parts.iter().map(part).collect();
        format!(
            "a request saves {:.1} % of its CPU time ({}; samples of {} points near the highest throughput), and the \
             server gains all of it (find --axis slow-down measures this)",
            self.saved_ratio * 100.0,
            parts.join(", "),
            self.n
        )
    }
}

/// Whether two names mean the same layer or function.
pub fn is_same(a: &str, b: &str) -> bool {
    let name = |text: &str| layer(text).map_or(text.trim().to_string(), |(word, _)| word.to_string());
    name(a) == name(b)
}

/// The requested layers and functions. Layer names are matched without regard to case and hyphens.
pub fn of_run(run: &RunDir, asked: &[(String, f64)]) -> Result<Cheaper, Refused> {
    let no = |words: String| Err(Refused(words));
    let closed = || run.points.iter().filter(|point| point.pace == Pace::Closed && costs_are_of_answers(point));
    let highest = closed().filter_map(good_per_sec).fold(0.0, f64::max);
    let is_near = |point: &&Point| good_per_sec(point).is_some_and(|rate| rate >= NEAR * highest);
    let near: Vec<(&Point, f64)> =
        closed().filter(is_near).filter_map(|point| Some((point, whole_us(point)?))).collect();
    if near.is_empty() {
        return no(
            "--cheaper needs profiled layers, and the points near the highest throughput have none: run find as root \
             on the server's machine"
                .into(),
        );
    }
    let layers: Vec<&str> = asked.iter().filter_map(|(name, _)| Some(layer(name)?.0)).collect();
    let mut parts = Vec::new();
    let mut saved_ratio = 0.0;
    for (name, share) in asked {
        let mut own = near.iter().flat_map(|(point, _)| functions(point, name)).map(layer_of);
        if let Some(whole) = own.find(|own| layer(name).is_none() && layers.contains(own)) {
            return no(format!(
                "--cheaper: '{}' is part of the layer '{}', so its cost would be saved twice: leave one out",
                plain(name, 60),
                as_typed(whole)
            ));
        }
        let costs: Vec<(f64, f64)> =
            near.iter().filter_map(|(point, whole)| Some((cost_us(point, name)?, *whole))).collect();
        let of = |value: fn(&(f64, f64)) -> f64| median(costs.iter().map(value));
        let Some((cost_us, ratio)) = of(|(us, _)| *us).zip(of(|(us, whole)| us / whole)) else {
            return no(unknown(name, &near));
        };
        saved_ratio += share * ratio;
        parts.push(CheaperPart { name: name.trim().to_string(), saved_ratio: *share, cost_us });
    }
    Ok(Cheaper { parts, saved_ratio: saved_ratio.min(1.0), n: near.len() })
}

fn layer(name: &str) -> Option<(&'static str, &'static str)> {
    let simple = |text: &str| text.chars().filter(|c| c.is_alphanumeric()).collect::<String>().to_lowercase();
    LAYERS.into_iter().find(|(word, _)| simple(word) == simple(name))
}

fn whole_us(point: &Point) -> Option<f64> {
    let layers: Option<Vec<f64>> = LAYERS.iter().map(|(_, figure)| point.value(figure)).collect();
    layers.map(|layers| layers.iter().sum()).filter(|whole: &f64| whole.is_finite() && *whole > 0.0)
}

fn cost_us(point: &Point, name: &str) -> Option<f64> {
    if let Some((_, figure)) = layer(name) {
        return point.value(figure);
    }
    functions(point, name).map(|known| known.us_per_request).reduce(|a, b| a + b)
}

fn functions<'p>(point: &'p Point, name: &'p str) -> impl Iterator<Item = &'p FunctionCost> {
    point.functions.iter().filter(move |known| known.function == name.trim())
}

fn layer_of(function: &FunctionCost) -> &'static str {
    function.layer.map_or("unattributed", Layer::word)
}

fn as_typed(layer: &str) -> String {
    layer.to_lowercase().replace(' ', "-")
}

fn unknown(name: &str, near: &[(&Point, f64)]) -> String {
    let mut functions: Vec<String> = Vec::new();
    for function in near.iter().flat_map(|(point, _)| &point.functions) {
        let known = plain(&function.function, 60).to_string();
        if functions.len() < LISTED && !functions.contains(&known) {
            functions.push(known);
        }
    }
    let layers: Vec<String> = LAYERS.iter().map(|(word, _)| as_typed(word)).collect();
    let functions =
        if functions.is_empty() { "none".to_string() } else { format!("{} and others", functions.join(", ")) };
    format!(
        "--cheaper: '{}' is neither a layer ({}) nor one of this run's most expensive functions ({functions})",
        plain(name, 60),
        layers.join(", ")
    )
}
