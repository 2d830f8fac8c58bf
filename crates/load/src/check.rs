mod protocol;

use crate::error::{LoadError, refuse_if, wrong};
use crate::framing::is_token;
use crate::ports::{PortAllocator, PortRules};
use crate::socket;
use record::{Arrival, LoadPlan, Pace};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

const SPARE_DESCRIPTORS: u64 = 64;
/// Maximum connections of one engine.
pub const MOST_CONNECTIONS: u64 = 1_000_000;
const OWNED_FIELDS: [&str; 4] = ["host", "content-length", "connection", "transfer-encoding"];
/// A higher rate is taken for a typing error; it would overflow the schedule's nanoseconds.
const MAX_RATE_PER_SEC: f64 = 1e9;

/// Checks whether the plan can be run on this machine; the error names the remedy. Opens no connection.
pub fn check(plan: &LoadPlan) -> Result<(), LoadError> {
    check_numbers(plan)?;
    if plan.protocol.is_http() {
        check_request(plan)?;
    }
    if !plan.protocol.is_http_1() {
        protocol::check(plan)?;
    }
    check_workload(plan)?;
    check_cpus(plan)?;
    check_descriptors(plan)?;
    check_sources(plan)?;
    check_ports(plan)
}

fn check_numbers(plan: &LoadPlan) -> Result<(), LoadError> {
    refuse_if(
        plan.addresses.is_empty(),
        "there is no server address: give a host name that resolves, or an IP address",
    )?;
    refuse_if(
        plan.addresses.iter().any(|address| address.port() == 0),
        "port 0 is invalid: give the port that the server listens on",
    )?;
    refuse_if(plan.connections == 0, "0 connections would send no load: use at least 1")?;
    refuse_if(
        plan.connections > MOST_CONNECTIONS,
        format!(
            "{} connections are more than one client can hold ({MOST_CONNECTIONS}): use fewer, or more clients \
             (--client)",
            plan.connections
        ),
    )?;
    refuse_if(plan.threads == 0, "0 threads would send no load: use at least 1")?;
    refuse_if(plan.duration_ns == 0, "a window of 0 s would measure nothing: use a longer duration")?;
    // Sums of instants and durations must fit in 64 bits of nanoseconds.
    const LONGEST_NS: u64 = 400 * 86_400 * 1_000_000_000;
    refuse_if(
        [plan.duration_ns, plan.warmup_ns, plan.timeout_ns, plan.connect_timeout_ns].iter().any(|ns| *ns > LONGEST_NS),
        "durations, warm-ups and timeouts are at most 400 days",
    )?;
    refuse_if(
        plan.timeout_ns == 0 || plan.connect_timeout_ns == 0,
        "a timeout of 0 s would fail every request: use a longer one",
    )?;
    if let Pace::Open { rate_per_sec, .. } = plan.pace
        && !(rate_per_sec > 0.0 && rate_per_sec <= MAX_RATE_PER_SEC)
    {
        return Err(wrong(format!(
            "a rate of {rate_per_sec} requests per second cannot be offered: use a rate above 0 and at most 1G"
        )));
    }
    refuse_if(
        !(plan.connect_rate_per_sec >= 0.0 && plan.connect_rate_per_sec.is_finite()),
        format!(
            "a connect rate of {} per second is invalid: use 0 (as fast as possible) or more",
            plan.connect_rate_per_sec
        ),
    )?;
    Ok(())
}

fn check_request(plan: &LoadPlan) -> Result<(), LoadError> {
    refuse_if(
        !is_token(plan.method.as_bytes()),
        format!("{} is not an HTTP method: it may have only letters, digits and -_.", quoted(&plan.method)),
    )?;
    refuse_if(plan.method == "CONNECT", "CONNECT opens a tunnel instead of sending requests: use another method")?;
    refuse_if(
        plan.host.is_empty() || plan.host.bytes().any(|byte| byte <= b' ' || byte >= 0x7f),
        format!("{} is not a host: use printable ASCII without spaces", quoted(&plan.host)),
    )?;
    refuse_if(plan.targets.is_empty(), "there is no target: give at least one URL")?;
    for target in &plan.targets {
        let is_asterisk = target.path == "*" && plan.method == "OPTIONS";
        if !(target.path.starts_with('/') || is_asterisk) {
            return Err(wrong(format!("the target {} must begin with /", quoted(&target.path))));
        }
        if target.path.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err(wrong(format!(
                "the target {} has a space or control character: percent-encode it, e.g. %20",
                quoted(&target.path)
            )));
        }
    }
    for (name, value) in &plan.headers {
        refuse_if(
            !is_token(name.as_bytes()),
            format!("{} is not a header name: it has an invalid character", quoted(name)),
        )?;
        refuse_if(
            OWNED_FIELDS.iter().any(|owned| name.eq_ignore_ascii_case(owned)),
            format!("straingauge sets the header {name} itself: leave it out"),
        )?;
        refuse_if(
            name.eq_ignore_ascii_case("expect"),
            "the header Expect is not supported, because a body is sent with its request: leave it out",
        )?;
        refuse_if(
            value.bytes().any(|byte| (byte < b' ' && byte != b'\t') || byte == 0x7f),
            format!(
                "the value of header {name} has a control character (a line break would smuggle another header): \
                 remove it"
            ),
        )?;
    }
    // Sends are counted in 32 bits.
    refuse_if(plan.body.len() > 1 << 30, "a request body is at most 1 GiB: use a smaller one")?;
    Ok(())
}

/// Each class has a histogram in every thread.
const MAX_CLASSES: usize = 64;

fn check_workload(plan: &LoadPlan) -> Result<(), LoadError> {
    let workload = &plan.workload;
    let (weights, targets) = (&workload.weights, plan.targets.len());
    if !weights.is_empty() {
        refuse_if(
            weights.len() != targets,
            format!("{} weights for {targets} targets: give one for each", weights.len()),
        )?;
        let is_sane = |weight: &f64| weight.is_finite() && *weight >= 0.0;
        refuse_if(
            !weights.iter().all(is_sane) || rand_distr::weighted::WeightedAliasIndex::new(weights.clone()).is_err(),
            "the weights of the targets are invalid: give numbers of at least 0, at least one of them above 0",
        )?;
    }
    refuse_if(
        workload.classes.len() > MAX_CLASSES,
        format!("{} classes are too many: use at most {MAX_CLASSES}", workload.classes.len()),
    )?;
    let is_classed = workload.trace.is_none() && !workload.classes.is_empty();
    let is_known = |class: &u8| usize::from(*class) < workload.classes.len();
    refuse_if(
        (is_classed && workload.class_of.len() != targets) || !workload.class_of.iter().all(is_known),
        "the classes do not match the targets: give each target one of the classes",
    )?;
    let arrival = match plan.pace {
        Pace::Open { arrival, .. } => Some(arrival),
        Pace::Closed => None,
    };
    refuse_if(
        arrival == Some(Arrival::Series) && workload.series.is_none(),
        "arrivals by a rate series need a series: name one",
    )?;
    refuse_if(
        (arrival == Some(Arrival::Trace)) != (workload.trace.is_some() && arrival.is_some()),
        "a log is replayed at its own times or as fast as possible, without another arrival process",
    )?;
    refuse_if(
        workload.trace.is_some() && plan.requests_per_connection > 0,
        "the sessions of a log determine the requests per connection: give no other limit",
    )?;
    Ok(())
}

/// Shortens and escapes untrusted text for a sentence.
fn quoted(text: &str) -> String {
    const LIMIT: usize = 60;
    let mut short: String = text.chars().take(LIMIT).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    format!("{short:?}")
}

fn check_cpus(plan: &LoadPlan) -> Result<(), LoadError> {
    let allowed = record::machine::allowed_cpus();
    match plan.cpus.iter().find(|cpu| !allowed.is_empty() && !allowed.contains(cpu)) {
        Some(cpu) => Err(wrong(format!("CPU {cpu} cannot be used: this process may run on CPUs {allowed:?}"))),
        None => Ok(()),
    }
}

pub(crate) fn check_descriptors(plan: &LoadPlan) -> Result<(), LoadError> {
    let limit = record::machine::raise_descriptor_limit();
    let in_use = std::fs::read_dir("/proc/self/fd").map_or(16, |entries| entries.count() as u64);
    let own = SPARE_DESCRIPTORS + plan.threads as u64;
    let fits = limit.saturating_sub(in_use + own);
    if plan.connections > fits {
        let needed = plan.connections + in_use + own;
        return Err(wrong(format!(
            "{} connections need {needed} file descriptors, but this process may open {limit} ({in_use} are in use): \
             {fits} connections fit; use fewer, raise the limit (ulimit -n {needed}, or LimitNOFILE= of the service), \
             or divide them over several --client",
            plan.connections
        )));
    }
    Ok(())
}

pub(crate) fn reachable(plan: &LoadPlan) -> impl Iterator<Item = SocketAddr> {
    let is_alike =
        |target: &SocketAddr| plan.source_addresses.iter().all(|source| source.is_ipv4() == target.is_ipv4());
    plan.addresses.iter().copied().filter(is_alike)
}

pub(crate) fn check_sources(plan: &LoadPlan) -> Result<(), LoadError> {
    let target = plan.addresses[0];
    let is_possible = reachable(plan).next().is_some();
    for address in &plan.source_addresses {
        refuse_if(
            !is_possible && address.is_ipv4() != target.is_ipv4(),
            format!("the source address {address} and the server {target} are of different IP versions"),
        )?;
        std::net::TcpListener::bind(SocketAddr::new(*address, 0)).map_err(|cause| {
            wrong(format!(
                "the source address {address} cannot be used: {cause}; give an address of this machine (ip \
                     address shows them)"
            ))
        })?;
    }
    Ok(())
}

pub(crate) fn check_ports(plan: &LoadPlan) -> Result<(), LoadError> {
    let rules = port_rules(plan);
    for target in &plan.addresses {
        let sources = sources(plan, *target, &rules).len();
        let fits = PortAllocator::capacity(&rules, sources);
        if plan.connections > fits {
            return Err(wrong(format!(
                "{} connections to {target} need more local ports than exist: {fits} fit ({sources} source \
                 address(es), ports {} to {}); give more source addresses, or widen net.ipv4.ip_local_port_range",
                plan.connections, rules.low, rules.high
            )));
        }
    }
    Ok(())
}

/// The machine's rules for local ports, in the calling thread's network namespace.
pub(crate) fn port_rules(plan: &LoadPlan) -> PortRules {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap_or_default();
    let range = read("ip_local_port_range");
    let mut ends = range.split_ascii_whitespace().filter_map(|end| end.parse::<u16>().ok());
    let (low, high) = (ends.next().unwrap_or(32_768), ends.next().unwrap_or(60_999));
    let is_loopback = plan.addresses.iter().all(|address| address.ip().is_loopback());
    // 0 = never reused early, 1 = always after a second, 2 (the default) = on loopback only.
    let reused_early = match read("tcp_tw_reuse").trim() {
        "1" => true,
        "2" => is_loopback,
        _ => false,
    };
    PortRules {
        low,
        high: high.max(low),
        can_scan: socket::knows_port_range(),
        time_wait_ns: if reused_early { 1_000_000_000 } else { 60_000_000_000 },
        threads: plan.threads as u64,
    }
}

/// The source addresses of the connections to a target; `None` leaves the choice to the kernel.
pub fn sources(plan: &LoadPlan, target: SocketAddr, rules: &PortRules) -> Vec<Option<IpAddr>> {
    if !plan.source_addresses.is_empty() {
        return plan.source_addresses.iter().copied().map(Some).collect();
    }
    let mut sources = vec![None];
    if let IpAddr::V4(address) = target.ip()
        && address.is_loopback()
    {
        // Twice the connections' needs, because closed ones keep their port for a while.
        let wanted = PortAllocator::sources_wanted(rules, plan.connections) * 2;
        let others = (2..=250u8).map(|last| Ipv4Addr::new(127, 0, 0, last)).filter(|other| *other != address);
        sources.extend(others.take(wanted.min(200) as usize).map(|other| Some(IpAddr::V4(other))));
    }
    sources
}
