//! Tests of single parts: packet fates, queues, requests to the kernel, counters and verdicts.

mod affinity {
    use wan::pin;

    #[test]
    fn a_pinned_thread_may_use_only_its_cpus() {
        std::thread::spawn(|| {
            let first = record::machine::allowed_cpus()[0];
            pin(&[first]).unwrap();
            assert_eq!(record::machine::allowed_cpus(), [first]);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_named_in_the_error() {
        let message = pin(&[1023]).unwrap_err().to_string();
        assert!(message.starts_with("CPU 1023 cannot be used"), "{message}");
    }
}

mod steering {
    use wan::steering::cpu_mask;

    #[test]
    fn masks_of_many_cpus_are_grouped_from_the_highest() {
        assert_eq!(cpu_mask(&[]), "00000000");
        assert_eq!(cpu_mask(&[0, 1]), "00000003");
        assert_eq!(cpu_mask(&[1, 33]), "00000002,00000002");
    }
}

mod link {
    use wan::link::Addresses;

    #[test]
    fn addresses_stay_in_their_blocks_for_any_token() {
        for token in ["0000000000", "ffffffffff", "0123456789", "a5a5a5a5a5"] {
            let ends = Addresses::of_token(token);
            assert_eq!(ends.server_v4.octets()[..2], [198, 18]);
            assert_eq!(u32::from(ends.server_v4) & !3, u32::from(ends.client_v4) & !3, "one /30");
            assert!(matches!(u32::from(ends.server_v4) & 3, 1) && matches!(u32::from(ends.client_v4) & 3, 2));
            assert_eq!(ends.server_v6.segments()[0] >> 8, 0xfd);
            assert_eq!(ends.server_v6.segments()[..4], ends.client_v6.segments()[..4], "one /64");
        }
    }

    #[test]
    fn the_known_addresses_equal_those_in_the_documentation() {
        let known = Addresses::known();
        assert_eq!(known.server_v4.to_string(), "198.18.0.1");
        assert_eq!(known.client_v4.to_string(), "198.18.0.2");
        assert_eq!(known.server_v6.to_string(), "fd00::1");
    }
}

mod rtnetlink {
    use wan::rtnetlink::{IFLA_INFO_KIND, IFLA_LINKINFO, RouteRequest, acknowledged};

    #[test]
    fn attributes_are_padded_and_lengths_are_exact() {
        let mut request = RouteRequest::new(libc::RTM_NEWLINK, 0);
        request.link(0, 0);
        request.nested(IFLA_LINKINFO, |info| info.attribute(IFLA_INFO_KIND, b"veth5"));
        let bytes = request.finish();
        assert_eq!(bytes.len() % 4, 0);
        assert_eq!(u32::from_ne_bytes(bytes[..4].try_into().unwrap()) as usize, bytes.len());
        let nested = &bytes[32..];
        assert_eq!(u16::from_ne_bytes([nested[0], nested[1]]), 16, "4 + (4 + 5 padded to 8)");
        assert_eq!(u16::from_ne_bytes([nested[4], nested[5]]), 9, "the inner length excludes the padding");
    }

    #[test]
    fn only_an_acknowledgement_without_error_is_success() {
        let reply = |kind: i32, code: i32| {
            let mut bytes = vec![0u8; 36];
            bytes[4..6].copy_from_slice(&(kind as u16).to_ne_bytes());
            bytes[16..20].copy_from_slice(&code.to_ne_bytes());
            bytes
        };
        assert!(acknowledged(&reply(libc::NLMSG_ERROR, 0)).is_ok());
        let refused = acknowledged(&reply(libc::NLMSG_ERROR, -libc::EEXIST)).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EEXIST));
        assert!(acknowledged(&reply(libc::NLMSG_DONE, 0)).is_err());
        assert!(acknowledged(&[]).is_err());
        assert!(acknowledged(&reply(libc::NLMSG_ERROR, i32::MIN)).is_err());
    }
}

mod netem {
    use record::PathPlan;
    use wan::rtnetlink::path::{
        NETEM_OPTIONS_BYTES, TCA_NETEM_LATENCY64, attributes, delay_options, limit_options, number32,
    };

    #[test]
    fn netem_gets_nanoseconds_and_bytes_without_the_ethernet_header() {
        let plan = PathPlan {
            delay_ns: 20_000_000,
            loss_ratio: 0.5,
            bandwidth_bits_per_sec: 100_000_000,
            queue_bytes: 625_000,
            ..PathPlan::default()
        };
        let delay = delay_options(&plan, 0).bytes;
        assert_eq!((number32(&delay, 4), number32(&delay, 8)), (200_000, 1 << 31));
        let more = attributes(&delay[NETEM_OPTIONS_BYTES..]);
        assert_eq!(more[0], (TCA_NETEM_LATENCY64, &20_000_000i64.to_ne_bytes()[..]));
        let limit = limit_options(&plan).bytes;
        assert_eq!((number32(&limit, 4), number32(&limit, 8)), (417, 0), "625 kB in packets of 1500 bytes");
        let more = attributes(&limit[NETEM_OPTIONS_BYTES..]);
        assert_eq!((number32(more[0].1, 0), number32(more[0].1, 4)), (12_500_000, (-14i32) as u32));
        let long = PathPlan { delay_ns: 1_000_000_000, ..plan };
        assert_eq!(number32(&delay_options(&long, 0).bytes, 4), 446_429, "a second of the smallest packets");
    }

    #[test]
    fn damaged_attributes_end_the_list() {
        assert!(attributes(&[]).is_empty());
        assert!(attributes(&[0, 0, 1, 0]).is_empty(), "a length below that of its own header");
        assert!(attributes(&[255, 255, 1, 0, 9]).is_empty());
        assert_eq!(attributes(&[5, 0, 1, 0, 9]), [(1, &[9u8][..])], "the last needs no padding");
    }
}

mod queue {
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use wan::delay_line::queue::PacketQueue;

    proptest! {
        #[test]
        fn packets_keep_their_order_and_bytes(steps in prop::collection::vec((any::<bool>(), 1usize..1500), 1..4000)) {
            let mut queue = PacketQueue::new(1500, 1 << 21);
            let mut model: VecDeque<(u64, usize, u8)> = VecDeque::new();
            for (index, (is_push, length)) in steps.into_iter().enumerate() {
                let mark = index as u8;
                if is_push {
                    if let Some(room) = queue.room() {
                        room[..length].fill(mark);
                        queue.push(length, index as u64);
                        model.push_back((index as u64, length, mark));
                    }
                } else {
                    queue.pop();
                    model.pop_front();
                }
                let seen = queue.front().map(|(due, bytes)| (due, bytes.len(), bytes[0]));
                prop_assert_eq!(seen, model.front().copied());
                if let Some((_, bytes)) = queue.front() {
                    prop_assert!(bytes.iter().all(|byte| *byte == bytes[0]), "no packet overwrites another");
                }
            }
        }
    }

    #[test]
    fn a_full_queue_has_no_room_and_keeps_its_packets() {
        let mut queue = PacketQueue::new(1500, 2 << 20);
        let mut pushed = 0u64;
        while queue.room().is_some() {
            queue.push(1500, pushed);
            pushed += 1;
        }
        assert!((1390..=1398).contains(&pushed), "{pushed} packets of 1500 bytes in 2 MiB");
        for due in 0..pushed {
            assert_eq!(queue.front().map(|(at, bytes)| (at, bytes.len())), Some((due, 1500)));
            queue.pop();
        }
        assert!(queue.front().is_none() && queue.room().is_some());
    }
}

mod shaper {
    use record::{PathMechanism, PathPlan};
    use wan::delay_line::shaper::{PacketFate, Shaper};

    fn plan(delay_ms: u64, loss_ratio: f64, bandwidth: u64) -> PathPlan {
        let delay_ns = delay_ms * 1_000_000;
        PathPlan {
            delay_ns,
            loss_ratio,
            bandwidth_bits_per_sec: bandwidth,
            queue_bytes: PathPlan::default_queue_bytes(delay_ns, bandwidth),
            mechanism: PathMechanism::TunDelayLine,
            ..PathPlan::default()
        }
    }

    #[test]
    fn a_pure_delay_moves_every_packet_by_the_same_time() {
        let mut shaper = Shaper::new(&plan(20, 0.0, 0), 0);
        for now in [0, 5, 5, 1_000_000] {
            assert_eq!(shaper.fate(now, 1500), PacketFate::Due(now + 20_000_000));
        }
    }

    #[test]
    fn a_link_passes_its_bandwidth_and_drops_packets_beyond_its_queue() {
        // At 12 Mbit/s a packet of 1500 bytes takes 1 ms. The queue holds 50 ms, which is 50 packets.
        let mut shaper = Shaper::new(&plan(10, 0.0, 12_000_000), 0);
        let fates: Vec<PacketFate> = (0..60).map(|_| shaper.fate(0, 1500)).collect();
        for (index, fate) in fates.iter().enumerate() {
            let due = PacketFate::Due(10_000_000 + (index as u64 + 1) * 1_000_000);
            assert_eq!(*fate, if index <= 50 { due } else { PacketFate::Dropped });
        }
        assert_eq!(
            shaper.fate(200_000_000, 1500),
            PacketFate::Due(211_000_000),
            "an idle link has forgotten its queue"
        );
    }

    #[test]
    fn packets_with_a_shorter_delay_do_not_overtake_earlier_ones() {
        let mut shaper = Shaper::new(&plan(20, 0.0, 0), 0);
        assert_eq!(shaper.fate(0, 100), PacketFate::Due(20_000_000));
        shaper.set_delay(1_000_000, 0);
        assert_eq!(shaper.fate(1, 100), PacketFate::Due(20_000_000));
        assert_eq!(shaper.fate(30_000_000, 100), PacketFate::Due(31_000_000));
    }

    #[test]
    fn a_shorter_delay_fills_no_queue() {
        // At 12 Mbit/s and 100 ms, packets in transit are not in the queue, which therefore holds few.
        let mut shaper = Shaper::new(&plan(100, 0.0, 12_000_000), 0);
        assert_eq!(shaper.fate(0, 1500), PacketFate::Due(101_000_000));
        shaper.set_delay(1_000_000, 30_000);
        assert_eq!(shaper.fate(2_000_000, 1500), PacketFate::Due(101_000_000));
        assert_eq!(shaper.fate(99_900_000, 1500), PacketFate::Due(101_900_000));
    }

    #[test]
    fn losses_repeat_with_the_seed_and_differ_between_directions() {
        let lost = |direction, seed| -> Vec<bool> {
            let mut shaper = Shaper::new(&PathPlan { seed, ..plan(0, 0.1, 0) }, direction);
            (0..2000).map(|now| shaper.fate(now, 100) == PacketFate::Lost).collect()
        };
        assert_eq!(lost(0, 7), lost(0, 7));
        assert_ne!(lost(0, 7), lost(1, 7));
        assert_ne!(lost(0, 7), lost(0, 8));
        let count = lost(0, 7).iter().filter(|lost| **lost).count() as f64;
        // Four standard deviations of a binomial distribution of 2000 at 0.1.
        assert!((count - 200.0).abs() < 4.0 * (2000.0 * 0.1 * 0.9f64).sqrt(), "{count} of 2000 lost at 10 %");
    }
}

mod tun {
    use wan::NetNamespace;
    use wan::tun::Tun;

    #[test]
    fn a_taken_tun_device_is_named() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("not run: TUN devices need root");
            return;
        }
        let namespace = NetNamespace::create().unwrap();
        let message = namespace
            .run_inside(|| {
                let _first = Tun::create("sgc-test", false)?;
                Ok(Tun::create("sgc-test", false).unwrap_err().to_string())
            })
            .unwrap();
        assert!(message.contains("sgc-test is in use"), "{message}");
    }
}

mod meter {
    use record::{DoubtKind, Latency, PathMechanism, PathPlan, names};
    use wan::PathTally;
    use wan::meter::{grown, reseeded};

    fn tally(delay_ns: u64, late_ns: u64) -> PathTally {
        let mut lateness = Latency::new();
        (0..100).for_each(|_| lateness.record_ns(late_ns));
        let mechanism = PathMechanism::TunDelayLine;
        PathTally {
            plan: PathPlan { delay_ns, mechanism, ..PathPlan::default() },
            packets: 100,
            lost: Some(0),
            dropped: 0,
            lateness: Some(lateness),
            cpu_ns: Some(1_000_000),
            failure: None,
        }
    }

    #[test]
    fn lateness_beyond_a_twentieth_of_the_delay_raises_a_doubt() {
        assert!(tally(20_000_000, 900_000).doubts().is_empty());
        let doubts = tally(20_000_000, 1_100_000).doubts();
        assert_eq!(doubts[0].kind, DoubtKind::PathInexact);
        assert!(doubts[0].what.contains("1.10 ms late"), "{}", doubts[0].what);
        assert!(!tally(0, 2_000_000).doubts().is_empty(), "a path without delay is judged too");
    }

    #[test]
    fn each_change_of_the_delay_and_each_direction_has_a_different_seed() {
        let seed = |changes| reseeded(PathPlan::default(), changes).seed;
        let seeds: std::collections::BTreeSet<u64> = (0..1000).map(|changes| seed(changes) & (u64::MAX >> 1)).collect();
        assert_eq!(seeds.len(), 1000);
        assert_eq!(seed(0), PathPlan::default().seed, "the path begins with the seed that was asked for");
    }

    #[test]
    fn a_32_bit_counter_continues_after_wrapping_around() {
        assert_eq!(grown(7, 5), 2);
        assert_eq!(grown(3, u64::from(u32::MAX)), 4);
        assert_eq!(grown(u64::from(u32::MAX) + 3, u64::from(u32::MAX)), 3, "a counter of 64 bits");
    }

    #[test]
    fn figures_that_netem_lacks_are_unmeasured() {
        let plan = PathPlan { delay_ns: 1, mechanism: PathMechanism::Netem, ..PathPlan::default() };
        let of_netem = PathTally { plan, lost: None, lateness: None, cpu_ns: None, ..tally(1, 1) };
        let figures = of_netem.figures();
        for name in [names::PATH_LATENESS_P99, names::PATH_LOST, names::PATH_CPU] {
            assert!(figures.get(name).unwrap().not_measured.is_some(), "{name}");
        }
        assert_eq!(figures.value(names::PATH_PACKETS), Some(100.0));
        assert_eq!(tally(1, 1).figures().value(names::PATH_CPU), Some(10.0));
    }
}

mod self_test {
    use record::PathPlan;
    use wan::SelfTest;
    use wan::self_test::{Train, echo_reply, echo_request};

    fn seen(round_trip_ms: f64, mbit: f64) -> SelfTest {
        let plan = PathPlan {
            delay_ns: 20_000_000,
            bandwidth_bits_per_sec: 100_000_000,
            queue_bytes: 625_000,
            ..PathPlan::default()
        };
        let round_trips_ns = vec![(round_trip_ms * 1e6) as u64; 3];
        SelfTest { plan, round_trips_ns, bits_per_sec: Some(mbit * 1e6), sent_too_slowly_bits_per_sec: None }
    }

    #[test]
    fn a_deviation_beyond_the_tolerance_raises_a_doubt() {
        assert_eq!(seen(40.1, 99.0).doubts(), []);
        assert!(seen(41.5, 99.0).doubts()[0].what.contains("41.5 ms instead of 40.0 ms"));
        assert!(seen(40.0, 90.0).doubts()[0].what.contains("bandwidth is 90.0 Mbit/s instead of 100 Mbit/s"));
        let silent = SelfTest { round_trips_ns: vec![], bits_per_sec: None, ..seen(1.0, 1.0) };
        assert_eq!(silent.doubts().len(), 2);
    }

    #[test]
    fn a_bandwidth_that_the_test_does_not_reach_raises_no_doubt() {
        let train = |sent, arrived| Train { sent_bits_per_sec: sent, arrived_bits_per_sec: Some(arrived) };
        assert_eq!(train(3e9, 2.9e9).bandwidth(10e9), (None, Some(3e9)));
        assert_eq!(train(3e9, 0.9e9).bandwidth(1e9), (Some(0.9e9), None), "fast enough, so the path is slow");
        assert_eq!(train(1.1e9, 0.99e9).bandwidth(1e9), (Some(0.99e9), None), "it is seen all the same");
        assert_eq!(train(3e9, 2e9).bandwidth(1e9), (Some(2e9), None), "more than the path may let through");
        let unseen = SelfTest { bits_per_sec: None, sent_too_slowly_bits_per_sec: Some(3e9), ..seen(40.0, 0.0) };
        assert_eq!(unseen.doubts(), []);
        let summary = unseen.summary();
        let end = "bandwidth not measured, because the test sends only 3.00 Gbit/s (planned 100 Mbit/s)";
        assert!(summary.ends_with(end), "{summary}");
    }

    #[test]
    fn silence_explained_by_planned_losses_raises_no_doubt() {
        for (loss_ratio, doubts) in [(0.0, 2), (0.02, 2), (0.9, 0)] {
            let seen = seen(1.0, 1.0);
            let plan = PathPlan { loss_ratio, ..seen.plan };
            let silent = SelfTest { round_trips_ns: vec![], bits_per_sec: None, plan, ..seen };
            assert_eq!(silent.doubts().len(), doubts, "{loss_ratio}");
        }
    }

    #[test]
    fn an_echo_request_has_a_valid_checksum() {
        let packet = echo_request([0x12, 0x34], 7);
        let sum: u32 = packet.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
        assert_eq!(echo_reply(&[0x45; 10], [0, 0]), None, "a cut answer is none");
    }
}

mod stale {
    use record::leftovers::Leftover;
    use record::owner::Owner;
    use wan::{LEFTOVERS, NetNamespace};

    #[test]
    fn a_namespace_with_the_right_number_but_not_our_alias_is_left_alone() {
        let mut bystander = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        // The situation when this machine's namespace reuses the number of a dead pair.
        let left = Leftover {
            kind: LEFTOVERS[1].name,
            name: NetNamespace::current().unwrap().name().unwrap(),
            detail: String::new(),
            owner: Owner { start_ticks: 0, ..Owner::of_this_process() },
        };
        (LEFTOVERS[1].remove)(&left).unwrap();
        assert!(bystander.try_wait().unwrap().is_none(), "the bystander still runs");
        bystander.kill().unwrap();
        bystander.wait().unwrap();
    }
}
