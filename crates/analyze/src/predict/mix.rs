//! Another mix of requests: finds the demand of each class from runs with different mixes, and the cost of the asked
//! mix.
//!
//! Each run gives one equation: the demand of its mean request is the sum over classes of share times demand. As many
//! runs with different mixes as classes determine the demands; more runs are fitted by least squares (singular value
//! decomposition). Webmonitor separated its classes for the same reason: a mean is useless if a few sizes are a
//! thousand times larger than the others.

use super::readings::{read, typicals};
use crate::Refused;
use nalgebra::{DMatrix, DVector};
use record::text::plain;
use record::workload::Grouping;
use record::{RunDir, Sweep};
use serde::Serialize;
use statistics::server::ModelPoint;

/// Mixes whose smallest singular value is a smaller share of the largest cannot separate classes.
const ALIKE: f64 = 0.02;
const MAX_CLASSES: usize = 64;

/// The cost of another mix.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct MixCost {
    /// Class, asked share, and demand of a request in seconds. Labels are untrusted text.
    pub classes: Vec<(String, f64, f64)>,
    /// Demand of the asked mix as a multiple of that of the first run.
    pub demand_ratio: f64,
}

/// The classes' mean shares in the closed loop of a run, and the demand of a request at loads that all runs measured.
struct RunMix {
    labels: Vec<String>,
    shares: Vec<f64>,
    levels: Vec<ModelPoint>,
}

/// The cost of the asked mix. Classes are named by label, or by number from 1 on.
pub fn of_runs(runs: &[RunDir], asked: &[(String, f64)]) -> Result<MixCost, Refused> {
    let no = |words: String| Err(Refused(words));
    let rows = runs.iter().map(row).collect::<Result<Vec<RunMix>, _>>()?;
    let first = &rows[0];
    let labels = &first.labels;
    if labels.is_empty() || rows.iter().any(|row| row.labels != *labels) {
        return no("--class-shares needs runs of one workload with the same classes (find --mix)".into());
    }
    let mut wanted = vec![0.0; labels.len()];
    for (name, share) in asked {
        let number = name.trim().parse::<usize>().ok().filter(|number| (1..=labels.len()).contains(number));
        let Some(at) = labels.iter().position(|label| label == name.trim()).or(number.map(|number| number - 1)) else {
            let known: Vec<String> =
                labels.iter().enumerate().map(|(at, label)| format!("{} = '{}'", at + 1, plain(label, 60))).collect();
            return no(format!("'{}' is not a class of these runs; they have {}", plain(name, 60), known.join(", ")));
        };
        wanted[at] += share;
    }
    if rows.len() < labels.len() {
        return no(format!(
            "--class-shares with {} classes needs {} runs with different mixes (given: {}): measure more with find",
            labels.len(),
            labels.len(),
            rows.len()
        ));
    }
    let demands = rows.iter().map(|row| demand_in_common(row, &rows)).collect::<Option<Vec<f64>>>();
    let Some(demands) = demands else {
        return no("the runs of --class-shares have no load in common: measure the same connections".into());
    };
    let shares = DMatrix::from_fn(rows.len(), labels.len(), |row, class| rows[row].shares[class]);
    let by_class = solve(shares, &demands);
    let by_class = match by_class {
        Some(by_class) if by_class.iter().all(|demand| *demand >= 0.0) => by_class,
        Some(_) => {
            return no(
                "the fitted demands of the classes are negative: measure mixes that differ more, or for longer".into()
            );
        }
        None => {
            return no(
                "the mixes of these runs are too similar to separate the classes: measure mixes that differ more"
                    .into(),
            );
        }
    };
    let cost = |shares: &[f64]| shares.iter().zip(&by_class).map(|(share, demand)| share * demand).sum::<f64>();
    let demand_ratio = cost(&wanted) / cost(&first.shares);
    if !(demand_ratio.is_finite() && demand_ratio > 0.0) {
        return no("these runs do not determine the demand of the requested mix".into());
    }
    let classes =
        labels.iter().cloned().zip(wanted).zip(by_class).map(|((label, share), s)| (label, share, s)).collect();
    Ok(MixCost { classes, demand_ratio })
}

fn row(run: &RunDir) -> Result<RunMix, Refused> {
    let levels = typicals(&read(std::slice::from_ref(run))?.closed);
    let mut labels: Vec<String> = Vec::new();
    let mut counts: Vec<f64> = Vec::new();
    for point in run.points.iter().filter(|point| point.sweep == Sweep::Connections) {
        for class in point.workload.by(Grouping::Size).take(MAX_CLASSES) {
            let at = labels.iter().position(|label| *label == class.label).unwrap_or_else(|| {
                labels.push(class.label.clone());
                counts.push(0.0);
                labels.len() - 1
            });
            counts[at] += class.requests as f64;
        }
    }
    let all: f64 = counts.iter().sum();
    let shares = counts.iter().map(|count| if all > 0.0 { count / all } else { 0.0 }).collect();
    Ok(RunMix { labels, shares, levels })
}

fn demand_in_common(row: &RunMix, rows: &[RunMix]) -> Option<f64> {
    let is_common = |load: f64| rows.iter().all(|other| other.levels.iter().any(|level| level.load == load));
    let demands = row.levels.iter().filter(|level| is_common(level.load)).map(|level| level.demand_s);
    statistics::median(demands)
}

fn solve(shares: DMatrix<f64>, demands: &[f64]) -> Option<Vec<f64>> {
    let svd = shares.svd(true, true);
    let (most, least) =
        svd.singular_values.iter().fold((0.0f64, f64::INFINITY), |(a, b), value| (a.max(*value), b.min(*value)));
    if least.is_nan() || least <= ALIKE * most {
        return None;
    }
    let found = svd.solve(&DVector::from_row_slice(demands), 1e-12).ok()?;
    found.iter().all(|value| value.is_finite()).then(|| found.iter().copied().collect())
}
