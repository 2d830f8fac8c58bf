//! Tests of what is read about the machine, and of the limits and doubts that it gives a window.

mod capabilities {
    use observe::capabilities;

    #[test]
    fn missing_capabilities_have_a_remedy_and_names_are_unique() {
        let all = capabilities();
        let mut names = std::collections::HashSet::new();
        for capability in &all {
            assert!(names.insert(capability.name.clone()), "{} appears twice", capability.name);
            assert_eq!(capability.is_available, capability.remedy.is_empty(), "{capability:?}");
            assert!(!capability.detail.is_empty() && !capability.detail.contains('\n'), "{capability:?}");
        }
    }
}

mod bpf {
    use observe::bpf::too_old;

    #[test]
    fn the_error_names_a_too_old_kernel() {
        let said = too_old("5.10.0-32-cloud-amd64\n").unwrap_or_default();
        assert_eq!(said, "Linux 5.10 is older than 5.15, which the BPF programs need");
        for release in ["5.15.0-91-generic", "6.1.0", "10.0", "6.12-rc1", "", "linux"] {
            assert_eq!(too_old(release), None, "{release}");
        }
    }
}

mod cpu_clock {
    use observe::cpu_clock::*;

    #[test]
    fn the_clock_of_an_ended_process_is_an_error() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(of_process(child.id()).is_err());
        assert!(of_process(0).is_err());
        assert!(of_process(u32::MAX).is_err());
    }
}

mod kept_file {
    use observe::kept_file::*;

    #[test]
    fn a_kept_file_is_produced_anew_at_each_reading() {
        let kept = KeptFile::open("/proc/uptime").unwrap();
        let mut buffer = Vec::new();
        let first = kept.read(&mut buffer).unwrap().to_vec();
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert_ne!(kept.read(&mut buffer).unwrap(), first);
    }

    #[test]
    fn a_file_longer_than_the_buffer_is_read_whole() {
        let mut buffer = vec![0; 1];
        let kept = KeptFile::open("/proc/self/status").unwrap();
        let text = kept.read(&mut buffer).unwrap();
        assert!(text.len() > 200 && text.ends_with(b"\n"));
    }
}

mod machine {
    use observe::machine::*;
    use observe::proc_text::{CpuTimes, MachineStat};

    fn reading(at_ns: u64, cpus: &[(usize, CpuTimes)]) -> MachineReading {
        MachineReading { at_ns, stat: MachineStat { cpus: cpus.to_vec(), ..MachineStat::default() } }
    }

    #[test]
    fn cpus_are_counted_separately_and_one_that_came_is_left_out() {
        let idle = |idle| CpuTimes { idle, ..CpuTimes::default() };
        let begin = reading(0, &[(0, idle(0)), (1, idle(0))]);
        let end = reading(1_000_000_000, &[(0, idle(100)), (1, idle(25)), (2, idle(7))]);
        let busy = |cpu| CpuUse::between(&begin, &end, |which| which == cpu).busy_cpus();
        assert_eq!([busy(0), busy(1), busy(2)], [Some(0.0), Some(0.75), None]);
        let all = CpuUse::between(&begin, &end, |_| true);
        assert_eq!((all.cpus, all.times.idle), (2, 125));
    }
}

mod yardstick {
    use observe::yardstick::*;
    use record::figure::Origin;
    use std::time::Duration;

    #[test]
    fn a_yardstick_reports_its_speed_and_its_number_of_iterations() {
        let figure = yardstick(None, Duration::from_millis(5));
        assert!(figure.value.unwrap() > 1e5, "{figure:?}");
        assert_eq!(figure.origin, Some(Origin::Timed));
        assert!(figure.n.unwrap() >= ITERATIONS_PER_ROUND);
    }

    #[test]
    fn a_missing_cpu_is_unmeasured_instead_of_zero() {
        for cpu in [1000, 1 << 30] {
            let figure = yardstick(Some(cpu), Duration::from_millis(1));
            assert_eq!(figure.value, None);
            assert!(figure.not_measured.unwrap().contains(&cpu.to_string()));
        }
    }
}

mod limits {
    use observe::group::ServerGroup;

    use observe::limits::*;
    use record::watch::CpuQuota;
    use std::fs;

    #[test]
    fn the_narrowest_quota_of_all_ancestor_groups_is_used() {
        let mount = tempfile::tempdir().unwrap();
        let make = |path: &str, max: &str, used_us: u64| {
            let folder = mount.path().join(path);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("cpu.max"), max).unwrap();
            let account = format!("usage_usec {used_us}\nuser_usec 1\nnr_periods 9\nnr_throttled 4\n");
            fs::write(folder.join("cpu.stat"), account).unwrap();
        };
        make("slice", "50000 100000\n", 7);
        make("slice/server", "150000 100000\n", 5);
        make("slice/server/leaf", "max 100000\n", 3);
        let (cpus, folder) = narrowest_of(upwards(mount.path(), "/slice/server/leaf")).unwrap();
        let quota = CpuQuota { cpus: 0.5, used_ns: Some(7000), periods: 9, throttled: 4 };
        assert_eq!((cpus, read_quota(&folder)), (0.5, Some(quota)));
        make("other", "max 100000\n", 3);
        assert_eq!(narrowest_of(upwards(mount.path(), "/other")), None);
        assert_eq!(narrowest_of(upwards(mount.path(), "/")), None, "the root has no file of limits");
    }

    #[test]
    fn the_narrowest_memory_limit_is_found_with_its_hits() {
        let mount = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let file = mount.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        write("slice/memory.max", "50000000\n");
        write("slice/server/memory.max", "max\n");
        write("slice/server/memory.high", "20000000\n");
        write("slice/server/memory.events", "low 0\nhigh 7\nmax 2\noom 0\noom_kill 1\n");
        let found: Vec<_> =
            upwards(mount.path(), "/slice/server").iter().flat_map(|folder| memory_limits(folder)).collect();
        let (bytes, file) = found.into_iter().min().unwrap();
        assert_eq!((bytes, file.ends_with("server/memory.high"), hits(&file)), (20_000_000, true, Some(7)));
        write("first/memory.limit_in_bytes", "25165824\n");
        write("first/memory.failcnt", "31\n");
        let first = memory_limits(&mount.path().join("first"));
        write("first/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n");
        assert_eq!((killed(&file), killed(&first[0].1)), (Some(1), Some(4)));
        assert_eq!((first[0].0, hits(&first[0].1)), (25_165_824, Some(31)));
        write("none/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(memory_limits(&mount.path().join("none")), []);
    }

    #[test]
    fn limits_of_version_1_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("cpu.cfs_quota_us", "-1\n");
        write("cpu.cfs_period_us", "100000\n");
        write("cpu.stat", "nr_periods 230\nnr_throttled 8\nthrottled_time 48557328\n");
        assert_eq!(read_quota(folder.path()), None);
        write("cpu.cfs_quota_us", "30000\n");
        let quota = CpuQuota { cpus: 0.3, used_ns: None, periods: 230, throttled: 8 };
        assert_eq!(read_quota(folder.path()), Some(quota));
    }

    /// A watch that begins before the server's first request has a baseline.
    #[test]
    fn an_idle_group_has_cpus_and_a_busiest_thread_that_used_nothing() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut group = ServerGroup::new([child.id()], None);
        let mut table = observe::processes::ProcessTable::default();
        table.scan();
        group.admit(&table);
        group.begin_window();
        let limits = LimitReader::open().read(&mut group);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((limits.busiest_thread_ns, limits.busiest_thread), (Some(0), None));
        assert!(limits.cpus.is_some_and(|cpus| cpus >= 1) && limits.idle_ns.is_some());
    }

    #[test]
    fn the_busiest_thread_and_the_cpus_of_a_group_are_read() {
        let mut child = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let mut group = ServerGroup::new([child.id()], None);
        let mut table = observe::processes::ProcessTable::default();
        let mut reader = LimitReader::open();
        let limits = loop {
            table.scan();
            group.admit(&table);
            group.read();
            let limits = reader.read(&mut group);
            // The process has run for a while, in at least two intervals.
            if limits.busiest_thread_ns.is_some_and(|ns| ns > 30_000_000) {
                break limits;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        };
        child.kill().unwrap();
        child.wait().unwrap();
        let thread = limits.busiest_thread.unwrap();
        assert_eq!((thread.pid, thread.tid, thread.name.as_str(), thread.siblings), (child.id(), child.id(), "sh", 1));
        let counted = group.counters().cpu_ns;
        let busiest = limits.busiest_thread_ns.unwrap();
        assert!(busiest <= counted + 20_000_000, "{busiest} of {counted}: intervals are not counted twice");
        assert!(limits.cpus.is_some_and(|cpus| cpus >= 1) && limits.idle_ns.is_some());
        assert!(limits.descriptors.is_some_and(|seen| seen.open >= 3 && seen.open <= seen.limit));
    }
}

mod doubts {
    use observe::machine::MachineReading;
    use observe::proc_text::{CpuTimes, MachineStat};
    use observe::processes::Process;
    use observe::window::doubts::*;
    use observe::window::{ObservedWindow, WindowEdge};
    use record::doubt::{Doubt, DoubtKind};
    use record::names;
    use std::collections::BTreeMap;

    const SECOND_NS: u64 = 1_000_000_000;

    /// Two CPUs over ten seconds, in which the server used `cpu_ns` on CPU 1.
    fn window(cpu_ns: u64, cpu1: CpuTimes) -> ObservedWindow {
        let machine = |at_ns, times: [CpuTimes; 2]| MachineReading {
            at_ns,
            stat: MachineStat { cpus: times.into_iter().enumerate().collect(), ..MachineStat::default() },
        };
        let mut end = WindowEdge { at_ns: 10 * SECOND_NS, ..WindowEdge::default() };
        end.group.cpu_ns = cpu_ns;
        end.group.user_ticks = cpu_ns / 10_000_000;
        end.group.switches = 1;
        end.machine = machine(10 * SECOND_NS, [CpuTimes { idle: 1000, ..CpuTimes::default() }, cpu1]);
        let begin = WindowEdge { machine: machine(0, [CpuTimes::default(); 2]), ..WindowEdge::default() };
        ObservedWindow {
            begin,
            end,
            network_before: Default::default(),
            samples: Default::default(),
            busiest_thread_ns: Some(cpu_ns),
            busiest_process_ns: cpu_ns,
            size: Default::default(),
            anonymous_pages: 0,
            members: vec![1],
            outgoing: None,
            descriptors_used: None,
            server_cpus: vec![1],
            client_pid: 0,
            has_group: true,
            beside: None,
            backends: Default::default(),
            account: Err("not kept".into()),
            missing: Default::default(),
            commands: BTreeMap::new(),
        }
    }

    fn busy(user: u64) -> CpuTimes {
        CpuTimes { user, idle: 1000 - user, ..CpuTimes::default() }
    }

    fn kinds(window: &ObservedWindow) -> Vec<DoubtKind> {
        window_doubts(window).into_iter().map(|doubt| doubt.kind).collect()
    }

    #[test]
    fn only_accounts_that_disagree_raise_a_doubt() {
        let stolen = CpuTimes { user: 500, idle: 400, steal: 100, ..CpuTimes::default() };
        let interrupted = CpuTimes { user: 500, softirq: 300, idle: 200, ..CpuTimes::default() };
        let lost = CpuTimes { user: 400, idle: 300, ..CpuTimes::default() };
        for (used_s, cpu1, expected) in [
            (5, busy(500), None),
            (5, interrupted, None),
            (5, stolen, Some((DoubtKind::Steal, "took 5 % of the CPU time (10 %"))),
            (5, busy(800), Some((DoubtKind::NoisyNeighbour, "0.30 CPUs"))),
            (5, busy(0), Some((DoubtKind::SourcesDisagree, "it also runs on others"))),
            (7, lost, Some((DoubtKind::SourcesDisagree, "the kernel accounted 85 %"))),
        ] {
            let doubts = window_doubts(&window(used_s * SECOND_NS, cpu1));
            let is_it = |(one, (kind, what)): (&Doubt, (DoubtKind, &str))| one.kind == kind && one.what.contains(what);
            assert_eq!(doubts.len(), usize::from(expected.is_some()), "{doubts:?}");
            assert!(doubts.iter().zip(expected).all(is_it), "{expected:?}: {doubts:?}");
        }
    }

    #[test]
    fn a_server_that_cannot_be_seen_is_not_called_other_work() {
        let mut window = window(0, busy(800));
        window.members.clear();
        let what = |window: &ObservedWindow| {
            window_doubts(window).into_iter().find(|doubt| doubt.kind == DoubtKind::NoisyNeighbour)
        };
        let doubt = what(&window).unwrap();
        assert!(doubt.what.starts_with("the server (its processes are not visible)"), "{doubt:?}");
        assert!(!doubt.remedy.contains("stop"), "{doubt:?}");
    }

    #[test]
    fn a_nearly_idle_process_is_not_named() {
        let mut window = window(5 * SECOND_NS, busy(800));
        for (used_ns, is_named) in [(SECOND_NS / 100, false), (2 * SECOND_NS, true)] {
            window.end.clocks.insert(Process { pid: 7, start_ticks: 1 }, used_ns);
            let doubt = neighbours(&window).unwrap();
            assert_eq!(doubt.what.contains("most of it by"), is_named, "{doubt:?}");
        }
    }

    #[test]
    fn costs_are_quotients_of_rates_if_the_client_had_another_window() {
        let window = window(5 * SECOND_NS, busy(500));
        let seen = |requests, client_ns| {
            let seen = window.observation_of(requests, client_ns);
            let cost_us = seen.figures.value(names::SERVER_CPU).unwrap();
            (cost_us, seen.doubts.iter().any(|doubt| doubt.what.contains("10000 ms, the client for")))
        };
        assert_eq!(seen(1000, 10 * SECOND_NS), (5000.0, false));
        assert_eq!(seen(4000, 40 * SECOND_NS), (5000.0, true), "500 us of CPU for 100 requests each second");
        assert_eq!(seen(100, SECOND_NS), (5000.0, true));
    }

    #[test]
    fn a_difference_between_ticks_and_clocks_is_a_disagreement() {
        let mut differing = window(5 * SECOND_NS, busy(500));
        differing.end.group.user_ticks = 400;
        assert_eq!(kinds(&differing), [DoubtKind::SourcesDisagree]);
    }

    #[test]
    fn a_higher_count_of_the_control_group_is_used_and_reported() {
        let mut short_lived = window(4 * SECOND_NS, busy(500));
        short_lived.begin.group.cgroup_us = Some(0);
        short_lived.end.group.cgroup_us = Some(5_000_000);
        assert_eq!(short_lived.server_cpu_ns(), 5 * SECOND_NS);
        assert_eq!(kinds(&short_lived), [DoubtKind::SourcesDisagree]);
        short_lived.end.group.cgroup_us = Some(4_100_000);
        assert_eq!(short_lived.server_cpu_ns(), 4 * SECOND_NS, "within tolerance the clocks are the finer source");
    }

    #[test]
    fn softirq_time_charged_to_a_thread_is_counted_once() {
        let softirq = |cpu_ns: u64, of_cpu: CpuTimes| {
            let figures = window(cpu_ns, of_cpu).observation(1_000_000).figures;
            [names::SERVER_SOFTIRQ, names::SERVER_SOFTIRQ_BESIDE].map(|name| figures.get(name).unwrap().value.unwrap())
        };
        let full = CpuTimes { user: 500, system: 300, softirq: 200, ..CpuTimes::default() };
        // The group's clocks have all ten seconds, including two of softirq.
        assert_eq!(softirq(10 * SECOND_NS, full), [2.0, 0.0]);
        // A kernel that accounts for interrupts separately excludes them.
        assert_eq!(softirq(8 * SECOND_NS, full), [2.0, 2.0]);
        // Softirq of an idle CPU belongs to no thread.
        let idle = CpuTimes { user: 500, softirq: 100, idle: 400, ..CpuTimes::default() };
        assert_eq!(softirq(5 * SECOND_NS, idle), [1.0, 1.0]);
        assert_eq!(softirq(5_500_000_000, idle), [1.0, 0.5]);
    }
}
