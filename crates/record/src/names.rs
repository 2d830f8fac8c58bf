//! The names of figures: one constant, one meaning, one unit each. Files, JSON, tables and the report use these words.
//!
//! `response` times count from the intended send, `service` times from the actual send (see the crate documentation).

use crate::watch::Counter;
use std::sync::LazyLock;

macro_rules! names {
    ($($(#[doc = $doc:literal])+ $constant:ident = $name:literal, $unit:literal;)+) => {
        $($(#[doc = $doc])+ pub const $constant: &str = $name;)+

        const NAMED: &[(&str, &str, &str)] = &[$(($name, $unit, concat!($($doc),+))),+];
    };
}

/// Every known figure: name, unit, meaning. Those of the watch's counters are declared with the counter.
pub static ALL: LazyLock<Vec<(&str, &str, &str)>> = LazyLock::new(|| {
    let of_counter = |counter: Counter| Some((counter.declaration().figure?, "1/s", counter.declaration().help));
    NAMED.iter().copied().chain(Counter::ALL.into_iter().filter_map(of_counter)).collect()
});

/// The unit of a figure of this name; empty where the name is not known.
pub fn unit(name: &str) -> &'static str {
    ALL.iter().find(|(known, ..)| *known == name).map_or("", |(_, unit, _)| unit)
}

/// The times of requests, and of which quantile of them: a request without a response is not in them. A mean is far too
/// small from one in a thousand on.
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
    /// Mean response time.
    RESPONSE_MEAN = "client.response_mean_us", "us";
    /// Median response time.
    RESPONSE_P50 = "client.response_p50_us", "us";
    /// 90th percentile of response times.
    RESPONSE_P90 = "client.response_p90_us", "us";
    /// 95th percentile of response times.
    RESPONSE_P95 = "client.response_p95_us", "us";
    /// 99th percentile of response times.
    RESPONSE_P99 = "client.response_p99_us", "us";
    /// 99.9th percentile of response times.
    RESPONSE_P999 = "client.response_p999_us", "us";
    /// Longest response time.
    RESPONSE_MAX = "client.response_max_us", "us";
    /// Median service time.
    SERVICE_P50 = "client.service_p50_us", "us";
    /// 99th percentile of service times.
    SERVICE_P99 = "client.service_p99_us", "us";
    /// Longest service time.
    SERVICE_MAX = "client.service_max_us", "us";
    /// Longest time in the window in which requests were under way and no response came.
    STALL_MAX = "client.stall_max_us", "us";
    /// Mean gap between the parts of a response (`--parts`).
    PART_GAP_MEAN = "client.part_gap_mean_us", "us";
    /// Median gap between the parts of a response.
    PART_GAP_P50 = "client.part_gap_p50_us", "us";
    /// 99th percentile of the gaps between the parts of a response.
    PART_GAP_P99 = "client.part_gap_p99_us", "us";
    /// Longest gap between the parts of a response.
    PART_GAP_MAX = "client.part_gap_max_us", "us";
    /// Times that a request reached the place that is slowed down.
    SLOW_REACHED = "slow.reached_per_request", "1";
    /// CPU time that a slow-down added to a request, as its programs measured it.
    SLOW_ADDED = "slow.added_us_per_request", "us";
    /// Median time from actual send to the first byte of the response.
    FIRST_BYTE_P50 = "client.first_byte_p50_us", "us";
    /// 99th percentile of the time from actual send to first byte.
    FIRST_BYTE_P99 = "client.first_byte_p99_us", "us";
    /// Median schedule lag: actual minus intended send (open loop).
    LAG_P50 = "client.lag_p50_us", "us";
    /// 99th percentile of the schedule lag.
    LAG_P99 = "client.lag_p99_us", "us";
    /// Longest schedule lag.
    LAG_MAX = "client.lag_max_us", "us";
    /// 99th percentile of the part of the lag spent waiting for a free connection.
    CONNECTION_WAIT_P99 = "client.connection_wait_p99_us", "us";
    /// Median reap delay: from the arrival of a response's last byte in the client's kernel until the client took it
    /// up.
    REAP_P50 = "client.reap_p50_us", "us";
    /// 99th percentile of the reap delay.
    REAP_P99 = "client.reap_p99_us", "us";
    /// Longest reap delay of the sample.
    REAP_MAX = "client.reap_max_us", "us";
    /// The share of the window in which arrivals were dated for the reap delay; n: the bursts.
    REAP_DATED = "client.reap_dated_ratio", "ratio";
    /// Median response time of the requests whose reap delay is known.
    SAMPLED_P50 = "client.response_sampled_p50_us", "us";
    /// 99th percentile of the response times of the same requests.
    SAMPLED_P99 = "client.response_sampled_p99_us", "us";
    /// Median response time of the same requests without their reap delay: as a client sees it that reads at once.
    ARRIVED_P50 = "client.response_arrived_p50_us", "us";
    /// 99th percentile of the response times of the same requests without their reap delay.
    ARRIVED_P99 = "client.response_arrived_p99_us", "us";
    /// Median time to establish a connection.
    CONNECT_P50 = "client.connect_p50_us", "us";
    /// 99th percentile of the time to establish a connection.
    CONNECT_P99 = "client.connect_p99_us", "us";
    /// Connections that had a request under way in the window and got no byte of a response until the end of the run.
    SILENT = "client.silent_connections", "connections";
    /// The engine's CPU time per completed request, user and system.
    CLIENT_CPU = "client.cpu_us_per_request", "us";
    /// The busiest engine thread's share of its CPU.
    CLIENT_UTILISATION = "client.cpu_utilisation_ratio", "ratio";
    /// Memory that the engine allocated for each connection.
    CLIENT_MEMORY = "client.memory_bytes_per_connection", "bytes";

    /// Connections of fixed bandwidth that got at least the bandwidth demanded, as a share of all of them.
    CONFORMING = "client.conforming_ratio", "ratio";
    /// Median over the connections of fixed bandwidth of what each received, bits per second.
    CONNECTION_BITS = "client.connection_bits_per_sec", "bit/s";

    /// TLS handshakes completed per second of the window.
    TLS_HANDSHAKES = "client.tls_handshakes_per_sec", "1/s";
    /// Median time of a TLS handshake, from the established TCP connection on; of all connections of the run.
    TLS_HANDSHAKE_P50 = "client.tls_handshake_p50_us", "us";
    /// 99th percentile of the time of a TLS handshake.
    TLS_HANDSHAKE_P99 = "client.tls_handshake_p99_us", "us";
    /// TLS handshakes that resumed an earlier session, as a share of all of the run.
    TLS_RESUMED = "client.tls_resumed_ratio", "ratio";

    /// Cold connections held beside the load: established and idle.
    COLD = "client.cold_connections", "connections";
    /// Cold connections that the server dropped per second; each is opened again.
    COLD_DROPPED = "client.cold_dropped_per_sec", "1/s";
    /// Memory of the client process for each cold connection.
    COLD_USER_MEMORY = "client.cold_user_bytes_per_connection", "bytes";
    /// Kernel memory for each cold connection; both ends where the server is on this machine.
    COLD_KERNEL_MEMORY = "client.cold_kernel_bytes_per_connection", "bytes";

    /// Emulated path: median lateness, the time from when a packet was due to when it was delivered.
    PATH_LATENESS_P50 = "path.lateness_p50_us", "us";
    /// Emulated path: 99th percentile of the lateness.
    PATH_LATENESS_P99 = "path.lateness_p99_us", "us";
    /// Emulated path: the latest delivery.
    PATH_LATENESS_MAX = "path.lateness_max_us", "us";
    /// Emulated path: packets that crossed it in the window, both directions.
    PATH_PACKETS = "path.packets", "count";
    /// Emulated path: packets lost as asked for.
    PATH_LOST = "path.lost_packets", "count";
    /// Emulated path: packets dropped because the queue was full.
    PATH_DROPPED = "path.dropped_packets", "count";
    /// Emulated path: CPU time of the delay line for each packet that crossed it.
    PATH_CPU = "path.cpu_us_per_packet", "us";

    /// The server group's CPU time per completed request (scheduler's account), user and system. What tables, `compare`
    /// and `--fail-if` call a request's CPU is this and the softirq time beside it.
    SERVER_CPU = "server.cpu_us_per_request", "us";
    /// Its user part.
    SERVER_CPU_USER = "server.cpu_user_us_per_request", "us";
    /// Its system part.
    SERVER_CPU_SYSTEM = "server.cpu_system_us_per_request", "us";
    /// Softirq time of the CPUs that the server may use, per completed request.
    SERVER_SOFTIRQ = "server.softirq_us_per_request", "us";
    /// Of it, what is not in the group's own CPU time already: the most that the busy time of these CPUs leaves room
    /// for.
    SERVER_SOFTIRQ_BESIDE = "server.softirq_beside_us_per_request", "us";
    /// Busy share (all modes but idle and iowait) of the CPUs that the server may use.
    SERVER_CPU_BUSY = "server.cpus_busy_ratio", "ratio";
    /// Of it, what work that is neither the server's nor the client's can have taken: all of the machine's, as far as
    /// the server left these CPUs busy for it.
    SERVER_CPUS_TAKEN = "server.cpus_taken_ratio", "ratio";
    /// CPUs that the server's threads may run on.
    SERVER_CPUS = "server.cpus", "count";
    /// The narrowest limit of CPU time among the server's control groups (`cpu.max`; Docker's `--cpus`, Kubernetes'
    /// `limits.cpu`), in CPUs.
    SERVER_QUOTA = "server.cpu_quota_cpus", "CPUs";
    /// CPU time over that limit.
    SERVER_QUOTA_USED = "server.cpu_quota_used_ratio", "ratio";
    /// Share of the limit's periods in which the control group ran, in which it was stopped until the next one.
    SERVER_THROTTLED = "server.cpu_throttled_ratio", "ratio";
    /// The server group's CPU time over the window's length, in CPUs (1 = one CPU fully used).
    SERVER_CPUS_USED = "server.cpus_used", "CPUs";
    /// The busiest single thread of the group, in CPUs: a one-worker server saturates at 1 whatever the machine has.
    SERVER_BUSIEST_THREAD = "server.busiest_thread_cpus", "CPUs";
    /// The busiest single process of the group, all its threads together, in CPUs: at 1 where an interpreter's lock
    /// lets them run one at a time.
    SERVER_BUSIEST_PROCESS = "server.busiest_process_cpus", "CPUs";
    /// Time the group's threads were ready to run but waited for a CPU, per completed request.
    SERVER_RUN_QUEUE = "server.run_queue_wait_us_per_request", "us";
    /// Resident memory of the group at the end of the window.
    SERVER_MEMORY = "server.memory_bytes", "bytes";
    /// Of it, memory that no file and no shared memory backs (heaps, stacks).
    SERVER_ANONYMOUS_MEMORY = "server.anonymous_memory_bytes", "bytes";
    /// Major page faults of the group per second.
    SERVER_MAJOR_FAULTS = "server.major_faults_per_sec", "1/s";
    /// Context switches of the group per completed request.
    SERVER_SWITCHES = "server.context_switches_per_request", "count";
    /// Processes in the group.
    SERVER_PROCESSES = "server.processes", "count";
    /// Threads in the group.
    SERVER_THREADS = "server.threads", "count";

    /// Of the sleeps in select, poll, epoll or io_uring in which threads of the group were seen: the share in select or
    /// poll.
    SERVER_SELECT_WAITS = "server.select_or_poll_waits_ratio", "ratio";
    /// Largest set of descriptors that such a select or poll was over.
    SERVER_SELECT_SET = "server.select_set_descriptors", "descriptors";
    /// Share of the threads' time in which they were blocked by a lock (futex, flock). Timed where the account of the
    /// threads is kept, else the share of looks at them.
    SERVER_LOCK_WAITS = "server.lock_waits_ratio", "ratio";
    /// Share of the threads' time in which they were blocked in writing, reading or syncing a file, or in writing to a
    /// pipe. Timed where the account of the threads is kept, else the share of looks at them.
    SERVER_FILE_WAITS = "server.file_waits_ratio", "ratio";
    /// Share of the threads' time in which they waited for events (select, poll, epoll, io_uring) or to be handed work.
    /// Timed where the account of the threads is kept, else the share of looks at them.
    SERVER_EVENT_WAITS = "server.event_waits_ratio", "ratio";
    /// Open descriptors of the process of the group that is nearest to its limit, over that limit, at the end of the
    /// window.
    SERVER_DESCRIPTORS = "server.descriptors_used_ratio", "ratio";
    /// Established connections of the group to other servers (its backends), at the end of the window.
    SERVER_OUTGOING = "server.outgoing_connections", "connections";
    /// Of the CPUs that the server may use: busy share of the one with the most softirq time.
    SERVER_SOFTIRQ_CPU_BUSY = "server.softirq_cpu_busy_ratio", "ratio";
    /// Softirq share of that CPU's time.
    SERVER_SOFTIRQ_CPU = "server.softirq_cpu_softirq_ratio", "ratio";
    /// That CPU's share of the softirq time of all CPUs that the server may use.
    SERVER_SOFTIRQ_CONCENTRATION = "server.softirq_concentration_ratio", "ratio";
    /// Busy share of the least busy CPU that the server may use.
    SERVER_IDLEST_CPU_BUSY = "server.idlest_cpu_busy_ratio", "ratio";
    /// CPU time for the server's work in user mode per completed request, by sampling.
    LAYER_USER = "layer.user_us_per_request", "us";
    /// The same in system calls down to the protocol: entry, socket layer, event notification, files.
    LAYER_SYSTEM_CALL = "layer.system_call_us_per_request", "us";
    /// The same in TCP.
    LAYER_TCP = "layer.tcp_us_per_request", "us";
    /// The same in IP.
    LAYER_IP = "layer.ip_us_per_request", "us";
    /// The same in the device-independent part of the link layer.
    LAYER_ETHERNET = "layer.ethernet_us_per_request", "us";
    /// The same in drivers of network interfaces.
    LAYER_DRIVER = "layer.driver_us_per_request", "us";
    /// The same in the rest of the kernel: scheduler, interrupts, page faults.
    LAYER_OTHER = "layer.other_us_per_request", "us";
    /// The same in functions of the kernel that no layer claims.
    LAYER_UNATTRIBUTED = "layer.unattributed_us_per_request", "us";

    /// CPU time for the server's work in user mode per packet that its connections sent, by sampling.
    PACKET_USER = "layer.user_us_per_packet_sent", "us";
    /// The same in system calls down to the protocol.
    PACKET_SYSTEM_CALL = "layer.system_call_us_per_packet_sent", "us";
    /// The same in TCP.
    PACKET_TCP = "layer.tcp_us_per_packet_sent", "us";
    /// The same in IP.
    PACKET_IP = "layer.ip_us_per_packet_sent", "us";
    /// The same in the device-independent part of the link layer.
    PACKET_ETHERNET = "layer.ethernet_us_per_packet_sent", "us";
    /// The same in drivers of network interfaces.
    PACKET_DRIVER = "layer.driver_us_per_packet_sent", "us";
    /// The same in the rest of the kernel.
    PACKET_OTHER = "layer.other_us_per_packet_sent", "us";
    /// The same in functions of the kernel that no layer claims.
    PACKET_UNATTRIBUTED = "layer.unattributed_us_per_packet_sent", "us";
    /// Packets that the port's connections sent in the window, as the interface counts them.
    PACKETS_SENT = "layer.packets_sent", "count";
    /// Packets that they received.
    PACKETS_RECEIVED = "layer.packets_received", "count";
    /// Segments in the packets sent: more where segmentation is left to the interface.
    SEGMENTS_SENT = "layer.segments_sent", "count";
    /// Payload that the port's connections sent in the window.
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
    /// CPU time used by neither the server group, nor its backends on this machine, nor the client, nor the watcher, in
    /// CPUs.
    MACHINE_OTHERS = "machine.other_cpus_used", "CPUs";

    /// TCP segments received per second in the server's network namespace.
    TCP_IN = "tcp.segments_in_per_sec", "1/s";
    /// TCP segments sent per second there.
    TCP_OUT = "tcp.segments_out_per_sec", "1/s";
    /// TCP segments retransmitted per second there.
    TCP_RETRANSMITS = "tcp.retransmits_per_sec", "1/s";
    /// Connections dropped per second because the accept queue was full.
    TCP_LISTEN_OVERFLOWS = "tcp.listen_overflows_per_sec", "1/s";
    /// The same between the window before (or the watcher's start) and this one: while connections were opened.
    TCP_LISTEN_OVERFLOWS_BEFORE = "tcp.listen_overflows_before_window", "connections";
    /// SYNs dropped per second at the listener, for any reason.
    TCP_LISTEN_DROPS = "tcp.listen_drops_per_sec", "1/s";
    /// Resets sent per second.
    TCP_RESETS_OUT = "tcp.resets_out_per_sec", "1/s";
    /// Packets received per second by the interfaces of the server's namespace.
    NET_PACKETS_IN = "net.packets_in_per_sec", "1/s";
    /// Packets sent per second by them.
    NET_PACKETS_OUT = "net.packets_out_per_sec", "1/s";
    /// Packets that the kernel's backlog queue dropped per second (softnet).
    NET_BACKLOG_DROPS = "net.backlog_drops_per_sec", "1/s";
    /// TIME_WAIT sockets of the server's port, put there for an axis: counted when the window begins.
    TIME_WAIT = "client.time_wait_sockets", "sockets";
    /// Kernel memory of the machine's TIME_WAIT sockets (slab), when the window begins.
    TIME_WAIT_MEMORY = "client.time_wait_kernel_bytes", "bytes";
    /// Connections of the port with a request that the server has not read, those not accepted included: mean over the
    /// window's readings.
    SERVER_UNREAD = "server.unread_requests", "requests";
    /// Length of the listener's accept queue: largest reading of the window.
    ACCEPT_QUEUE_MAX = "tcp.accept_queue_max", "connections";

    /// Limit of that queue: what the server asked for in listen(), at most net.core.somaxconn.
    ACCEPT_QUEUE_LIMIT = "tcp.accept_queue_limit", "connections";
    /// Connections per second that skipped TIME_WAIT because net.ipv4.tcp_max_tw_buckets was reached.
    TIME_WAIT_OVERFLOWS = "tcp.time_wait_overflows_per_sec", "1/s";
    /// Share of its speed that the busiest network device carried, in the busier direction; devices whose speed the
    /// kernel knows.
    NET_LINK_USED = "net.busiest_link_used_ratio", "ratio";

    /// The watcher's own CPU time over the window, in CPUs.
    OBSERVER_CPUS = "observer.cpus_used", "CPUs";
    /// CPU time of one reading of the watcher between the edges of a window, mean.
    OBSERVER_READING = "observer.cpu_us_per_reading", "us";

    /// CPU time of the command that ran beside the server (`find --beside`), with all its processes, over the window.
    BESIDE_CPUS = "beside.cpus_used", "CPUs";
    /// CPU time of the processes of this machine that listen where the server's own connections lead: its backends.
    BACKEND_CPUS = "backend.cpus_used", "CPUs";
    /// Memory of the same processes at the end of the window: proportional set size, pages that are shared counted in
    /// parts.
    BESIDE_MEMORY = "beside.memory_bytes", "bytes";
    /// How many processes they were.
    BESIDE_PROCESSES = "beside.processes", "count";

    /// Requests that the server answered while they were counted, seen from its side.
    WATCH_REQUESTS = "watch.requests", "count";
    /// The same per second of the time in which they were counted.
    WATCH_RATE = "watch.requests_per_sec", "1/s";
    /// Requests of the window seen by the server less the client's, as a share of the client's: of one moment apart
    /// only.
    WATCH_CLIENT_DIFFERENCE = "watch.client_difference_ratio", "ratio";
    /// Requests of the whole load, warm-up included, seen by the server less answers that the client got.
    WATCH_WHOLE_DIFFERENCE = "watch.whole_load_difference", "count";
    /// Request bytes read by the server, per request.
    WATCH_BYTES_IN = "watch.bytes_in_per_request", "bytes";
    /// Response bytes written by the server, head and body, per request: the network's demand.
    WATCH_BYTES_OUT = "watch.bytes_out_per_request", "bytes";
    /// Reads from the socket per request.
    WATCH_RECEIVES = "watch.receives_per_request", "count";
    /// Writes to the socket per request, from windows.
    WATCH_SENDS = "watch.sends_per_request", "count";
    /// CPU time of the thread that serves a request, from its first read until the thread turns to another: the CPU's
    /// demand.
    WATCH_CPU = "watch.cpu_us_per_request", "us";
    /// Its user part, by the kernel's division of the whole group's time.
    WATCH_CPU_USER = "watch.cpu_user_us_per_request", "us";
    /// Its system part.
    WATCH_CPU_SYSTEM = "watch.cpu_system_us_per_request", "us";
    /// Bytes that the serving thread had to read from disks per request, from windows: the disk's demand.
    WATCH_DISK = "watch.disk_bytes_per_request", "bytes";
    /// From the first read of a request to the departure of the last segment that the client acknowledged, mean.
    WATCH_ELAPSED = "watch.elapsed_us", "us";
    /// Upper end of the histogram's bucket in which its median lies.
    WATCH_ELAPSED_P50 = "watch.elapsed_p50_at_most_us", "us";
    /// Upper end of the histogram's bucket in which its 99th percentile lies.
    WATCH_ELAPSED_P99 = "watch.elapsed_p99_at_most_us", "us";
    /// From a connection's establishment to its first read, mean: the client's own delay included.
    WATCH_CONNECT = "watch.connect_us", "us";
    /// CPU time of accepting a connection.
    WATCH_CONNECT_CPU = "watch.connect_cpu_us", "us";
    /// Phase parse, elapsed: from the first read to the first send.
    WATCH_PARSE = "watch.parse_us", "us";
    /// Phase process, elapsed: from the first send to the last.
    WATCH_PROCESS = "watch.process_us", "us";
    /// Phase log, elapsed: from the last send until the thread sleeps or turns to another connection.
    WATCH_LOG = "watch.log_us", "us";
    /// Phase parse, CPU time.
    WATCH_PARSE_CPU = "watch.parse_cpu_us", "us";
    /// Phase process, CPU time.
    WATCH_PROCESS_CPU = "watch.process_cpu_us", "us";
    /// Phase log, CPU time.
    WATCH_LOG_CPU = "watch.log_cpu_us", "us";
    /// Time in phase parse, by functions of the server (its pack) of requests in windows: from the first read to the
    /// call that ends it.
    WATCH_PACK_PARSE = "watch.pack_parse_us", "us";
    /// Time in phase process, by functions of the server.
    WATCH_PACK_PROCESS = "watch.pack_process_us", "us";
    /// Time in phase log, by functions of the server.
    WATCH_PACK_LOG = "watch.pack_log_us", "us";
    /// CPU time in phase parse, by functions of the server, with what the probes added.
    WATCH_PACK_PARSE_CPU = "watch.pack_parse_cpu_us", "us";
    /// CPU time in phase process, by functions of the server, with what the probes added.
    WATCH_PACK_PROCESS_CPU = "watch.pack_process_cpu_us", "us";
    /// CPU time in phase log, by functions of the server, with what the probes added.
    WATCH_PACK_LOG_CPU = "watch.pack_log_cpu_us", "us";
    /// What the probes add to a request while they are set (modelled from a calibration).
    WATCH_PACK_COST = "watch.pack_cost_us_per_request", "us";
    /// Requests whose phases were timed.
    WATCH_TIMED = "watch.timed_requests", "count";
    /// Requests read and not answered to the end, mean over the readings within the window.
    WATCH_IN_FLIGHT = "watch.in_flight", "requests";
    /// The most of them in one reading.
    WATCH_IN_FLIGHT_MAX = "watch.in_flight_max", "requests";
    /// Requests whose connection ended before a byte of response was written.
    WATCH_UNANSWERED = "watch.unanswered", "count";
    /// Requests whose record was displaced by another connection's: not in any count.
    WATCH_LOST = "watch.lost_requests", "count";
    /// CPU time charged to requests, accepting and closing, as a share of the scheduler's account of the server.
    WATCH_EXPLAINED = "watch.explained_cpu_ratio", "ratio";
    /// Share of the window in which requests were counted: less than 1 where counting all would exceed the budget.
    WATCH_COUNTED = "watch.counted_ratio", "ratio";
    /// Share of the window in which phases were timed.
    WATCH_TIMED_RATIO = "watch.timed_ratio", "ratio";
    /// What the watch added to the server's CPU time: events times their calibrated cost, as a share.
    WATCH_COST = "watch.cost_ratio", "ratio";
    /// The watch's own thread over the window, in CPUs.
    WATCH_OWN_CPUS = "watch.own_cpus_used", "CPUs";

    /// Machine: requests to disks that read, per second.
    MACHINE_DISK_READS = "machine.disk_reads_per_sec", "1/s";
    /// Machine: bytes read from disks per second.
    MACHINE_DISK_READ_BYTES = "machine.disk_read_bytes_per_sec", "bytes/s";
    /// Machine: requests to disks that write, per second.
    MACHINE_DISK_WRITES = "machine.disk_writes_per_sec", "1/s";
    /// Machine: bytes written to disks per second.
    MACHINE_DISK_WRITTEN_BYTES = "machine.disk_written_bytes_per_sec", "bytes/s";
    /// Machine: bytes paged in per second.
    MACHINE_PAGED_IN = "machine.paged_in_bytes_per_sec", "bytes/s";
    /// Machine: bytes paged out per second.
    MACHINE_PAGED_OUT = "machine.paged_out_bytes_per_sec", "bytes/s";
    /// Machine: page faults per second.
    MACHINE_FAULTS = "machine.faults_per_sec", "1/s";
    /// Machine: page faults per second that waited for a disk.
    MACHINE_MAJOR_FAULTS = "machine.major_faults_per_sec", "1/s";
    /// Machine: processes and threads started per second.
    MACHINE_STARTED = "machine.started_per_sec", "1/s";
    /// Bytes per second that the server's processes had to read from disks.
    SERVER_DISK_READ = "server.disk_read_bytes_per_sec", "bytes/s";
    /// Bytes per second that the server's processes had written to disks.
    SERVER_DISK_WRITTEN = "server.disk_written_bytes_per_sec", "bytes/s";

    /// Found by `find`: highest throughput of the sweeps.
    FIND_PEAK = "find.peak_throughput_per_sec", "1/s";
    /// Found by `find`: connections at the yield point, or the most measured when the server stayed elastic.
    FIND_YIELD_CONNECTIONS = "find.yield_connections", "connections";
    /// Found by `find`: connections at the failure point, or the most measured when nothing failed.
    FIND_FAILURE_CONNECTIONS = "find.failure_connections", "connections";
    /// Found by `find`: the rate to plan with.
    FIND_PLAN = "find.plan_per_sec", "1/s";
    /// Found by `find`: the rate at which the server breaks, or the highest that held when none failed.
    FIND_BREAKS = "find.breaks_per_sec", "1/s";

    /// The yardstick: a fixed piece of arithmetic on the server's CPU, iterations per second of its CPU time.
    YARDSTICK_CPU = "yardstick.iterations_per_cpu_sec", "1/s";
}

/// Events of the hardware per packet sent, by layer: `layer.tcp_instructions_per_packet_sent`. `layer`: the word of the
/// layer's other figures, or `stack` for all layers of the network stack.
pub fn event_per_packet(layer: &str, event: &str) -> String {
    format!("layer.{layer}_{}_per_packet_sent", event.replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_carry_their_unit() {
        let mut seen = std::collections::HashSet::new();
        for (name, unit, meaning) in ALL.iter() {
            assert!(seen.insert(*name), "{name} appears twice");
            assert!(meaning.trim().ends_with('.'), "{name} needs a sentence");
            let suffix = match *unit {
                "us" => Some("us"),
                "ratio" => Some("ratio"),
                "1/s" | "bytes/s" => Some("per_"),
                _ => None,
            };
            if let Some(suffix) = suffix {
                assert!(name.contains(suffix), "{name} does not show its unit {unit}");
            }
        }
    }
}
