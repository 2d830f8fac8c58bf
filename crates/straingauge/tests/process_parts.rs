//! Processes, signals, namespaces and control groups.

mod process {
    use rustix::process::Pid;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::Command;
    use straingauge::process::{end, left_the_group};

    #[test]
    fn a_process_of_the_group_gets_one_signal() {
        let sleeper = |group: i32| Command::new("sleep").arg("600").process_group(group).spawn().unwrap();
        let mut leader = sleeper(0);
        let (mut member, mut daemon) = (sleeper(leader.id() as i32), sleeper(0));
        let all = [leader.id(), member.id(), daemon.id()];
        assert_eq!(left_the_group(Pid::from_child(&leader), &all), [Pid::from_child(&daemon)]);
        assert_eq!(end(&mut leader, &all).and_then(|status| status.signal()), Some(libc::SIGTERM));
        for child in [&mut member, &mut daemon] {
            assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
        }
    }
}

mod signals {
    use signal_hook::consts::{SIGHUP, SIGTERM};
    use straingauge::signals::Stop;

    #[test]
    fn a_signal_to_the_process_and_its_group_counts_once() {
        let stop = Stop::on_signals().expect("handlers can be installed");
        for _ in 0..2 {
            signal_hook::low_level::raise(SIGTERM).expect("a signal to ourselves");
        }
        assert!(stop.is_set());
    }

    #[test]
    fn a_signal_that_was_ignored_stays_ignored() {
        // SAFETY: there is no handler; the kernel drops the signal.
        unsafe { libc::signal(SIGHUP, libc::SIG_IGN) };
        let stop = Stop::on_signals().expect("handlers can be installed");
        signal_hook::low_level::raise(SIGHUP).expect("a signal to ourselves");
        assert!(!stop.is_set());
        signal_hook::low_level::raise(SIGTERM).expect("a signal to ourselves");
        assert!(stop.is_set());
    }
}

mod agent {
    use straingauge::server::agent::addressed;

    #[test]
    fn port_and_pid_are_replaced_only_as_whole_words() {
        let of = |word: &str| addressed(&[word.to_string()], 8080, Some(77)).remove(0);
        assert_eq!(of(":PORT"), ":8080");
        assert_eq!(of("PID"), "77");
        assert_eq!(of("--url=http://127.0.0.1:PORT/x?PORT"), "--url=http://127.0.0.1:8080/x?8080");
        for same in ["EXPORT", "PORTS", "$PORT", "${PORT}", "PORT=1", "$STRAINGAUGE_SERVER_PID", "RAPID", "port"] {
            assert_eq!(of(same), same);
        }
        assert_eq!(addressed(&["PID".into()], 1, None), ["PID"], "no process is known");
    }
}

mod distance {
    use remote::HostPlace;
    use straingauge::server::distance::Distance;

    #[test]
    fn the_nearest_client_determines_the_distance() {
        let place = |machine: &str, network: &str| HostPlace { machine: machine.into(), network: network.into() };
        let server = place("s", "s 1");
        let (far, beside, within) = (place("c", "c 1"), place("s", "s 2"), place("s", "s 1"));
        let of =
            |clients: &[&HostPlace]| Distance::between(&server, &clients.iter().copied().cloned().collect::<Vec<_>>());
        assert_eq!(of(&[&far]), Distance::Machine);
        assert_eq!(of(&[&far, &beside]), Distance::Network);
        assert_eq!(of(&[&far, &within, &beside]), Distance::None);
        assert_eq!(Distance::between(&HostPlace::default(), &[far]), Distance::Unknown);
    }
}

mod leftovers {
    use straingauge::leftovers::kinds;

    #[test]
    fn every_kind_of_leftover_has_a_unique_name_and_a_naming_rule() {
        let names: std::collections::BTreeSet<&str> = kinds().map(|kind| kind.name).collect();
        assert_eq!(names.len(), kinds().count());
        assert!(kinds().all(|kind| !kind.named.is_empty()));
    }
}

mod control_group {
    use straingauge::commands::watch::control_group::by_name;

    #[test]
    fn units_and_containers_are_found_by_name() {
        let root = tempfile::tempdir().unwrap();
        let id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        let other = "0123456789abffff0123456789abcdef0123456789abcdef0123456789abcdef";
        let groups = [
            "system.slice/nginx.service".to_string(),
            format!("system.slice/docker-{id}.scope"),
            format!("kubepods.slice/kubepods-pod1.slice/cri-containerd-{other}.scope"),
        ];
        groups.iter().for_each(|group| std::fs::create_dir_all(root.path().join(group)).unwrap());
        let found = |name: &str| by_name(root.path(), name).map_err(|error| error.to_string());
        for (name, group) in [
            ("nginx", &groups[0]),
            ("nginx.service", &groups[0]),
            (id, &groups[1]),
            (&id[..16], &groups[1]),
            (&other[..16], &groups[2]),
        ] {
            assert_eq!(found(name), Ok(root.path().join(group)), "{name}");
        }
        assert!(found(&id[..12]).unwrap_err().contains("2 control groups"), "two ids begin so");
        assert!(found("apache").unwrap_err().contains("no control group"), "there is none");
        assert!(found("0123").is_err(), "too short to be an id");
    }
}

mod wan {
    use std::net::SocketAddr;
    use straingauge::commands::wan::listening_in;

    #[test]
    #[cfg(target_endian = "little")]
    fn only_listening_sockets_count_as_servers() {
        let of = |lines: &str| listening_in(lines).iter().map(SocketAddr::to_string).collect::<Vec<_>>();
        let tcp = "   1: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 1 1\n   \
                      2: 010012C6:0050 020012C6:8000 01 00000000:00000000 00:00000000 00000000 0 0 1 1\n";
        assert_eq!(of(tcp), ["0.0.0.0:80"]);
        let udp = "    7: 00000000:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000 0 0 1 2 0 0\n    \
                       8: 010012C6:9000 020012C6:0035 01 00000000:00000000 00:00000000 00000000 0 0 1 2 0 0\n";
        assert_eq!(of(udp), ["0.0.0.0:53"]);
    }
}

mod share {
    use record::scenario::ShiftPlan;
    use straingauge::shift::share::ShareCommand;

    /// A command that appends each share to a file, in a folder of its own.
    fn plan(folder: &tempfile::TempDir, extra: &str) -> (ShiftPlan, std::path::PathBuf) {
        let file = folder.path().join("shares");
        let command = format!("echo {{share}} >> '{}'; {extra}", file.display());
        (ShiftPlan { command, usual: 25.0, most: 100.0 }, file)
    }

    fn written(file: &std::path::Path) -> String {
        std::fs::read_to_string(file).unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_usual_share_is_restored_at_the_end_and_after_a_failed_command() {
        let folder = tempfile::tempdir().unwrap();
        let (shift, file) = plan(&folder, "test {share} -lt 60");
        let mut share = ShareCommand::unguarded(shift);
        share.set(25.0).unwrap();
        share.set(40.0).unwrap();
        let refused = share.set(80.0).unwrap_err().to_string();
        assert!(refused.contains("failed with") && refused.contains("25 is restored"), "{refused}");
        share.set(50.0).unwrap();
        drop(share);
        assert_eq!(written(&file), "25 40 80 25 50 25");
    }

    #[test]
    fn a_share_that_cannot_be_restored_is_reported_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let (shift, file) = plan(&folder, "echo no such backend >&2; false");
        let mut share = ShareCommand::unguarded(shift);
        let said = share.set(40.0).unwrap_err().to_string();
        for part in ["no such backend", "NOT RESTORED", "run the command yourself with {share} = 25"] {
            assert!(said.contains(part), "{said}");
        }
        assert_eq!(written(&file), "40 25 25");
    }
}
