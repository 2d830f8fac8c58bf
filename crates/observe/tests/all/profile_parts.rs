//! Tests of the parts of the profiler: samples, names, groups, and the exact method.

mod sampler {
    use libbpf_rs::MapCore;
    use observe::bpf;
    use observe::bpf::members::Members;
    use observe::processes::{Process, read_stat};
    use observe::profile::ProfileError;
    use observe::profile::names::SymbolNames;
    use observe::profile::sampler::*;
    use observe::profile::symbols;

    const GRACE_PERIODS: usize = 5000;

    fn attached(test: &str) -> Option<StackSampler> {
        match StackSampler::attach(0, 0, 1, &[]) {
            Err(ProfileError::NotPermitted) => {
                println!("SKIPPED {test}: it needs root");
                None
            }
            attached => Some(attached.unwrap()),
        }
    }

    fn now(pid: u32) -> Option<Process> {
        read_stat(pid).map(|stat| Process { pid, start_ticks: stat.start_ticks })
    }

    #[test]
    fn processes_are_followed_from_their_fork_until_they_have_ended() {
        let test = "processes_are_followed_from_their_fork_until_they_have_ended";
        let Some(mut sampler) = attached(test) else { return };
        let own = now(std::process::id()).unwrap();
        sampler.set_members(&[own]).unwrap();
        let mut children: Vec<_> =
            (0..3).map(|_| std::process::Command::new("sleep").arg("600").spawn().unwrap()).collect();
        let mut members: Vec<u32> = Members::living(&sampler.object).unwrap().into_iter().collect();
        members.sort_unstable();
        let mut expected: Vec<u32> = children.iter().map(|child| child.id()).chain([own.pid]).collect();
        expected.sort_unstable();
        assert_eq!(members, expected);
        children.iter_mut().for_each(|child| child.kill().and_then(|()| child.wait()).map(drop).unwrap());
        // The kernel frees an ended process after an RCU grace period, in a callback that a busy CPU runs late.
        for _ in 0..GRACE_PERIODS {
            if Members::living(&sampler.object).unwrap().len() == 1 {
                return;
            }
            // SAFETY: the call has no arguments that point to memory.
            let done = unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL, 0, 0) };
            assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let left = Members::living(&sampler.object).unwrap();
        let living: Vec<_> = left.iter().map(|pid| (pid, now(*pid))).collect();
        panic!("ended processes stay: {living:?} of {own:?} and {expected:?}");
    }

    #[test]
    fn the_kernel_names_its_own_addresses() {
        let Some(sampler) = attached("the_kernel_names_its_own_addresses") else { return };
        let Some(address) = symbols::address_of("tcp_sendmsg") else {
            return println!("SKIPPED the_kernel_names_its_own_addresses: the kernel hides them");
        };
        let mut names = SymbolNames::new(Some(&sampler.object));
        let named = names.kernel_stack(&[address, address + 1, 2]);
        let named: Vec<&str> = named.iter().map(|frame| frame.function.as_str()).collect();
        assert_eq!(named, ["tcp_sendmsg", "tcp_sendmsg", "bpf_jit_code"]);
        let many: Vec<u64> = (1000..2000).collect();
        assert!(names.kernel_stack(&many).iter().all(|frame| frame.function == "bpf_jit_code"));
    }

    #[test]
    fn a_full_table_of_processes_is_a_counted_loss() {
        let Some(mut sampler) = attached("a_full_table_of_processes_is_a_counted_loss") else { return };
        let room = bpf::map(&sampler.object, "members").unwrap().max_entries();
        let many: Vec<Process> = (1..=room + 2).map(|pid| Process { pid: pid + (1 << 23), start_ticks: 1 }).collect();
        sampler.set_members(&many).unwrap();
        let lost = sampler.rows().unwrap().1.processes;
        // The kernel's table reserves places on each CPU, so some room is left when it begins to refuse entries.
        assert!(lost >= 2, "{lost}");
        sampler.set_members(&many).unwrap();
        assert_eq!(sampler.rows().unwrap().1.processes, lost, "each is lost once");
        let others: Vec<Process> =
            many.iter().take(10).map(|one| Process { pid: one.pid + (1 << 24), ..*one }).collect();
        sampler.set_members(&others).unwrap();
        assert_eq!(sampler.rows().unwrap().1.processes, lost, "what has ended makes room");
    }
}

mod arrivals {
    use observe::profile::arrivals::*;
    use observe::profile::samples::Interrupts;
    use record::profile::{Arrivals, CpuCheck};

    fn check(difference: f64, late: u64, arrived: u64, steal: f64) -> CpuCheck {
        CpuCheck {
            sampled_ns: 1e9 * (1.0 + difference),
            scheduler_ns: 1e9,
            difference_ratio: Some(difference),
            steal_ratio: Some(steal),
            arrivals: Arrivals { arrived, late, expected: 10_000.0, limit_hz: Some(100_000) },
        }
    }

    fn said(check: &CpuCheck) -> String {
        doubt(check, 1_000_000, 1_003_009).expect("it is worth a doubt").what
    }

    #[test]
    fn random_deviations_raise_no_doubt() {
        assert!(doubt(&check(-0.019, 0, 10_000, 0.0), 1_000_000, 1_003_009).is_none());
        assert!(doubt(&check(-0.15, 0, 10_000, 0.0), 100, 1_003_009).is_none(), "a hundred samples scatter by a tenth");
        assert!(doubt(&check(-0.15, 0, 10_000, 0.0), 1_000_000, 1_003_009).is_some());
    }

    #[test]
    fn each_cause_has_its_own_sentence() {
        for (check, words) in [
            (check(-0.4, 3_800, 6_200, 0.3), "while a hypervisor took 30 %"),
            (check(-0.4, 3_800, 6_200, 0.01), "without notice"),
            (check(-0.4, 100, 6_200, 0.0), "37 % of the machine's samples never came"),
            (check(-0.4, 100, 9_900, 0.0), "hit the server less often"),
            (check(0.1, 0, 10_000, 0.08), "which samples count"),
            (check(0.1, 0, 10_000, 0.0), "in step with a timer"),
        ] {
            let said = said(&check);
            assert!(said.contains(words) && said.contains("scaled"), "{said}");
        }
        let mut limited = check(-0.4, 0, 6_000, 0.0);
        limited.arrivals.limit_hz = Some(500);
        assert!(said(&limited).contains("at most 500 samples per second"), "{}", said(&limited));
    }

    #[test]
    fn arrived_late_and_missing_samples_add_up_to_all() {
        let interrupts = Interrupts { arrived: 900, late: 60 };
        let arrivals = arrivals(&interrupts, 1_000_000_000, 2, 2_000_000);
        assert_eq!(arrivals.expected, 1000.0);
        assert!((arrivals.late_ratio() - 0.06).abs() < 1e-9 && (arrivals.missing_ratio() - 0.04).abs() < 1e-9);
        assert!((arrivals.lost_ratio() - 0.1).abs() < 1e-9);
        // The ends of a window are read slightly later than its samples, so one sample too many is not a negative
        // loss.
        let more = Arrivals { arrived: 1001, late: 0, ..arrivals };
        assert_eq!(more.lost_ratio(), 0.0);
    }
}

mod interval {
    use observe::profile::interval::*;

    #[test]
    fn a_constant_ratio_has_no_spread() {
        let estimate = ratio(&[2.0, 4.0, 6.0, 8.0], &[1.0, 2.0, 3.0, 4.0]).unwrap();
        assert!((estimate.value - 2.0).abs() < 1e-12);
        assert!(estimate.plus_minus.unwrap() < 1e-9);
    }

    #[test]
    fn a_ratio_without_a_denominator_has_no_value() {
        assert_eq!(ratio(&[1.0, 2.0], &[0.0, 0.0]), None);
        assert_eq!(ratio(&[1.0, 0.0], &[5.0, 0.0]).unwrap().plus_minus, None);
    }

    #[test]
    fn the_interval_covers_the_truth_about_as_often_as_stated() {
        // Binomial blocks of 100 with a share of 0.3, from a fixed generator.
        let mut state = 1u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f64 / (1u64 << 24) as f64
        };
        let mut covered = 0;
        for _ in 0..1000 {
            let parts: Vec<f64> = (0..10).map(|_| (0..100).filter(|_| uniform() < 0.3).count() as f64).collect();
            let estimate = ratio(&parts, &[100.0; 10]).unwrap();
            covered += usize::from((estimate.value - 0.3).abs() <= estimate.plus_minus.unwrap());
        }
        assert!((920..=980).contains(&covered), "{covered} of 1000");
    }
}

mod stacks {
    use observe::profile::attribute::{AttributedStack, StackOwner};
    use observe::profile::samples::BLOCKS;
    use observe::profile::stacks::*;
    use record::layers::{Layer, Row};
    use record::profile::{CpuMode, EventRow, Frame, Ran};

    fn stack(owner: StackOwner, tgid: u32, event: u8, samples: u64, functions: &[&str]) -> AttributedStack {
        let mut blocks = [0; BLOCKS as usize];
        // The samples are spread over the window.
        blocks[0] = samples / 2;
        blocks[9] = samples - samples / 2;
        let frame = |name: &&str| Frame { function: (*name).into(), module: None, is_kernel: true };
        AttributedStack {
            owner,
            ran: Ran::Server,
            row: Some(Row { layer: Layer::Tcp, part: String::new() }),
            mode: CpuMode::Kernel,
            frames: functions.iter().map(frame).collect(),
            event,
            tgid,
            blocks,
        }
    }

    fn event(name: &str, not_measured: Option<&str>) -> EventRow {
        EventRow {
            event: name.into(),
            period: 1000,
            samples: 0,
            counter_ran_ratio: 0.5,
            not_measured: not_measured.map(str::to_string),
        }
    }

    #[test]
    fn every_sample_of_the_server_is_kept_once_with_its_event() {
        let (own, gone) = (std::process::id(), u32::MAX - 7);
        let stacks = [
            stack(StackOwner::Server, own, 0, 5, &["tcp_ack", "main"]),
            stack(StackOwner::Server, own, 2, 3, &["tcp_ack", "main"]),
            stack(StackOwner::Server, gone, 0, 2, &["tcp_ack", "main"]),
            stack(StackOwner::Server, own, 0, 1, &[]),
            stack(StackOwner::Peer, own, 0, 100, &["tcp_ack", "main"]),
            stack(StackOwner::Server, own, 1, 100, &["of an event that is not there"]),
        ];
        let command_of = |pid: u32| if pid == own { "worker".into() } else { "server".into() };
        let recorded =
            recorded(&stacks, &command_of, &[event("cycles", Some("no counter")), event("instructions", None)]);
        assert_eq!(recorded.samples(), 8);
        assert_eq!(recorded.events, ["instructions"]);
        assert_eq!(recorded.functions.len(), 2, "each once: {:?}", recorded.functions);
        let name = |pid| recorded.processes.iter().find(|one| one.pid == pid).map(|one| one.name.to_string());
        assert_eq!((name(gone).as_deref(), name(own).as_deref()), (Some("server"), Some("worker")));
        let mut counted: Vec<(u64, &[u64])> =
            recorded.stacks.iter().map(|stack| (stack.samples, stack.events.as_slice())).collect();
        counted.sort_unstable();
        // Three samples of 1,000 events each, counted for half of the time.
        assert_eq!(counted, [(1, &[0][..]), (2, &[0]), (5, &[6000])]);
    }
}

mod attribute {
    use observe::profile::attribute::*;
    use record::layers::{Layer, LayerRule};
    use record::profile::Frame;

    fn layer_of(functions: &[&str]) -> Option<Layer> {
        let frame =
            |function: &&str| Frame { function: record::PlainText::from(*function), module: None, is_kernel: true };
        let (_, row, ..) = classify(functions.iter().map(frame).collect(), LayerRule::built_in());
        row.map(|row| row.layer)
    }

    #[test]
    fn slow_down_programs_are_charged_to_their_place_and_other_programs_are_not() {
        let slow = "bpf_prog_0123456789abcdef_slow_request_re";
        let hook = ["bpf_trace_run1", "__traceiter_tcp_rcv_space_adjust"];
        let at = |inner: &[&'static str], program: &'static str| {
            layer_of(&[inner, &[program], &hook, &["tcp_recvmsg_locked", "tcp_recvmsg", "inet_recvmsg"]].concat())
        };
        assert_eq!(at(&["ktime_get_mono_fast_ns", "bpf_ktime_get_ns"], slow), Some(Layer::Tcp));
        assert_eq!(at(&[], slow), Some(Layer::Tcp));
        assert_eq!(at(&["bpf_ktime_get_ns"], "bpf_prog_0123456789abcdef_count_request"), Some(Layer::Other));
        let interrupted = ["tick_sched_timer", "asm_sysvec_apic_timer_interrupt", "bpf_ktime_get_ns"];
        assert_eq!(at(&interrupted, slow), Some(Layer::Other), "an interrupt is no part of the place");
        assert_eq!(layer_of(&["bpf_ktime_get_ns", slow, hook[0]]), None, "a place that cannot be seen");
    }
}

mod symbols {
    use observe::profile::symbols::*;
    use proptest::prelude::*;

    const TEXT: &str = "ffffffff81000000 T _stext\nffffffff81000010 t __pfx_tcp_ack\nffffffff81000020 t tcp_ack\n\
        ffffffffc0000000 t veth_xmit\t[veth]\nffffffff82000000 D some_data\nnonsense\n";

    #[test]
    fn functions_are_listed_with_their_modules_and_found_by_name() {
        let named =
            |name: &str, module: Option<&str>| KernelFunction { name: name.into(), module: module.map(str::to_string) };
        let all = [named("_stext", None), named("tcp_ack", None), named("veth_xmit", Some("veth"))];
        assert_eq!(parse(TEXT.as_bytes()).unwrap(), all);
        assert_eq!(address_in(TEXT.as_bytes(), "tcp_ack"), Some(0xffff_ffff_8100_0020));
        for missing in ["ack", "veth_xmit", "some_data"] {
            assert_eq!(address_in(TEXT.as_bytes(), missing), None, "{missing}");
        }
        assert_eq!(address_in("0000000000000000 t tcp_ack\n".as_bytes(), "tcp_ack"), None, "hidden");
    }

    proptest! {
        #[test]
        fn no_text_panics_the_reader(text in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = (parse(text.as_slice()), address_in(text.as_slice(), "a"));
        }
    }
}

mod groups {
    use observe::profile::FunctionGroup;
    use observe::watch::pack::matches;
    use proptest::prelude::*;

    #[test]
    fn a_group_contains_the_functions_that_match_its_patterns() {
        let group: FunctionGroup = "acks = tcp_ack*, tcp_clean_rtx_queue ,user:ngx_*_handler".parse().unwrap();
        assert_eq!(group.name, "acks");
        assert!(group.contains("tcp_ack_update_rtt", false));
        assert!(group.contains("tcp_clean_rtx_queue", false));
        assert!(!group.contains("tcp_clean_rtx_queue2", false));
        assert!(group.contains("ngx_http_handler", true));
        assert!(!group.contains("ngx_http_handler", false));
        assert!(group.contains("tcp_clean_rtx_queue.constprop.0", false));
    }

    #[test]
    fn invalid_text_is_refused_with_an_example() {
        for text in ["", "acks", "=tcp_*", "acks=", "acks=tcp_*,,x"] {
            let sentence = text.parse::<FunctionGroup>().expect_err(text).to_string();
            assert!(sentence.contains("name=pattern"), "{sentence}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_the_matcher(glob in "\\PC{0,30}", text in "\\PC{0,60}") {
            let _ = matches(&glob, &text);
            let _ = glob.parse::<FunctionGroup>();
        }
    }
}

mod names {
    use observe::profile::names::*;

    #[inline(never)]
    fn first(number: u64) -> u64 {
        std::hint::black_box(number + 1)
    }

    #[inline(never)]
    fn second(number: u64) -> u64 {
        first(number) + std::hint::black_box(1)
    }

    /// The first return address in a function.
    fn first_return_address(function: u64) -> u64 {
        // SAFETY: code is readable, and no function is at the beginning or the end of the program.
        let code = unsafe { std::slice::from_raw_parts((function - 8) as *const u8, 48) };
        let is_end = |code: &[u8]| ends_in_call(code.try_into().expect("eight bytes"));
        let place = code.windows(8).skip(9).position(is_end).expect("a call within the first bytes");
        function + place as u64 + 9
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_return_address_follows_a_call() {
        for code in [
            [0, 0, 0, 0xe8, 1, 2, 3, 4],       // call f
            [0, 0, 0, 0, 0, 0, 0xff, 0xd0],    // call *%rax
            [0, 0, 0, 0, 0, 0x41, 0xff, 0xd4], // call *%r12
            [0, 0, 0, 0, 0, 0xff, 0x55, 0x10], // call *0x10(%rbp)
            [0, 0, 0xff, 0x15, 1, 2, 3, 4],    // call *f(%rip)
            [0, 0xff, 0x94, 0x24, 1, 2, 3, 4], // call *f(%rsp)
        ] {
            assert!(ends_in_call(code), "{code:x?}");
        }
        for code in [[0x55, 0x48, 0x89, 0xe5, 0x41, 0x57, 0x41, 0x56], [0, 0, 0, 0, 0, 0, 0xff, 0xe0], [0; 8]] {
            assert!(!ends_in_call(code), "{code:x?}");
        }
    }

    #[test]
    fn callers_are_named_by_addresses_after_calls_only() {
        assert_eq!(second(1), 3);
        let mut names = SymbolNames::new(None);
        let [callee, caller] = [first as *const () as u64, second as *const () as u64];
        let [within, after] = [first_return_address(caller), caller + 1].map(|address| vec![callee, address]);
        let own = std::process::id();
        names.learn_user(own, &[&within, &after]);
        let callers = [within, after].map(|stack| {
            let frames = names.user_stack(own, &stack);
            assert!(frames[0].function.contains("first"), "{frames:?}");
            frames.get(1).map(|frame| frame.function.to_string()).unwrap_or_default()
        });
        assert!(callers[0].contains("second") && !callers[1].contains("second"), "{callers:?}");
    }
}

mod exact_reading {
    use observe::bpf::types::exact::Cpu;
    use observe::profile::exact::reading::*;
    use observe::profile::samples::PacketReceiver;
    use record::layers::Layer;

    fn record(last_ns: u64, depth: u32, whose: u32, side: u32, (layer, is_network): (u8, u8)) -> Cpu {
        let mut cpu = Cpu { last_ns, depth, whose, side, is_known: 1, ..Cpu::default() };
        let top = &mut cpu.stack[depth as usize];
        (top.layer, top.is_network) = (layer, is_network);
        cpu
    }

    #[test]
    fn a_sleeping_cpu_is_charged_up_to_the_end_of_the_window() {
        let mut reading = ExactReading::empty();
        reading.add_cpu(&record(500, 0, 2, 0, (7, 0)), 1_000, 1_800);
        let idle =
            reading.sum(|place| place.whose == RunningProcess::Idle && place.charged == ChargedTo::To(Layer::Idle));
        assert_eq!(idle.ns, 800);
        assert_eq!(reading.sum(|_| true).ns, 800);
    }

    #[test]
    fn a_packet_in_transit_belongs_to_its_side() {
        let mut reading = ExactReading::empty();
        reading.add_cpu(&record(1_700, 3, 0, 2, (2, 1)), 1_000, 1_800);
        let (place, cell) = reading.places().find(|(_, cell)| cell.ns > 0).unwrap();
        assert_eq!(
            place,
            ExactPlace {
                whose: RunningProcess::Server,
                packet: Some(PacketReceiver::Peer),
                charged: ChargedTo::To(Layer::Tcp)
            }
        );
        assert_eq!(cell.ns, 100);
    }

    #[test]
    fn cpus_without_a_program_are_counted_and_impossible_places_are_left_out() {
        let mut reading = ExactReading::empty();
        reading.add_cpu(&Cpu::default(), 0, u64::MAX);
        reading.add_cpu(&record(0, 0, 99, 0, (2, 1)), 0, 10);
        assert_eq!((reading.silent_cpus, reading.sum(|_| true).ns), (1, 0));
    }
}

mod exact_programs {
    use observe::bpf;
    use observe::profile::exact::programs::*;

    #[test]
    fn every_slot_has_its_two_programs_in_the_object() {
        let mut names: Vec<String> = Vec::new();
        let _ = bpf::load(bpf::EXACT, |open| {
            names.extend(open.progs().map(|program| program.name().to_string_lossy().into_owned()));
            Err(std::io::Error::other("the names are enough").into())
        });
        for slot in 0..SLOTS {
            assert!(names.contains(&enter_name(slot)) && names.contains(&leave_name(slot)), "{slot} of {names:?}");
        }
        let optional = OPTIONAL.iter().flat_map(|(name, _)| [format!("{name}_begins"), format!("{name}_ends")]);
        for name in TRACEPOINTS.into_iter().map(String::from).chain(optional) {
            assert!(names.contains(&name), "{name} of {names:?}");
        }
    }
}
