//! The account of the server's threads: exact times from scheduler events in a window, and times of calls to other
//! servers from the server's sends and receives. The programs measure their own cost, and end a window when the cost
//! reaches its budget.

mod calls;
mod reading;

use crate::bpf::members::{FOLLOWERS, Members};
use crate::bpf::types::account::{Gate, Sums};
use crate::bpf::{self, Refusal};
use crate::listening::holders_of;
use crate::namespace::needs_hosts_process_ids;
use crate::outgoing::name_of;
use crate::port_sockets::PortReader;
use crate::processes::{Process, ProcessTable};
use crate::profile::symbols;
use crate::sock_diag::Scope;
use crate::watch::kernel_has_send_events;
use calls::arguments;
use libbpf_rs::{Iter, Link, Object, ProgramInput};
use record::account::{Account, Wait, WaitKind};
use std::collections::{BTreeMap, HashSet};
use std::io::Read;
use std::net::SocketAddr;
use std::time::Duration;

const GATE: &str = ".bss.gate";
/// Size of the programs' table of system calls (`SYSCALLS_KNOWN`).
const KNOWN_CALLS: usize = 512;
/// Maximum addresses of other servers that are checked for being the server's own.
const MOST_ADDRESSES: usize = 64;
/// Budget of the programs as a share of the time of each CPU.
const BUDGET: f64 = 0.008;
/// Budget of the programs on each CPU in a first window of unknown length.
const FIRST_BUDGET_NS: u64 = 4_000_000;
/// Windows between two searches for calls to other servers if none was found.
const WINDOWS_BETWEEN_LOOKS_FOR_CALLS: u64 = 4;
/// Minimum time between two sampled stacks on a CPU.
const STACK_GAP_NS: u64 = 2_000_000;

/// Links are dropped before their object.
#[derive(Debug)]
pub struct Accountant {
    _links: Vec<Link>,
    switch: &'static str,
    /// Programs that are attached only in windows, because events of all processes have a cost.
    in_window: Vec<Link>,
    windows: u64,
    /// Whether the last window that searched for calls to other servers saw any.
    has_backends: bool,
    looks_for_calls: bool,
    walk: Link,
    object: Object,
    members: Members,
    sockets: Option<PortReader>,
    /// Whether a process of the server listens at an address that it calls.
    is_own: BTreeMap<String, bool>,
    port: u16,
    /// Budget of the next window on each CPU.
    budget_ns: u64,
    why_no_backends: Option<String>,
}

fn load(switch: &'static str, has_calls: bool, wakeup: u64) -> Result<Object, Refusal> {
    bpf::load(bpf::ACCOUNT, |open| {
        bpf::set_constants(open, ".rodata.wakeup", &wakeup)?;
        bpf::set_constants(open, ".rodata.calls", &arguments::<KNOWN_CALLS>())?;
        for mut program in open.progs_mut() {
            let name = program.name().to_string_lossy().to_string();
            let is_wanted = match name.as_str() {
                "on_account_switch" | "on_older_switch" => name == switch,
                "on_call" | "on_answer" => has_calls,
                _ => true,
            };
            program.set_autoload(is_wanted);
        }
        Ok(())
    })
}

impl Accountant {
    /// Loads the programs and attaches the permanent ones; opens no window.
    pub fn start(port: u16) -> Result<Accountant, Refusal> {
        needs_hosts_process_ids()
            .map_err(|error| Refusal::from(libbpf_rs::Error::from(std::io::Error::other(error))))?;
        // The event has a fourth argument since Linux 5.18; the verifier of older kernels refuses programs that read
        // it.
        let has_calls = kernel_has_send_events();
        let wakeup = symbols::address_of("hrtimer_wakeup").unwrap_or(0);
        let newer = load("on_account_switch", has_calls, wakeup).map(|object| ("on_account_switch", object));
        let (switch, object) = match newer {
            Ok(loaded) => loaded,
            Err(refusal) if refusal.is_permission() => return Err(refusal),
            Err(_) => ("on_older_switch", load("on_older_switch", has_calls, wakeup)?),
        };
        let links = FOLLOWERS.into_iter().map(|name| bpf::attach(&object, name)).collect::<Result<_, _>>()?;
        let why_no_backends =
            (!has_calls).then(|| "this kernel has no event for sends and receives (Linux 6.3)".to_string());
        let walk = bpf::attach(&object, "walk_threads")?;
        Ok(Accountant {
            _links: links,
            switch,
            in_window: Vec::new(),
            windows: 0,
            has_backends: false,
            looks_for_calls: false,
            walk,
            object,
            members: Members::default(),
            sockets: None,
            is_own: BTreeMap::new(),
            port,
            budget_ns: FIRST_BUDGET_NS,
            why_no_backends,
        })
    }

    /// Sets the expected length of the next window; its budget is a share of that.
    pub fn expect(&mut self, length: Duration) {
        self.budget_ns = (BUDGET * length.as_nanos() as f64) as u64;
    }

    /// Ends the open window, if any, and opens the next.
    pub fn next(
        &mut self,
        processes: &[Process],
        table: &ProcessTable,
        budget_ns: u64,
    ) -> Result<Option<Account>, Refusal> {
        let ended = (!self.in_window.is_empty()).then(|| self.end(processes, table)).transpose()?;
        self.budget_ns = budget_ns;
        self.begin(processes)?;
        Ok(ended)
    }

    fn run(&self, program: &str) -> Result<(), Refusal> {
        bpf::program(&self.object, program)?.test_run(ProgramInput::default())?;
        Ok(())
    }

    /// Opens a window for these processes and what they start.
    pub fn begin(&mut self, processes: &[Process]) -> Result<(), Refusal> {
        self.members.update(&self.object, processes)?;
        bpf::set_variable(&self.object, ".bss.sums", &Sums::default())?;
        for name in ["places", "wait_samples", "wait_stacks", "outgoing"] {
            bpf::clear(&self.object, name)?;
        }
        self.set_listening(processes)?;
        let gate = Gate {
            window: bpf::variable::<Gate>(&self.object, GATE)?.window,
            port: self.port.into(),
            stack_gap_ns: STACK_GAP_NS,
            budget_ns: self.budget_ns,
            ..Gate::default()
        };
        bpf::set_variable(&self.object, GATE, &gate)?;
        let mut names = vec![self.switch, "on_waking", "on_exit"];
        // Tracing costs time at every send and receive of the machine, so a server without backends is traced in few
        // windows only.
        self.looks_for_calls = self.why_no_backends.is_none()
            && (self.has_backends || self.windows.is_multiple_of(WINDOWS_BETWEEN_LOOKS_FOR_CALLS));
        if self.looks_for_calls {
            names.extend(["on_call", "on_answer"]);
        }
        self.windows += 1;
        self.in_window = names.into_iter().map(|name| bpf::attach(&self.object, name)).collect::<Result<_, _>>()?;
        self.run("open_window")
    }

    /// Passes the listening ports to the programs. The other end of a connection to one of them is a client.
    fn set_listening(&mut self, processes: &[Process]) -> Result<(), Refusal> {
        if self.sockets.is_none() {
            self.sockets = processes.first().and_then(|first| PortReader::open(Some(first.pid), self.port).ok());
        }
        let mut listening = [0u64; 1 << 10];
        if let Some(sockets) = &mut self.sockets {
            let mut add = |port: u16| listening[usize::from(port / 64)] |= 1 << (port % 64);
            // Sockets that cannot be read are skipped.
            let _ = sockets.read_elsewhere(self.port, Scope::ListenersElsewhere, |one| add(one.local.port()));
        }
        bpf::set_variable(&self.object, ".bss.listening", &listening)
    }

    /// Ends the window and returns its account. `processes` are those of the server that live now.
    pub fn end(&mut self, processes: &[Process], table: &ProcessTable) -> Result<Account, Refusal> {
        self.run("close_window")?;
        self.members.update(&self.object, processes)?;
        let mut walk = Iter::new(&self.walk)?;
        walk.read_to_end(&mut Vec::new()).map_err(libbpf_rs::Error::from)?;
        let gate: Gate = bpf::variable(&self.object, GATE)?;
        bpf::set_variable(&self.object, GATE, &Gate { is_open: 0, ..gate })?;
        // The kernel waits until no CPU runs these programs.
        let ended = std::mem::take(&mut self.in_window);
        std::thread::spawn(move || drop(ended));
        self.expect(Duration::from_nanos(gate.ended_ns.saturating_sub(gate.opened_ns).max(1)));
        let mut account = reading::read(&self.object, &gate, table)?;
        if self.looks_for_calls {
            let is_one_way = |wait: &Wait| wait.kind == WaitKind::Pipe && !wait.object.is_empty();
            let mut waits = account.groups.iter().flat_map(|group| &group.waits);
            self.has_backends = !account.backends.is_empty() || waits.any(is_one_way);
        }
        for backend in &mut account.backends {
            let known = self.is_own.get(backend.address.as_str()).copied();
            backend.is_own = known.unwrap_or_else(|| self.listens_at(&backend.address, processes));
            if self.is_own.len() < MOST_ADDRESSES {
                self.is_own.insert(backend.address.to_string(), backend.is_own);
            }
        }
        account.lost += self.members.lost(&self.object)?;
        account.why_no_backends.clone_from(&self.why_no_backends);
        Ok(account)
    }

    /// Whether one of the processes listens at the address. Sockets that cannot be read are those of others.
    fn listens_at(&mut self, address: &str, processes: &[Process]) -> bool {
        let Some(sockets) = &mut self.sockets else { return false };
        let mut listeners = HashSet::new();
        let read = match (address.strip_prefix("unix:"), address.parse::<SocketAddr>()) {
            (Some(path), _) => sockets.read_unix(|socket| {
                let is_there = socket.is_listener && name_of(socket.name) == path;
                listeners.extend(is_there.then_some(socket.inode));
            }),
            (None, Ok(at)) => sockets.read_elsewhere(self.port, Scope::ListenersElsewhere, |one| {
                let is_here = at.ip().is_loopback() || one.local.ip() == at.ip();
                listeners.extend((is_here && one.local.port() == at.port()).then_some(one.inode));
            }),
            (None, Err(_)) => Ok(()),
        };
        let pids: Vec<u32> = processes.iter().map(|process| process.pid).collect();
        read.is_ok() && !holders_of(&listeners, &pids).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::ServerGroup;
    use record::account::{CLOSED_WINDOW, ThreadGroup, WaitKind};
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::process::CommandExt;

    fn started(test: &str) -> Option<Accountant> {
        match Accountant::start(1) {
            Err(refusal) if refusal.is_permission() => {
                println!("SKIPPED {test}: it needs root");
                None
            }
            started => Some(started.unwrap_or_else(|refusal| panic!("{refusal}: {}", refusal.last_words(30)))),
        }
    }

    fn account_of(accountant: &mut Accountant, work: impl FnOnce()) -> Account {
        account_from(accountant, std::process::id(), work)
    }

    fn account_from(accountant: &mut Accountant, root: u32, work: impl FnOnce()) -> Account {
        let mut table = ProcessTable::default();
        table.scan();
        let mut group = ServerGroup::new([root], None);
        group.admit(&table);
        accountant.begin(&group.processes()).unwrap();
        work();
        table.scan();
        group.admit(&table);
        accountant.end(&group.processes(), &table).unwrap()
    }

    /// Waits 300 ms for a condition that no thread signals.
    fn times_out() {
        let (lock, signalled) = (std::sync::Mutex::new(()), std::sync::Condvar::new());
        let begun = std::time::Instant::now();
        while begun.elapsed() < Duration::from_millis(300) {
            drop(signalled.wait_timeout(lock.lock().unwrap(), Duration::from_millis(310)).unwrap());
        }
    }

    #[test]
    fn every_nanosecond_of_every_thread_is_counted_once() {
        let Some(mut accountant) = started("every_nanosecond_of_every_thread_is_counted_once") else { return };
        for _ in 0..2 {
            let lock = std::sync::Mutex::new(());
            let account = account_of(&mut accountant, || {
                std::thread::scope(|scope| {
                    let held = lock.lock();
                    let name = |name: &str| std::thread::Builder::new().name(name.to_string());
                    name("waits").spawn_scoped(scope, || drop(lock.lock())).unwrap();
                    name("naps").spawn_scoped(scope, || std::thread::sleep(Duration::from_millis(300))).unwrap();
                    name("times out").spawn_scoped(scope, times_out).unwrap();
                    std::thread::sleep(Duration::from_millis(200));
                    drop(held);
                });
            });
            assert!(account.open_ratio().abs() < 0.01, "{}: {account:?}", account.open_ratio());
            let of = |name: &str, kind: WaitKind| {
                let group: &ThreadGroup = account
                    .groups
                    .iter()
                    .find(|group| *group.name == *name)
                    .unwrap_or_else(|| panic!("{name}: {account:?}"));
                group.blocked_ns(|one| one == kind)
            };
            // Without a sampled stack, a futex may be a lock or a wait for work.
            let at_futex = of("waits", WaitKind::Lock) + of("waits", WaitKind::Work);
            assert!((150_000_000..account.window_ns).contains(&at_futex), "{account:?}");
            assert!((300_000_000..account.window_ns).contains(&of("naps", WaitKind::Sleep)), "{account:?}");
            assert!((300_000_000..account.window_ns).contains(&of("times out", WaitKind::Sleep)), "{account:?}");
            assert_eq!(account.lost, 0);
        }
    }
    #[test]
    fn a_thread_that_ends_after_the_walk_is_counted_once() {
        let Some(mut accountant) = started("a_thread_that_ends_after_the_walk_is_counted_once") else { return };
        let mut table = ProcessTable::default();
        table.scan();
        let mut group = ServerGroup::new([std::process::id()], None);
        group.admit(&table);
        accountant.begin(&group.processes()).unwrap();
        let (end, is_over) = std::sync::mpsc::channel::<()>();
        let waits = std::thread::spawn(move || is_over.recv());
        std::thread::sleep(Duration::from_millis(50));
        accountant.run("close_window").unwrap();
        Iter::new(&accountant.walk).unwrap().read_to_end(&mut Vec::new()).unwrap();
        drop(end);
        let _ = waits.join().unwrap();
        let account = accountant.end(&group.processes(), &table).unwrap();
        assert!(account.open_ratio().abs() < 0.01, "{}: {account:?}", account.open_ratio());
    }

    #[test]
    fn a_send_to_a_client_that_does_not_read_is_named_so() {
        let Some(mut accountant) = started("a_send_to_a_client_that_does_not_read_is_named_so") else { return };
        const BYTES: usize = 16 << 20;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut accepted, _) = listener.accept().unwrap();
        let account = account_of(&mut accountant, || {
            std::thread::scope(|scope| {
                let sends = std::thread::Builder::new().name("sends".into());
                sends.spawn_scoped(scope, || accepted.write_all(&vec![0; BYTES]).unwrap()).unwrap();
                std::thread::sleep(Duration::from_millis(200));
                client.read_exact(&mut vec![0; BYTES]).unwrap();
            });
        });
        let waits = account.groups.iter().filter(|group| *group.name == *"sends").flat_map(|group| &group.waits);
        let closed = waits.filter(|wait| wait.kind == WaitKind::Send && *wait.object == *CLOSED_WINDOW);
        assert!(closed.map(|wait| wait.ns).sum::<u64>() > 150_000_000, "{account:?}");
    }

    #[test]
    fn a_process_that_leaves_the_work_to_its_children_is_no_member_of_their_pool() {
        let test = "a_process_that_leaves_the_work_to_its_children_is_no_member_of_their_pool";
        let Some(mut accountant) = started(test) else { return };
        // Names of the groups, each with whether it contains the parent, which runs `parent_does` after it starts its
        // children.
        let mut groups = |parent_does: &str| {
            let script = format!("f() {{ while :; do :; done; }}; f & f & echo; {parent_does}");
            let mut command = std::process::Command::new("bash");
            command.args(["-c", &script]).stdout(std::process::Stdio::piped()).process_group(0);
            let mut parent = command.spawn().unwrap();
            parent.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
            let account = account_from(&mut accountant, parent.id(), || std::thread::sleep(Duration::from_millis(200)));
            // SAFETY: kill takes no pointers; the group is that of a child that leads it.
            unsafe { libc::kill(-(parent.id() as libc::pid_t), libc::SIGKILL) };
            parent.wait().unwrap();
            let has_parent = |group: &ThreadGroup| group.processes.iter().any(|one| one.pid == parent.id());
            let of_bash = account.groups.into_iter().filter(|group| *group.program == *"bash");
            of_bash.map(|group| (group.name.to_string(), has_parent(&group))).collect::<BTreeMap<_, _>>()
        };
        let split = [("bash".to_string(), false), ("parent".to_string(), true)];
        assert_eq!(groups("wait"), split.into());
        // Blocked by the reader of a pipe, it is at work.
        let blocked = groups("while :; do printf %4096s; done > >(exec sleep 60)");
        assert!(blocked["bash"] && !blocked.contains_key("parent"), "{blocked:?}");
    }

    /// Otherwise a window that is not much longer than a call would show too few calls, of too long a time.
    #[test]
    fn a_call_in_progress_at_the_begin_is_counted() {
        let test = "a_call_in_progress_at_the_begin_is_counted";
        let Some(mut accountant) = started(test) else { return };
        if !kernel_has_send_events() {
            return println!("SKIPPED {test}: this kernel has no event for sends and receives");
        }
        let backend = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut outgoing = TcpStream::connect(backend.local_addr().unwrap()).unwrap();
        let (mut far, _) = backend.accept().unwrap();
        outgoing.write_all(b"asks").unwrap();
        let account = account_of(&mut accountant, || {
            far.write_all(b"says").unwrap();
            outgoing.read_exact(&mut [0; 4]).unwrap();
        });
        let address = backend.local_addr().unwrap().to_string();
        let found = account.backends.iter().find(|one| one.address.as_str() == address).expect("the call");
        assert_eq!((found.calls, found.busy_ns, found.connections), (1, found.longest_ns, 1), "{account:?}");
        assert!(found.busy_ns <= account.window_ns, "the part before the window does not count: {account:?}");
    }

    #[test]
    fn a_connection_that_was_accepted_at_another_port_leads_to_no_backend() {
        let test = "a_connection_that_was_accepted_at_another_port_leads_to_no_backend";
        let Some(mut accountant) = started(test) else { return };
        if !kernel_has_send_events() {
            return println!("SKIPPED {test}: this kernel has no event for sends and receives");
        }
        let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
        let (other, backend) = (listen(), listen());
        let connect = |to: &TcpListener| {
            (TcpStream::connect(to.local_addr().unwrap()).unwrap(), to.accept().map(|(stream, _)| stream).unwrap())
        };
        let ((client, mut accepted), (mut outgoing, far)) = (connect(&other), connect(&backend));
        // The other end, in this process, answers each send.
        let account = account_of(&mut accountant, || {
            for (stream, far) in [(&mut accepted, &client), (&mut outgoing, &far)] {
                stream.write_all(b"asks").unwrap();
                (&mut &*far).write_all(b"says").unwrap();
                stream.read_exact(&mut [0; 4]).unwrap();
            }
        });
        let seen: Vec<_> =
            account.backends.iter().map(|one| (one.address.to_string(), one.calls, one.is_own)).collect();
        assert!(seen.contains(&(backend.local_addr().unwrap().to_string(), 1, true)), "{account:?}");
        let client = client.local_addr().unwrap().to_string();
        assert!(!seen.iter().any(|(address, ..)| *address == client), "{account:?}");
    }
}
