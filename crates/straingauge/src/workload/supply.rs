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

struct LogSteps<'a> {
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
    fn open(
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A log with `each` requests in each second, each from another client.
    fn log(file: &tempfile::NamedTempFile, seconds: u32, each: u32) -> LogFile {
        let line = |n: u32| {
            let (client, second) = (n % 250, n / each);
            format!("10.0.0.{client} - - [17/May/2015:10:05:{second:02} +0000] \"GET /a HTTP/1.1\" 200 5\n")
        };
        let text: String = (0..seconds * each).map(line).collect();
        std::fs::write(file.path(), text).unwrap();
        let reader = TraceReader::open(file.path(), &LogFormat::Common).unwrap();
        let shape = LogShape::read(reader, u64::MAX).unwrap();
        LogFile {
            path: file.path().into(),
            format: LogFormat::Common,
            has_body_sizes: true,
            is_empty: false,
            origin_ns: None,
            round_ns: shape.round_ns(),
            shape: Some(shape),
        }
    }

    fn source(speed: f64) -> TraceSource {
        TraceSource {
            file: "a log".into(),
            format: "common".into(),
            speed: Some(speed),
            session_gap_ns: 15_000_000_000,
            has_host: false,
            is_repeated: true,
        }
    }

    #[test]
    fn a_log_restarts_after_its_last_second() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (log, speed) = (log(&file, 3, 10), 0.5);
        let mut steps = LogSteps::open(&log, &source(speed), LoadShare::WHOLE, 7, u64::MAX).unwrap();
        let (mut last_ns, mut requests) = (0, 0);
        while requests < 300 {
            let at_ns = match steps.next_step().unwrap().unwrap() {
                ReplayStep::Close { at_ns, .. } => at_ns,
                ReplayStep::Request(request) => {
                    let second = requests / 10;
                    assert_eq!(request.intended_ns / 2_000_000_000, second, "request {requests}");
                    requests += 1;
                    request.intended_ns
                }
            };
            assert!(at_ns >= last_ns, "a step at {at_ns} comes after one at {last_ns}, and would be late");
            last_ns = at_ns;
        }
    }

    /// Steps of a log with these dates in May (UTC), and the sentence that ends them, if any.
    fn of_dates(dates: &[&str], speed: Option<f64>, length_ns: u64) -> (usize, Option<String>) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let log = log(&file, 1, 1);
        let line = |date: &&str| format!("10.0.0.1 - - [{date} +0000] \"GET /a HTTP/1.1\" 200 5\n");
        std::fs::write(file.path(), dates.iter().map(line).collect::<String>()).unwrap();
        let source = TraceSource { speed, is_repeated: false, ..source(1.0) };
        let mut steps = LogSteps::open(&log, &source, LoadShare::WHOLE, 7, length_ns).unwrap();
        let mut requests = 0;
        loop {
            match steps.next_step() {
                Some(Ok(ReplayStep::Request(_))) => requests += 1,
                Some(Ok(ReplayStep::Close { .. })) => {}
                Some(Err(why)) => return (requests, Some(why)),
                None => return (requests, None),
            }
        }
    }

    #[test]
    fn a_replay_does_not_wait_for_years() {
        let jump = ["01/Jan/1970:00:00:03", "01/Jan/1970:00:00:04", "17/May/2015:10:05:03", "17/May/2015:10:05:04"];
        let (sent, why) = of_dates(&jump, Some(1.0), u64::MAX);
        let why = why.expect("the replay ends");
        assert!(sent == 2 && why.contains(": line 3 is 16572.4 days later than the lines above it"), "{sent}: {why}");
        // No long wait occurs without times, in a shorter window, or at a high speed.
        assert_eq!(of_dates(&jump, None, u64::MAX), (4, None));
        assert_eq!(of_dates(&jump, Some(1.0), 60_000_000_000), (4, None));
        assert_eq!(of_dates(&jump, Some(1e6), u64::MAX), (4, None));
        // A gap of less than a day is accepted.
        let quiet = ["16/May/2015:12:05:03", "17/May/2015:10:05:03"];
        assert_eq!(of_dates(&quiet, Some(1.0), u64::MAX), (2, None));
    }

    #[test]
    fn the_clients_of_a_log_are_counted_over_its_rounds() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let log = log(&file, 3, 10);
        let mut steps = LogSteps::open(&log, &source(1.0), LoadShare::WHOLE, 7, u64::MAX).unwrap();
        let mut requests = 0;
        while requests < 61 {
            requests += u64::from(matches!(steps.next_step(), Some(Ok(ReplayStep::Request(_)))));
        }
        let account = steps.account();
        assert_eq!((account.requests, account.clients, account.largest_client_requests), (61, 30, 3));
    }

    #[test]
    fn a_tiny_speed_does_not_overflow() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let log = log(&file, 2, 1);
        let mut steps = LogSteps::open(&log, &source(1e-12), LoadShare::WHOLE, 7, u64::MAX).unwrap();
        assert!((0..20).all(|_| steps.next_step().unwrap().is_ok()));
    }
}
