use crate::error::{Result, system, unusable};
use crate::process;
use crate::protocol::{
    Capacity, ColdHeld, FromWorker, HostPlace, LEASE_NS, StartedState, ToWorker, VERSION, WireResult, line, message,
};
use crate::worker_io::{self, LastLine, MessageQueue, WorkerEvent, WorkerEvents};
use load::LoadProgress;
use load::cold::ColdRoom;
use record::time::monotonic_ns;
use record::{LoadShare, PlainText};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

#[derive(Debug)]
pub enum WorkerState {
    /// It has started, but sent no message yet.
    Greeting,
    /// It waits for a plan.
    Idle,
    /// It opens connections.
    Preparing,
    /// It waits for the start.
    Ready,
    /// It sends load.
    Running,
    /// It has sent its result.
    Done,
    /// It is lost, for this reason.
    Lost(String),
}

/// The offset of the worker's clock from the driver's, estimated over the pipe in the way of NTP: the exchange with
/// the shortest round trip is the best (Mills, Internet Time Synchronization, 1991).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClockOffset {
    /// Worker's monotonic clock minus the driver's.
    pub offset_ns: i128,
    /// Half the round trip, which is the maximum error.
    pub uncertainty_ns: u64,
    /// Number of exchanges, of which the best is used.
    pub exchanges: u64,
}

/// How a worker is reached.
#[derive(Debug, Clone)]
pub enum WorkerSource {
    /// A shell command that speaks the protocol on its pipes.
    Command(String),
    /// A cluster node, whose worker speaks through a socket of this machine.
    Node {
        /// The node's name.
        name: String,
        /// The socket that carries the worker's bytes.
        socket: PathBuf,
    },
}

#[derive(Debug)]
enum Carrier {
    Process(Child, LastLine),
    Socket(UnixStream),
}

#[derive(Debug)]
pub struct WorkerLink {
    /// The command after `--client`, or the node.
    pub from: String,
    /// Its number, from 1.
    pub number: usize,
    /// `client`, or `watcher`, which has no number.
    pub role: &'static str,
    pub state: WorkerState,
    pub clock: Option<ClockOffset>,
    pub pongs: u64,
    pub progress: LoadProgress,
    /// Its result, until it is taken. A later loss of the worker does not remove it.
    pub result: Option<Box<WireResult>>,
    /// The share whose part of the driver's file it has.
    pub input: Option<LoadShare>,
    /// File pieces that it has not yet confirmed.
    pub pieces_under_way: u32,
    /// Its limits for cold connections, once they are reported.
    pub cold_room: Option<ColdRoom>,
    pub cold: ColdHeld,
    pub cold_wanted: u64,
    /// Whether it reached that number once. Connections that the server closes are reopened, and not all workers are
    /// complete at the same time.
    pub has_cold: bool,
    /// A watcher's answer, until it is taken.
    pub answer: Option<FromWorker>,
    /// State of the server that a watcher started, which it also reports unasked.
    pub server: Option<StartedState>,
    pub host: PlainText,
    pub place: HostPlace,
    /// Its share of the current or last load.
    pub share: LoadShare,
    pub capacity: Option<Capacity>,
    /// The part of its capacity that it has proved to deliver.
    pub worth: f64,
    /// Whether it was ordered to start the current load, or the load in which it was lost.
    pub has_started: bool,
    /// Whether it was asked to end the current load early.
    pub is_asked_to_stop: bool,
    pub lost_ns: u64,
    /// Whether it was lost before it took part in any load, so that its loss is not reported.
    pub is_excused: bool,
    /// Whether its loss was reported.
    pub is_reported: bool,
    /// Timeout for its process to end after its input was closed.
    pub ends_within: Duration,
    received_ns: u64,
    carrier: Carrier,
    out: MessageQueue,
}

impl WorkerLink {
    /// Starts the worker. Its messages arrive with this index.
    pub fn start(index: usize, role: &'static str, source: &WorkerSource, events: &WorkerEvents) -> Result<WorkerLink> {
        let (carrier, out) = open(source, index, short_name(role, index + 1), events)?;
        Ok(WorkerLink {
            from: match source {
                WorkerSource::Command(command) => command.clone(),
                WorkerSource::Node { name, .. } => format!("node {name}"),
            },
            number: index + 1,
            role,
            state: WorkerState::Greeting,
            clock: None,
            pongs: 0,
            progress: LoadProgress::default(),
            result: None,
            input: None,
            pieces_under_way: 0,
            cold_room: None,
            cold: ColdHeld::default(),
            cold_wanted: 0,
            has_cold: false,
            answer: None,
            server: None,
            host: PlainText::default(),
            place: HostPlace::default(),
            share: LoadShare::WHOLE,
            capacity: None,
            worth: 1.0,
            has_started: false,
            is_asked_to_stop: false,
            lost_ns: 0,
            is_excused: false,
            is_reported: false,
            ends_within: Duration::from_secs(1),
            received_ns: monotonic_ns(),
            carrier,
            out,
        })
    }

    /// Name such as `client 2 (ssh c2 straingauge load --worker)`.
    pub fn name(&self) -> String {
        format!("{} ({})", self.short_name(), PlainText::new(&self.from, 100))
    }

    /// Name such as `client 2` or `watcher`.
    pub fn short_name(&self) -> String {
        short_name(self.role, self.number)
    }

    /// Name such as `client 2 on c2`.
    pub fn at_host(&self) -> String {
        let host: &str = &self.host;
        if host.is_empty() {
            self.short_name()
        } else {
            format!("{} on {}", self.short_name(), PlainText::new(host, 30))
        }
    }

    pub fn send(&self, message: &ToWorker) {
        self.out.send(line(message));
    }

    /// Sends a ping, which renews the lease and compares the clocks. A full queue may drop it.
    pub fn ping(&self) {
        self.send(&ToWorker::Ping { sent_ns: monotonic_ns() });
    }

    pub fn out(&self) -> MessageQueue {
        self.out.clone()
    }

    pub fn leave(&self) {
        self.out.close();
    }

    pub fn is_lost(&self) -> bool {
        matches!(self.state, WorkerState::Lost(_))
    }

    pub fn handle(&mut self, event: WorkerEvent) {
        if self.is_lost() {
            return;
        }
        match event {
            WorkerEvent::Ended(why) => {
                let how = self.exit_words();
                self.lose(why.map(|why| why.to_string()).or(how).unwrap_or_else(|| "it ended".into()));
            }
            WorkerEvent::Line(line, at_ns) => match message(&line) {
                Ok(message) => {
                    self.received_ns = at_ns;
                    self.handle_message(message, at_ns);
                }
                Err(error) => self.lose(error.to_string()),
            },
        }
    }

    fn handle_message(&mut self, message: FromWorker, at_ns: u64) {
        if matches!(self.state, WorkerState::Greeting)
            && !matches!(message, FromWorker::Hello { .. } | FromWorker::Gone { .. } | FromWorker::Refused { .. })
        {
            return self.lose("its first message was not a hello".into());
        }
        match message {
            FromWorker::Hello { version, host, place, capacity, .. } => {
                if *version != *VERSION {
                    return self.lose(format!(
                        "its straingauge is {version}, this one is {VERSION}: install the same version on all machines"
                    ));
                }
                (self.host, self.place, self.capacity) = (host, place, capacity);
                if matches!(self.state, WorkerState::Greeting) {
                    // A watcher gets ready without a plan.
                    self.state = if self.role == "watcher" { WorkerState::Preparing } else { WorkerState::Idle };
                }
            }
            FromWorker::Pong { sent_ns, clock_ns } => {
                self.pongs += 1;
                let trip_ns = at_ns.saturating_sub(sent_ns);
                let middle = i128::from(sent_ns) + i128::from(trip_ns / 2);
                let this = ClockOffset {
                    offset_ns: i128::from(clock_ns) - middle,
                    uncertainty_ns: trip_ns / 2,
                    exchanges: self.clock.map_or(0, |best| best.exchanges) + 1,
                };
                self.clock = Some(match self.clock {
                    Some(best) if best.uncertainty_ns <= this.uncertainty_ns => {
                        ClockOffset { exchanges: this.exchanges, ..best }
                    }
                    _ => this,
                });
            }
            FromWorker::Ready {} if matches!(self.state, WorkerState::Preparing) => self.state = WorkerState::Ready,
            FromWorker::InputKept {} if self.pieces_under_way > 0 => self.pieces_under_way -= 1,
            FromWorker::ColdRoom(room) => self.cold_room = Some(room),
            FromWorker::Cold(held) => {
                self.cold = held;
                self.has_cold |= held.counts.established == self.cold_wanted;
            }
            FromWorker::Progress(progress) => self.progress = progress,
            FromWorker::Server(state) if self.role == "watcher" => self.server = Some(state),
            FromWorker::Result(result)
                if matches!(self.state, WorkerState::Running | WorkerState::Preparing | WorkerState::Ready) =>
            {
                if result.is_of_a_part() && !self.is_asked_to_stop {
                    return self
                        .lose("it stopped by itself, because it received no more messages from this driver".into());
                }
                (self.state, self.result) = (WorkerState::Done, Some(result));
            }
            FromWorker::Gone { why } => self.lose(why.into()),
            FromWorker::Refused { why } => self.lose(format!("it refused: {}", why)),
            FromWorker::Ready {} | FromWorker::InputKept {} | FromWorker::Result(_) => {
                self.lose("it sent an unexpected message".into());
            }
            answer if self.role == "watcher" => self.answer = Some(answer),
            _ => self.lose("it sent an unexpected message".into()),
        }
    }

    /// Gives the worker up if it was silent for the whole lease. Only time since `since_ns` counts, because the
    /// driver did not listen before.
    pub fn give_up_if_silent(&mut self, now_ns: u64, since_ns: u64, timeout_ns: u64) {
        let limit_ns = LEASE_NS.max(timeout_ns);
        if !self.is_lost() && now_ns.saturating_sub(self.received_ns.max(since_ns)) > limit_ns {
            self.lose(format!("it was silent for {} s", limit_ns / 1_000_000_000));
        }
    }

    /// Gives the worker up and kills its process, so that its load ends if possible.
    pub fn lose(&mut self, why: String) {
        self.state = WorkerState::Lost(why);
        self.lost_ns = monotonic_ns();
        self.out.close();
        self.kill();
    }

    /// Fails if the worker is lost or sent no hello within this time. `program` is the program that its command should
    /// start.
    pub fn greeted(&mut self, timeout_ns: u64, program: &str) -> Result<()> {
        let why = match &self.state {
            WorkerState::Lost(why) => why.clone(),
            WorkerState::Greeting => {
                let seconds = timeout_ns / 1_000_000_000;
                return Err(unusable(format!("{} did not say hello within {seconds} s", self.name())));
            }
            _ => return Ok(()),
        };
        let ended = match &mut self.carrier {
            Carrier::Process(child, _) => child.try_wait().ok().flatten(),
            Carrier::Socket(_) => None,
        };
        let advice = match ended.and_then(|how| how.code()) {
            // The shell's exit status for a file that it cannot execute.
            Some(126) => "straingauge on that machine cannot be executed: is it an executable file, built for that \
                          machine ('uname -m')?"
                .into(),
            _ => format!("does the command start '{program}' and print nothing else?"),
        };
        Err(unusable(format!("{} cannot be used: {why}; {advice}", self.name())))
    }

    fn exit_words(&mut self) -> Option<String> {
        let Carrier::Process(child, last_line) = &mut self.carrier else {
            return None;
        };
        if !process::ends_within(child, Duration::from_millis(200)) {
            return None;
        }
        // Shows the worker's message before ours.
        last_line.wait();
        child.try_wait().ok()?.map(|status| format!("it ended ({status})"))
    }

    fn kill(&mut self) {
        match &mut self.carrier {
            Carrier::Process(child, _) => process::kill(child),
            // The transport then ends the worker.
            Carrier::Socket(socket) => {
                let _ = socket.shutdown(Shutdown::Both);
            }
        }
    }
}

fn short_name(role: &str, number: usize) -> String {
    if role == "client" { format!("client {number}") } else { role.into() }
}

fn open(
    source: &WorkerSource,
    index: usize,
    short_name: String,
    events: &WorkerEvents,
) -> Result<(Carrier, MessageQueue)> {
    match source {
        WorkerSource::Command(command) => {
            let mut child = process::start(Command::new("sh").args(["-c", command]))
                .map_err(system(format!("cannot start '{command}'")))?;
            let stdin = child.stdin.take().expect("was asked for");
            let stdout = child.stdout.take().expect("was asked for");
            let stderr = child.stderr.take().expect("was asked for");
            let carried = worker_io::show_all(stderr, short_name).and_then(|last_line| {
                worker_io::read(events, index, stdout)?;
                Ok((Carrier::Process(child, last_line), MessageQueue::start(stdin)?))
            });
            carried.map_err(system("cannot start the threads for a worker's pipes"))
        }
        WorkerSource::Node { name, socket } => {
            let carried = UnixStream::connect(socket).and_then(|socket| {
                worker_io::read(events, index, socket.try_clone()?)?;
                let out = MessageQueue::start(socket.try_clone()?)?;
                Ok((Carrier::Socket(socket), out))
            });
            carried.map_err(system(format!("cannot reach the worker on node {name} through its socket")))
        }
    }
}

impl Drop for WorkerLink {
    fn drop(&mut self) {
        // A worker ends with its input. One that does not end is killed.
        self.leave();
        if let Carrier::Process(child, last_line) = &mut self.carrier
            && process::ends_within(child, self.ends_within)
        {
            last_line.wait();
            return;
        }
        self.kill();
    }
}
