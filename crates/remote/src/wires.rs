//! One thread carries the bytes of all workers: it forwards their lines and standard error, and writes what they did
//! not take at once.

use crate::complaints::{Complaints, LastLine, Said, start_to_show};
use crate::error::{Result, system};
use crate::protocol::{MAX_LINE_BYTES, ProtocolError};
use record::lock;
use record::time::monotonic_ns;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::{Errno, ioctl_fionbio, read, write};
use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};

/// Bytes read from a worker before the next worker's turn.
const TURN_BYTES: usize = 64 << 10;
/// Maximum queued lines for a worker that does not read.
const MOST_WAITING: usize = 64;
/// Longest wait for bytes, nanoseconds.
const LOOK_NS: i64 = 100_000_000;
/// The key of the event that ends the thread.
const END: u64 = 0;

/// The reason if the worker gave none.
pub const ENDED: &str = "it ended";

/// What came from a worker.
#[derive(Debug)]
pub enum Event {
    /// A line without its end, and when it came on the driver's monotonic clock.
    Line(Vec<u8>, u64),
    /// The worker's output ended or is not the protocol; the reason.
    Ended(String),
}

/// The thread, which ends when this is dropped.
#[derive(Debug)]
pub struct Wires {
    shared: Arc<Shared>,
    end: OwnedFd,
    show: SyncSender<Said>,
}

/// What the thread shares with those that add workers and send them messages.
#[derive(Debug)]
struct Shared {
    epoll: OwnedFd,
    next_key: AtomicU64,
    /// All that came before this instant is in the queue of events.
    heard_all_ns: AtomicU64,
    /// Wires that the thread has not yet taken.
    added: Mutex<Vec<(u64, Wire)>>,
}

#[derive(Debug)]
enum Wire {
    /// Messages from the worker; a socket carries those to it as well.
    Lines {
        index: usize,
        from: Arc<OwnedFd>,
        line: Vec<u8>,
        out: Option<Out>,
    },
    Out(Out),
    Complaints {
        from: OwnedFd,
        complaints: Complaints,
    },
}

/// The queue of messages to a worker; `None` once it is given up.
#[derive(Debug, Clone)]
pub struct Out(Arc<Mutex<Option<Queue>>>);

#[derive(Debug)]
struct Queue {
    to: Arc<OwnedFd>,
    shared: Arc<Shared>,
    key: u64,
    /// What the thread always awaits on this descriptor.
    awaited: EventFlags,
    waiting: VecDeque<String>,
    written: usize,
    /// Whether the thread writes the rest.
    is_slow: bool,
    is_closing: bool,
}

impl Wires {
    /// Starts the thread. `events` gets each worker's events with its index.
    pub fn start(events: SyncSender<(usize, Event)>) -> Result<Wires> {
        let start = || -> std::io::Result<Wires> {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            let end = eventfd(0, EventfdFlags::CLOEXEC)?;
            epoll::add(&epoll, &end, EventData::new_u64(END), EventFlags::IN)?;
            let shared = Arc::new(Shared {
                epoll,
                next_key: AtomicU64::new(END + 1),
                heard_all_ns: AtomicU64::new(0),
                added: Mutex::default(),
            });
            let mut thread = Thread { shared: shared.clone(), wires: HashMap::new(), events: Some(events) };
            std::thread::Builder::new().name("workers".into()).spawn(move || thread.run())?;
            Ok(Wires { shared, end, show: start_to_show()? })
        };
        start().map_err(system("cannot start the threads for the bytes of workers"))
    }

    /// All that came before this instant is in the queue of events, so a worker without an event there was silent until
    /// then, even if the queue was not read.
    pub fn heard_all_ns(&self) -> u64 {
        self.shared.heard_all_ns.load(Ordering::Acquire)
    }

    pub fn show(&self, line: String) {
        let _ = self.show.try_send(Said::Line(line));
    }

    pub fn add_pipes(&self, index: usize, stdin: OwnedFd, stdout: OwnedFd) -> std::io::Result<Out> {
        ioctl_fionbio(&stdin, true)?;
        let key = self.shared.new_key();
        let out = Out::new(Arc::new(stdin), &self.shared, key, EventFlags::empty());
        self.shared.hand_over(key, Wire::Out(out.clone()));
        self.add_lines(self.shared.new_key(), index, Arc::new(stdout), None)?;
        Ok(out)
    }

    /// Carries the bytes of a worker's socket.
    pub fn add_socket(&self, index: usize, socket: Arc<OwnedFd>) -> std::io::Result<Out> {
        let key = self.shared.new_key();
        let out = Out::new(socket.clone(), &self.shared, key, EventFlags::IN);
        self.add_lines(key, index, socket, Some(out.clone()))?;
        Ok(out)
    }

    fn add_lines(&self, key: u64, index: usize, from: Arc<OwnedFd>, out: Option<Out>) -> std::io::Result<()> {
        self.shared.read(key, &from)?;
        self.shared.hand_over(key, Wire::Lines { index, from, line: Vec::new(), out });
        Ok(())
    }

    /// Shows a worker's standard error, with `name` before each line.
    pub fn add_complaints(&self, from: OwnedFd, name: String) -> std::io::Result<LastLine> {
        let complaints = Complaints::new(name, self.show.clone());
        let last_line = complaints.last_line();
        let key = self.shared.new_key();
        self.shared.read(key, &from)?;
        self.shared.hand_over(key, Wire::Complaints { from, complaints });
        Ok(last_line)
    }
}

impl Drop for Wires {
    fn drop(&mut self) {
        let _ = write(&self.end, &1_u64.to_ne_bytes());
    }
}

impl Shared {
    fn new_key(&self) -> u64 {
        self.next_key.fetch_add(1, Ordering::Relaxed)
    }

    fn read(&self, key: u64, from: &OwnedFd) -> std::io::Result<()> {
        ioctl_fionbio(from, true)?;
        Ok(epoll::add(&self.epoll, from, EventData::new_u64(key), EventFlags::IN)?)
    }

    /// The event may come first; it is then repeated.
    fn hand_over(&self, key: u64, wire: Wire) {
        lock(&self.added).push((key, wire));
    }
}

impl Out {
    fn new(to: Arc<OwnedFd>, shared: &Arc<Shared>, key: u64, awaited: EventFlags) -> Out {
        let (shared, waiting) = (shared.clone(), VecDeque::new());
        let queue = Queue { to, shared, key, awaited, waiting, written: 0, is_slow: false, is_closing: false };
        Out(Arc::new(Mutex::new(Some(queue))))
    }

    /// Sends a line; false when closed. Never blocks: if many lines are queued, this one is dropped, and the silence
    /// that follows is noticed.
    pub fn send(&self, text: String) -> bool {
        self.with(|queue| {
            if !queue.is_closing && queue.waiting.len() < MOST_WAITING {
                queue.waiting.push_back(text);
            }
            queue.is_slow || queue.write()
        })
    }

    pub fn close(&self) {
        self.with(|queue| {
            queue.is_closing = true;
            queue.is_slow
        });
    }

    fn go_on(&self) {
        self.with(Queue::write);
    }

    /// Closes the queue if `act` returns false.
    fn with(&self, act: impl FnOnce(&mut Queue) -> bool) -> bool {
        let mut queue = lock(&self.0);
        let is_open = queue.as_mut().is_some_and(act);
        if !is_open {
            *queue = None;
        }
        is_open
    }
}

impl Queue {
    /// Writes what the worker takes; false once nothing more will be written.
    fn write(&mut self) -> bool {
        while let Some(text) = self.waiting.front() {
            match write(&*self.to, &text.as_bytes()[self.written..]) {
                Ok(count) => self.written += count,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return self.be_slow(true),
                Err(_) => return false,
            }
            if self.written >= text.len() {
                self.waiting.pop_front();
                self.written = 0;
            }
        }
        self.be_slow(false) && !self.is_closing
    }

    fn be_slow(&mut self, is_slow: bool) -> bool {
        if is_slow == self.is_slow {
            return true;
        }
        self.is_slow = is_slow;
        let (epoll, data) = (&self.shared.epoll, EventData::new_u64(self.key));
        let done = match (is_slow, self.awaited.is_empty()) {
            (true, true) => epoll::add(epoll, &self.to, data, EventFlags::OUT),
            (true, false) => epoll::modify(epoll, &self.to, data, self.awaited | EventFlags::OUT),
            (false, true) => epoll::delete(epoll, &self.to),
            (false, false) => epoll::modify(epoll, &self.to, data, self.awaited),
        };
        done.is_ok()
    }
}

struct Thread {
    shared: Arc<Shared>,
    wires: HashMap<u64, Wire>,
    /// `None` once the receiver is gone.
    events: Option<SyncSender<(usize, Event)>>,
}

impl Thread {
    fn run(&mut self) {
        let (mut ready, mut room) = (Vec::with_capacity(256), vec![0; TURN_BYTES]);
        let wait = Timespec { tv_sec: 0, tv_nsec: LOOK_NS };
        loop {
            ready.clear();
            let looked_ns = monotonic_ns();
            match epoll::wait(&self.shared.epoll, spare_capacity(&mut ready), Some(&wait)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
            for event in &ready {
                let (key, flags) = (event.data.u64(), event.flags);
                if key == END {
                    return;
                }
                if !self.wires.contains_key(&key) {
                    self.wires.extend(lock(&self.shared.added).drain(..));
                }
                let wire = self.wires.get_mut(&key);
                if wire.is_some_and(|wire| !wire.take_turn(flags, &mut room, &mut self.events)) {
                    self.end(key);
                }
            }
            // Otherwise some worker may have more to read.
            if ready.len() < ready.capacity() {
                self.shared.heard_all_ns.store(looked_ns, Ordering::Release);
            }
        }
    }

    fn end(&mut self, key: u64) {
        // A dropped descriptor with another holder would stay in the epoll instance.
        let _ = match self.wires.remove(&key) {
            Some(Wire::Lines { from, .. }) => epoll::delete(&self.shared.epoll, &from),
            Some(Wire::Complaints { from, .. }) => epoll::delete(&self.shared.epoll, &from),
            Some(Wire::Out(_)) | None => Ok(()),
        };
    }
}

impl Wire {
    /// Moves the available bytes; false at the end.
    fn take_turn(
        &mut self,
        flags: EventFlags,
        room: &mut [u8],
        events: &mut Option<SyncSender<(usize, Event)>>,
    ) -> bool {
        match self {
            Wire::Out(out) => {
                out.go_on();
                true
            }
            Wire::Complaints { from, complaints } => match read(&*from, &mut *room) {
                Ok(0) => false,
                Ok(count) => {
                    complaints.take(&room[..count]);
                    true
                }
                Err(error) => matches!(error, Errno::AGAIN | Errno::INTR),
            },
            Wire::Lines { index, from, line, out } => {
                if let Some(out) = out
                    && flags.contains(EventFlags::OUT)
                {
                    out.go_on();
                }
                let mut tell = |event| {
                    if events.as_ref().is_some_and(|events| events.send((*index, event)).is_err()) {
                        *events = None;
                    }
                };
                match read(&*from, &mut *room) {
                    Ok(0) if line.is_empty() => tell(Event::Ended(ENDED.into())),
                    Ok(0) => tell(Event::Ended(ProtocolError::Torn.to_string())),
                    Ok(count) => match take_lines(line, &room[..count], &mut tell) {
                        Ok(()) => return true,
                        Err(error) => tell(Event::Ended(error.to_string())),
                    },
                    Err(Errno::AGAIN | Errno::INTR) => return true,
                    Err(error) => tell(Event::Ended(ProtocolError::Read(error.into()).to_string())),
                }
                false
            }
        }
    }
}

/// Calls `tell` for each line that `bytes` complete. `line` holds the beginning of the next, bounded.
fn take_lines(line: &mut Vec<u8>, bytes: &[u8], tell: &mut impl FnMut(Event)) -> Result<(), ProtocolError> {
    let at_ns = monotonic_ns();
    for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
        line.extend_from_slice(piece);
        if line.len() > MAX_LINE_BYTES {
            return Err(ProtocolError::TooLong);
        }
        if line.pop_if(|byte| *byte == b'\n').is_some() {
            tell(Event::Line(std::mem::take(line), at_ns));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::{Receiver, sync_channel};
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(60);

    fn start() -> (Wires, Receiver<(usize, Event)>) {
        let (tell, events) = sync_channel(4);
        (Wires::start(tell).unwrap(), events)
    }

    fn line(events: &Receiver<(usize, Event)>) -> (usize, Vec<u8>) {
        match events.recv_timeout(LONG).unwrap() {
            (index, Event::Line(line, _)) => (index, line),
            (index, Event::Ended(why)) => panic!("{index} ended: {why}"),
        }
    }

    fn end(events: &Receiver<(usize, Event)>) -> (usize, String) {
        match events.recv_timeout(LONG).unwrap() {
            (index, Event::Ended(why)) => (index, why),
            (index, Event::Line(line, _)) => panic!("{index} sent {} bytes", line.len()),
        }
    }

    #[test]
    fn lines_come_whole_in_any_pieces_and_the_end_is_said_once() {
        let (wires, events) = start();
        let (mut worker, here) = UnixStream::pair().unwrap();
        wires.add_socket(7, Arc::new(here.into())).unwrap();
        for piece in ["on", "e\ntwo\n\nth", "ree", "\n"] {
            worker.write_all(piece.as_bytes()).unwrap();
        }
        for expected in ["one", "two", "", "three"] {
            assert_eq!(line(&events), (7, expected.as_bytes().to_vec()));
        }
        worker.write_all(b"fou").unwrap();
        drop(worker);
        assert_eq!(end(&events), (7, ProtocolError::Torn.to_string()));
        assert!(events.recv_timeout(Duration::from_millis(20)).is_err());
    }

    #[test]
    fn a_line_without_an_end_is_refused_and_bounded() {
        let (wires, events) = start();
        let (mut worker, here) = UnixStream::pair().unwrap();
        let here = Arc::new(OwnedFd::from(here));
        wires.add_socket(0, here.clone()).unwrap();
        let flood = std::thread::spawn(move || while worker.write_all(&[b'x'; 1 << 20]).is_ok() {});
        assert_eq!(end(&events), (0, ProtocolError::TooLong.to_string()));
        rustix::net::shutdown(&here, rustix::net::Shutdown::Both).unwrap();
        flood.join().unwrap();
    }

    #[test]
    fn a_slow_reader_gets_all_in_order_and_others_do_not_wait_for_it() {
        let (wires, events) = start();
        let (slow, its_stdin) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
        let (mut quick, here) = UnixStream::pair().unwrap();
        let to_slow = wires.add_pipes(0, its_stdin.0.into(), slow.0.into()).unwrap();
        let to_quick = wires.add_socket(1, Arc::new(here.into())).unwrap();
        let long = "x".repeat(1 << 20);
        assert!((0..4).all(|number| to_slow.send(format!("{number}{long}\n"))));
        assert!(to_quick.send("quick\n".into()));
        let mut got = [0; 6];
        quick.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"quick\n");
        quick.write_all(b"answer\n").unwrap();
        assert_eq!(line(&events), (1, b"answer".to_vec()));
        // Its input ends after the last line.
        to_slow.close();
        to_slow.send("too late\n".into());
        let mut its_stdin = its_stdin.1;
        let mut all = String::new();
        its_stdin.read_to_string(&mut all).unwrap();
        let begins: Vec<u8> = all.lines().map(|line| line.as_bytes()[0]).collect();
        assert_eq!((begins.as_slice(), all.len()), (b"0123".as_slice(), 4 * (long.len() + 2)));
        assert!(!to_slow.send("more\n".into()));
    }

    #[test]
    fn one_that_never_reads_holds_a_bounded_queue_and_one_that_left_closes_it() {
        let (wires, _events) = start();
        let (worker, here) = UnixStream::pair().unwrap();
        let out = wires.add_socket(0, Arc::new(here.into())).unwrap();
        assert!((0..1000).all(|_| out.send(format!("{}\n", "x".repeat(10_000)))));
        assert!(out.0.lock().unwrap().as_ref().unwrap().waiting.len() <= MOST_WAITING);
        drop(worker);
        let until = std::time::Instant::now() + LONG;
        while out.send("x\n".into()) && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!out.send("x\n".into()));
    }

    #[test]
    fn who_has_spoken_is_not_silent_though_nobody_listened() {
        let (wires, events) = start();
        let add = |index| {
            let (worker, here) = UnixStream::pair().unwrap();
            wires.add_socket(index, Arc::new(here.into())).unwrap();
            worker
        };
        let mut workers: Vec<UnixStream> = (0..10).map(add).collect();
        workers.iter_mut().for_each(|worker| worker.write_all(b"here\n").unwrap());
        let spoke_ns = monotonic_ns();
        // The queue has room for four events.
        std::thread::sleep(Duration::from_millis(300));
        assert!(wires.heard_all_ns() <= spoke_ns);
        for _ in 0..10 {
            line(&events);
        }
        let until = std::time::Instant::now() + LONG;
        while wires.heard_all_ns() < spoke_ns && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(wires.heard_all_ns() >= spoke_ns);
    }

    #[test]
    fn nothing_waits_for_a_driver_that_no_longer_listens() {
        let (wires, events) = start();
        let (mut worker, here) = UnixStream::pair().unwrap();
        wires.add_socket(0, Arc::new(here.into())).unwrap();
        let complaints = UnixStream::pair().unwrap();
        let last_line = wires.add_complaints(complaints.0.into(), "c".into()).unwrap();
        worker.write_all(&b"x\n".repeat(100)).unwrap();
        drop(events);
        drop(complaints.1);
        let until = std::time::Instant::now() + LONG;
        while !last_line.is_there() && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(last_line.is_there());
    }
}
