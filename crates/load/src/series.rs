//! The series of a run: what happened in each step of time.

use hdrhistogram::Histogram;
use std::fmt::Write as _;

/// The header line of `series.csv`. Each row has the time at the end of its step.
pub const HEADER: &str = "t_s,completed,failed,received_bytes,response_p50_us,response_p99_us,lag_max_us,connections\n";

#[derive(Debug, Clone)]
struct SeriesStep {
    completed: u64,
    failed: u64,
    received_bytes: u64,
    lag_max_ns: u64,
    /// Established connections at the last reading in the step; `None` without a reading.
    connections: Option<u64>,
    response: Histogram<u32>,
}

impl SeriesStep {
    fn new() -> Self {
        SeriesStep {
            completed: 0,
            failed: 0,
            received_bytes: 0,
            lag_max_ns: 0,
            connections: None,
            // One digit is a relative error of 1/32, enough for a chart; up to 2^42 ns, more than an hour.
            response: Histogram::new_with_bounds(1, (1 << 42) - 1, 1).expect("the bounds are in order"),
        }
    }

    fn add(&mut self, other: &SeriesStep) {
        self.completed += other.completed;
        self.failed += other.failed;
        self.received_bytes += other.received_bytes;
        self.lag_max_ns = self.lag_max_ns.max(other.lag_max_ns);
        self.response.add(&other.response).expect("both have the same bounds");
    }
}

/// A thread's steps.
#[derive(Debug, Clone)]
pub struct Series {
    start_ns: u64,
    step_ns: u64,
    steps: Vec<SeriesStep>,
    /// Later times make the steps longer instead of being lost.
    is_growing: bool,
    /// The step of the last call; most times fall into it.
    current: usize,
    current_end_ns: u64,
}

impl Series {
    /// Steps of 100 ms, or of a hundredth of the window if that is longer.
    pub fn new(start_ns: u64, duration_ns: u64) -> Self {
        let step_ns = (duration_ns / 100).max(100_000_000);
        let count = duration_ns.div_ceil(step_ns).max(1) as usize;
        Series {
            start_ns,
            step_ns,
            steps: vec![SeriesStep::new(); count],
            is_growing: false,
            current: 0,
            current_end_ns: start_ns.saturating_add(step_ns),
        }
    }

    /// For a window of unknown length: steps of 100 ms, which double whenever 100 of them are full.
    pub fn growing(start_ns: u64) -> Self {
        Series { is_growing: true, ..Series::new(start_ns, 10_000_000_000) }
    }

    fn double(&mut self) {
        let count = self.steps.len();
        let old = std::mem::take(&mut self.steps);
        for pair in old.chunks(2) {
            let mut step = pair[0].clone();
            if let Some(second) = pair.get(1) {
                step.add(second);
                step.connections = second.connections.or(step.connections);
            }
            self.steps.push(step);
        }
        self.steps.resize_with(count, SeriesStep::new);
        self.step_ns *= 2;
        self.current = 0;
        self.current_end_ns = self.start_ns.saturating_add(self.step_ns);
    }

    #[inline]
    fn at(&mut self, now_ns: u64) -> Option<&mut SeriesStep> {
        if now_ns >= self.current_end_ns || now_ns + self.step_ns < self.current_end_ns {
            let mut index = (now_ns.checked_sub(self.start_ns)? / self.step_ns) as usize;
            while self.is_growing && index >= self.steps.len() {
                self.double();
                index = ((now_ns - self.start_ns) / self.step_ns) as usize;
            }
            if index >= self.steps.len() {
                return None;
            }
            self.current = index;
            self.current_end_ns = self.start_ns + (index as u64 + 1) * self.step_ns;
        }
        self.steps.get_mut(self.current)
    }

    /// Counts a response.
    #[inline]
    pub fn completed(&mut self, now_ns: u64, response_ns: u64) {
        if let Some(step) = self.at(now_ns) {
            step.completed += 1;
            step.response.saturating_record(response_ns);
        }
    }

    /// Counts a failed request.
    pub fn failed(&mut self, now_ns: u64) {
        if let Some(step) = self.at(now_ns) {
            step.failed += 1;
        }
    }

    #[inline]
    pub(crate) fn received(&mut self, now_ns: u64, bytes: u64) {
        if let Some(step) = self.at(now_ns) {
            step.received_bytes += bytes;
        }
    }

    /// Takes the generator's lateness.
    #[inline]
    pub fn lag(&mut self, now_ns: u64, lag_ns: u64) {
        if let Some(step) = self.at(now_ns) {
            step.lag_max_ns = step.lag_max_ns.max(lag_ns);
        }
    }

    /// Takes the number of established connections.
    #[inline]
    pub fn connections(&mut self, now_ns: u64, established: u64) {
        if let Some(step) = self.at(now_ns) {
            step.connections = Some(established);
        }
    }

    /// Adds another thread's steps of the same window. A thread without a reading in a step has the connections of the
    /// step before.
    pub fn merge(&mut self, mut other: Series) {
        while self.step_ns < other.step_ns {
            self.double();
        }
        while other.step_ns < self.step_ns {
            other.double();
        }
        other.fill_connections();
        self.fill_connections();
        for (mine, theirs) in self.steps.iter_mut().zip(&other.steps) {
            mine.add(theirs);
            mine.connections = Some(mine.connections.unwrap_or(0) + theirs.connections.unwrap_or(0));
        }
    }

    fn fill_connections(&mut self) {
        let mut last = 0;
        for step in &mut self.steps {
            last = *step.connections.get_or_insert(last);
        }
    }

    /// The CSV text of the steps that began before `window_ns`. Percentile fields are empty if nothing completed.
    pub fn csv(mut self, window_ns: u64) -> String {
        self.fill_connections();
        let mut text = String::from(HEADER);
        for (index, step) in self.steps.iter().enumerate() {
            let begin_ns = index as u64 * self.step_ns;
            if begin_ns >= window_ns {
                break;
            }
            let end_s = (begin_ns + self.step_ns).min(window_ns) as f64 / 1e9;
            let _ = write!(text, "{end_s:.3},{},{},{},", step.completed, step.failed, step.received_bytes);
            for quantile in [0.5, 0.99] {
                if !step.response.is_empty() {
                    let nanos = step.response.median_equivalent(step.response.value_at_quantile(quantile));
                    let _ = write!(text, "{:.1}", nanos as f64 / 1e3);
                }
                text.push(',');
            }
            let lag_us = step.lag_max_ns as f64 / 1e3;
            let _ = writeln!(text, "{lag_us:.1},{}", step.connections.unwrap_or(0));
        }
        text
    }
}
