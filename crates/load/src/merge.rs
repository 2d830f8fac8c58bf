//! Adds the results of several machines. Nothing is averaged, so percentiles are those of all requests together.

use crate::classes;
use crate::cost::EngineCost;
use crate::result::LoadResult;
use crate::series::HEADER;
use crate::tls::add_handshakes;

const MAX_EXAMPLES: usize = 8;

impl LoadResult {
    /// Adds the result of another machine in the same load. The longer window is kept. The caller adds doubts, naming
    /// their machine, and the time series ([`SeriesSum`]).
    pub fn merge(&mut self, other: LoadResult) {
        let weights = (self.counts.outcomes.connects, other.counts.outcomes.connects);
        self.engine.merge(&other.engine, weights);
        self.window_ns = self.window_ns.max(other.window_ns);
        self.counts.add(&other.counts);
        self.answered_in_all = self.answered_in_all.zip(other.answered_in_all).map(|(mine, theirs)| mine + theirs);
        let room = MAX_EXAMPLES.saturating_sub(self.first_errors.len());
        self.first_errors.extend(other.first_errors.into_iter().take(room));
        self.interrupted |= other.interrupted;
        classes::add(&mut self.classes, &other.classes);
        self.bits_per_sec.extend(other.bits_per_sec);
        add_handshakes(&mut self.tls, other.tls);
        match (&mut self.replay, other.replay) {
            (Some(mine), Some(theirs)) => mine.add(&theirs),
            (None, theirs) => self.replay = theirs,
            (Some(_), None) => {}
        }
    }
}

impl EngineCost {
    /// Adds the cost of another machine's engine. `weights`: the connections that each engine opened.
    /// Adds another machine's cost. `weights`: the connections of both.
    pub fn merge(&mut self, other: &EngineCost, weights: (u64, u64)) {
        self.cpu_ns = self.cpu_ns.saturating_add(other.cpu_ns);
        self.polling_ns = self.polling_ns.saturating_add(other.polling_ns);
        self.busiest_thread_ratio = self.busiest_thread_ratio.max(other.busiest_thread_ratio);
        self.run_queue_wait_ratio = match (self.run_queue_wait_ratio, other.run_queue_wait_ratio) {
            (Some(mine), Some(theirs)) => Some(mine.max(theirs)),
            (mine, theirs) => mine.or(theirs),
        };
        self.threads = self.threads.saturating_add(other.threads);
        let (mine, theirs) = (weights.0 as f64, weights.1 as f64);
        if mine + theirs > 0.0 {
            let bytes = self.memory_bytes_per_connection * mine + other.memory_bytes_per_connection * theirs;
            self.memory_bytes_per_connection = bytes / (mine + theirs);
        }
    }
}

/// Adds the time series of several machines: rows of the same time are added. Percentiles cannot be added, so their
/// cells are empty. Lines that are not rows of a `series.csv` are ignored.
#[derive(Debug, Default)]
pub struct SeriesSum {
    rows: Vec<(String, SeriesRow)>,
}

impl SeriesSum {
    /// Adds a machine's `series.csv`.
    pub fn add(&mut self, csv: &str) {
        for (place, (time, row)) in rows(csv).enumerate() {
            match self.rows.get_mut(place) {
                Some((_, sum)) => sum.add(&row),
                None => self.rows.push((time.into(), row)),
            }
        }
    }

    /// The sum in the format of `series.csv`.
    pub fn csv(&self) -> String {
        let mut csv = String::from(HEADER);
        for (time, SeriesRow { completed, failed, received, lag, connections }) in &self.rows {
            csv.push_str(&format!("{time},{completed},{failed},{received},,,{lag:.1},{connections}\n"));
        }
        csv
    }
}

#[derive(Debug)]
struct SeriesRow {
    completed: f64,
    failed: f64,
    received: f64,
    lag: f64,
    connections: f64,
}

impl SeriesRow {
    fn add(&mut self, other: &SeriesRow) {
        self.completed += other.completed;
        self.failed += other.failed;
        self.received += other.received;
        self.lag = self.lag.max(other.lag);
        self.connections += other.connections;
    }
}

fn rows(text: &str) -> impl Iterator<Item = (&str, SeriesRow)> {
    text.lines().skip(1).filter_map(|line| {
        let mut cells = line.split(',');
        let time = cells.next().filter(|time| time.parse::<f64>().is_ok_and(f64::is_finite))?;
        let mut number =
            || cells.next().map(|cell| cell.parse::<f64>().ok().filter(|value| value.is_finite()).unwrap_or(0.0));
        let (completed, failed, received) = (number()?, number()?, number()?);
        let (_median, _tail, lag, connections) = (number()?, number()?, number()?, number()?);
        Some((time, SeriesRow { completed, failed, received, lag, connections }))
    })
}
