//! Parsers on text from kernels, and on garbage.

use observe::proc_text::*;
use proptest::prelude::*;

const STAT: &[u8] = b"4711 (a (b) c) S 1 4711 4700 0 -1 4194560 102 7 3 2 150 50 11 9 20 0 4 0 100116 3133440 388 \
                      18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0\n";

const MACHINE: &[u8] = b"cpu  23161 10 2924 173196 601 0 89 102 5 0\n\
cpu0 11737 10 1553 86311 406 1 28 51 5 0\n\
cpu3 11424 0 1370 86884 195 0 61 50 0 0\n\
intr 358659 0 0 1 199 45\nctxt 501133\nbtime 1795293345\nprocesses 10861\nsoftirq 208321 0 21037\n";

const SNMP: &[u8] = b"Ip: Forwarding DefaultTTL\nIp: 2 64\n\
Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens InSegs OutSegs RetransSegs InErrs OutRsts InCsumErrors\n\
Tcp: 1 200 120000 -1 12 345 456 7 0 8 0\nUdp: InDatagrams\nUdp: 5\n";

const DEV: &[u8] = b"Inter-|   Receive                                                |  Transmit\n \
face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier \
                     compressed\n    lo:   78653     413    0    0    0     0          0         0    78653     414    \
                     0    0    0     0       0          0\n  eth0:1: 313562408   12567    0    0    0     0          \
                     0         0   802974    9418    0    0    0     0       0          0\n";

#[test]
fn pages_of_files_and_shared_memory_are_not_anonymous() {
    assert_eq!(parse_anonymous_pages(b"9031 1205 804 310 0 500 0\n"), Some(401));
    assert_eq!(parse_anonymous_pages(b"0 0 0 0 0 0 0\n"), Some(0), "a process that has ended");
    for damaged in [&b""[..], b"9031 1205", b"9031 1205 x", b"9031 804 1205 310", b"\xff \xff \xff"] {
        assert_eq!(parse_anonymous_pages(damaged), None);
    }
}

#[test]
fn a_process_name_may_contain_any_characters() {
    let stat = parse_process_stat(STAT).unwrap();
    assert_eq!(stat.command, "a (b) c");
    assert_eq!((stat.state, stat.parent, stat.session), ('S', 1, 4700));
    assert_eq!((stat.major_faults, stat.children_major_faults), (3, 2));
    assert_eq!((stat.user_ticks, stat.system_ticks), (150, 50));
    assert_eq!((stat.children_user_ticks, stat.children_system_ticks), (11, 9));
    assert_eq!((stat.threads, stat.start_ticks, stat.resident_pages), (4, 100_116, 388));
    assert_eq!(parse_process_stat(b"1 (x) R 1 2"), None, "cut short");
    assert_eq!(parse_process_stat(b")("), None);
}

#[test]
fn cpus_are_read_separately_and_nice_counts_as_user_time() {
    let stat = parse_machine_stat(MACHINE).unwrap();
    assert_eq!(stat.cpus.iter().map(|(cpu, _)| *cpu).collect::<Vec<_>>(), [0, 3], "offline CPUs are absent");
    let first = stat.cpus[0].1;
    assert_eq!((first.user, first.system, first.idle, first.iowait), (11_747, 1553, 86_311, 406));
    assert_eq!((first.irq, first.softirq, first.steal), (1, 28, 51));
    assert_eq!((stat.interrupts, stat.context_switches), (358_659, 501_133));
    assert_eq!(parse_machine_stat(b"ctxt 5\n"), None);
}

#[test]
fn a_decreasing_counter_adds_zero() {
    let earlier = CpuTimes { idle: 10, user: 5, ..CpuTimes::default() };
    let later = CpuTimes { idle: 9, user: 7, ..CpuTimes::default() };
    assert_eq!(later.since(&earlier), CpuTimes { user: 2, ..CpuTimes::default() });
}

#[test]
fn counters_are_found_by_name_instead_of_position() {
    assert_eq!(parse_protocol_counter(SNMP, "Tcp", "InSegs"), Some(345));
    assert_eq!(parse_protocol_counter(SNMP, "Tcp", "OutRsts"), Some(8));
    assert_eq!(parse_protocol_counter(SNMP, "Tcp", "MaxConn"), None, "-1 is no count");
    assert_eq!(parse_protocol_counter(SNMP, "Tcp", "NoSuch"), None);
    assert_eq!(parse_protocol_counter(SNMP, "Tc", "InSegs"), None, "a protocol is a whole word");
}

#[test]
fn packets_of_all_interfaces_are_added() {
    assert_eq!(parse_net_dev(DEV), Some((413 + 12_567, 414 + 9418)));
    assert_eq!(parse_net_dev(b"no interface here\n"), None);
}

#[test]
fn bytes_are_read_by_interface_and_limits_by_name() {
    let bytes = parse_net_bytes(DEV);
    assert_eq!(bytes.len(), 2, "{bytes:?}");
    assert!(bytes.iter().all(|(name, received, sent)| !name.is_empty() && *received > 0 && *sent > 0), "{bytes:?}");
    assert!(parse_net_bytes(b"no interface here\n").is_empty());
    let limits = b"Limit                     Soft Limit           Hard Limit           Units     \n\
                   Max open files            1024                 524288               files     \n";
    assert_eq!(parse_descriptor_limit(limits), Some(1024));
    let rollup = b"55a3-7ffd ---p 00000000 00:00 0    [rollup]\nRss:    3096 kB\nPss:    1231 kB\nPss_Anon:   300 kB\n";
    assert_eq!(parse_proportional_memory(rollup), Some(1231 * 1024));
    assert_eq!(parse_proportional_memory(b"Rss:    3096 kB\n"), None);
    assert_eq!(
        parse_descriptor_limit(b"Max open files            unlimited            unlimited            files\n"),
        None
    );
}

#[test]
fn backlog_drops_are_hexadecimal_and_of_all_cpus() {
    assert_eq!(parse_softnet_drops(b"000027b3 0000000a 0\n00000001 00000010 0\n"), Some(26));
    assert_eq!(parse_softnet_drops(b""), None);
    assert_eq!(parse_softnet_squeezes(b"000027b3 0000000a 14\n00000001 00000010 1\n"), Some(21));
    let tracked = b"entries  clashres found drop early_drop\n000000ff 0 0 0000000b 1\n000000ff 0 0 00000001 1\n";
    assert_eq!(parse_conntrack(tracked), Some((255, 12)));
    assert_eq!(parse_conntrack(b"no such column\n1 2 3\n"), None);
}

#[test]
fn the_call_that_a_thread_waits_in_is_read_with_the_size_of_its_set() {
    let poll = format!("{} 0x55d0 0x7dd 0xffffffff 0x0 0x0 0x0 0x7ffd 0x7f12\n", libc::SYS_ppoll);
    assert_eq!(parse_wait_call(poll.as_bytes()), Some(WaitCall::Poll { descriptors: 2013 }));
    let select = format!("{} 0x400 0x55d0 0x0 0x0 0x0 0x0 0x7ffd 0x7f12\n", libc::SYS_pselect6);
    let sets = [0x55d0, 0, 0];
    assert_eq!(parse_wait_call(select.as_bytes()), Some(WaitCall::Select { limit: 1024, sets }));
    let epoll = format!("{} 0x4 0x55d0 0x200 0xffffffff 0x0 0x8 0x7ffd 0x7f12\n", libc::SYS_epoll_pwait);
    assert_eq!(parse_wait_call(epoll.as_bytes()), Some(WaitCall::Scalable));
    let cut_short = format!("{} 0x55d0", libc::SYS_ppoll);
    let write = format!("{} 0x5 0x7f 0x10 0x0 0x0 0x0 0x7ffd 0x7f12\n", libc::SYS_pwrite64);
    for other in ["running\n", "-1 0x7ffd 0x7f12\n", "", &cut_short, &write] {
        assert_eq!(parse_wait_call(other.as_bytes()), None, "{other}");
    }
}

#[test]
fn cgroup_text_is_read() {
    let pressure = b"some avg10=0.00 avg60=2.02 avg300=2.19 total=219008036\nfull avg10=0.00 total=361\n";
    assert_eq!((parse_stalled_us(pressure), parse_stalled_us(b"full total=3\n")), (Some(219_008_036), None));
    assert_eq!((parse_named(b"low 0\nhigh 7\n", "high"), parse_named(b"higher 7\n", "high")), (Some(7), None));
    assert_eq!(parse_cgroup_usage_us(b"usage_usec 1234\nuser_usec 1000\n"), Some(1234));
    assert_eq!(
        parse_cgroup_path(b"1:cpu:/a\n0::/system.slice/nginx.service\n").unwrap(),
        "/system.slice/nginx.service"
    );
    assert_eq!(parse_cgroup_path(b"0::/../../etc\n"), None);
}

#[test]
fn tcp_lines_of_both_families_are_read() {
    let v4 =
        b"   0: 0100007F:1F90 00000000:0000 0A 00000000:00000009 00:00000000 00000000    33        0 4242 1 0 100 \
               0 0 10 0";
    let line = parse_tcp_line(v4).unwrap();
    assert_eq!(line.local, "127.0.0.1:8080".parse().unwrap());
    assert_eq!((line.state, line.queue, line.uid, line.inode), (10, 9, 33, 4242));
    let v6 = b"   1: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 0A 00000000:00000000 \
               00:00000000 00000000 0 0 7 1";
    assert_eq!(parse_tcp_line(v6).unwrap().local, "[::1]:80".parse().unwrap());
    let connection = b"   2: 0100007F:1F90 0100007F:C001 01 00000011:00000002 00:00000000 00000000 0 0 8 1";
    let line = parse_tcp_line(connection).unwrap();
    assert_eq!((line.queue, line.queue_limit), (2, 17), "unread, and not acknowledged");
    assert_eq!(parse_tcp_line(b"  sl  local_address rem_address   st tx_queue rx_queue"), None);
}

#[test]
fn socket_links_are_distinguished_from_other_descriptors() {
    assert_eq!(parse_socket_link(b"socket:[991]"), Some(991));
    assert_eq!(parse_socket_link(b"pipe:[991]"), None);
    assert_eq!(parse_socket_link(b"socket:[-1]"), None);
}

#[test]
fn this_kernels_text_is_parsed() {
    let own = |path: &str| std::fs::read(path).unwrap();
    assert!(parse_process_stat(&own("/proc/self/stat")).unwrap().threads >= 1);
    assert!(parse_machine_stat(&own("/proc/stat")).unwrap().context_switches > 0);
    assert!(parse_protocol_counter(&own("/proc/net/snmp"), "Tcp", "InSegs").is_some());
    assert!(parse_protocol_counter(&own("/proc/net/netstat"), "TcpExt", "ListenOverflows").is_some());
    assert!(parse_net_dev(&own("/proc/net/dev")).is_some());
    assert!(parse_softnet_drops(&own("/proc/net/softnet_stat")).is_some());
}

/// Kernel text with a changed byte or without its end, or arbitrary bytes.
fn garbage() -> impl Strategy<Value = Vec<u8>> {
    let damaged = (
        prop::sample::select(vec![STAT, MACHINE, SNMP, DEV]),
        any::<prop::sample::Index>(),
        any::<u8>(),
        any::<bool>(),
    )
        .prop_map(|(text, at, byte, cuts)| {
            let mut text = text.to_vec();
            let at = at.index(text.len());
            text[at] = byte;
            if cuts {
                text.truncate(at);
            }
            text
        });
    prop_oneof![damaged, proptest::collection::vec(any::<u8>(), 0..400)]
}

proptest! {
    #[test]
    fn no_text_panics_a_parser(text in garbage()) {
        let _ = parse_process_stat(&text);
        let _ = parse_thread_account(&text);
        let _ = parse_machine_stat(&text);
        let _ = parse_protocol_counter(&text, "Tcp", "InSegs");
        let _ = parse_net_dev(&text);
        let _ = (parse_softnet_drops(&text), parse_softnet_squeezes(&text), parse_conntrack(&text));
        let _ = (parse_stalled_us(&text), parse_named(&text, "high"));
        let _ = parse_cgroup_usage_us(&text);
        let _ = parse_cgroup_path(&text);
        let _ = parse_tcp_line(&text);
        let _ = parse_socket_link(&text);
    }

    #[test]
    fn huge_numbers_do_not_overflow_sums(words in proptest::collection::vec("[0-9]{18,22}", 20)) {
        let line = words.join(" ");
        if let Some(stat) = parse_machine_stat(format!("cpu0 {line}\ncpu1 {line}\n").as_bytes()) {
            let mut sum = CpuTimes::default();
            stat.cpus.iter().for_each(|(_, times)| sum.add(times));
            let _ = sum.total();
        }
        let _ = parse_net_dev(format!("a: {line}\nb: {line}\n").as_bytes());
    }
}
