//! Checks for CI systems: limits (`--fail-if`), compared figures, and whether the run completed. [`crate::markdown`]
//! and [`crate::junit`] render them.

use crate::compare;
use analyze::Refused;
use analyze::compare::{Comparison, Difference, Outcome};
use record::units::exact_percent;
use verdict::limit::{FailLimit, LimitCheck};

record::worded! {
    /// The result of a check.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum CaseResult {
        /// The condition holds.
        Passed = "passed",
        /// The condition does not hold, or could not be judged where that counts as a failure.
        Failed = "failed",
        /// The data are not sufficient.
        Skipped = "could not tell",
        /// There is no result to check.
        Error = "error",
    }
}

/// One check.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// `run`, `limits` or `comparison`.
    pub group: &'static str,
    /// Name of the check, equal in every run of a job: `find.peak_throughput_per_sec < 20.0k/s`, `throughput`.
    pub name: String,
    /// The result.
    pub result: CaseResult,
    /// The measured values, or why there is no result.
    pub words: String,
}

impl Case {
    fn new(group: &'static str, name: &str, result: CaseResult, words: &str) -> Case {
        Case { group, name: name.into(), result, words: words.into() }
    }
}

/// A limit of `--fail-if`. A figure that was not measured counts as crossed. `whose` is the prefix that names one of
/// several runs.
pub fn limit(whose: &str, limit: &FailLimit, check: &LimitCheck) -> Case {
    let result = if check.is_crossed { CaseResult::Failed } else { CaseResult::Passed };
    Case::new("limits", &format!("{whose}{limit}"), result, &check.words)
}

/// Whether the run completed; `why` is the reason if it did not.
pub fn end(why: Option<&str>) -> Case {
    let name = "the run reached its end";
    match why {
        None => Case::new("run", name, CaseResult::Passed, ""),
        Some(why) => Case::new("run", name, CaseResult::Error, why),
    }
}

/// One check for each figure over all common loads; `names` are those of the sides.
pub fn comparison(compared: Result<&Comparison, &Refused>, names: [&str; 2]) -> Vec<Case> {
    let error = |why: &str| vec![Case::new("comparison", "the runs can be compared", CaseResult::Error, why)];
    match compared {
        Ok(comparison) if comparison.figures.is_empty() => {
            error("nothing could be compared: no load has figures of both runs")
        }
        Ok(comparison) => comparison.figures.iter().map(|figure| difference(figure, names)).collect(),
        Err(why) => error(&why.to_string()),
    }
}

fn difference(one: &Difference, names: [&str; 2]) -> Case {
    let limit = exact_percent(one.threshold_ratio);
    let (result, verdict) = match one.outcome {
        Outcome::Regression => (CaseResult::Failed, format!("worse; the threshold is {limit}")),
        Outcome::Improvement => (CaseResult::Passed, "better".into()),
        Outcome::NotWorse => (CaseResult::Passed, format!("not worse by more than {limit}")),
        Outcome::Unclear if one.is_invalid => {
            (CaseResult::Skipped, "could not tell: half of the points of a run are invalid".into())
        }
        Outcome::Unclear => {
            (CaseResult::Skipped, format!("could not tell: worse by more than {limit} is neither shown nor excluded"))
        }
        Outcome::Untested => (CaseResult::Skipped, "not tested: a run has fewer than two repeats".into()),
    };
    let row = compare::row(one);
    let (a, b, ratio, interval) = (&row[1], &row[2], &row[3], &row[4]);
    let interval = if interval.is_empty() { String::new() } else { format!(" (interval {interval})") };
    let [name_a, name_b] = names;
    let words =
        format!("{verdict}; {name_a} {a}, {name_b} {b}, {name_b} / {name_a} {ratio}{interval}, n {}", one.ratio.n);
    Case::new("comparison", one.word, result, &words)
}
