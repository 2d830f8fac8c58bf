//! CPU time against request rate, as drawn by Banga and Mogul (1998, section 6) for live servers: straight lines of
//! idle, user and kernel time over windows of the recording. The zero of the idle line is the capacity only if a
//! request costs the same up to there.

use super::recording::{KeptReading, Recording};
use crate::shown::in_brackets;
use record::units::format_si;
use record::watch::system::CpuModes;
use serde::Serialize;
use statistics::regression::{FittedLine, line};
use statistics::{coefficient_of_variation, mean};

const CONFIDENCE: f64 = 0.95;
/// Maximum windows of a recording; the paper's lasted 15 minutes.
const MOST_WINDOWS: usize = 96;
/// Minimum length of a window, because CPU time is counted in ticks of 10 ms.
const SHORTEST_S: f64 = 2.0;
const FEWEST_WINDOWS: usize = 5;
/// Minimum coefficient of variation of the rates; below it, a line cannot be distinguished from noise.
const LEAST_VARIATION: f64 = 0.05;

/// Time window with its rate and CPU use.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Window {
    /// Start of the window, seconds since the watch began.
    pub at_s: f64,
    /// Rate of requests in the window, per second.
    pub rate_per_sec: f64,
    /// Idle CPUs; absent if the machine was not recorded.
    pub idle_cpus: Option<f64>,
    /// CPUs that the server's processes used, by the scheduler; absent if they were not seen.
    pub server_cpus: Option<f64>,
    /// CPUs in user mode: the machine's, or the server's if only that was recorded.
    pub user_cpus: f64,
    /// CPUs in the kernel, interrupts included.
    pub kernel_cpus: f64,
}

/// Straight lines of CPUs used against requests per second.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct Lines {
    /// Windows that the lines are fitted to.
    pub windows: Vec<Window>,
    /// Length of a window.
    pub window_s: f64,
    /// CPUs of the machine; 0 = only the server's own account is available.
    pub cpus: u64,
    /// Line of the machine's idle CPUs.
    pub idle: Option<FittedLine>,
    /// Line of the CPUs that the server's processes used.
    pub server: Option<FittedLine>,
    /// Line of the CPUs in user mode.
    pub user: FittedLine,
    /// Line of the CPUs in the kernel, interrupts included.
    pub kernel: FittedLine,
}

/// Fits the lines, or returns the reason why not.
pub fn find(recording: &Recording) -> Result<Lines, String> {
    if !recording.has_requests {
        return Err("not measured: requests were not counted".into());
    }
    let samples = &recording.samples;
    let seconds = samples.first().zip(samples.last()).map_or(0.0, |(first, last)| last.seconds - first.seconds);
    let window_s = (seconds / MOST_WINDOWS as f64).max(SHORTEST_S);
    let windows = cut(samples, window_s);
    if windows.len() < FEWEST_WINDOWS {
        return Err(format!(
            "not measured: {} of {window_s:.0} s, at least {FEWEST_WINDOWS} are needed: record for longer",
            record::units::count(windows.len(), "window")
        ));
    }
    let rates = || windows.iter().map(|window| window.rate_per_sec);
    let variation = coefficient_of_variation(rates()).unwrap_or(0.0);
    if variation < LEAST_VARIATION {
        return Err(format!(
            "not measured: the rate hardly changed ({}/s +- {:.1} %, n = {} windows)",
            format_si(mean(rates()).unwrap_or(0.0)),
            variation * 100.0,
            windows.len()
        ));
    }
    let fit = |value: &dyn Fn(&Window) -> Option<f64>| {
        let points: Vec<(f64, f64)> =
            windows.iter().filter_map(|window| Some((window.rate_per_sec, value(window)?))).collect();
        line(&points, CONFIDENCE)
    };
    let idle = fit(&|window| window.idle_cpus);
    let server = fit(&|window| window.server_cpus);
    let user = fit(&|window| Some(window.user_cpus)).ok_or("not measured: no line fits")?;
    let kernel = fit(&|window| Some(window.kernel_cpus)).ok_or("not measured: no line fits")?;
    Ok(Lines { cpus: if idle.is_some() { recording.cpus } else { 0 }, windows, window_s, idle, server, user, kernel })
}

/// Cuts samples into windows. A rest that is too short for a window belongs to the last one.
fn cut(samples: &[KeptReading], window_s: f64) -> Vec<Window> {
    let Some(mut begin) = samples.first() else { return Vec::new() };
    let mut edges = vec![begin];
    for sample in samples {
        // Jitter of half an interval must not make every window one reading longer.
        if sample.seconds - begin.seconds >= window_s * 0.95 {
            edges.push(sample);
            begin = sample;
        }
    }
    if edges.len() > 1 {
        edges.pop();
        edges.extend(samples.last());
    }
    edges.windows(2).filter_map(|pair| between(pair[0], pair[1])).collect()
}

/// The window between two samples; `None` if no time was counted in it, or if no CPU time was recorded.
pub fn between(begin: &KeptReading, end: &KeptReading) -> Option<Window> {
    let seconds = end.seconds - begin.seconds;
    let counted = |sample: &KeptReading| sample.counted_s.unwrap_or(sample.seconds);
    let rate_per_sec = end.requests.checked_sub(begin.requests)? as f64 / (counted(end) - counted(begin));
    if !rate_per_sec.is_finite() {
        return None;
    }
    let (idle_cpus, user_cpus, kernel_cpus) = match (&begin.machine, &end.machine) {
        (Some((t0, before)), Some((t1, after))) if t1 > t0 => {
            let cpus = |part: fn(&CpuModes) -> u64| part(after).saturating_sub(part(before)) as f64 / 1e3 / (t1 - t0);
            let idle = cpus(|cpu| cpu.idle_ms.saturating_add(cpu.iowait_ms));
            let kernel = cpus(|cpu| cpu.system_ms.saturating_add(cpu.irq_ms).saturating_add(cpu.softirq_ms));
            (Some(idle), cpus(|cpu| cpu.user_ms), kernel)
        }
        _ => {
            let user = (end.server_user_s? - begin.server_user_s?) / seconds;
            let all = (end.server_cpu_s? - begin.server_cpu_s?) / seconds;
            (None, user, all - user)
        }
    };
    let server_cpus = end.server_cpu_s.zip(begin.server_cpu_s).map(|(end, begin)| (end - begin) / seconds);
    Some(Window { at_s: begin.seconds, rate_per_sec, server_cpus, idle_cpus, user_cpus, kernel_cpus })
}

/// The findings in sentences.
pub fn sentences(lines: &Lines) -> Vec<String> {
    let per_request = |name: &str, line: &FittedLine| {
        let slope = line.slope.map(|seconds| seconds * 1e6);
        let interval = in_brackets(&slope, |us| format!("{us:.1}"));
        format!(
            "{:.1} us{interval} of {name} CPU time (r = {:.2}, n = {} windows of {:.0} s)",
            slope.value, line.correlation, slope.n, lines.window_s
        )
    };
    let mut said = Vec::new();
    if let Some(server) = lines.server.as_ref().filter(|server| server.slope.low.is_some_and(|low| low > 0.0)) {
        said.push(format!("Each additional request costs {}.", per_request("the server's", server)));
    }
    if lines.cpus == 0
        || (lines.user.slope.low.is_some_and(|low| low > 0.0) && lines.kernel.slope.low.is_some_and(|low| low > 0.0))
    {
        let whose = if lines.cpus == 0 { "Of the server's" } else { "Of the machine's" };
        said.push(format!(
            "{whose} CPUs, each additional request takes {} and {}.",
            per_request("user", &lines.user),
            per_request("kernel", &lines.kernel)
        ));
    } else {
        said.push(
            "The machine's user and kernel time do not both grow with the rate: other work hides the cost of \
             requests."
                .into(),
        );
    }
    if let Some(idle) = &lines.idle {
        match idle.x_intercept.filter(|x| x.value > 0.0).and_then(|x| Some((x.value, x.interval()?))) {
            Some((rate, (low, high))) if idle.slope.value < 0.0 => said.push(format!(
                "The line of idle time reaches zero at {}/s ({} to {}). This is the capacity if the cost of a request \
                 does not change up to there.",
                format_si(rate),
                format_si(low),
                format_si(high)
            )),
            _ => said.push("Idle time does not fall clearly with the rate, so no capacity is extrapolated.".into()),
        }
    }
    said
}
