//! Compares the sockets of a port with those that the test opened. Each test has its own loopback address, because
//! other processes on this machine may use the same port number.

use crate::actors::Actor;
use crate::group::target;
use observe::sock_diag::{DiagSocket, STATES, Scope};
use observe::watch::{WatchOptions, Watcher};
use observe::{Group, ObserveError, Observer, WatchTarget, listening_addresses, server_on_port};
use record::names;
use record::watch::Mode;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

fn state(port: u16, name: &str) -> u64 {
    let sockets = DiagSocket::connect().unwrap().read_port(port, Scope::AllStates).unwrap();
    sockets.by_state[STATES.iter().position(|state| *state == name).unwrap()]
}

/// Waits for an event that comes soon; the limit only keeps a broken build from hanging.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < limit, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn open(listener: &TcpListener, count: usize) -> (Vec<TcpStream>, Vec<TcpStream>) {
    let address = listener.local_addr().unwrap();
    (0..count).map(|_| (TcpStream::connect(address).unwrap(), listener.accept().unwrap().0)).unzip()
}

#[test]
fn every_open_connection_is_counted_in_its_state() {
    for address in ["127.83.1.1:0", "[::1]:0"] {
        // The server of another test may have the same port at another address.
        let alone = || {
            let listener = TcpListener::bind(address).ok()?;
            let port = listener.local_addr().unwrap().port();
            Some(((state(port, "listen"), state(port, "established")) == (1, 0)).then_some((listener, port)))
        };
        let Some(tried) = std::iter::repeat_with(alone).take(20).find(|tried| !matches!(tried, Some(None))) else {
            panic!("{address}: a listener alone on its port is not counted as one");
        };
        let Some((listener, port)) = tried.flatten() else {
            eprintln!("not run for {address}: this machine has no such address");
            continue;
        };
        let (clients, servers) = open(&listener, 23);
        assert_eq!(state(port, "established"), 23, "only the server's ends, not the clients'");

        // 5 clients close first, so the server's end waits for its application.
        for client in &clients[..5] {
            client.shutdown(Shutdown::Write).unwrap();
        }
        eventually("five in close-wait", || state(port, "close-wait") == 5);
        assert_eq!(state(port, "established"), 18);

        // 4 servers close first, so the server's end stays in TIME_WAIT.
        for server in &servers[10..14] {
            server.shutdown(Shutdown::Write).unwrap();
        }
        eventually("four in fin-wait-2", || state(port, "fin-wait-2") == 4);
        for client in &clients[10..14] {
            client.shutdown(Shutdown::Write).unwrap();
        }
        eventually("four in time-wait", || state(port, "time-wait") == 4);
        assert_eq!(state(port, "established"), 14);
    }
}

#[test]
fn a_client_that_happens_to_have_the_servers_port_number_is_not_counted() {
    let server = TcpListener::bind("127.83.1.5:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let (_clients, _servers) = open(&server, 3);
    // Another address may use the same number, here for the accepted ends of another server.
    let other = match TcpListener::bind(("127.83.1.6", port)) {
        Ok(other) => other,
        Err(error) => return eprintln!("not run: the port is taken on the other address: {error}"),
    };
    let (_other_clients, _other_servers) = open(&other, 4);
    drop(other);
    eventually("one listener is left", || {
        DiagSocket::connect().unwrap().read_port(port, Scope::Listeners).unwrap().listeners.len() == 1
    });
    assert_eq!(state(port, "established"), 3);
}

#[test]
fn the_window_shows_the_states_and_the_facts_show_the_process() {
    let listener = TcpListener::bind("127.83.1.2:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (_clients, _servers) = open(&listener, 11);
    let target = WatchTarget { port, ..target(Group::ListeningOn(port)) };
    let mut observer = Observer::start(target, Duration::from_millis(2)).unwrap();
    observer.window_begins().unwrap();
    let mut observation = None;
    eventually("a reading inside the window", || {
        let window = observer.window_ends().unwrap();
        observer.window_begins().unwrap();
        let seen = window.observation(1);
        let is_read = seen.connection_states["established"].value.is_some();
        observation = Some(seen);
        is_read
    });
    let observation = observation.unwrap();
    assert_eq!(observation.connection_states["established"].value, Some(11.0));
    assert_eq!(observation.connection_states["listen"].value, Some(1.0));
    assert_eq!(observation.connection_states["time-wait"].value, Some(0.0), "a measured zero is a zero");
    assert_eq!(observation.figures.value(names::ACCEPT_QUEUE_MAX), Some(0.0));
    assert_eq!(observation.figures.value(names::SERVER_PROCESSES), Some(1.0));
    let facts = observer.server_facts();
    assert_eq!(facts["pid"], std::process::id().to_string());
    assert_eq!(facts["listens_on"], format!("127.83.1.2:{port}"));
}

#[test]
fn unaccepted_connections_are_in_the_accept_queue() {
    let listener = TcpListener::bind("127.83.1.3:0").unwrap();
    let address = listener.local_addr().unwrap();
    let _waiting: Vec<_> = (0..9).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut diag = DiagSocket::connect().unwrap();
    eventually("nine in the queue", || {
        let listeners = diag.read_port(address.port(), Scope::Listeners).unwrap().listeners;
        assert_eq!(listeners.len(), 1);
        assert!(listeners[0].queue_limit >= 9, "{listeners:?}");
        listeners[0].queue == 9
    });
    let target = WatchTarget { port: address.port(), ..target(Group::None) };
    let mut observer = Observer::start(target, Duration::from_millis(2)).unwrap();
    observer.window_begins().unwrap();
    eventually("the window saw it", || {
        let figures = observer.window_ends().unwrap().observation(1).figures;
        observer.window_begins().unwrap();
        figures.value(names::ACCEPT_QUEUE_MAX) == Some(9.0)
    });
}

#[test]
fn a_port_without_a_server_has_none() {
    // Bound but not listening, so that no other program can take the port meanwhile.
    let port = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    assert_eq!(server_on_port(port, None).unwrap(), None);
    assert_eq!(listening_addresses(port, None).unwrap(), []);
    let target = WatchTarget { port, ..target(Group::ListeningOn(port)) };
    let mut observer = Observer::start(target, Duration::from_millis(10)).unwrap();
    observer.window_begins().unwrap();
    let figures = observer.window_ends().unwrap().observation(1).figures;
    let why = figures.get(names::SERVER_CPU).unwrap().not_measured.clone();
    assert_eq!(why, Some(format!("nothing listens on port {port}")));
}

#[test]
fn the_listening_process_is_found_from_the_port() {
    let mut actor = Actor::start("listener");
    let port: u16 = actor.ask("port").parse().unwrap();
    let server = server_on_port(port, None).unwrap().unwrap();
    assert_eq!(server.pid, actor.pid());
    assert_eq!(server.sharing, [actor.pid()]);
    assert!(server.arguments.iter().any(|argument| argument == "--nocapture"), "{server:?}");
    assert_eq!(listening_addresses(port, None).unwrap(), [SocketAddr::from(([127, 0, 0, 1], port))]);
    actor.end();
}

#[test]
fn a_server_that_starts_after_the_observer_is_found() {
    let mut actor = Actor::start("listener");
    let port: u16 = actor.ask("port").parse().unwrap();
    actor.end();
    let target = WatchTarget { port, ..target(Group::ListeningOn(port)) };
    let mut observer = Observer::start(target, Duration::from_millis(5)).unwrap();
    let Ok(_listener) = TcpListener::bind(("127.0.0.1", port)) else {
        eprintln!("not run: somebody else took the port");
        return;
    };
    observer.window_begins().unwrap();
    eventually("this process is the server", || {
        let figures = observer.window_ends().unwrap().observation(1).figures;
        observer.window_begins().unwrap();
        figures.value(names::SERVER_PROCESSES) == Some(1.0)
    });
}

#[test]
fn a_service_manager_that_keeps_the_servers_socket_is_not_the_server() {
    let mut manager = Actor::start("manager");
    let port: u16 = manager.ask("port").parse().unwrap();
    let error = server_on_port(port, None).unwrap_err();
    assert!(matches!(error, ObserveError::NotStarted { manager: pid, .. } if pid == manager.pid()), "{error}");
    let target = WatchTarget { port, ..target(Group::ListeningOn(port)) };
    let mut observer = Observer::start(target, Duration::from_millis(5)).unwrap();
    let mut watcher = Watcher::start(WatchOptions { mode: Mode::Zero, ..WatchOptions::of_port(port) }).unwrap();
    observer.window_begins().unwrap();
    let figures = observer.window_ends().unwrap().observation(1).figures;
    let why = figures.get(names::SERVER_CPU).unwrap().not_measured.clone();
    assert_eq!(why, Some(error.to_string()));
    assert!(watcher.doubts().iter().any(|doubt| doubt.what.contains(&error.to_string())), "{:?}", watcher.doubts());
    // The socket stays the same when the server is started and restarted.
    for _ in 0..2 {
        let pid = manager.ask("serve");
        let server = server_on_port(port, None).unwrap().unwrap();
        assert_eq!((server.pid.to_string(), server.sharing), (pid.clone(), vec![server.pid]));
        eventually("the observer has the server alone", || {
            let facts = observer.server_facts();
            facts.get("pid") == Some(&pid) && facts["processes"] == "1"
        });
        eventually("so has the watch", || {
            watcher.read();
            watcher.pids() == [server.pid]
        });
        assert!(!watcher.doubts().iter().any(|doubt| doubt.what.contains("processes")), "{:?}", watcher.doubts());
    }
    manager.end();
}

#[test]
fn a_missing_namespace_is_an_error() {
    let error = server_on_port(80, Some(u32::MAX >> 8)).unwrap_err();
    assert!(matches!(error, ObserveError::Namespace { .. }), "{error}");
    assert!(error.to_string().contains("run straingauge as root"), "{error}");
}

#[test]
fn a_server_whose_first_thread_has_ended_is_found_with_its_memory() {
    // Another thread serves, because the system call ends the calling thread.
    let script = "import ctypes, socket, sys, threading\nlistener = socket.create_server(('127.0.0.1', 0))\n\
                  print(listener.getsockname()[1], flush=True)\n\
                  threading.Thread(target=listener.accept).start()\nctypes.CDLL(None).syscall(int(sys.argv[1]), 0)";
    let mut command = std::process::Command::new("python3");
    command.args(["-c", script, &libc::SYS_exit.to_string()]).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
    let stat = format!("/proc/{}/stat", child.id());
    eventually("the first thread has ended", || std::fs::read_to_string(&stat).unwrap().contains(") Z "));
    let port = line.trim().parse().unwrap();
    let server = server_on_port(port, None).map(|server| server.map(|of| (of.pid, of.arguments.len() == 4)));
    let options = WatchOptions { mode: Mode::Zero, ..WatchOptions::of_port(port) };
    let cpu = Watcher::start(options).unwrap().read().cpu;
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(server.unwrap(), Some((child.id(), true)));
    let cpu = cpu.expect("its processes are known");
    assert_eq!(cpu.processes, 1);
    assert!(cpu.resident_bytes > 1 << 20, "{cpu:?}");
}
