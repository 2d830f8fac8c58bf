//! The read-ahead: a separate thread reads the log and writes the requests, so that an engine thread never waits for
//! a disk or a decoder.

use super::PendingRequest;
use crate::request::{fields, http_2_writer};
use crate::supply::{ReplayRequest, ReplaySource, ReplayStep};
use record::LoadPlan;
use record::workload::ReplayResult;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

pub(crate) const BATCHES: usize = 16;
pub(crate) const STEPS: usize = 256;
/// A batch with this much request text is closed. It may exceed this by one request: a line has at most 64 KiB.
const TEXT_BYTES: usize = 256 * 1024;

#[derive(Debug)]
pub(crate) enum FeedStep {
    Request(Box<PendingRequest>),
    Close { client: u64, session: u64, at_ns: u64 },
}

#[derive(Debug)]
pub(crate) struct Feed {
    batches: Receiver<Vec<FeedStep>>,
    batch: Vec<FeedStep>,
    is_over: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    Step(u64),
    NotYet,
    /// The log, or its readable part, has ended.
    Over,
}

impl Feed {
    #[inline]
    pub(crate) fn peek(&mut self) -> Next {
        loop {
            if let Some(step) = self.batch.last() {
                return Next::Step(match step {
                    FeedStep::Request(request) => request.intended_ns,
                    FeedStep::Close { at_ns, .. } => *at_ns,
                });
            }
            if self.is_over {
                return Next::Over;
            }
            match self.batches.try_recv() {
                Ok(batch) => self.batch = batch,
                Err(TryRecvError::Empty) => return Next::NotYet,
                Err(TryRecvError::Disconnected) => self.is_over = true,
            }
        }
    }

    pub(crate) fn take(&mut self) -> Option<FeedStep> {
        self.batch.pop()
    }
}

pub(crate) struct Feeder<'a> {
    source: Box<dyn ReplaySource + 'a>,
    batches: SyncSender<Vec<FeedStep>>,
    writer: RequestWriter,
    plan: &'a LoadPlan,
}

pub(crate) fn feeder<'a>(plan: &'a LoadPlan, source: Box<dyn ReplaySource + 'a>) -> (Feeder<'a>, Feed) {
    let (sender, receiver) = sync_channel(BATCHES);
    let feeder = Feeder { source, batches: sender, writer: RequestWriter::new(plan), plan };
    (feeder, Feed { batches: receiver, batch: Vec::new(), is_over: false })
}

impl Feeder<'_> {
    pub(crate) fn run(mut self) -> ReplayResult {
        let (mut batch, mut text_bytes, mut unsendable) = (Vec::new(), 0, 0);
        let mut failure = None;
        while let Some(step) = self.source.next_step() {
            match step {
                Ok(ReplayStep::Request(request)) if !self.writer.can_write(&request) => unsendable += 1,
                Ok(ReplayStep::Request(request)) => {
                    let class = request.body_bytes.map_or(0, |bytes| self.plan.workload.class_of_size(bytes));
                    let bytes = self.writer.write(&request);
                    text_bytes += bytes.len();
                    batch.push(FeedStep::Request(Box::new(PendingRequest {
                        client: request.client,
                        session: request.session,
                        intended_ns: request.intended_ns,
                        taken_ns: 0,
                        bytes,
                        is_head: request.method == b"HEAD",
                        class,
                        status: request.status,
                        body_bytes: request.body_bytes,
                    })));
                }
                Ok(ReplayStep::Close { client, session, at_ns }) => {
                    batch.push(FeedStep::Close { client, session, at_ns })
                }
                Err(why) => {
                    failure = Some(why);
                    break;
                }
            }
            if batch.len() >= STEPS || text_bytes >= TEXT_BYTES {
                text_bytes = 0;
                if !self.send(&mut batch) {
                    break;
                }
            }
        }
        self.send(&mut batch);
        ReplayResult { unsendable, is_whole: failure.is_none(), failure, ..self.source.account() }
    }

    fn send(&self, batch: &mut Vec<FeedStep>) -> bool {
        batch.reverse();
        self.batches.send(std::mem::replace(batch, Vec::with_capacity(STEPS))).is_ok()
    }
}

enum RequestWriter {
    Http1 {
        rest: Vec<u8>,
        /// `rest` for methods with a body, with Content-Length 0, because a log has no bodies.
        rest_with_length: Vec<u8>,
    },
    Http2(crate::http2::LogRequestWriter),
}

impl RequestWriter {
    fn new(plan: &LoadPlan) -> Self {
        if plan.protocol.is_over_http_2() {
            return RequestWriter::Http2(http_2_writer(plan));
        }
        let fields = fields(plan);
        RequestWriter::Http1 {
            rest: format!(" HTTP/1.1\r\n{fields}\r\n").into_bytes(),
            rest_with_length: format!(" HTTP/1.1\r\n{fields}Content-Length: 0\r\n\r\n").into_bytes(),
        }
    }

    /// HTTP/2 needs a path where HTTP/1.1 may have a whole URL.
    fn can_write(&self, request: &ReplayRequest<'_>) -> bool {
        let is_path = request.target.starts_with(b"/") || (request.method == b"OPTIONS" && request.target == b"*");
        request.method != b"CONNECT" && (is_path || matches!(self, RequestWriter::Http1 { .. }))
    }

    fn write(&self, request: &ReplayRequest<'_>) -> Box<[u8]> {
        let has_length = matches!(request.method, b"POST" | b"PUT" | b"PATCH");
        match self {
            RequestWriter::Http1 { rest, rest_with_length } => {
                let rest = if has_length { rest_with_length } else { rest };
                [request.method, b" ", request.target, rest].concat().into_boxed_slice()
            }
            RequestWriter::Http2(writer) => writer.block(request.method, request.target, has_length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn request<'a>(number: u64, method: &'a [u8], target: &'a [u8]) -> ReplayRequest<'a> {
        let (client, session, intended_ns) = (number, number, number);
        ReplayRequest { client, session, intended_ns, method, target, status: None, body_bytes: None }
    }

    struct Endless<'a> {
        read: &'a AtomicU64,
        target: Vec<u8>,
    }

    impl ReplaySource for Endless<'_> {
        fn next_step(&mut self) -> Option<Result<ReplayStep<'_>, String>> {
            Some(Ok(ReplayStep::Request(request(self.read.fetch_add(1, Ordering::SeqCst), b"GET", &self.target))))
        }

        fn account(&self) -> ReplayResult {
            ReplayResult { requests: self.read.load(Ordering::SeqCst), ..Default::default() }
        }
    }

    fn read_ahead(target_bytes: usize) -> u64 {
        let plan = LoadPlan::simple(([127, 0, 0, 1], 80).into());
        let read = AtomicU64::new(0);
        let source = Box::new(Endless { read: &read, target: vec![b'/'; target_bytes] });
        let (feeder, mut feed) = feeder(&plan, source);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| feeder.run());
            // Wait until the reader stops because the channel is full.
            let mut before = u64::MAX;
            while before != read.load(Ordering::SeqCst) || matches!(feed.peek(), Next::NotYet) {
                before = read.load(Ordering::SeqCst);
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
            drop(feed);
            reader.join().expect("the reader ends when the receiver is gone").requests
        })
    }

    #[test]
    fn a_reader_that_is_ahead_waits() {
        // The engine thread has one batch, the reader has one, and the channel has the others.
        let most = ((BATCHES + 2) * STEPS) as u64;
        assert!(read_ahead(1) <= most, "the bound by steps");
        assert!(read_ahead(60_000) <= ((BATCHES + 2) * (TEXT_BYTES / 60_000 + 1)) as u64, "the bound by text");
    }

    #[test]
    fn a_request_has_the_fields_of_the_plan_and_no_body() {
        let mut plan = LoadPlan::simple(([127, 0, 0, 1], 80).into());
        plan.host = "example".into();
        plan.headers = vec![("X-A".into(), "b".into())];
        let writer = RequestWriter::new(&plan);
        let text = |method| String::from_utf8(writer.write(&request(0, method, b"/a?b")).into()).unwrap();
        assert_eq!(text(b"POST"), "POST /a?b HTTP/1.1\r\nHost: example\r\nX-A: b\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(text(b"GET"), "GET /a?b HTTP/1.1\r\nHost: example\r\nX-A: b\r\n\r\n");
    }
}
