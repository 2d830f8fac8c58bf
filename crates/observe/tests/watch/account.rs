//! Compares the account of a server's threads with the scheduler's own clocks, here and in a guest with an older
//! kernel.

use observe::{Group, Observer, WatchTarget};
use record::account::{ADDRESS_SPACE, Account, ThreadGroup, Wait, WaitKind};
use record::names;
use std::io::{Read, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Threads of this process do known work: every nanosecond is in one row, and the running time agrees with the
/// scheduler.
pub fn closes() {
    let mut observer = observer_of_this_process();
    crate::guest::print_verified();
    let lock = Arc::new(Mutex::new(()));
    let held = lock.lock().expect("a lock");
    let named = |name: &str| std::thread::Builder::new().name(name.to_string());
    let for_waiter = Arc::clone(&lock);
    let waiter = named("waits").spawn(move || drop(for_waiter.lock())).expect("a thread");
    let word = Arc::new(AtomicU32::new(0));
    let of_parked = Arc::clone(&word);
    let parked = named("parked").spawn(move || futex(&of_parked, libc::FUTEX_WAIT)).expect("a thread");
    let sleeper = named("naps").spawn(|| std::thread::sleep(Duration::from_millis(900))).expect("a thread");
    let (mut heard, silent) = UnixStream::pair().expect("a pair of sockets");
    let listener = named("listens").spawn(move || drop(heard.read(&mut [0]))).expect("a thread");
    // One asks a helper for an answer, until that ends.
    let (mut asked, mut helped) = UnixStream::pair().expect("a pair of sockets");
    let asker =
        named("asks").spawn(move || while asked.write(b"?").is_ok() && asked.read(&mut [0]).unwrap_or(0) > 0 {});
    let helper = named("helps").spawn(move || {
        for _ in 0..35 {
            let _ = helped.read(&mut [0]);
            std::thread::sleep(Duration::from_millis(20));
            let _ = helped.write(b"!");
        }
    });
    let worker = named("works").spawn(|| {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(700) {
            std::hint::black_box(0);
        }
    });
    std::thread::sleep(Duration::from_millis(100));
    observer.window_begins().expect("a window");
    std::thread::sleep(Duration::from_millis(400));
    let seen = observer.window_ends().expect("a window").observation(1);
    drop(held);
    word.store(1, Ordering::Relaxed);
    futex(&word, libc::FUTEX_WAKE);
    drop(silent);
    let others = [worker, asker, helper].map(|thread| thread.expect("a thread"));
    for thread in [waiter, parked, sleeper, listener].into_iter().chain(others) {
        thread.join().expect("no panic");
    }
    let account = seen.account.expect("an account");
    assert_eq!(account.lost, 0, "{account:?}");
    assert!(account.open_ratio().abs() < 0.01, "{}: {account:?}", account.open_ratio());
    let blocked = |name: &str, kind: WaitKind| {
        let group = account.groups.iter().find(|group| *group.name == *name);
        let group = group.unwrap_or_else(|| panic!("no threads '{name}': {account:?}"));
        group.blocked_ns(|one| one == kind) as f64 / account.window_ns as f64
    };
    // A thread that is not woken in the window may wait for a lock or for work.
    let at_futex = blocked("waits", WaitKind::Lock) + blocked("waits", WaitKind::Work);
    assert!(at_futex > 0.99, "{account:?}");
    assert!(blocked("parked", WaitKind::Work) > 0.99, "{account:?}");
    assert!(blocked("naps", WaitKind::Sleep) > 0.99, "{account:?}");
    assert!(blocked("listens", WaitKind::Input) > 0.99, "{account:?}");
    assert!(blocked("asks", WaitKind::Backend) > 0.9, "{account:?}");
    let running = account.mean(account.sum(|group: &ThreadGroup| group.running_ns));
    let by_scheduler = seen.figures.value(names::SERVER_CPUS_USED).expect("CPU time");
    assert!((running - by_scheduler).abs() < 0.1, "{running} against {by_scheduler} CPUs");
}

/// Waits while the word is 0 or wakes a thread that does, without the functions of a library.
fn futex(word: &AtomicU32, operation: i32) {
    let number = if operation == libc::FUTEX_WAKE { 1 } else { 0 };
    // SAFETY: the kernel reads a word that outlives the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, number, std::ptr::null::<libc::timespec>()) };
}

/// An observer of this process, which serves nothing.
fn observer_of_this_process() -> Observer {
    let target = WatchTarget {
        port: 1,
        group: Group::Tree(std::process::id()),
        netns_pid: None,
        server_cpus: Vec::new(),
        client_pid: 0,
    };
    Observer::start(target, Duration::from_millis(50)).expect("an observer")
}

#[test]
fn every_nanosecond_of_every_thread_is_accounted_for() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED every_nanosecond_of_every_thread_is_accounted_for: it needs root");
        return;
    }
    closes();
}

fn waits_of<'a>(account: &'a Account, name: &str) -> &'a [Wait] {
    let group = account.groups.iter().find(|group| *group.name == *name);
    group.map_or_else(|| panic!("no threads '{name}': {account:?}"), |group| &group.waits)
}

/// Runs `work` in threads with these names and returns the account of half a second of it.
fn account_of(names: &[&str], work: impl Fn(&AtomicBool) + Send + Sync + 'static) -> Option<Account> {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED account: it needs root");
        return None;
    }
    let mut observer = observer_of_this_process();
    let (is_over, work) = (Arc::new(AtomicBool::new(false)), Arc::new(work));
    let start = |name: &&str| {
        let (is_over, work) = (Arc::clone(&is_over), Arc::clone(&work));
        std::thread::Builder::new().name(name.to_string()).spawn(move || work(&is_over)).expect("a thread")
    };
    let threads: Vec<_> = names.iter().map(start).collect();
    observer.window_begins().expect("a window");
    std::thread::sleep(Duration::from_millis(500));
    let seen = observer.window_ends().expect("a window").observation(1);
    is_over.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
    Some(seen.account.expect("an account"))
}

#[test]
fn threads_that_map_and_unmap_memory_wait_for_the_lock_of_their_address_space() {
    let maps = |is_over: &AtomicBool| {
        while !is_over.load(Ordering::Relaxed) {
            // Larger than any block that malloc would keep.
            std::hint::black_box(vec![1u8; 64 << 20]);
        }
    };
    let Some(account) = account_of(&["maps"; 6], maps) else { return };
    let waits = waits_of(&account, "maps");
    let locked = waits.iter().find(|wait| *wait.object == *ADDRESS_SPACE);
    let locked = locked.unwrap_or_else(|| panic!("{waits:?}"));
    assert_eq!(locked.kind, WaitKind::Lock);
    let memory_ns: u64 = waits.iter().filter(|wait| wait.kind == WaitKind::Memory).map(|wait| wait.ns).sum();
    assert!(locked.ns > memory_ns, "{waits:?}");
}

#[test]
fn a_log_that_answers_nothing_is_no_backend_and_its_reader_is_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log.sock");
    let log = UnixDatagram::bind(&path).expect("a socket");
    std::thread::spawn(move || {
        while log.recv(&mut [0; 64]).is_ok() {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let to = path.clone();
    let logs = move |is_over: &AtomicBool| {
        let socket = UnixDatagram::unbound().expect("a socket");
        socket.connect(&to).expect("the log");
        while !is_over.load(Ordering::Relaxed) {
            socket.send(b"GET / 200").expect("a reader");
        }
    };
    let Some(account) = account_of(&["logs"], logs) else { return };
    let waits = waits_of(&account, "logs");
    let sent = waits.first().unwrap_or_else(|| panic!("{account:?}"));
    assert!(sent.ns > account.window_ns / 2, "{waits:?}");
    if let Some(why) = &account.why_no_backends {
        return println!("SKIPPED the log's name: {why}");
    }
    assert_eq!((sent.kind, &*sent.object), (WaitKind::Pipe, &*format!("unix:{}", path.display())), "{waits:?}");
    assert!(account.backends.is_empty(), "{:?}", account.backends);
}
