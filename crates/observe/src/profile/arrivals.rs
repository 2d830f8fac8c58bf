//! Checks whether the expected samples arrived, and finds the reason if not. Samples in the server's processes and
//! the scheduler's account measure the same time. If they differ, the interrupts of the sampling clock show the
//! cause.

use super::samples::Interrupts;
use record::machine::line;
use record::profile::{Arrivals, CpuCheck};
use record::units::percent;
use record::{Doubt, DoubtKind};

/// Differences between sampled and scheduled CPU time up to this share are not reported.
const TOLERANCE: f64 = 0.02;
/// Smaller shares of the machine's time are not reported.
const NOTABLE: f64 = 0.005;

/// The arrivals in a window of `sampled_ns` on this many CPUs.
pub fn arrivals(interrupts: &Interrupts, sampled_ns: u64, cpus: usize, period_ns: u64) -> Arrivals {
    Arrivals {
        arrived: interrupts.arrived,
        late: interrupts.late,
        expected: sampled_ns as f64 * cpus as f64 / period_ns.max(1) as f64,
        limit_hz: line("/proc/sys/kernel/perf_event_max_sample_rate").and_then(|text| text.parse().ok()),
    }
}

/// The difference between the two accounts and its cause, if significant. `samples`: those in the server's processes;
/// `period_ns`: time between two samples.
pub fn doubt(check: &CpuCheck, samples: u64, period_ns: u64) -> Option<Doubt> {
    // Two standard deviations of this many independent samples; a timer that rarely coincides with the server is no
    // better.
    let scatter = 2.0 / (samples.max(1) as f64).sqrt();
    let difference = check.difference_ratio.filter(|difference| difference.abs() > TOLERANCE.max(scatter))?;
    let (cause, remedy) = cause(check, difference, period_ns);
    let what = format!(
        "the samples' CPU time differs from the scheduler's by {:+.1} %: {cause}; times are scaled to the scheduler's",
        difference * 100.0
    );
    Some(DoubtKind::SourcesDisagree.warning(what, remedy))
}

fn cause(check: &CpuCheck, difference: f64, period_ns: u64) -> (String, &'static str) {
    let arrivals = &check.arrivals;
    let steal = check.steal_ratio.unwrap_or(0.0);
    if difference > 0.0 {
        return if steal >= NOTABLE {
            (
                format!(
                    "a hypervisor took {} of the machine, which samples count and the scheduler does not",
                    percent(steal)
                ),
                "profile on a dedicated machine",
            )
        } else {
            (
                "the sampling interrupts hit the server more often than its share of the time, as happens if it runs \
                 in step with a timer"
                    .into(),
                "take another --frequency, or profile for longer",
            )
        };
    }
    let rate_hz = 1_000_000_000 / period_ns.max(1);
    // Losses of the whole machine need not be the server's; half of them is enough as a cause.
    let explains = |ratio: f64| ratio >= -difference / 2.0;
    match arrivals.limit_hz {
        Some(limit_hz) if limit_hz < rate_hz => (
            format!("the kernel allows at most {limit_hz} samples per second (kernel.perf_event_max_sample_rate)"),
            "raise the limit, or take a lower --frequency",
        ),
        _ if explains(arrivals.late_ratio()) && steal >= arrivals.late_ratio() / 2.0 => (
            format!(
                "{} of the machine's samples were skipped because their timers fired late, while a hypervisor took {} \
                 of its time",
                percent(arrivals.late_ratio()),
                percent(steal)
            ),
            "profile on a dedicated machine, or when its host is less busy",
        ),
        _ if explains(arrivals.late_ratio()) => (
            format!(
                "{} of the machine's samples were skipped because their timers fired late, but only {} of its time was \
                 reported as taken by a hypervisor: its CPUs were stopped without notice, or ran long with interrupts \
                 off",
                percent(arrivals.late_ratio()),
                percent(steal)
            ),
            "profile on a dedicated machine, or take a lower --frequency",
        ),
        _ if explains(arrivals.missing_ratio()) => (
            format!(
                "{} of the machine's samples never came, but their timers were not late: the kernel drops samples that \
                 interrupt another BPF program, or throttles the event",
                percent(arrivals.missing_ratio())
            ),
            "end other profilers and tracers of this machine, or take a lower --frequency",
        ),
        _ => (
            format!(
                "the sampling interrupts came ({} of them lost), but hit the server less often than its share of the \
                time",
                percent(arrivals.lost_ratio())
            ),
            "profile for longer, or take another --frequency",
        ),
    }
}
