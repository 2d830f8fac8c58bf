//! Scripted workers for tests. Each sends its hello, answers pings, and passes every other message to its test's
//! function.

use load::{LoadEvents, LoadResult};
use record::time::monotonic_ns;
use record::workload::ReplayResult;
use record::{LoadPlan, LoadShare};
use remote::protocol::{FromWorker, HostPlace, InputPiece, LineReader, ToWorker, VERSION, WireResult, line};
use remote::{FileParts, Fleet, InputFiles, OnLoss, RemoteError, WorkerSource};
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::AtomicBool;

pub struct FakeWorker {
    socket: UnixStream,
    /// How far its clock is ahead; `None` if it answers no pings.
    pub ahead_ns: Option<u64>,
}

impl FakeWorker {
    pub fn send(&mut self, message: &FromWorker) {
        self.send_text(&line(message));
    }

    /// Returns false if the driver is gone.
    pub fn send_text(&mut self, text: &str) -> bool {
        self.socket.write_all(text.as_bytes()).is_ok()
    }

    pub fn send_result(&mut self, plan: &LoadPlan, ok: u64) {
        self.send_result_of(LoadResult { window_ns: plan.duration_ns, ..LoadResult::default() }, ok);
    }

    pub fn send_early_result(&mut self, ok: u64) {
        self.send_result_of(LoadResult { window_ns: 1_000_000, interrupted: true, ..LoadResult::default() }, ok);
    }

    fn send_result_of(&mut self, mut result: LoadResult, ok: u64) {
        (0..ok).for_each(|_| result.counts.times.response.record_ns(1000));
        (result.counts.outcomes.sent, result.counts.outcomes.ok) = (ok, ok);
        self.send(&FromWorker::Result(Box::new(WireResult::new(result, 0).expect("a result is JSON"))));
    }

    /// Closes the socket, as if the worker died.
    pub fn end(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

pub type Script = Box<dyn FnMut(ToWorker, &mut FakeWorker) + Send>;

/// A worker that gets ready for a plan and calls `script` at its start.
pub fn at_start(mut script: impl FnMut(&LoadPlan, &mut FakeWorker) + Send + 'static) -> Script {
    let mut plan = None;
    Box::new(move |message, worker| match message {
        ToWorker::Plan(message) => {
            plan = Some(message.plan);
            worker.send(&FromWorker::Ready {});
        }
        ToWorker::Start { .. } => script(plan.as_ref().expect("a plan comes first"), worker),
        _ => {}
    })
}

pub fn fleet(workers: Vec<Script>, on_loss: OnLoss) -> Fleet {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let socket = folder.path().join("workers");
    let sources = vec![WorkerSource::Node { name: "fake".into(), socket: socket.clone() }; workers.len()];
    listen(&socket, workers);
    Fleet::connect(&sources, None, on_loss, None, &AtomicBool::new(false)).expect("a fleet")
}

pub fn listen(socket: &Path, workers: Vec<Script>) {
    let listener = UnixListener::bind(socket).expect("a socket in a temporary folder");
    std::thread::spawn(move || {
        for (socket, script) in listener.incoming().flatten().zip(workers) {
            std::thread::spawn(move || work(socket, Some(0), script));
        }
    });
}

/// Runs a worker whose clock is ahead by `ahead_ns`, or that answers no pings if that is `None`.
pub fn work(socket: UnixStream, ahead_ns: Option<u64>, script: Script) {
    work_after(&[], socket, ahead_ns, script);
}

/// Like [`work`], and sends messages after the hello.
pub fn work_after(first: &[FromWorker], socket: UnixStream, ahead_ns: Option<u64>, mut script: Script) {
    let mut lines = LineReader::new(socket.try_clone().expect("a second handle"));
    let mut worker = FakeWorker { socket, ahead_ns };
    worker.send(&FromWorker::Hello {
        version: VERSION.into(),
        host: "fake".into(),
        pid: 1,
        place: HostPlace::default(),
        capacity: None,
    });
    first.iter().for_each(|message| worker.send(message));
    while let Ok(Some(message)) = lines.next_message::<ToWorker>() {
        match message {
            ToWorker::Ping { sent_ns } => {
                if let Some(ahead_ns) = worker.ahead_ns {
                    worker.send(&FromWorker::Pong { sent_ns, clock_ns: monotonic_ns() + ahead_ns });
                }
            }
            message => script(message, &mut worker),
        }
    }
}

pub fn plan(connections: u64, duration_ns: u64) -> LoadPlan {
    LoadPlan { connections, duration_ns, ..LoadPlan::simple("127.0.0.1:9".parse().expect("an address")) }
}

struct NoFile;

impl InputFiles for NoFile {
    fn file_parts(&self) -> FileParts {
        FileParts::Nothing
    }

    fn give_parts(
        &mut self,
        _shares: &[LoadShare],
        _give: &mut dyn FnMut(u32, InputPiece) -> Result<(), String>,
    ) -> Result<(), String> {
        Ok(())
    }

    fn account(&self, _replay: &mut ReplayResult) {}
}

struct IgnoredEvents;

impl LoadEvents for IgnoredEvents {}

/// Drives a load that is not stopped.
pub fn run(fleet: &mut Fleet, plan: &LoadPlan) -> Result<LoadResult, RemoteError> {
    fleet.run(plan, &mut NoFile, &AtomicBool::new(false), &mut IgnoredEvents)
}
