//! Files that the engine threads read during the run: a rate series or a log.

use flate2::Compression;
use flate2::write::GzEncoder;
use load::{ReplayRequest, ReplaySource, ReplayStep, Supply};
use record::workload::{ReplayResult, TraceSource};
use record::{Arrival, LoadPlan, LoadShare, Pace};
use remote::{FileParts, InputFiles, InputKind, InputPiece};
use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;
use workload::arrival::{RateSeries, SeriesPlan};
use workload::replay::{self, ConnectionGrouping, LogShape, Plan, PlanStep, PlannedRequest, ReplayOptions};
use workload::trace::{LogFormat, TraceReader};

/// Bytes of a file per message to a worker.
const PIECE_BYTES: usize = 256 << 10;
/// Maximum clients of an engine thread whose requests are counted.
const CLIENTS: usize = 1 << 16;
const LONGEST_WAIT_NS: u64 = 86_400_000_000_000;
/// Counts of a rate series per compressed message.
const COUNTS: usize = 1 << 14;

/// The files of a workload.
#[derive(Debug, Default)]
pub struct WorkloadFiles {
    pub series: Option<RateSeries>,
    pub log: Option<LogFile>,
    /// Facts about the whole log, if it was divided between workers.
    pub(super) divided: Option<ReplayResult>,
}

#[derive(Debug)]
pub struct LogFile {
    pub path: PathBuf,
    pub format: LogFormat,
    /// Whether the log has body sizes for comparison with responses.
    pub has_body_sizes: bool,
    /// Whether this part of a log has no client.
    pub is_empty: bool,
    /// Log time at which the replay starts, for a part of a log; otherwise that of its first request.
    pub origin_ns: Option<i64>,
    /// Duration of the whole log in its own time.
    pub round_ns: u64,
    /// Outline of the log; workers do not need it.
    pub shape: Option<LogShape>,
}

impl WorkloadFiles {
    /// Adapts a sweep's plan to the workload. A rate becomes the speed at which the point's part of the log is
    /// replayed; a closed loop replays as fast as the server answers.
    pub fn adapt(&self, plan: &mut LoadPlan) {
        let Some(log) = &self.log else { return };
        let Some(source) = &mut plan.workload.trace else { return };
        source.speed = match &mut plan.pace {
            Pace::Closed => None,
            Pace::Open { rate_per_sec, arrival } => {
                *arrival = Arrival::Trace;
                log.shape.as_ref().map(|shape| shape.speed_for(*rate_per_sec, plan.warmup_ns, plan.duration_ns))
            }
        };
    }
}

impl Supply for WorkloadFiles {
    fn arrivals<'a>(&'a self, plan: &LoadPlan, share: LoadShare) -> Option<Box<dyn Iterator<Item = u64> + Send + 'a>> {
        let (series, source) = (self.series.as_ref()?, plan.workload.series.as_ref()?);
        let Pace::Open { rate_per_sec, arrival: Arrival::Series } = plan.pace else { return None };
        let duration_ns = match source.speed {
            Some(speed) => ((series.span_ns() as f64 / speed) as u64).max(1),
            None => plan.duration_ns,
        };
        let arrivals =
            series.arrivals(SeriesPlan { mean_rate_per_sec: rate_per_sec, duration_ns, seed: plan.seed, share });
        Some(Box::new(arrivals))
    }

    fn replay<'a>(&'a self, plan: &LoadPlan, share: LoadShare) -> Option<Result<Box<dyn ReplaySource + 'a>, String>> {
        let (log, source) = (self.log.as_ref()?, plan.workload.trace.as_ref()?);
        if log.is_empty {
            return Some(Ok(Box::new(NoSteps)));
        }
        let steps = LogSteps::open(log, source, share, plan.seed, plan.warmup_ns.saturating_add(plan.duration_ns));
        Some(steps.map(|steps| Box::new(steps) as Box<dyn ReplaySource>))
    }
}

impl InputFiles for WorkloadFiles {
    fn file_parts(&self) -> FileParts {
        match (&self.series, &self.log) {
            (Some(_), _) => FileParts::Alike,
            (None, Some(_)) => FileParts::ByPart,
            (None, None) => FileParts::Nothing,
        }
    }

    fn give_parts(
        &mut self,
        shares: &[LoadShare],
        give: &mut dyn FnMut(u32, InputPiece) -> Result<(), String>,
    ) -> Result<(), String> {
        let parts = shares.len() as u32;
        let last = |gzip, whole| InputPiece { gzip, whole: Some(whole) };
        if let Some(series) = &self.series {
            let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
            for counts in series.counts.chunks(COUNTS) {
                let lines: String = counts.iter().map(|count| format!("{count}\n")).collect();
                packed.write_all(lines.as_bytes()).map_err(|error| error.to_string())?;
                if packed.get_ref().len() >= PIECE_BYTES {
                    let gzip = std::mem::take(packed.get_mut());
                    (0..parts).try_for_each(|part| give(part, InputPiece { gzip: gzip.clone(), whole: None }))?;
                }
            }
            let (rest, kind) = (packed.finish().map_err(|error| error.to_string())?, series.interval_ns);
            let kind = InputKind::Series { interval_ns: kind };
            return (0..parts).try_for_each(|part| give(part, last(rest.clone(), kind.clone())));
        }
        let Some(log) = &self.log else { return Ok(()) };
        let mut reader = TraceReader::open(&log.path, &log.format)?;
        let (origin_ns, divided) =
            replay::split(&mut reader, shares, PIECE_BYTES, |part, gzip| give(part, InputPiece { gzip, whole: None }))?;
        let kind = InputKind::Log {
            format: log.format.notation(),
            has_body_sizes: log.has_body_sizes,
            origin_ns,
            round_ns: log.round_ns,
        };
        (0..parts).try_for_each(|part| give(part, last(Vec::new(), kind.clone())))?;
        self.divided = Some(divided);
        Ok(())
    }

    fn account(&self, replay: &mut ReplayResult) {
        let Some(whole) = &self.divided else { return };
        replay.file.clone_from(&whole.file);
        replay.format.clone_from(&whole.format);
        replay.rejected_examples.clone_from(&whole.rejected_examples);
        (replay.lines, replay.rejected) = (whole.lines, whole.rejected);
        (replay.went_back, replay.back_max_ns, replay.clamped) = (whole.went_back, whole.back_max_ns, whole.clamped);
        (replay.gap_max_ns, replay.gap_line) = (whole.gap_max_ns, whole.gap_line);
    }
}

impl LogFile {
    fn plan(&self, options: &ReplayOptions) -> Result<Plan, String> {
        Ok(Plan::new(TraceReader::open(&self.path, &self.format)?, options.clone()))
    }
}

struct NoSteps;

impl ReplaySource for NoSteps {
    fn next_step(&mut self) -> Option<Result<ReplayStep<'_>, String>> {
        None
    }

    fn account(&self) -> ReplayResult {
        ReplayResult { rounds: 1, ..ReplayResult::default() }
    }
}

pub struct LogSteps<'a> {
    log: &'a LogFile,
    options: ReplayOptions,
    plan: Plan,
    current: Option<PlannedRequest>,
    is_repeated: bool,
    length_ns: u64,
    last_ns: u64,
    /// Number of requests of each client, for at most [`CLIENTS`] clients.
    clients: HashMap<u64, u64>,
    /// Totals of the finished rounds: sessions, requests, and time on the replay's clock.
    sessions_before: u64,
    requests_before: u64,
    evicted_before: u64,
    offset_ns: u64,
    rounds: u64,
    /// Counts of the lines in the first round; later rounds have the same.
    first: Option<ReplayResult>,
}

impl<'a> LogSteps<'a> {
    pub fn open(
        log: &'a LogFile,
        source: &TraceSource,
        share: LoadShare,
        seed: u64,
        length_ns: u64,
    ) -> Result<Self, String> {
        let options = ReplayOptions {
            pace: match source.speed {
                Some(speed) => replay::ReplayPace::Original { speed },
                None => replay::ReplayPace::AsFastAsPossible,
            },
            grouping: match source.session_gap_ns {
                0 => ConnectionGrouping::Never,
                limit_ns => ConnectionGrouping::IdleGap { limit_ns },
            },
            share,
            seed,
            origin_ns: log.origin_ns,
            has_host: source.has_host,
            ..ReplayOptions::default()
        };
        Ok(LogSteps {
            plan: log.plan(&options)?,
            log,
            options,
            current: None,
            is_repeated: source.is_repeated,
            length_ns,
            last_ns: 0,
            clients: HashMap::new(),
            sessions_before: 0,
            requests_before: 0,
            evicted_before: 0,
            offset_ns: 0,
            rounds: 0,
            first: None,
        })
    }

    fn begin_again(&mut self) -> Result<bool, String> {
        let read = self.plan.account();
        self.rounds += 1;
        self.sessions_before += read.sessions;
        self.requests_before += read.requests;
        self.evicted_before += read.evicted;
        let is_over = !self.is_repeated || read.requests == 0;
        self.first.get_or_insert(read);
        if is_over {
            return Ok(false);
        }
        self.offset_ns = self.offset_ns.saturating_add(self.on_clock_ns(self.log.round_ns));
        self.plan = self.log.plan(&self.options)?;
        Ok(true)
    }

    fn on_clock_ns(&self, log_ns: u64) -> u64 {
        match self.options.pace {
            replay::ReplayPace::Original { speed } => (log_ns as f64 / speed) as u64,
            replay::ReplayPace::AsFastAsPossible => 0,
        }
    }

    /// If the next request is more than a day away: a message with the line of the log's longest gap. A sweep restarts
    /// the log instead.
    fn waits_too_long(&mut self, intended_ns: u64) -> Option<String> {
        let last_ns = std::mem::replace(&mut self.last_ns, intended_ns);
        let waited_until_ns = intended_ns.min(self.length_ns);
        if self.is_repeated || waited_until_ns.saturating_sub(last_ns) <= LONGEST_WAIT_NS {
            return None;
        }
        // A thread may have few clients, so only a gap of the whole log counts.
        let ReplayResult { gap_max_ns: gap_ns, gap_line: line, .. } = self.plan.account();
        (self.on_clock_ns(gap_ns) > LONGEST_WAIT_NS).then(|| {
            format!(
                "{}: line {line} is {:.1} days later than the lines above it; a replay waits at most one day: cut the \
                 log there, or replay it faster (--speed)",
                self.log.path.display(),
                gap_ns as f64 / LONGEST_WAIT_NS as f64
            )
        })
    }
}

impl ReplaySource for LogSteps<'_> {
    fn next_step(&mut self) -> Option<Result<ReplayStep<'_>, String>> {
        let step = loop {
            match self.plan.next() {
                Some(Ok(step)) => break step,
                Some(Err(error)) => return Some(Err(error.into())),
                None => match self.begin_again() {
                    Ok(true) => {}
                    Ok(false) => return None,
                    Err(why) => return Some(Err(why)),
                },
            }
        };
        Some(Ok(match step {
            PlanStep::Close { client, connection, at_ns } => {
                let session = self.sessions_before + connection;
                ReplayStep::Close { client, session, at_ns: self.offset_ns.saturating_add(at_ns) }
            }
            PlanStep::Request(request) => {
                if let Some(why) = self.waits_too_long(request.intended_ns) {
                    return Some(Err(why));
                }
                if self.clients.len() < CLIENTS || self.clients.contains_key(&request.client) {
                    *self.clients.entry(request.client).or_default() += 1;
                }
                let request = self.current.insert(request);
                ReplayStep::Request(ReplayRequest {
                    client: request.client,
                    session: self.sessions_before + request.connection,
                    intended_ns: self.offset_ns.saturating_add(request.intended_ns),
                    method: request.method(),
                    target: request.target(),
                    status: request.status,
                    body_bytes: request.bytes.filter(|_| self.log.has_body_sizes),
                })
            }
        }))
    }

    fn account(&self) -> ReplayResult {
        // A finished plan is among the finished rounds already.
        let is_over = self.first.is_some() && !self.is_repeated;
        let read = if is_over { ReplayResult::default() } else { self.plan.account() };
        ReplayResult {
            rounds: self.rounds,
            requests: self.requests_before + read.requests,
            clients: self.clients.len() as u64,
            largest_client_requests: self.clients.values().max().copied().unwrap_or(0),
            sessions: self.sessions_before + read.sessions,
            evicted: self.evicted_before + read.evicted,
            ..self.first.clone().unwrap_or(read)
        }
    }
}
