//! Tests of the account of threads: the programs in the kernel on this process, and the reading of their counts.

mod reading {
    use observe::account::reading::*;

    #[test]
    fn threads_whose_names_differ_by_number_are_one_group() {
        assert_eq!(common_name("pool-1-thread-12"), "pool-1-thread");
        assert_eq!((common_name("worker"), common_name("7")), ("worker".into(), "7".into()));
    }

    #[test]
    fn addresses_of_both_families_are_formatted() {
        let v4 = u64::from_ne_bytes([127, 0, 0, 1, 0, 0, 0, 0]);
        assert_eq!(address(2, &[v4, 0], 5432).as_deref(), Some("127.0.0.1:5432"));
        let mapped = [0, u64::from_ne_bytes([0, 0, 0xff, 0xff, 10, 0, 0, 7])];
        assert_eq!(address(10, &mapped, 80).as_deref(), Some("10.0.0.7:80"));
        assert_eq!(address(1, &[0, 0], 0), None);
    }
}

mod calls {
    use WaitKind::{Backend, File, Input, Memory, Requests};
    use observe::account::calls::*;
    use record::account::WaitKind;

    #[test]
    fn the_meaning_of_a_call_depends_on_its_descriptor() {
        let of = |call: i64, names| meaning(call as i32, names).0;
        assert_eq!(of(libc::SYS_read, DescriptorKind::Served), Requests);
        assert_eq!(of(libc::SYS_recvfrom, DescriptorKind::Socket), Backend);
        assert_eq!(of(libc::SYS_read, DescriptorKind::Source), Input);
        assert_eq!(of(libc::SYS_write, DescriptorKind::Pipe), WaitKind::Pipe);
        assert_eq!(of(libc::SYS_write, DescriptorKind::Source), WaitKind::Pipe, "a terminal");
        assert_eq!(of(libc::SYS_sendto, DescriptorKind::Served), WaitKind::Send);
        assert_eq!(meaning(libc::SYS_fdatasync as i32, DescriptorKind::File), (File, "fdatasync".into()));
        assert_eq!(meaning(-1, DescriptorKind::Nothing), (Memory, String::new()));
        assert_eq!(meaning(100_000, DescriptorKind::Nothing), (WaitKind::Other, "system call 100000".into()));
    }

    #[test]
    fn the_programs_know_which_calls_name_a_descriptor() {
        let table = arguments::<512>();
        let of = |call: i64| table[call as usize];
        assert_eq!([of(libc::SYS_futex), of(libc::SYS_write), of(libc::SYS_ppoll)], [1, 2, 0]);
        assert!(all().all(|call| (0..512).contains(&call.number)), "the programs know no higher number");
    }
}

mod account {
    use observe::account::*;
    use observe::group::ServerGroup;
    use observe::processes::ProcessTable;
    use observe::watch::kernel_has_send_events;
    use record::account::{Account, CLOSED_WINDOW, STOPPED, ThreadGroup, WaitKind};
    use std::collections::BTreeMap;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::process::CommandExt;
    use std::time::Duration;

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
    fn a_stopped_process_is_not_seen_as_waiting_or_running() {
        let Some(mut accountant) = started("a_stopped_process_is_not_seen_as_waiting_or_running") else { return };
        for command in ["while :; do :; done", "read line"] {
            let mut child = std::process::Command::new("sh")
                .args(["-c", command])
                .stdin(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let pid = child.id();
            std::thread::sleep(Duration::from_millis(50));
            let account = account_from(&mut accountant, pid, || {
                // SAFETY: kill takes no pointers; the process is this test's child.
                let signal = |number| assert_eq!(unsafe { libc::kill(pid as i32, number) }, 0);
                signal(libc::SIGSTOP);
                std::thread::sleep(Duration::from_millis(200));
                signal(libc::SIGCONT);
                std::thread::sleep(Duration::from_millis(50));
            });
            child.kill().unwrap();
            child.wait().unwrap();
            let waits = account.groups.iter().flat_map(|group| &group.waits);
            let stopped: u64 = waits.filter(|wait| *wait.call == *STOPPED).map(|wait| wait.ns).sum();
            assert!((150_000_000..account.window_ns).contains(&stopped), "{command}: {account:?}");
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
        accountant.close(&group.processes()).unwrap();
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
