use super::connections::{Connections, EndedConnection};
use super::order::{HeldRequest, SortingWindow};
use super::origin::ReplayOrigin;
use super::spread::GroupSpread;
use super::{PlanStep, PlannedRequest, ReplayOptions, ReplayPace, account_of};
use crate::trace::TraceReader;
use crate::{WorkloadError, stable_hash};
use record::workload::ReplayResult;
use std::collections::VecDeque;

/// An iterator over the steps, in the order of intended times. The options' limits bound its memory.
///
/// An error ends the plan after all steps before it.
pub struct Plan {
    reader: TraceReader,
    options: ReplayOptions,
    window: SortingWindow,
    spread: GroupSpread,
    connections: Connections,
    /// Requests with one logged time, in order, which wait for their offsets.
    group: VecDeque<HeldRequest>,
    /// The first request of the next group.
    after: Option<HeldRequest>,
    /// Steps that were decided but not taken yet: connections to close, and the request after them.
    ready: VecDeque<PlanStep>,
    /// Log time of the plan's start, equal for all shares.
    origin: ReplayOrigin,
    last_ns: u64,
    last_time_ns: i64,
    resolution_ns: u64,
    state: PlanState,
    failure: Option<WorkloadError>,
    requests: u64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum PlanState {
    Reading,
    /// The log has ended or failed; held requests are still returned.
    Draining,
    Done,
}

/// Maximum number of requests with one logged time that are spread together. A longer group is spread in pieces, each
/// over the first half of the remaining time, so that memory stays bounded.
const GROUP: usize = 1 << 16;
const GROUP_BYTES: usize = 16 << 20;

impl Plan {
    /// Makes a plan of the requests in `reader`.
    pub fn new(reader: TraceReader, options: ReplayOptions) -> Self {
        Plan {
            window: SortingWindow::new(options.reorder_ns, options.held_limit),
            spread: GroupSpread::new(options.seed, u64::from(options.share.index)),
            connections: Connections::new(options.grouping, options.clients_limit),
            reader,
            origin: ReplayOrigin::new(&options),
            options,
            group: VecDeque::new(),
            after: None,
            ready: VecDeque::new(),
            last_ns: 0,
            last_time_ns: i64::MIN,
            resolution_ns: 1,
            state: PlanState::Reading,
            failure: None,
            requests: 0,
        }
    }

    /// The log as read so far, and what was planned of it.
    pub fn account(&self) -> ReplayResult {
        let planned = ReplayResult {
            requests: self.requests,
            sessions: self.connections.opened,
            evicted: self.connections.evicted,
            span_ns: self.span_ns(),
            ..self.window.disorder.clone()
        };
        account_of(&self.reader, planned)
    }

    /// Log time from the first to the last request planned so far.
    fn span_ns(&self) -> u64 {
        self.origin.at_ns().map_or(0, |origin| self.last_time_ns.max(origin).abs_diff(origin))
    }

    /// Log time from the start to the end of the last request's second (or of the log's resolution).
    pub(super) fn round_ns(&self) -> u64 {
        self.span_ns().saturating_add(self.resolution_ns)
    }

    /// The end of the log or an error begins the draining.
    fn read(&mut self) {
        let entry = match self.reader.next_entry() {
            Ok(Some(entry)) => entry,
            Ok(None) => return self.state = PlanState::Draining,
            Err(error) => {
                self.failure = Some(error);
                return self.state = PlanState::Draining;
            }
        };
        let time_ns = self.window.advance(entry.time_ns, entry.line);
        self.origin.observe(time_ns, entry.line, &self.options);
        let client = stable_hash(entry.client);
        if self.options.share.holds(client) {
            let host = if self.options.has_host { entry.host } else { b"" };
            let text = [entry.method, host, entry.target].concat().into_boxed_slice();
            let request = PlannedRequest {
                client,
                connection: 0,
                intended_ns: 0,
                line: entry.line,
                status: entry.status,
                bytes: entry.bytes,
                method_len: entry.method.len() as u8,
                text,
            };
            self.window.hold(HeldRequest { time_ns, resolution_ns: entry.resolution_ns, request });
        }
    }

    fn next_sorted(&mut self) -> Option<HeldRequest> {
        loop {
            if let Some(held) = self.after.take() {
                return Some(held);
            }
            if self.state != PlanState::Reading {
                return self.window.drain();
            }
            if let Some(held) = self.window.release() {
                return Some(held);
            }
            self.read();
        }
    }

    /// Gathers the requests with the next logged time; `false` if there are none.
    fn gather(&mut self) -> bool {
        let Some(first) = self.next_sorted() else { return false };
        let (time_ns, resolution_ns) = (first.time_ns, first.resolution_ns);
        let is_continued = time_ns == self.last_time_ns;
        let mut bytes = first.request.text.len();
        (self.last_time_ns, self.resolution_ns) = (time_ns, resolution_ns);
        self.group.push_back(first);
        let mut is_whole = true;
        while let Some(next) = self.next_sorted() {
            if next.time_ns != time_ns || next.resolution_ns != resolution_ns {
                self.after = Some(next);
                break;
            }
            if self.group.len() == GROUP || bytes > GROUP_BYTES {
                self.after = Some(next);
                is_whole = false;
                break;
            }
            bytes += next.request.text.len();
            self.group.push_back(next);
        }
        // If the group continues, this piece counts as half of it.
        let count = if is_whole { self.group.len() } else { 2 * self.group.len() };
        if is_continued {
            self.spread.resume(count)
        } else {
            self.spread.begin(count)
        }
        true
    }

    fn plan(&mut self, HeldRequest { time_ns: now_ns, resolution_ns, request }: HeldRequest) {
        let client = request.client;
        while let Some(ended) = self.connections.expire(now_ns) {
            self.close(ended);
        }
        if let Some(ended) = self.connections.make_room(client) {
            self.close(EndedConnection { due_ns: ended.due_ns.min(now_ns), ..ended });
        }
        let connection = self.connections.join(client, now_ns);
        let offset_ns = self.spread.next_ns(resolution_ns);
        self.last_ns = self.last_ns.max(self.paced(now_ns, offset_ns));
        self.requests += 1;
        let request = PlannedRequest { connection, intended_ns: self.last_ns, ..request };
        self.ready.push_back(PlanStep::Request(request));
        if self.connections.is_single() {
            self.close(EndedConnection { client, connection, due_ns: now_ns });
        }
    }

    fn close(&mut self, ended: EndedConnection) {
        let EndedConnection { client, connection, due_ns } = ended;
        self.last_ns = self.last_ns.max(self.paced(due_ns, 0));
        self.ready.push_back(PlanStep::Close { client, connection, at_ns: self.last_ns });
    }

    fn paced(&self, time_ns: i64, offset_ns: u64) -> u64 {
        let since_ns = time_ns.saturating_sub(self.origin.at_ns().unwrap_or(time_ns)).max(0) as u64 + offset_ns;
        match self.options.pace {
            ReplayPace::AsFastAsPossible => 0,
            ReplayPace::Original { speed: 1.0 } => since_ns,
            ReplayPace::Original { speed } => (since_ns as f64 / speed) as u64,
        }
    }
}

impl Iterator for Plan {
    type Item = Result<PlanStep, WorkloadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(step) = self.ready.pop_front() {
                return Some(Ok(step));
            }
            if let Some(held) = self.group.pop_front() {
                self.plan(held);
                continue;
            }
            if self.state == PlanState::Done {
                return self.failure.take().map(Err);
            }
            if !self.gather() {
                self.state = PlanState::Done;
                // No connection waits past the log's end for a request that cannot come.
                let end_ns = self.window.latest_ns;
                while let Some(ended) = self.connections.end() {
                    self.close(EndedConnection { due_ns: ended.due_ns.min(end_ns), ..ended });
                }
            }
        }
    }
}
