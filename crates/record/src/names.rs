//! The names of figures, each with one meaning and one unit. Files, JSON, tables and the report use these words.
//!
//! `response` times count from the intended send, `service` times from the actual send (see the crate documentation).

use crate::layers::Layer;
use crate::watch::Counter;
use std::sync::LazyLock;

macro_rules! names {
    ($all:ident: $($(#[doc = $doc:literal])+ $constant:ident = $name:literal, $unit:literal;)+) => {
        $($(#[doc = $doc])+ pub const $constant: &str = $name;)+

        const $all: &[(&str, &str, &str)] = &[$(($name, $unit, concat!($($doc),+))),+];
    };
}

/// The names of a layer's figures per request and per packet, the layer, its word in names, and where it is, also in
/// detail.
macro_rules! of_layers {
    ($($request:ident, $packet:ident, $layer:expr, $word:literal, $place:literal, $detail:literal;)+) => {
        $(
            #[doc = concat!("CPU time per request ", $place, $detail, ", sampled.")]
            pub const $request: &str = concat!("layer.", $word, "_us_per_request");
            #[doc = concat!("CPU time ", $place, " per packet that the server sent, sampled.")]
            pub const $packet: &str = concat!("layer.", $word, "_us_per_packet_sent");
        )+

        const PER_REQUEST: &[(&str, &str, &str)] =
            &[$(($request, "us", concat!(" CPU time per request ", $place, $detail, ", sampled."))),+];
        const PER_PACKET: &[(&str, &str, &str)] =
            &[$(($packet, "us", concat!(" CPU time ", $place, " per packet that the server sent, sampled."))),+];

        /// For each layer (`None` = unattributed): the names of its figures per request and per packet sent, and its
        /// word in other names.
        pub(crate) const OF_LAYERS: &[(Option<Layer>, &str, &str, &str)] = &[$(($layer, $request, $packet, $word)),+];
    };
}

/// All known figures: name, unit, meaning. Those of the watch's counters are declared with the counters.
pub static ALL: LazyLock<Vec<(&str, &str, &str)>> = LazyLock::new(|| {
    let of_counter = |counter: Counter| Some((counter.declaration().figure?, "1/s", counter.declaration().help));
    let named = [BEFORE_LAYERS, PER_REQUEST, PER_PACKET, AFTER_LAYERS].concat();
    named.into_iter().chain(Counter::ALL.into_iter().filter_map(of_counter)).collect()
});

/// The unit of a figure; empty if the name is not known.
pub fn unit(name: &str) -> &'static str {
    ALL.iter().find(|(known, ..)| *known == name).map_or("", |(_, unit, _)| unit)
}

/// The times of requests and their quantiles, which do not include requests without a response. A mean is far too
/// small if one in a thousand has none.
pub const CENSORED: &[(&str, f64)] = &[
    (RESPONSE_MEAN, 0.999),
    (RESPONSE_P50, 0.5),
    (RESPONSE_P90, 0.9),
    (RESPONSE_P95, 0.95),
    (RESPONSE_P99, 0.99),
    (RESPONSE_P999, 0.999),
    (RESPONSE_MAX, 1.0),
    (SERVICE_P50, 0.5),
    (SERVICE_P99, 0.99),
    (SERVICE_MAX, 1.0),
    (FIRST_BYTE_P50, 0.5),
    (FIRST_BYTE_P99, 0.99),
];

names! {
    BEFORE_LAYERS:
    /// Complete responses per second of the window.
    THROUGHPUT = "client.throughput_per_sec", "1/s";
    /// Complete responses with status 2xx or 3xx per second of the window.
    GOODPUT = "client.goodput_per_sec", "1/s";
    /// Offered load as scheduled, requests per second (open loop).
    OFFERED = "client.offered_per_sec", "1/s";
    /// Response bytes received (headers and bodies) per second.
    RECEIVED = "client.received_bytes_per_sec", "bytes/s";
    /// Response body bytes received in the window, framing removed.
    BODY_BYTES = "client.body_bytes", "bytes";
    /// Response bytes received in the window, headers and framing included.
    RECEIVED_BYTES = "client.received_bytes", "bytes";
    /// Request bytes sent in the window.
    SENT_BYTES = "client.sent_bytes", "bytes";
    /// Mean response time, from the intended send to the last byte.
    RESPONSE_MEAN = "client.response_mean_us", "us";
    /// Median response time, from the intended send to the last byte.
    RESPONSE_P50 = "client.response_p50_us", "us";
    /// 90th percentile of response times, from the intended send to the last byte.
    RESPONSE_P90 = "client.response_p90_us", "us";
    /// 95th percentile of response times, from the intended send to the last byte.
    RESPONSE_P95 = "client.response_p95_us", "us";
    /// 99th percentile of response times, from the intended send to the last byte.
    RESPONSE_P99 = "client.response_p99_us", "us";
    /// 99.9th percentile of response times, from the intended send to the last byte.
    RESPONSE_P999 = "client.response_p999_us", "us";
    /// Longest response time, from the intended send to the last byte.
    RESPONSE_MAX = "client.response_max_us", "us";
    /// Median service time, from the actual send to the last byte.
    SERVICE_P50 = "client.service_p50_us", "us";
    /// 99th percentile of service times, from the actual send to the last byte.
    SERVICE_P99 = "client.service_p99_us", "us";
    /// Longest service time, from the actual send to the last byte.
    SERVICE_MAX = "client.service_max_us", "us";
    /// Longest time in the window in which requests were in flight and no response arrived.
    STALL_MAX = "client.stall_max_us", "us";
    /// Mean gap between the parts of a response; only with `--parts`.
    PART_GAP_MEAN = "client.part_gap_mean_us", "us";
    /// Median gap between the parts of a response; only with `--parts`.
    PART_GAP_P50 = "client.part_gap_p50_us", "us";
    /// 99th percentile of the gaps between the parts of a response; only with `--parts`.
    PART_GAP_P99 = "client.part_gap_p99_us", "us";
    /// Longest gap between the parts of a response; only with `--parts`.
    PART_GAP_MAX = "client.part_gap_max_us", "us";
    /// Times per request that the server reached the place that is slowed down.
    SLOW_REACHED = "slow.reached_per_request", "1";
    /// CPU time that a slow-down added to each request, measured by the BPF programs that added it.
    SLOW_ADDED = "slow.added_us_per_request", "us";
    /// Median time from the actual send to the first byte of the response.
    FIRST_BYTE_P50 = "client.first_byte_p50_us", "us";
    /// 99th percentile of the time from the actual send to the first byte of the response.
    FIRST_BYTE_P99 = "client.first_byte_p99_us", "us";
    /// Median schedule lag: actual minus intended send (open loop).
    LAG_P50 = "client.lag_p50_us", "us";
    /// 99th percentile of the schedule lag: actual minus intended send (open loop).
    LAG_P99 = "client.lag_p99_us", "us";
    /// Longest schedule lag: actual minus intended send (open loop).
    LAG_MAX = "client.lag_max_us", "us";
    /// 99th percentile of the part of the schedule lag that was spent waiting for a free connection.
    CONNECTION_WAIT_P99 = "client.connection_wait_p99_us", "us";
    /// Median reap delay: time from the arrival of a response's last byte in the client's kernel until the client read
    /// it.
    REAP_P50 = "client.reap_p50_us", "us";
    /// 99th percentile of the reap delay: time that a response waited in the client's kernel.
    REAP_P99 = "client.reap_p99_us", "us";
    /// Longest reap delay in the sample: time that a response waited in the client's kernel.
    REAP_MAX = "client.reap_max_us", "us";
    /// Share of the window in which arrivals were timestamped to measure the reap delay; its n is the number of bursts.
    REAP_DATED = "client.reap_dated_ratio", "ratio";
    /// Median response time of the requests whose reap delay is known.
    SAMPLED_P50 = "client.response_sampled_p50_us", "us";
    /// 99th percentile of the response times of the requests whose reap delay is known.
    SAMPLED_P99 = "client.response_sampled_p99_us", "us";
    /// Median response time without the reap delay, as a client that reads at once would see it (sampled requests).
    ARRIVED_P50 = "client.response_arrived_p50_us", "us";
    /// 99th percentile of the response times without the reap delay (sampled requests).
    ARRIVED_P99 = "client.response_arrived_p99_us", "us";
    /// Median time to establish a connection.
    CONNECT_P50 = "client.connect_p50_us", "us";
    /// 99th percentile of the time to establish a connection.
    CONNECT_P99 = "client.connect_p99_us", "us";
    /// Connections with a request in flight in the window that received no byte until the end of the run.
    SILENT = "client.silent_connections", "connections";
    /// CPU time of the load generator per completed request, user and system.
    CLIENT_CPU = "client.cpu_us_per_request", "us";
    /// Share of a CPU that the load generator's busiest thread used.
    CLIENT_UTILISATION = "client.cpu_utilisation_ratio", "ratio";
    /// Memory that the load generator allocated per connection.
    CLIENT_MEMORY = "client.memory_bytes_per_connection", "bytes";

    /// Share of the fixed-bandwidth connections that received at least the required bandwidth.
    CONFORMING = "client.conforming_ratio", "ratio";
    /// Median bandwidth that the fixed-bandwidth connections received.
    CONNECTION_BITS = "client.connection_bits_per_sec", "bit/s";

    /// TLS handshakes completed per second of the window.
    TLS_HANDSHAKES = "client.tls_handshakes_per_sec", "1/s";
    /// Median time of a TLS handshake after the TCP connection is established; over all connections of the run.
    TLS_HANDSHAKE_P50 = "client.tls_handshake_p50_us", "us";
    /// 99th percentile of the time of a TLS handshake; over all connections of the run.
    TLS_HANDSHAKE_P99 = "client.tls_handshake_p99_us", "us";
    /// Share of the run's TLS handshakes that resumed an earlier session.
    TLS_RESUMED = "client.tls_resumed_ratio", "ratio";

    /// Idle established connections held open during the load (cold connections).
    COLD = "client.cold_connections", "connections";
    /// Cold connections that the server closed per second; each is reopened.
    COLD_DROPPED = "client.cold_dropped_per_sec", "1/s";
    /// Memory of the client process per cold connection.
    COLD_USER_MEMORY = "client.cold_user_bytes_per_connection", "bytes";
    /// Kernel memory per cold connection; both ends if the server is on this machine.
    COLD_KERNEL_MEMORY = "client.cold_kernel_bytes_per_connection", "bytes";

    /// Emulated path: median lateness, the time from when a packet was due to when it was delivered.
    PATH_LATENESS_P50 = "path.lateness_p50_us", "us";
    /// Emulated path: 99th percentile of the lateness of packets.
    PATH_LATENESS_P99 = "path.lateness_p99_us", "us";
    /// Emulated path: lateness of the latest packet.
    PATH_LATENESS_MAX = "path.lateness_max_us", "us";
    /// Emulated path: packets that crossed it in the window, both directions.
    PATH_PACKETS = "path.packets", "count";
    /// Emulated path: packets dropped to emulate the configured loss.
    PATH_LOST = "path.lost_packets", "count";
    /// Share of the live traffic that the server had, as its command takes it (`find --shift`).
    LIVE_SHARE = "live.share", "1";
    /// Mean time that live requests waited in the server's sockets before they were read: requests there, by samples,
    /// divided by the rate (Little's law).
    LIVE_WAIT = "live.wait_before_read_us", "us";
    /// Time from the start of the point until a guard returned the server to its usual share; absent if none did.
    LIVE_STEPPED_BACK = "live.stepped_back_after_s", "s";

    /// Emulated path: packets dropped because the queue was full.
    PATH_DROPPED = "path.dropped_packets", "count";
    /// Emulated path: CPU time of the delay line per packet that crossed it.
    PATH_CPU = "path.cpu_us_per_packet", "us";

    /// CPU time of the server's processes per completed request, user and system, from the scheduler. Tables, `compare`
    /// and `--fail-if` add `server.softirq_beside_us_per_request` to it.
    SERVER_CPU = "server.cpu_us_per_request", "us";
    /// User CPU time of the server's processes per completed request.
    SERVER_CPU_USER = "server.cpu_user_us_per_request", "us";
    /// System CPU time of the server's processes per completed request.
    SERVER_CPU_SYSTEM = "server.cpu_system_us_per_request", "us";
    /// Softirq time of the CPUs that the server may use, per completed request.
    SERVER_SOFTIRQ = "server.softirq_us_per_request", "us";
    /// Softirq time per completed request that is not already charged to the server's processes; an upper bound from
    /// the busy time of the CPUs that the server may use.
    SERVER_SOFTIRQ_BESIDE = "server.softirq_beside_us_per_request", "us";
    /// Busy share (all modes except idle and iowait) of the CPUs that the server may use.
    SERVER_CPU_BUSY = "server.cpus_busy_ratio", "ratio";
    /// Share of the CPUs that the server may use that other programs (neither server nor client) may have taken; an
    /// upper bound.
    SERVER_CPUS_TAKEN = "server.cpus_taken_ratio", "ratio";
    /// CPUs that the server's threads may run on.
    SERVER_CPUS = "server.cpus", "count";
    /// Tightest CPU limit of the server's control groups (`cpu.max`; Docker's `--cpus`, Kubernetes' `limits.cpu`);
    /// absent without a limit.
    SERVER_QUOTA = "server.cpu_quota_cpus", "CPUs";
    /// Share of the control group's CPU limit that was used; absent without a limit.
    SERVER_QUOTA_USED = "server.cpu_quota_used_ratio", "ratio";
    /// Share of the limit's periods in which the control group ran and was throttled; absent without a limit.
    SERVER_THROTTLED = "server.cpu_throttled_ratio", "ratio";
    /// CPU time of the server's processes divided by the window's length (1 = one CPU fully used).
    SERVER_CPUS_USED = "server.cpus_used", "CPUs";
    /// CPU time of the server's busiest thread divided by the window's length. A server with one worker thread
    /// saturates at 1 on any machine.
    SERVER_BUSIEST_THREAD = "server.busiest_thread_cpus", "CPUs";
    /// CPU time of the server's busiest process, all threads, divided by the window's length. It stays at 1 if an
    /// interpreter lock runs one thread at a time.
    SERVER_BUSIEST_PROCESS = "server.busiest_process_cpus", "CPUs";
    /// Time per completed request that the server's threads were runnable and waited for a CPU.
    SERVER_RUN_QUEUE = "server.run_queue_wait_us_per_request", "us";
    /// Resident memory of the server's processes at the end of the window.
    SERVER_MEMORY = "server.memory_bytes", "bytes";
    /// Resident anonymous memory (heaps, stacks) of the server's processes at the end of the window.
    SERVER_ANONYMOUS_MEMORY = "server.anonymous_memory_bytes", "bytes";
    /// Minor page faults of the server's processes per second: pages touched for the first time, without a disk.
    SERVER_MINOR_FAULTS = "server.minor_faults_per_sec", "1/s";
    /// Major page faults of the server's processes per second.
    SERVER_MAJOR_FAULTS = "server.major_faults_per_sec", "1/s";
    /// Share of the window in which a thread of the server's control group was stalled for memory (`memory.pressure`,
    /// some); absent unless the server has a control group of its own.
    SERVER_MEMORY_STALLED = "server.memory_stalled_ratio", "ratio";
    /// Times per second that the server's control group reached the tightest limit of its memory (`memory.high`,
    /// `memory.max`); absent without a limit.
    SERVER_MEMORY_LIMIT_HITS = "server.memory_limit_hits_per_sec", "1/s";
    /// Processes that the kernel killed in the window because the server's control group reached that limit.
    SERVER_KILLED = "server.killed_for_memory", "processes";
    /// Context switches of the server's threads per completed request.
    SERVER_SWITCHES = "server.context_switches_per_request", "count";
    /// Processes of the server.
    SERVER_PROCESSES = "server.processes", "count";
    /// Threads of the server.
    SERVER_THREADS = "server.threads", "count";

    /// Share of the server's sampled event waits (select, poll, epoll, io_uring) that were in select or poll.
    SERVER_SELECT_WAITS = "server.select_or_poll_waits_ratio", "ratio";
    /// Largest number of descriptors passed to one sampled select or poll.
    SERVER_SELECT_SET = "server.select_set_descriptors", "descriptors";
    /// Share of the threads' time blocked on a lock (futex, flock).
    SERVER_LOCK_WAITS = "server.lock_waits_ratio", "ratio";
    /// Share of the threads' time blocked on reading, writing or syncing a file, or on writing to a pipe.
    SERVER_FILE_WAITS = "server.file_waits_ratio", "ratio";
    /// Share of the threads' time waiting for events (select, poll, epoll, io_uring) or for work from another thread.
    SERVER_EVENT_WAITS = "server.event_waits_ratio", "ratio";
    /// Open file descriptors divided by the limit, for the server's process that is closest to its limit, at the end of
    /// the window.
    SERVER_DESCRIPTORS = "server.descriptors_used_ratio", "ratio";
    /// Established connections from the server to other servers (its backends) at the end of the window.
    SERVER_OUTGOING = "server.outgoing_connections", "connections";
    /// Busy share of the CPU with the most softirq time, among the CPUs that the server may use.
    SERVER_SOFTIRQ_CPU_BUSY = "server.softirq_cpu_busy_ratio", "ratio";
    /// Softirq share of the CPU with the most softirq time, among the CPUs that the server may use.
    SERVER_SOFTIRQ_CPU = "server.softirq_cpu_softirq_ratio", "ratio";
    /// Share of the softirq time of all CPUs that the server may use that fell on one of them, the one with the most.
    SERVER_SOFTIRQ_CONCENTRATION = "server.softirq_concentration_ratio", "ratio";
    /// Busy share of the least busy CPU that the server may use.
    SERVER_IDLEST_CPU_BUSY = "server.idlest_cpu_busy_ratio", "ratio";
}

of_layers! {
    LAYER_USER, PACKET_USER, Some(Layer::User), "user", "in user mode", "";
    LAYER_SYSTEM_CALL, PACKET_SYSTEM_CALL, Some(Layer::SystemCall), "system_call",
        "in system calls above the transport protocol", " (entry, socket layer, event notification, files)";
    LAYER_TCP, PACKET_TCP, Some(Layer::Tcp), "tcp", "in TCP", "";
    LAYER_IP, PACKET_IP, Some(Layer::Ip), "ip", "in IP", "";
    LAYER_ETHERNET, PACKET_ETHERNET, Some(Layer::Ethernet), "ethernet",
        "in the device-independent part of the link layer", "";
    LAYER_DRIVER, PACKET_DRIVER, Some(Layer::Driver), "driver", "in drivers of network interfaces", "";
    LAYER_OTHER, PACKET_OTHER, Some(Layer::Other), "other", "in the rest of the kernel",
        " (scheduler, interrupts, page faults)";
    LAYER_UNATTRIBUTED, PACKET_UNATTRIBUTED, None, "unattributed",
        "in kernel functions that are assigned to no layer", "";
}

names! {
    AFTER_LAYERS:
    /// CPU time per request in the kernel's memory management (page faults, mappings), sampled; part of
    /// `layer.other_us_per_request`.
    LAYER_MEMORY = "layer.memory_management_us_per_request", "us";
    /// Packets that the port's connections sent in the window, counted at the interface.
    PACKETS_SENT = "layer.packets_sent", "count";
    /// Packets that the port's connections received in the window, counted at the interface.
    PACKETS_RECEIVED = "layer.packets_received", "count";
    /// TCP segments that the port's connections sent in the window; more than packets with segmentation offload.
    SEGMENTS_SENT = "layer.segments_sent", "count";
    /// Payload bytes that the port's connections sent in the window.
    PAYLOAD_SENT = "layer.payload_sent_bytes", "bytes";

    /// Machine: share of CPU time in user mode (nice included).
    MACHINE_USER = "machine.cpu_user_ratio", "ratio";
    /// Machine: share of CPU time in system mode.
    MACHINE_SYSTEM = "machine.cpu_system_ratio", "ratio";
    /// Machine: share of CPU time in hard interrupts.
    MACHINE_IRQ = "machine.cpu_irq_ratio", "ratio";
    /// Machine: share of CPU time in soft interrupts.
    MACHINE_SOFTIRQ = "machine.cpu_softirq_ratio", "ratio";
    /// Machine: share of CPU time taken by the hypervisor.
    MACHINE_STEAL = "machine.cpu_steal_ratio", "ratio";
    /// Machine: share of CPU time waiting for disks.
    MACHINE_IOWAIT = "machine.cpu_iowait_ratio", "ratio";
    /// Machine: idle share of CPU time.
    MACHINE_IDLE = "machine.cpu_idle_ratio", "ratio";
    /// Machine: interrupts per second.
    MACHINE_INTERRUPTS = "machine.interrupts_per_sec", "1/s";
    /// Machine: context switches per second.
    MACHINE_SWITCHES = "machine.context_switches_per_sec", "1/s";
    /// CPUs used by other programs: not the server, its backends on this machine, the client or straingauge's observer.
    MACHINE_OTHERS = "machine.other_cpus_used", "CPUs";

    /// TCP segments received per second in the server's network namespace.
    TCP_IN = "tcp.segments_in_per_sec", "1/s";
    /// TCP segments sent per second in the server's network namespace.
    TCP_OUT = "tcp.segments_out_per_sec", "1/s";
    /// TCP segments retransmitted per second in the server's network namespace.
    TCP_RETRANSMITS = "tcp.retransmits_per_sec", "1/s";
    /// Connections dropped per second because the accept queue was full.
    TCP_LISTEN_OVERFLOWS = "tcp.listen_overflows_per_sec", "1/s";
    /// Connections dropped because the accept queue was full, from the previous window (or the start) until this
    /// window: while connections were opened.
    TCP_LISTEN_OVERFLOWS_BEFORE = "tcp.listen_overflows_before_window", "connections";
    /// SYNs dropped per second at the listener, for any reason.
    TCP_LISTEN_DROPS = "tcp.listen_drops_per_sec", "1/s";
    /// TCP resets sent per second in the server's network namespace.
    TCP_RESETS_OUT = "tcp.resets_out_per_sec", "1/s";
    /// Packets received per second by the interfaces of the server's network namespace.
    NET_PACKETS_IN = "net.packets_in_per_sec", "1/s";
    /// Packets sent per second by the interfaces of the server's network namespace.
    NET_PACKETS_OUT = "net.packets_out_per_sec", "1/s";
    /// Packets that the kernel's backlog queue dropped per second (softnet).
    NET_BACKLOG_DROPS = "net.backlog_drops_per_sec", "1/s";
    /// Packets dropped per second because the table of tracked connections was full (conntrack).
    NET_CONNTRACK_DROPS = "net.conntrack_drops_per_sec", "1/s";
    /// Packets dropped because the table of tracked connections was full (conntrack), from the previous window (or the
    /// start) until this window: while connections were opened.
    NET_CONNTRACK_DROPS_BEFORE = "net.conntrack_drops_before_window", "count";
    /// Used share of the table of tracked connections (conntrack) at the window's end, of the server's network
    /// namespace.
    NET_CONNTRACK_USED = "net.conntrack_used_ratio", "ratio";
    /// Times per second that receive processing stopped with packets left, because its time or its budget was up
    /// (softnet).
    NET_SQUEEZES = "net.squeezes_per_sec", "1/s";
    /// TIME_WAIT sockets on the server's port at the start of the window, created for `--axis time-wait`.
    TIME_WAIT = "client.time_wait_sockets", "sockets";
    /// Kernel memory of the machine's TIME_WAIT sockets (slab) at the start of the window.
    TIME_WAIT_MEMORY = "client.time_wait_kernel_bytes", "bytes";
    /// Connections of the port, accepted or not, with a request that the server has not read; mean over the window's
    /// samples.
    SERVER_UNREAD = "server.unread_requests", "requests";
    /// Connections of the port with data that the client has not acknowledged, sent or not; mean over the window's
    /// samples.
    SERVER_UNACKNOWLEDGED = "server.unacknowledged_connections", "connections";
    /// Longest accept queue sampled in the window.
    ACCEPT_QUEUE_MAX = "tcp.accept_queue_max", "connections";

    /// Limit of the accept queue: the server's listen() backlog, at most net.core.somaxconn.
    ACCEPT_QUEUE_LIMIT = "tcp.accept_queue_limit", "connections";
    /// Connections per second that skipped TIME_WAIT because net.ipv4.tcp_max_tw_buckets was reached.
    TIME_WAIT_OVERFLOWS = "tcp.time_wait_overflows_per_sec", "1/s";
    /// Used share of the busiest network device's speed, in the busier direction; absent if no device reports a speed.
    NET_LINK_USED = "net.busiest_link_used_ratio", "ratio";

    /// CPU time of straingauge's observer divided by the window's length.
    OBSERVER_CPUS = "observer.cpus_used", "CPUs";
    /// Mean CPU time of one reading of the observer within a window.
    OBSERVER_READING = "observer.cpu_us_per_reading", "us";

    /// CPU time of the `find --beside` command and its child processes divided by the window's length.
    BESIDE_CPUS = "beside.cpus_used", "CPUs";
    /// CPU time of the server's backends on this machine divided by the window's length.
    BACKEND_CPUS = "backend.cpus_used", "CPUs";
    /// Memory of the `find --beside` command and its child processes at the end of the window (proportional set size).
    BESIDE_MEMORY = "beside.memory_bytes", "bytes";
    /// Number of processes of the `find --beside` command, child processes included.
    BESIDE_PROCESSES = "beside.processes", "count";

    /// Requests that the server answered while requests were counted, seen on the server's side.
    WATCH_REQUESTS = "watch.requests", "count";
    /// Requests that the server answered per second of the time in which requests were counted.
    WATCH_RATE = "watch.requests_per_sec", "1/s";
    /// Requests counted on the server's side minus those counted by the client, as a share of the client's. The two
    /// windows are a moment apart.
    WATCH_CLIENT_DIFFERENCE = "watch.client_difference_ratio", "ratio";
    /// Requests counted on the server's side minus answers counted by the client, over the whole load with its warm-up.
    WATCH_WHOLE_DIFFERENCE = "watch.whole_load_difference", "count";
    /// Request bytes read by the server, per request.
    WATCH_BYTES_IN = "watch.bytes_in_per_request", "bytes";
    /// Response bytes written by the server per request, head and body: the network demand.
    WATCH_BYTES_OUT = "watch.bytes_out_per_request", "bytes";
    /// CPU time per request of the thread that serves it, from its first read until the thread serves another request:
    /// the CPU demand.
    WATCH_CPU = "watch.cpu_us_per_request", "us";
    /// User CPU time per request, split by the server's overall ratio of user to system time.
    WATCH_CPU_USER = "watch.cpu_user_us_per_request", "us";
    /// System CPU time per request, split by the server's overall ratio of user to system time.
    WATCH_CPU_SYSTEM = "watch.cpu_system_us_per_request", "us";
    /// Bytes that the serving thread read from disks per request, from timed windows: the disk demand.
    WATCH_DISK = "watch.disk_bytes_per_request", "bytes";
    /// Mean time from the first read of a request until the client acknowledged the last segment of the response.
    WATCH_ELAPSED = "watch.elapsed_us", "us";
    /// Upper bound of the histogram bucket that holds the 99th percentile of the elapsed times of requests.
    WATCH_ELAPSED_P99 = "watch.elapsed_p99_at_most_us", "us";
    /// Mean time from a connection's establishment to its first read, the client's own delay included.
    WATCH_CONNECT = "watch.connect_us", "us";
    /// CPU time of accepting a connection.
    WATCH_CONNECT_CPU = "watch.connect_cpu_us", "us";
    /// Elapsed time of phase parse: from the first read to the first send.
    WATCH_PARSE = "watch.parse_us", "us";
    /// Elapsed time of phase process: from the first send to the last.
    WATCH_PROCESS = "watch.process_us", "us";
    /// Elapsed time of phase log: from the last send until the thread sleeps or serves another connection.
    WATCH_LOG = "watch.log_us", "us";
    /// CPU time of phase parse: from the first read to the first send.
    WATCH_PARSE_CPU = "watch.parse_cpu_us", "us";
    /// CPU time of phase process: from the first send to the last.
    WATCH_PROCESS_CPU = "watch.process_cpu_us", "us";
    /// CPU time of phase log: from the last send until the thread sleeps or serves another connection.
    WATCH_LOG_CPU = "watch.log_cpu_us", "us";
    /// Elapsed time of phase parse, bounded by the server functions in the pack; from timed windows.
    WATCH_PACK_PARSE = "watch.pack_parse_us", "us";
    /// Elapsed time of phase process, bounded by the server functions in the pack; from timed windows.
    WATCH_PACK_PROCESS = "watch.pack_process_us", "us";
    /// Elapsed time of phase log, bounded by the server functions in the pack; from timed windows.
    WATCH_PACK_LOG = "watch.pack_log_us", "us";
    /// CPU time of phase parse, bounded by the server functions in the pack; includes the cost of the probes.
    WATCH_PACK_PARSE_CPU = "watch.pack_parse_cpu_us", "us";
    /// CPU time of phase process, bounded by the server functions in the pack; includes the cost of the probes.
    WATCH_PACK_PROCESS_CPU = "watch.pack_process_cpu_us", "us";
    /// CPU time of phase log, bounded by the server functions in the pack; includes the cost of the probes.
    WATCH_PACK_LOG_CPU = "watch.pack_log_cpu_us", "us";
    /// CPU time that the pack's probes add to a request while they are set (modelled from a calibration).
    WATCH_PACK_COST = "watch.pack_cost_us_per_request", "us";
    /// Requests that were read and not yet fully answered; mean over the readings in the window.
    WATCH_IN_FLIGHT = "watch.in_flight", "requests";
    /// Most requests that were read and not yet fully answered, in any reading of the window.
    WATCH_IN_FLIGHT_MAX = "watch.in_flight_max", "requests";
    /// Share of the server's CPU time (from the scheduler) that is charged to requests, accepting and closing.
    WATCH_EXPLAINED = "watch.explained_cpu_ratio", "ratio";
    /// Share of the window in which requests were counted; less than 1 if counting all would exceed the overhead
    /// budget.
    WATCH_COUNTED = "watch.counted_ratio", "ratio";
    /// CPU time that watching added to the server, as a share of the server's: events times their calibrated cost.
    WATCH_COST = "watch.cost_ratio", "ratio";

    /// Machine: processes and threads started per second.
    MACHINE_STARTED = "machine.started_per_sec", "1/s";

    /// Highest throughput that `find` measured in any sweep.
    FIND_PEAK = "find.peak_throughput_per_sec", "1/s";
    /// Connections at the yield point that `find` found, or the most measured if throughput never stopped growing.
    FIND_YIELD_CONNECTIONS = "find.yield_connections", "connections";
    /// Connections at the failure point that `find` found, or the most measured if none failed.
    FIND_FAILURE_CONNECTIONS = "find.failure_connections", "connections";
    /// Request rate to plan with, found by `find`.
    FIND_PLAN = "find.plan_per_sec", "1/s";
    /// Request rate at which the server breaks, found by `find`, or the highest rate that held if none failed.
    FIND_BREAKS = "find.breaks_per_sec", "1/s";

    /// Speed of the yardstick, a fixed piece of arithmetic, on the server's CPU: iterations per second of CPU time.
    YARDSTICK_CPU = "yardstick.iterations_per_cpu_sec", "1/s";
}

/// Hardware events per packet sent, by layer: `layer.tcp_instructions_per_packet_sent`. `layer`: the word of the
/// layer's other figures, or `stack` for all layers of the network stack.
pub fn event_per_packet(layer: &str, event: &str) -> String {
    format!("layer.{layer}_{}_per_packet_sent", event.replace('-', "_"))
}
