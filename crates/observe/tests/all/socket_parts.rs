//! Tests of the sockets of a server and of the servers that it calls.

mod port_sockets {
    use observe::port_sockets::*;
    use observe::sock_diag::{PortSockets, Scope, TcpSocket};
    use std::fs::File;
    use std::io::{self, BufReader};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn netlink_and_text_give_the_same_sockets() {
        let listener = TcpListener::bind("127.83.7.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let _open: Vec<_> =
            (0..5).map(|_| (TcpStream::connect(address).unwrap(), listener.accept().unwrap())).collect();
        let mut diag = PortReader::open(None, address.port()).unwrap();
        assert_eq!(diag.method(), "inet_diag netlink");
        let file = BufReader::new(File::open("/proc/thread-self/net/tcp").unwrap());
        let mut text = PortReader::Text(vec![file]);
        // The text is produced in pieces: while connections open and close, a line may be skipped or repeated.
        let (by_diag, by_text) = (0..100)
            .map(|_| {
                (diag.read(address.port(), Scope::AllStates).unwrap(), text.read(address.port(), Scope::AllStates))
            })
            .map(|(by_diag, by_text)| (by_diag, by_text.unwrap()))
            .find(|(by_diag, by_text)| by_diag.by_state == by_text.by_state)
            .expect("once in a hundred times nothing interferes");
        assert_eq!(by_diag.by_state[1], 5);
        let (diag, text) = (by_diag.listeners[0], by_text.listeners[0]);
        assert_eq!(TcpSocket { queue_limit: 0, ..diag }, text);
    }

    #[test]
    fn netlink_and_text_give_the_same_connections_to_other_ports() {
        let bound =
            |address: &str| TcpListener::bind((address, 0)).map(|one| (one.local_addr().unwrap(), one)).unwrap();
        let (served_at, served) = bound("127.83.7.2");
        // Two addresses may get the same free port.
        let others: Vec<_> = (0..5).map(|_| bound("127.83.7.3")).collect();
        let other_at = others.iter().map(|(at, _)| *at).find(|at| at.port() != served_at.port()).unwrap();
        let to_served = TcpStream::connect(served_at).unwrap();
        let accepted = served.accept().unwrap().0;
        let to_other: Vec<_> = (0..3).map(|_| TcpStream::connect(other_at).unwrap()).collect();
        let open = |name: &str| BufReader::new(File::open(format!("/proc/thread-self/net/{name}")).unwrap());
        let text = PortReader::Text(["tcp", "tcp6"].map(open).into());
        for mut reader in [PortReader::open(None, served_at.port()).unwrap(), text] {
            let mut found = std::collections::BTreeSet::new();
            let keep = |one: TcpSocket| found.extend([(one.inode, one.is_listener(), one.local, one.remote)]);
            reader.read_elsewhere(served_at.port(), Scope::Elsewhere, keep).unwrap();
            for (stream, remote) in to_other.iter().map(|stream| (stream, other_at)).chain([(&to_served, served_at)]) {
                let (inode, local) = (inode_of(stream), stream.local_addr().unwrap());
                let wanted = (inode, false, local, remote);
                assert!(found.contains(&wanted), "{}: {wanted:?} in {found:?}", reader.method());
            }
            assert!(found.iter().all(|one| one.0 != inode_of(&accepted)), "the port's own: {found:?}");
            assert!(found.iter().any(|one| one.1 && one.2 == other_at), "{found:?}");
        }
    }

    fn inode_of(stream: &TcpStream) -> u64 {
        let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(stream));
        let link = std::fs::read_link(link).unwrap();
        observe::proc_text::parse_socket_link(link.as_os_str().as_encoded_bytes()).unwrap()
    }

    #[test]
    fn a_line_without_end_does_not_fill_memory() {
        let mut endless = BufReader::new(io::Read::take(io::repeat(b'x'), 1 << 20));
        let mut sockets = PortSockets::default();
        read_text(&mut endless, 80, &mut sockets).unwrap();
        assert_eq!(sockets, PortSockets::default());
    }
}

mod backends {
    use observe::backends::*;
    use observe::outgoing::BackendSockets;
    use observe::processes::ProcessTable;
    use std::collections::{BTreeMap, BTreeSet};
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Child, Command, Stdio};

    struct Elsewhere {
        child: Child,
        said: BufReader<std::process::ChildStdout>,
    }

    impl Elsewhere {
        fn start(script: &str, argument: &str) -> Self {
            let step = "import ctypes, socket, sys\nctypes.CDLL(None).prctl(1, 9)\n\
                        def step():\n    print(flush=True)\n    sys.stdin.readline()\n";
            let mut command = Command::new("unshare");
            command.args(["--net", "python3", "-c", &format!("{step}{script}"), argument]);
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let said = BufReader::new(child.stdout.take().unwrap());
            let mut this = Elsewhere { child, said };
            this.wait();
            this
        }

        fn wait(&mut self) {
            assert!(self.said.read_line(&mut String::new()).unwrap() > 0, "the script ended");
        }

        fn go_on(&mut self) {
            self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
            self.wait();
        }
    }

    impl Drop for Elsewhere {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    fn is_allowed() -> bool {
        let is_root = rustix::process::geteuid().is_root();
        if !is_root {
            println!("SKIPPED backends: only root may make network namespaces");
        }
        is_root
    }

    fn found(backends: &BTreeMap<String, BackendSockets>) -> BTreeSet<u32> {
        let (mut of_all, mut table) = (Backends::default(), ProcessTable::default());
        table.scan();
        of_all.find(backends, &table);
        of_all.find(backends, &table);
        of_all.processes(&table)
    }

    #[test]
    fn a_unix_listener_in_another_namespace_is_found_after_its_connections_ended() {
        if !is_allowed() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app.sock");
        let mut backend = Elsewhere::start(
            "l = socket.socket(socket.AF_UNIX)\nl.bind(sys.argv[1])\nl.listen()\nstep()\na = \
             l.accept()[0]\nstep()\na.close()\nstep()",
            path.to_str().unwrap(),
        );
        let _open = std::os::unix::net::UnixStream::connect(&path).unwrap();
        backend.go_on();
        let seen = observe::outgoing::read(&[std::process::id()], 1, &[]).unwrap().backends;
        backend.go_on();
        assert_eq!(found(&seen), [backend.child.id()].into(), "{seen:?}");
        drop(backend);
        assert_eq!(found(&seen), [].into());
    }

    #[test]
    fn a_backend_in_another_network_namespace_is_found_by_the_other_ends_of_connections() {
        if !is_allowed() {
            return;
        }
        let connect = "step()\nc = socket.create_connection(('10.83.9.2', 8083))\nc.recv(1)\nstep()";
        let listen =
            "step()\nl = socket.create_server(('10.83.9.2', 8083))\nstep()\na = l.accept()[0]\na.send(b'x')\nstep()";
        let (mut server, mut backend) = (Elsewhere::start(connect, ""), Elsewhere::start(listen, ""));
        let ip = |of: &Elsewhere, arguments: String| {
            let mut command = Command::new("nsenter");
            command.args(["--net", "--target", &of.child.id().to_string(), "ip"]).args(arguments.split(' '));
            assert!(command.status().unwrap().success(), "{command:?}");
        };
        ip(&server, format!("link add near type veth peer name far netns {}", backend.child.id()));
        for (side, device, address) in [(&server, "near", "10.83.9.1/24"), (&backend, "far", "10.83.9.2/24")] {
            ip(side, format!("address add {address} dev {device}"));
            ip(side, format!("link set {device} up"));
        }
        backend.go_on();
        std::thread::scope(|scope| {
            scope.spawn(|| backend.go_on());
            server.go_on();
        });
        let seen = observe::outgoing::read(&[server.child.id()], 1, &[]).unwrap();
        assert_eq!((seen.established, seen.most.as_deref()), (1, Some("10.83.9.2:8083")));
        assert_eq!(found(&seen.backends), [backend.child.id()].into(), "{seen:?}");
    }
}

mod outgoing {
    use observe::outgoing::*;
    use observe::port_sockets::PortReader;

    use std::collections::HashSet;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn connections_to_other_servers_are_counted_and_those_of_the_served_port_are_not() {
        let (served, backend) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let port = served.local_addr().unwrap().port();
        let to_backend: Vec<TcpStream> =
            (0..3).map(|_| TcpStream::connect(backend.local_addr().unwrap()).unwrap()).collect();
        let address = backend.local_addr().unwrap().to_string();
        let of_us = || read(&[std::process::id()], port, &[]).unwrap();
        let established = of_us().established;
        let accepted: Vec<TcpStream> = (0..3).map(|_| backend.accept().unwrap().0).collect();
        let before = of_us();
        assert!(before.established >= 3, "{before:?}");
        assert_eq!(before.established, established, "what is accepted at another port is not opened");
        assert!(!before.backends.contains_key(&address), "the other ends are nobody else's: {before:?}");
        let (client, served) = (TcpStream::connect(served.local_addr().unwrap()).unwrap(), served.accept().unwrap());
        assert_eq!(of_us().established, before.established + 1, "the client's end is ours, too");
        // The socket belongs to another process, like a backend's.
        let mut sleep = std::process::Command::new("sleep");
        let child = sleep.arg("60").stdin(std::os::fd::OwnedFd::from(accepted.into_iter().next().unwrap())).spawn();
        drop(sleep);
        let mut child = child.unwrap();
        assert!(of_us().backends.contains_key(&address), "{:?}", of_us());
        child.kill().unwrap();
        child.wait().unwrap();
        drop((client, served, to_backend));
        assert_eq!(read(&[], port, &[]), None);
    }

    #[test]
    fn a_backend_is_found_between_calls_that_each_have_a_connection() {
        let backend = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = backend.local_addr().unwrap();
        let mut sleep = std::process::Command::new("sleep");
        let child = sleep.arg("60").stdin(std::os::fd::OwnedFd::from(backend)).spawn();
        drop(sleep);
        let mut child = child.unwrap();
        let seen = |called: &[std::net::SocketAddr]| {
            read(&[std::process::id()], 1, called).unwrap().backends.contains_key(&address.to_string())
        };
        assert!(seen(&[address]) && !seen(&[]));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn names_of_unix_sockets_are_formatted() {
        assert_eq!(name_of(b"/run/app.sock\0"), "/run/app.sock");
        assert_eq!(name_of(b"/run/app.sock"), "/run/app.sock");
        assert_eq!(name_of(b"\0app"), "@app");
        assert_eq!(name_of(b"\xff\0"), "\u{fffd}");
    }

    #[test]
    fn connections_to_a_unix_socket_of_another_process_are_counted() {
        if let Err(error) = PortReader::open(None, 1).unwrap().read_unix(|_| ()) {
            return println!("SKIPPED outgoing: this kernel does not list Unix sockets: {error}");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app.sock");
        let mut backend = std::process::Command::new("python3")
            .args([
                "-c",
                "import socket, sys, time\nl = socket.socket(socket.AF_UNIX)\nl.bind(sys.argv[1])\nl.listen()\n\
                print(flush=True)\na, b = l.accept(), l.accept()\nprint(flush=True)\ntime.sleep(60)",
            ])
            .arg(&path)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = std::io::BufReader::new(backend.stdout.take().unwrap());
        let mut next = || std::io::BufRead::read_line(&mut said, &mut String::new()).unwrap();
        next();
        let of_us = || read(&[std::process::id()], 1, &[]).unwrap();
        assert_eq!(of_us(), Outgoing::default());
        let (kept, closed) = std::os::unix::net::UnixStream::pair().unwrap();
        drop(closed);
        assert_eq!(of_us(), Outgoing::default(), "a pair of which one end is closed leads nowhere");
        drop(kept);
        let _open: Vec<_> = (0..3).map(|_| std::os::unix::net::UnixStream::connect(&path).unwrap()).collect();
        next();
        let found = of_us();
        // Two connections are accepted, and the third waits.
        assert_eq!((found.established, found.most), (3, Some(format!("unix:{}", path.display()))));
        let inodes: HashSet<u64> = found.backends.into_values().flat_map(|held| held.inodes).collect();
        assert_eq!(inodes.len(), 3, "the listener and two that are accepted");
        assert_eq!(observe::listening::holders_of(&inodes, &[backend.id()]), [backend.id()].into());
        backend.kill().unwrap();
        backend.wait().unwrap();
    }
}

mod time_wait {
    use observe::time_wait::*;
    use std::io;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn the_size_of_a_socket_is_its_slab_size() {
        let text = "slabinfo - version: 2.1\n# name <active_objs> <num_objs> <objsize>\ntw_sock_TCPv6 1 2 264 \
                    16\ntw_sock_TCP 47888 47888 256 16 1 : tunables\n";
        assert_eq!(object_bytes(text), Some(256.0));
        assert_eq!(object_bytes("tw_sock_TCP x"), None);
    }

    #[test]
    fn sockets_are_counted_and_ended() {
        // In the common namespace, another program's client may use the same port.
        // SAFETY: only the network namespace of this thread changes.
        if let Err(why) = unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) } {
            return eprintln!("SKIPPED counting TIME_WAIT sockets in a namespace: {why}");
        }
        let up = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status();
        assert!(up.unwrap().success());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sockets = TimeWaitSockets::open(None, listener.local_addr().unwrap().port()).unwrap();
        assert_eq!(sockets.count().unwrap(), 0);
        let address = listener.local_addr().unwrap();
        for _ in 0..7 {
            let client = TcpStream::connect(address).unwrap();
            drop(listener.accept().unwrap());
            // The client closes second.
            let _ = io::Read::read(&mut &client, &mut [0]);
        }
        assert_eq!(sockets.count().unwrap(), 7);
        match sockets.end_all() {
            Ok(ended) => {
                assert_eq!(ended, 7);
                assert_eq!(sockets.count().unwrap(), 0);
            }
            Err(why) => eprintln!("SKIPPED ending TIME_WAIT sockets: {why}"),
        }
    }
}
