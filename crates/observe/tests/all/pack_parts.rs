//! Tests of packs, the phases that they define, and the programs of the watch.

mod pack {
    use observe::watch::pack::*;
    use proptest::prelude::*;

    #[test]
    fn the_included_packs_can_be_read() {
        for (name, _) in BUILT_IN {
            let pack = Pack::open(name).unwrap();
            assert_eq!(pack.server, name);
            assert!(pack.marks.len() >= 3, "{pack:?}");
        }
        assert!(Pack::open("nginx").unwrap().fits("nginx"));
        assert!(Pack::open("apache").unwrap().fits("apache2"));
        assert!(!Pack::open("apache").unwrap().fits("nginx"));
    }

    #[test]
    fn a_bad_line_is_named() {
        let good = "server s\nbinary s\nparsed a\nprocessed b\n";
        for (line, words) in [
            ("begun f", "is not a keyword"),
            ("logged", "needs the name of a function"),
            ("logged f when done", "may follow the function"),
            ("logged f in", "may follow the function"),
            ("server t", "a name already"),
            ("binary a b", "takes one word"),
        ] {
            let error = Pack::parse("my.pack", &format!("{good}{line}\nlogged c\n")).unwrap_err().to_string();
            assert!(error.starts_with("my.pack, line 5: ") && error.contains(words), "{error}");
        }
        let error = Pack::parse("my.pack", good).unwrap_err().to_string();
        assert_eq!(error, "my.pack: a line 'logged FUNCTION' is missing: phases need all three boundaries");
        let many = format!("{good}{}", "logged f\n".repeat(20));
        assert!(Pack::parse("my.pack", &many).unwrap_err().to_string().contains("at most 16"));
    }

    #[test]
    fn returns_and_libraries_are_parsed() {
        let pack = Pack::parse("p", "server s # s\nbinary s\nparsed a\nprocessed b return\nlogged c return in l.so*\n")
            .unwrap();
        let [_, b, c] = pack.marks.as_slice() else { panic!("{pack:?}") };
        assert!(b.at_return && b.library.is_none() && b.line == 4);
        assert!(c.at_return && c.library.as_deref() == Some("l.so*"));
    }

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, name, is_match) in [
            ("nginx", "nginx", true),
            ("nginx", "nginx-debug", false),
            ("nginx*", "nginx-debug", true),
            ("*", "", true),
            ("lib*.so.*", "libapr-1.so.0", true),
            ("lib*.so.*", "libapr-1.so", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(matches(pattern, name), is_match, "{pattern} {name}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_pack_or_an_error(text in "(\\PC|\n){0,300}") {
            let _ = Pack::parse("p", &text);
        }
    }
}

mod pack_places {
    use observe::watch::pack::{BoundaryFunction, Pack};
    use observe::watch::pack_places::*;

    fn pack(function: &str) -> Pack {
        let binary = std::env::current_exe().unwrap();
        let name = binary.file_name().unwrap().to_str().unwrap().to_string();
        let text =
            format!("server t\nbinary {name}\nparsed {function}\nprocessed {function}\nlogged {function} return\n");
        Pack::parse("t", &text).unwrap()
    }

    #[test]
    fn a_function_of_a_running_program_is_found() {
        let own = std::process::id();
        let places = find(&pack("main"), &[own]).unwrap();
        assert_eq!(places.len(), 3);
        assert!(places.iter().all(|place| place.offset > 0) && places[2].at_return, "{places:?}");
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn first_instructions_are_classified_as_in_the_kernel() {
        // push rbp; push r13; nop; call; jmp; je (long).
        let emulated: [&[u8]; 6] = [&[0x55], &[0x41, 0x55], &[0x90], &[0xe8, 0], &[0xe9, 0], &[0x0f, 0x84]];
        assert!(emulated.iter().all(|bytes| !is_stepped(bytes)));
        // mov rax, [rdi+8]; sub rsp, 8; endbr64; a function of no bytes.
        let stepped: [&[u8]; 4] = [&[0x48, 0x8b, 0x47, 8], &[0x48, 0x83, 0xec, 8], &[0xf3, 0x0f, 0x1e, 0xfa], &[]];
        assert!(stepped.iter().all(|bytes| is_stepped(bytes)));
    }

    #[test]
    fn missing_functions_and_libraries_are_named() {
        let own = std::process::id();
        let missing = find(&pack("no_such_function"), &[own]).unwrap_err();
        assert!(missing.contains("has no symbol no_such_function (line 3)"), "{missing}");
        let other = find(&Pack::open("nginx").unwrap(), &[own]).unwrap_err();
        assert!(other.contains("the pack is for nginx*"), "{other}");
        assert!(find(&pack("main"), &[]).unwrap_err().contains("not known"));
    }

    #[test]
    fn libraries_are_found_among_the_mapped_files() {
        let (path, name) = mapped_library(std::process::id(), "libc.so*").expect("libc is mapped");
        assert!(name.starts_with("libc.so") && path.exists());
        let mark = BoundaryFunction {
            boundary: observe::watch::pack::PhaseEnd::Parsed,
            function: "getpid".into(),
            at_return: false,
            library: None,
            line: 1,
        };
        assert!(offset_of(&path, &mark).unwrap().0 > 0);
    }
}

mod active_pack {
    use observe::watch::SizeClasses;
    use observe::watch::active_pack::*;
    use observe::watch::pack::Pack;
    use observe::watch::pack_places::PackPlace;
    use observe::watch::probe_cost::{FunctionCosts, ProbeCosts};

    fn place(offset: u64, boundary: u64, at_return: bool, is_stepped: bool) -> PackPlace {
        PackPlace { path: "/bin/true".into(), offset, boundary, at_return, is_stepped }
    }

    fn pack_of(places: Vec<PackPlace>) -> ActivePack {
        let emulated = FunctionCosts { call_ns: 2_000.0, return_ns: 4_000.0, both_ns: 5_000.0 };
        let stepped = FunctionCosts { call_ns: 3_000.0, return_ns: 6_000.0, both_ns: 7_000.0 };
        let costs = ProbeCosts { emulated: Some(emulated), stepped: Some(stepped) };
        ActivePack::new(&Pack::open("nginx").unwrap(), places, costs, 4)
    }

    fn pack() -> ActivePack {
        // As in nginx: the first function is single-stepped, the second one is probed at both ends.
        pack_of(vec![place(1, 1, false, true), place(2, 2, false, false), place(2, 3, true, false)])
    }

    #[test]
    fn a_request_is_charged_once_per_function_and_for_the_most_expensive_alternative() {
        assert_eq!(pack().request_ns(), 3_000.0 + 5_000.0);
        let mut places = pack().places;
        places.push(place(9, 1, false, false));
        assert_eq!(pack_of(places.clone()).request_ns(), 8_000.0, "the cheaper of two for one boundary adds nothing");
        places[2].offset = 3;
        assert_eq!(pack_of(places).request_ns(), 3_000.0 + 2_000.0 + 4_000.0, "three functions, three calls");
    }

    #[test]
    fn windows_are_as_rare_as_the_budget_requires() {
        let mut pack = pack();
        assert_eq!(pack.next_ns, None, "nothing is known of a request yet");
        // 8 us of probes on a request of 10 us for a tenth of a second: 0.5 % of the time corresponds to 16 s.
        pack.adapt(7, 10_000.0, 0.01);
        assert_eq!(pack.next_ns, Some(7));
        pack.add_window(100, 50, std::iter::empty(), &[], &SizeClasses::default());
        assert_eq!(pack.next_ns, Some(100 + 16_000_000_000));
        pack.adapt(7, 10_000_000.0, 0.01);
        pack.add_window(100, 50, std::iter::empty(), &[], &SizeClasses::default());
        assert_eq!(pack.next_ns, Some(100 + SHORTEST_PERIOD.as_nanos() as u64));
        assert_eq!(pack.totals(4, 6).request_ns, 8_000.0);
        assert!((pack.cost_ns(6) - 16_000.0).abs() < 1e-6);
    }
}

mod phases {
    use observe::bpf::types::watch::PhaseRow;
    use observe::watch::SizeClasses;
    use observe::watch::phases::*;
    use record::watch::ClassTotals;

    #[test]
    fn cpu_phases_add_up_to_the_exact_cpu_time() {
        let row = PhaseRow { requests: 10, sends: 10, cpu_ns: [10, 20, 70], ..PhaseRow::default() };
        let mut sums = PhaseSums::new(1);
        sums.add_window(std::iter::once(row), std::iter::empty(), 1, &SizeClasses::parse("").unwrap());
        let exact = ClassTotals { requests: 1000, cpu_ns: 20_000, ..ClassTotals::default() };
        let totals = sums.totals(0.2, std::slice::from_ref(&exact));
        let parts: Vec<f64> = totals[0].cpu_ns.iter().map(|part| part.unwrap().mean).collect();
        assert_eq!(parts, [2.0, 4.0, 14.0]);
        assert_eq!(totals[0].requests, 10);
    }

    #[test]
    fn a_second_window_counts_only_the_growth() {
        let mut row = PhaseRow { requests: 10, elapsed_ns: [100, 0, 0], ..PhaseRow::default() };
        let sizes = SizeClasses::parse("").unwrap();
        let mut sums = PhaseSums::new(1);
        sums.add_window(std::iter::once(row), std::iter::empty(), 1, &sizes);
        row.requests = 15;
        row.elapsed_ns = [200, 0, 0];
        sums.add_window(std::iter::once(row), std::iter::empty(), 2, &sizes);
        let parse = sums.totals(0.2, &[ClassTotals::default()])[0].elapsed_ns[0].unwrap();
        assert_eq!((parse.mean, parse.requests, parse.windows), (200.0 / 15.0, 15, 2));
    }
}

mod programs {
    use libbpf_rs::libbpf_sys;
    use observe::bpf;
    use observe::watch::kernel::{ALWAYS, KernelHooks};
    use observe::watch::programs::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

    fn run_count(programs: &WatchPrograms, name: &str) -> u64 {
        let program = bpf::program(&programs.object, name).expect("it is loaded");
        let mut info: libbpf_sys::bpf_prog_info = Default::default();
        let mut length = size_of_val(&info) as u32;
        // SAFETY: `info` is live and as long as `length` says.
        let read = unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_fd().as_raw_fd(), &mut info, &mut length) };
        assert_eq!(read, 0, "{name}");
        info.run_cnt
    }

    fn exchange(listener: &TcpListener, times: usize) {
        let mut client = TcpStream::connect(listener.local_addr().expect("bound")).expect("it accepts");
        let (mut server, _) = listener.accept().expect("a connection");
        let mut byte = [0];
        for _ in 0..times {
            client.write_all(b"q").expect("sent");
            server.read_exact(&mut byte).expect("received");
            server.write_all(b"a").expect("sent");
            client.read_exact(&mut byte).expect("received");
        }
    }

    /// The reported cost is the number of runs times prices, so every run must be counted, including those for other
    /// ports.
    #[test]
    fn the_cost_includes_every_program_run_that_the_kernel_counts() {
        // SAFETY: no memory is passed.
        let stats = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
        if stats < 0 {
            eprintln!("SKIPPED every_run_of_a_program_is_in_the_cost: the kernel's statistics of BPF need root");
            return;
        }
        // SAFETY: a new descriptor without another owner; the statistics end with it.
        let _stats = unsafe { OwnedFd::from_raw_fd(stats) };
        let (ours, others) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let hooks = KernelHooks::detect().expect("types");
        let mut programs = WatchPrograms::load(hooks, &PortOptions::smallest()).expect("root may load them");
        programs.watch(ours.local_addr().unwrap().port(), 0);
        programs.attach_states().unwrap();
        programs.attach_receive().unwrap();
        programs.open_window(1, true).unwrap();
        exchange(&ours, 100);
        exchange(&others, 1000);
        // Detach first, so that both counts stop.
        programs.close_window();
        programs.receive = None;
        programs.always.clear();
        let runs = programs.runs();
        let of_kernel = |names: &[&str]| names.iter().map(|name| run_count(&programs, name)).sum::<u64>();
        assert!(runs.receives >= 2 * 1100 && runs.sends >= 2 * 1100, "both ends of both connections: {runs:?}");
        assert_eq!(runs.receives, of_kernel(&[hooks.receive_program()]));
        assert_eq!(runs.sends, of_kernel(&hooks.send_programs()));
        assert_eq!(runs.switches, of_kernel(&["on_switch"]));
        assert_eq!(runs.syscalls, of_kernel(&["on_syscall"]));
        assert_eq!(runs.others, of_kernel(&ALWAYS));
    }
}

mod server {
    use observe::sock_diag::TcpSocket;
    use observe::watch::server::*;

    fn listener(queue: u32, queue_limit: u32, drops: u32) -> TcpSocket {
        let local = ([127, 0, 0, 1], 80).into();
        TcpSocket { state: 10, local, remote: local, inode: 1, uid: 0, queue, queue_limit, drops }
    }

    #[test]
    fn deferred_connections_of_a_listener_are_no_drops() {
        let listener = |drops| listener(0, 5, drops);
        let mut drops = Drops::default();
        assert_eq!(drops.add(&[listener(7)], Some(100)), 0, "before the watch");
        assert_eq!(drops.add(&[listener(47)], Some(100)), 0, "forty handshakes were put off");
        assert_eq!(drops.add(&[listener(50)], Some(103)), 3, "and three dropped");
        assert_eq!(drops.add(&[listener(50)], Some(104)), 3, "one more, after the listener was read");
        assert_eq!(drops.add(&[listener(51)], Some(104)), 4);
        assert_eq!(drops.add(&[listener(51)], Some(204)), 4, "those of other ports");
        assert_eq!(drops.add(&[listener(51)], Some(204)), 4);
        assert_eq!(drops.add(&[listener(56)], Some(204)), 4);
        assert_eq!(drops.add(&[listener(58)], None), 6, "where only the listeners are known");
    }

    #[test]
    fn the_accept_queue_belongs_to_the_listener_that_overflows_first() {
        let seen = |listeners: &[(u32, u32)]| {
            let listeners: Vec<_> = listeners.iter().map(|&(queue, limit)| listener(queue, limit, 0)).collect();
            fullest(&listeners).map(|fullest| (fullest.queue, fullest.queue_limit))
        };
        assert_eq!(seen(&[]), None);
        assert_eq!(seen(&[(400, 511), (400, 511), (400, 511)]), Some((400, 511)), "one for each worker (SO_REUSEPORT)");
        assert_eq!(seen(&[(200, 4096), (9, 10), (0, 5)]), Some((9, 10)));
        assert_eq!(seen(&[(0, 4096), (0, 128)]), Some((0, 128)), "the smallest of empty ones");
        assert_eq!(seen(&[(3, 0), (7, 0)]), Some((7, 0)), "no limit is known");
    }
}
