//! Questions kept with a scenario, all answered from one fit. If one cannot be answered, it has the reason, and the
//! others are not affected.

use super::cheaper;
use super::question::PredictedAnswer;
use crate::Refused;
use record::WhatIf;
use record::text::plain;
use serde::Serialize;

/// Tolerance of the sum of the shares, which should be 1.
const ROUNDING: f64 = 1e-3;

/// A kept question with its answer.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct WhatIfAnswer {
    /// Name given to the question; may be empty. Untrusted text.
    pub name: String,
    /// The answer; absent with a reason.
    pub answer: Option<PredictedAnswer>,
    /// Why the question was not answered; absent if it was.
    pub not_predicted: Option<String>,
}

impl WhatIfAnswer {
    pub(super) fn new(what_if: &WhatIf, answer: Result<PredictedAnswer, Refused>) -> Self {
        let (answer, not_predicted) = match answer {
            Ok(answer) => (Some(answer), None),
            Err(error) => (None, Some(error.to_string())),
        };
        WhatIfAnswer { name: what_if.name.clone(), answer, not_predicted }
    }
}

/// Refuses a meaningless question. The command line and the scenario file call this before measuring; it is called
/// again for the contents of a run directory.
///
/// # Errors
/// One sentence.
pub fn check(what_if: &WhatIf) -> Result<(), Refused> {
    let no = |words: String| Err(Refused(words));
    for (name, count) in [("connections", what_if.connections), ("cores", what_if.cpus)] {
        if count == Some(0) {
            return no(format!("{name} must be at least 1"));
        }
    }
    for rate in [what_if.rate_per_sec, what_if.rate_times].into_iter().flatten() {
        if !(rate.is_finite() && rate > 0.0) {
            return no("a rate is a positive number such as 10k, or a multiple such as 2x".into());
        }
    }
    let loads = [what_if.connections.is_some(), what_if.rate_per_sec.is_some(), what_if.rate_times.is_some()];
    if loads.into_iter().filter(|given| *given).count() > 1 {
        return no("connections (closed loop) and rate (open loop) exclude each other: ask two questions".into());
    }
    for (name, share) in &what_if.cheaper {
        if !(*share > 0.0 && *share <= 1.0) {
            return no(format!(
                "cheaper {} by {:.0} %: the share must be at most 100 %",
                plain(name, 60),
                share * 100.0
            ));
        }
        if what_if.cheaper.iter().filter(|(other, _)| cheaper::is_same(other, name)).count() > 1 {
            return no(format!("cheaper names {} twice", plain(name, 60)));
        }
    }
    let sum: f64 = what_if.mix.iter().map(|(_, share)| share).sum();
    let are_shares = what_if.mix.iter().all(|(_, share)| (0.0..=1.0).contains(share)) && (sum - 1.0).abs() <= ROUNDING;
    if !(what_if.mix.is_empty() || are_shares) {
        return no(format!("the shares of the mix add up to {:.1} %, not 100 %", sum * 100.0));
    }
    Ok(())
}
