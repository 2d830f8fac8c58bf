//! Tests of processes, groups of processes and the calls in which threads wait.

mod processes {
    use observe::processes::*;

    #[test]
    fn a_process_that_started_later_cannot_be_a_parent() {
        let own = std::process::id();
        let mut table = ProcessTable::default();
        table.set_pids(&[own]);
        let start_ticks = table.get(own).unwrap().start_ticks;
        let child_from = |start_ticks| ProcessOrigin { parent: own, start_ticks, ..ProcessOrigin::default() };
        assert_eq!(table.parent(&child_from(start_ticks + 1)), Some(Process { pid: own, start_ticks }));
        assert_eq!(table.parent(&child_from(start_ticks - 1)), None, "its parent was another process with this id");
        let earlier = Process { pid: own, start_ticks: start_ticks - 1 };
        assert!(table.has(Process { pid: own, start_ticks }) && !table.has(earlier));
    }
}

mod group {
    use observe::cpu_clock;
    use observe::group::*;
    use observe::proc_text::ProcessStat;
    use observe::processes::ProcessTable;
    use std::fs;
    use std::process::{Child, Command};

    /// Starts a process with the id of an ended one; `None` if the kernel does not allow the choice.
    fn with_number(pid: u32, command: &mut Command) -> Option<Child> {
        // Other work may take the id first, and release it again.
        for _ in 0..5000 {
            std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).ok()?;
            let mut child = command.spawn().ok()?;
            if child.id() == pid {
                return Some(child);
            }
            child.kill().ok()?;
            child.wait().ok()?;
        }
        None
    }

    #[test]
    fn a_process_that_starts_later_below_the_control_group_is_a_member() {
        let folder = tempfile::tempdir().unwrap();
        // A threaded control group lists no processes.
        fs::create_dir_all(folder.path().join("worker/threads")).unwrap();
        for empty in ["cgroup.procs", "worker/cgroup.procs"] {
            fs::write(folder.path().join(empty), "").unwrap();
        }
        let mut table = ProcessTable::default();
        table.scan();
        let mut group = ServerGroup::new([], Some(folder.path().into()));
        group.admit(&table);
        assert!(group.pids().is_empty());
        fs::write(folder.path().join("worker/cgroup.procs"), format!("{}\n", std::process::id())).unwrap();
        group.admit(&table);
        assert_eq!(group.pids(), [std::process::id()]);
    }

    #[test]
    fn a_process_that_reuses_a_members_number_is_no_member() {
        let test = "a_process_that_reuses_a_members_number_is_no_member";
        let in_session = |script: &str| {
            let mut command = Command::new("setsid");
            command.args(["sh", "-c", script]);
            command
        };
        let mut server = in_session("sleep 600 & while :; do :; done").spawn().unwrap();
        let mut table = ProcessTable::default();
        let mut group = ServerGroup::new([server.id()], None);
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        // The shell leads a session that contains its child.
        while group.pids().len() < 2 {
            assert!(std::time::Instant::now() < deadline);
            table.scan();
            group.add_roots([server.id()]);
            group.admit(&table);
        }
        let end = |pids: &[u32]| {
            for pid in pids {
                // SAFETY: no memory is passed; the test itself started these processes.
                unsafe { libc::kill(*pid as i32, libc::SIGKILL) };
            }
        };
        end(&group.pids());
        server.wait().unwrap();
        let before = group.counters();
        let Some(mut stranger) = with_number(server.id(), &mut in_session("while :; do :; done")) else {
            return println!("SKIPPED {test}: the number of a new process cannot be chosen here");
        };
        std::thread::sleep(std::time::Duration::from_millis(60));
        let used_ns = cpu_clock::of_process(stranger.id()).unwrap();
        for _ in 0..2 {
            group.read();
            table.scan();
            group.admit(&table);
        }
        let (members, after) = (group.pids(), group.counters());
        stranger.kill().unwrap();
        stranger.wait().unwrap();
        assert!(table.get(stranger.id()).is_some(), "the table has it");
        assert!(members.is_empty(), "{members:?} are not the server's");
        assert!(after.cpu_ns < before.cpu_ns + used_ns, "its CPU time was counted: {before:?} {after:?}");
    }

    #[test]
    fn faults_of_a_child_are_not_counted_again_when_its_parent_waits_for_it() {
        let mut group = ServerGroup::new([], None);
        group.members.insert(10, Member::new(1, ProcessStat::default()));
        let child = ProcessStat { major_faults: 7, children_major_faults: 2, ..ProcessStat::default() };
        group.members.insert(11, Member::new(10, child));
        group.bury(11);
        let now = ProcessStat { children_major_faults: 12, ..ProcessStat::default() };
        group.count_children(10, &ProcessStat::default(), &now);
        assert_eq!(group.counters().major_faults, 3, "the last three came after its last reading");
        let later = ProcessStat { children_major_faults: 13, ..ProcessStat::default() };
        group.count_children(10, &now, &later);
        assert_eq!(group.counters().major_faults, 4, "of a child that was never seen");
    }
}

mod wait_call {
    use observe::group::ThreadId;
    use observe::wait_call::*;
    use std::os::fd::AsRawFd;

    fn look_at(thread: u32) -> WaitCalls {
        for _ in 0..10_000 {
            let mut waits = WaitCalls::default();
            waits.read(&[ThreadId { pid: std::process::id(), tid: thread }]);
            if waits.select_or_poll == 1 {
                return waits;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("the thread does not sleep in select");
    }

    #[test]
    fn a_select_over_one_descriptor_with_a_high_number_is_a_set_of_one() {
        for (others, expected) in [(0, 1), (70, 71)] {
            let (reader, writer) = std::io::pipe().unwrap();
            let copy_from = |lowest: i32| rustix::io::fcntl_dupfd_cloexec(&reader, lowest).unwrap();
            let high = copy_from(900);
            let copies: Vec<_> = (0..others).map(|_| copy_from(700)).collect();
            let (sender, receiver) = std::sync::mpsc::channel();
            let thread = std::thread::spawn(move || {
                let mut set = [0u64; 16];
                for descriptor in copies.iter().chain([&high]).map(|copy| copy.as_raw_fd() as usize) {
                    set[descriptor / 64] |= 1 << (descriptor % 64);
                }
                sender.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
                let limit = high.as_raw_fd() + 1;
                let none = std::ptr::null_mut::<libc::c_void>();
                // SAFETY: the set outlives the call and has a bit for each descriptor below the limit (below 1,024).
                unsafe { libc::syscall(libc::SYS_pselect6, limit, set.as_mut_ptr(), none, none, none, none) }
            });
            let waits = look_at(receiver.recv().unwrap());
            drop(writer);
            assert_eq!(thread.join().unwrap(), expected);
            assert_eq!((waits.largest_set, waits.error), (expected as u64, None));
        }
    }
}
