use anyhow::Result;
use load::LoadResult;
use record::profile::Stacks;
use record::run::PointFiles;
use record::{ClientSide, Figures, Latency, Pace, Point, RunWriter, Sweep};

/// A point and the engine's full result (histograms, series).
pub struct MeasuredPoint {
    pub point: Point,
    pub result: LoadResult,
    /// Histograms in addition to those of the result, by tag.
    pub latencies: Vec<(&'static str, Latency)>,
    /// The stacks of the window, if layers were sampled.
    pub stacks: Option<Stacks>,
}

impl MeasuredPoint {
    pub fn keep(&mut self, writer: &mut RunWriter) -> Result<()> {
        let beside = self.latencies.iter().map(|(tag, latency)| (*tag, latency));
        let latencies = self.result.latencies().into_iter().chain(beside).collect();
        let files = PointFiles { latencies, series_csv: self.result.series_csv.clone(), stacks: self.stacks.as_ref() };
        writer.add_point(&mut self.point, &files)?;
        crate::signals::kept_in(writer.path());
        Ok(())
    }
}

/// The point of a finished load, with the sender's figures. `asked`: planned connections and pace.
pub fn measured(sweep: Sweep, repeat: u32, asked: (u64, Pace), result: LoadResult, figures: Figures) -> MeasuredPoint {
    let statuses = result.counts.status_counts.iter().filter(|(status, _)| !(200..400).contains(*status));
    let point = Point {
        started_unix_ms: result.started_unix_ms,
        warmup_ns: result.warmup_ns,
        duration_ns: result.window_ns,
        outcomes: result.counts.outcomes,
        error_statuses: statuses.map(|(status, count)| (*status, *count)).collect(),
        slowest: result.counts.slowest.clone().into(),
        figures,
        doubts: result.doubts.clone(),
        ..Point::new(sweep, repeat, asked.0, asked.1)
    };
    MeasuredPoint { point, result, latencies: Vec::new(), stacks: None }
}

pub fn client_side(result: &LoadResult) -> ClientSide {
    ClientSide {
        completed_in_window: result.counts.completed_in_window,
        window_ns: result.window_ns,
        answered_in_all: result.answered_in_all,
        given_up: result.counts.outcomes.errors().saturating_add(result.counts.outcomes.unfinished),
    }
}
