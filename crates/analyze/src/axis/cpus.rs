//! Scaling over CPUs: the Universal Scalability Law of each repeat, and the limit at each number of CPUs.

use super::{estimate, value_words};
use crate::account::{self, AccountLevel, WaitLevel};
use crate::point::good_per_sec;
use crate::shown::in_brackets;
use crate::within::{Visit, visits};
use crate::zones::{self, FullResource};
use record::units::percent;
use record::{Axis, Criteria, Estimate, Point};
use serde::Serialize;
use statistics::usl::{self, Usl};
use std::collections::BTreeMap;

/// Least numbers of CPUs that distinguish coherency from contention.
const LEAST_FOR_COHERENCY: usize = 3;
/// Least number of threads waiting at a place that explains idle CPUs.
const LEAST_WAITING: f64 = 0.5;
/// A peak beyond this multiple of the measured CPUs is a guess.
const REACH: f64 = 16.0;

/// How throughput scales over CPUs, by the Universal Scalability Law.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Scaling {
    /// Contention: share of the work that only one CPU can do at a time. Absent without two numbers of CPUs.
    pub contention_ratio: Option<Estimate>,
    /// Coherency: cost of each pair of CPUs that must agree, as a share of a request's work. Absent without three
    /// numbers of CPUs.
    pub coherency_ratio: Option<Estimate>,
    /// Number of CPUs with the highest throughput that the law predicts. Absent if it is more than 16 times the largest
    /// measured number, or if a repeat shows no coherency.
    pub peak_cpus: Option<Estimate>,
    /// The limit of throughput at each number of CPUs.
    pub limits: Vec<CpuLimit>,
}

/// The limit of throughput at one number of CPUs.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct CpuLimit {
    /// Number of CPUs.
    pub cpus: f64,
    /// The limit in words.
    pub limit: String,
}

/// Fits the law within each repeat, because the machine's speed drifts between repeats.
pub(super) fn find(groups: &[(f64, Vec<&Point>)], criteria: &Criteria) -> Scaling {
    let rates: Vec<_> = groups.iter().map(|(cpus, points)| (*cpus, visits(points, good_per_sec))).collect();
    let repeats = rates.first().map(|(_, visits)| visits.keys().copied().collect::<Vec<u32>>()).unwrap_or_default();
    let laws: Vec<Usl> = repeats
        .iter()
        .filter_map(|repeat| {
            let rate = |(cpus, visits): &(f64, BTreeMap<u32, Visit>)| Some((*cpus, visits.get(repeat)?.value));
            usl::fit(&rates.iter().map(rate).collect::<Option<Vec<_>>>()?)
        })
        .collect();
    let over = |read: fn(&Usl) -> f64| estimate(laws.iter().map(read), criteria);
    let tells_coherency = groups.len() >= LEAST_FOR_COHERENCY;
    let reach = REACH * groups.last().map_or(0.0, |(cpus, _)| *cpus);
    let has_peak = tells_coherency && laws.iter().all(|law| law.beta > 0.0);
    Scaling {
        contention_ratio: over(|law| law.alpha),
        coherency_ratio: over(|law| law.beta).filter(|_| tells_coherency),
        peak_cpus: over(Usl::peak).filter(|peak| has_peak && peak.value <= reach),
        limits: groups
            .iter()
            .map(|(cpus, points)| CpuLimit { cpus: *cpus, limit: limit(*cpus, points, criteria) })
            .collect(),
    }
}

fn limit(cpus: f64, points: &[&Point], criteria: &Criteria) -> String {
    let level = zones::level(cpus, points, criteria);
    if level.client_limited {
        return "the client was saturated, not the server".into();
    }
    let Some(busy) = level.cpus_busy_ratio.map(|busy| percent(busy.median)) else {
        return "the server's CPUs were not watched".into();
    };
    let its = if cpus == 1.0 { "its CPU is" } else { "its CPUs are" };
    let account = account::level(cpus, points);
    let why = match (level.full(criteria.saturation_ratio), account.as_ref().and_then(longest_wait)) {
        (Some(FullResource::Cpus(_)), _) => return format!("{its} full ({busy} busy)"),
        (Some(FullResource::CrowdedCpus(_)), _) => {
            return format!("{its} full, largely with other work ({busy} busy)");
        }
        (Some(FullResource::Quota(_)), _) => "its CPU time limit is used up".into(),
        (Some(FullResource::Thread(_)), _) => {
            "one thread is full: more threads or workers would use the other CPUs".into()
        }
        (None, Some(wait)) => format!("{:.1} threads wait for {} ({})", wait.threads, wait.kind.word(), wait.place),
        (None, None) => "the server's waits were not traced".into(),
    };
    format!("{its} only {busy} busy; {why}")
}

fn longest_wait(account: &AccountLevel) -> Option<&WaitLevel> {
    let waits = account.waits().map(|(_, wait)| wait);
    waits
        .filter(|wait| !wait.kind.is_idle() && wait.threads >= LEAST_WAITING)
        .max_by(|one, other| one.threads.total_cmp(&other.threads))
}

pub(super) fn sentences(scaling: &Scaling) -> Vec<String> {
    let mut said = Vec::new();
    if let Some(contention) = &scaling.contention_ratio {
        let share = |estimate: &Estimate| percent(estimate.value) + &in_brackets(estimate, percent);
        let law = format!("By the Universal Scalability Law {} of the work is contention", share(contention));
        said.push(match (&scaling.coherency_ratio, &scaling.peak_cpus) {
            (None, _) => format!(
                "{law}. Two numbers of CPUs cannot distinguish contention from coherency, so no peak is predicted: \
                 measure three or more."
            ),
            (Some(coherency), Some(peak)) => format!(
                "{law}, and each pair of CPUs costs {} (coherency): throughput peaks at {}{}.",
                share(coherency),
                value_words(peak.value.round(), Axis::Cpus),
                in_brackets(peak, |cpus| format!("{cpus:.0}"))
            ),
            (Some(coherency), None) => format!(
                "{law}, and each pair of CPUs costs {} (coherency), too little for a peak to be predicted.",
                share(coherency)
            ),
        });
    }
    let at = |at: &CpuLimit| format!("with {} {}", value_words(at.cpus, Axis::Cpus), at.limit);
    said.push(format!("Its limit: {}.", scaling.limits.iter().map(at).collect::<Vec<_>>().join("; ")));
    said
}
