//! What the engine threads read while they run: arrivals of a rate series, and the requests of a log.

use load::{ReplayRequest, ReplaySource, ReplayStep, Supply};
use record::workload::{ReplayResult, TraceSource};
use record::{Arrival, LoadPlan, Pace, Share};
use std::path::PathBuf;
use workload::arrival::{RateSeries, SeriesPlan};
use workload::replay::{self, Grouping, Plan, PlannedRequest, ReplayOptions, Shape, Step};
use workload::trace::{Format, TraceReader};

/// The files of a workload.
#[derive(Debug, Default)]
pub struct Supplied {
    pub series: Option<RateSeries>,
    pub log: Option<LogFile>,
}

/// A log that is replayed.
#[derive(Debug)]
pub struct LogFile {
    pub path: PathBuf,
    pub format: Format,
    /// Whether its sizes are those of bodies, so that answers can be compared with them.
    pub has_body_sizes: bool,
    pub shape: Shape,
}

impl Supplied {
    /// Adapts a sweep's plan to the workload: a rate becomes the speed at which the point's part of the log has it; a
    /// closed loop replays as fast as the server answers.
    pub fn adapt(&self, plan: &mut LoadPlan) {
        let Some(log) = &self.log else { return };
        let Some(source) = &mut plan.workload.trace else { return };
        source.speed = match &mut plan.pace {
            Pace::Closed => None,
            Pace::Open { rate_per_sec, arrival } => {
                *arrival = Arrival::Trace;
                Some(log.shape.speed_for(*rate_per_sec, plan.warmup_ns + plan.duration_ns))
            }
        };
    }
}

impl Supply for Supplied {
    fn arrivals<'a>(&'a self, plan: &LoadPlan, share: Share) -> Option<Box<dyn Iterator<Item = u64> + Send + 'a>> {
        let (series, source) = (self.series.as_ref()?, plan.workload.series.as_ref()?);
        let Pace::Open { rate_per_sec, arrival: Arrival::Series } = plan.pace else { return None };
        let duration_ns = match source.speed {
            Some(speed) => ((series.span_ns() as f64 / speed) as u64).max(1),
            None => plan.duration_ns,
        };
        let arrivals =
            series.arrivals(SeriesPlan { mean_rate_per_sec: rate_per_sec, duration_ns, seed: plan.seed, share });
        Some(Box::new(arrivals.ok()?))
    }

    fn replay<'a>(&'a self, plan: &LoadPlan, share: Share) -> Option<Result<Box<dyn ReplaySource + 'a>, String>> {
        let (log, source) = (self.log.as_ref()?, plan.workload.trace.as_ref()?);
        Some(LogSteps::open(log, source, share, plan.seed).map(|steps| Box::new(steps) as Box<dyn ReplaySource>))
    }
}

/// One thread's part of a log, round after round.
struct LogSteps<'a> {
    log: &'a LogFile,
    options: ReplayOptions,
    plan: Plan,
    current: Option<PlannedRequest>,
    is_repeated: bool,
    /// Of the finished rounds: sessions, requests, and time on the replay's clock.
    sessions_before: u64,
    requests_before: u64,
    evicted_before: u64,
    offset_ns: u64,
    rounds: u64,
    /// The lines of the first round; later rounds are the same.
    first: Option<ReplayResult>,
}

impl<'a> LogSteps<'a> {
    fn open(log: &'a LogFile, source: &TraceSource, share: Share, seed: u64) -> Result<Self, String> {
        let options = ReplayOptions {
            pace: match source.speed {
                Some(speed) => replay::Pace::Original { speed },
                None => replay::Pace::AsFastAsPossible,
            },
            grouping: match source.session_gap_ns {
                0 => Grouping::Never,
                limit_ns => Grouping::IdleGap { limit_ns },
            },
            share,
            seed,
            ..ReplayOptions::default()
        };
        Ok(LogSteps {
            plan: plan(log, &options)?,
            log,
            options,
            current: None,
            is_repeated: source.is_repeated,
            sessions_before: 0,
            requests_before: 0,
            evicted_before: 0,
            offset_ns: 0,
            rounds: 0,
            first: None,
        })
    }

    /// Begins the log again; false if that makes no sense.
    fn begin_again(&mut self) -> Result<bool, String> {
        let counts = self.plan.counts();
        if self.first.is_none() {
            self.first = Some(self.read_so_far());
        }
        self.rounds += 1;
        self.sessions_before += counts.connections;
        self.requests_before += counts.requests;
        self.evicted_before += counts.evicted;
        if !self.is_repeated || counts.requests == 0 {
            return Ok(false);
        }
        if let replay::Pace::Original { speed } = self.options.pace {
            self.offset_ns += (self.log.shape.round_ns() as f64 / speed) as u64;
        }
        self.plan = plan(self.log, &self.options)?;
        Ok(true)
    }

    /// What was read in this round.
    fn read_so_far(&self) -> ReplayResult {
        let (lines, counts) = (self.plan.lines(), self.plan.counts());
        let name = self.log.path.display();
        let example = |line: &workload::trace::RejectedLine| format!("{name}: {line}");
        ReplayResult {
            file: name.to_string(),
            format: self.log.format.to_string(),
            lines: lines.lines,
            rejected: lines.rejected.total(),
            rejected_examples: lines.rejected.examples().iter().take(10).map(example).collect(),
            went_back: counts.went_back,
            back_max_ns: counts.back_max_ns,
            clamped: counts.clamped,
            span_ns: counts.span_ns,
            ..ReplayResult::default()
        }
    }
}

fn plan(log: &LogFile, options: &ReplayOptions) -> Result<Plan, String> {
    let reader = TraceReader::open(&log.path, &log.format).map_err(|error| error.to_string())?;
    Plan::new(reader, options.clone()).map_err(|error| error.to_string())
}

impl ReplaySource for LogSteps<'_> {
    fn next_step(&mut self) -> Option<Result<ReplayStep<'_>, String>> {
        let step = loop {
            match self.plan.next() {
                Some(Ok(step)) => break step,
                Some(Err(error)) => return Some(Err(error.to_string())),
                None => match self.begin_again() {
                    Ok(true) => {}
                    Ok(false) => return None,
                    Err(why) => return Some(Err(why)),
                },
            }
        };
        Some(Ok(match step {
            Step::Close { client, connection, at_ns } => {
                ReplayStep::Close { client, session: self.sessions_before + connection, at_ns: self.offset_ns + at_ns }
            }
            Step::Request(request) => {
                let request = self.current.insert(request);
                ReplayStep::Request(ReplayRequest {
                    client: request.client,
                    session: self.sessions_before + request.connection,
                    intended_ns: self.offset_ns + request.intended_ns,
                    method: request.method(),
                    target: request.target(),
                    status: request.status,
                    body_bytes: request.bytes.filter(|_| self.log.has_body_sizes),
                })
            }
        }))
    }

    fn account(&self) -> ReplayResult {
        // After its end a plan is counted with the finished rounds.
        let is_over = self.first.is_some() && !self.is_repeated;
        let counts = if is_over { Default::default() } else { self.plan.counts() };
        ReplayResult {
            rounds: self.rounds,
            requests: self.requests_before + counts.requests,
            sessions: self.sessions_before + counts.connections,
            evicted: self.evicted_before + counts.evicted,
            ..self.first.clone().unwrap_or_else(|| self.read_so_far())
        }
    }
}
