//! The read-ahead: a separate thread reads the log and writes the requests, so that an engine thread never waits for
//! a disk or a decoder.

use super::PendingRequest;
use crate::request::{fields, http_2_writer};
use crate::supply::{ReplayRequest, ReplaySource, ReplayStep};
use record::LoadPlan;
use record::workload::ReplayResult;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

/// Batches that may wait to be sent.
pub const BATCHES: usize = 16;
/// Steps of a full batch.
pub const STEPS: usize = 256;
/// A batch with this much request text is closed. It may exceed this by one request: a line has at most 64 KiB.
pub const TEXT_BYTES: usize = 256 * 1024;

/// A step of a log, ready to be sent.
#[derive(Debug)]
pub enum FeedStep {
    /// A request.
    Request(Box<PendingRequest>),
    /// The end of a session.
    Close {
        /// Number of the client.
        client: u64,
        /// Number of the session.
        session: u64,
        /// Time since the first request.
        at_ns: u64,
    },
}

/// The engine thread's end of the read-ahead.
#[derive(Debug)]
pub struct Feed {
    batches: Receiver<Vec<FeedStep>>,
    batch: Vec<FeedStep>,
    is_over: bool,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// A step at this time.
    Step(u64),
    /// The reader is behind.
    NotYet,
    /// The log, or its readable part, has ended.
    Over,
}

impl Feed {
    /// Looks at the next step without waiting.
    #[inline]
    pub fn peek(&mut self) -> Next {
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

    /// Takes the step that `peek` has found.
    pub fn take(&mut self) -> Option<FeedStep> {
        self.batch.pop()
    }
}

/// The reader's end of the read-ahead.
pub struct Feeder<'a> {
    source: Box<dyn ReplaySource + 'a>,
    batches: SyncSender<Vec<FeedStep>>,
    writer: RequestWriter,
    plan: &'a LoadPlan,
}

/// Both ends of a read-ahead.
pub fn feeder<'a>(plan: &'a LoadPlan, source: Box<dyn ReplaySource + 'a>) -> (Feeder<'a>, Feed) {
    let (sender, receiver) = sync_channel(BATCHES);
    let feeder = Feeder { source, batches: sender, writer: RequestWriter::new(plan), plan };
    (feeder, Feed { batches: receiver, batch: Vec::new(), is_over: false })
}

impl Feeder<'_> {
    /// Reads the log to its end, or until the other end is gone.
    pub fn run(mut self) -> ReplayResult {
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
