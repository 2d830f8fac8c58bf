use super::*;

pub(super) const RULE: Rule = Rule {
    id: "backend",
    cause: "the server waits for its backend",
    evidence: "the account: calls in progress on connections that the server opened, and the time of a call, by load",
    threshold: "most of the requests added by load (at least 1) waited for such calls, or for threads without idle \
                time (criterion `saturation_ratio`) that mostly waited for them; the backend is full if a call takes \
                at least twice as long as at the lowest load; a possibility below 40 % of the added requests; or: the \
                server's CPUs are full (criterion `saturation_ratio`), and `backend.cpus_used` is more than the server \
                used and 80 % of the rest",
    refuted_by: "measured alone, the backend answers more requests",
    remedy: "`straingauge find http://BACKEND/` measures the backend alone; for a Unix socket, and for a protocol that \
             straingauge does not speak, `ss` shows the queues; more calls at once where threads make one after \
             another",
    source: "utilisation law: an idle resource is not the bottleneck",
    is_limit: true,
    is_counted: false,
    hidden_by: &["client", "server-errors"],
    judge: |evidence| evidence.limit_by(RULE.id).or_else(|| on_the_servers_cpus(evidence)),
};

/// The backend's share of the busy time that the server leaves, from which on the backend fills the CPUs.
const MOSTLY_BACKEND: f64 = 0.8;

/// A backend on this machine that takes more of the server's full CPUs than the server.
fn on_the_servers_cpus(evidence: &Evidence<'_>) -> Option<Finding> {
    let sweep = evidence.sweep()?;
    let from = evidence.strained_from()?;
    let is_strained = |level: &&AccountLevel| level.load >= from && level.asked().next().is_some();
    let high = evidence.accounts().iter().rev().find(is_strained)?;
    let points = evidence.quiet_at(sweep.sweep, high.load);
    let figure = |name| typical(&points, name);
    let (own, backend) = (figure(names::SERVER_CPUS_USED)?, figure(names::BACKEND_CPUS)?);
    let busy = figure(names::SERVER_CPU_BUSY)?;
    let others = busy * figure(names::SERVER_CPUS)? - own;
    if busy < evidence.criteria().saturation_ratio || backend < own || backend < MOSTLY_BACKEND * others {
        return None;
    }
    let because = format!(
        "The processes of its backend {} take the CPUs: at {} they used {backend:.2} CPUs and the server {own:.2}, and \
         the server's CPUs were {} busy.",
        high.asked().next()?.address,
        load_words(high.load, sweep.sweep),
        percent(busy),
    );
    let remedy = "To try: fewer and cheaper requests to it (an index, cached answers), or the backend on another \
                  machine or on other CPUs than the server (`--server-cpus`).";
    finding(because, remedy.into(), &[])
}

const CALL_GROWTH: f64 = 2.0;

/// The backend with the most calls in progress, and its level at the lowest load.
pub fn busiest_backend<'a>(reading: &AccountRange<'a>) -> Option<(&'a BackendLevel, Option<&'a BackendLevel>)> {
    let high = reading.high.asked().next()?;
    Some((high, reading.lowest()?.backend(&high.address)))
}

/// Whether a call takes at least [`CALL_GROWTH`] times as long as at the lowest load.
pub fn is_slower(high: &BackendLevel, low: Option<&BackendLevel>) -> bool {
    low.is_some_and(|low| low.call_us > 0.0 && high.call_us >= CALL_GROWTH * low.call_us)
}

/// The scheme of a URL that measures the server at the address. `None` if its port belongs to a protocol that
/// straingauge does not speak (IANA's registry; FastCGI, PgBouncer and ProxySQL have none: 9000, 6432, 6033).
fn scheme(address: &str) -> Option<&'static str> {
    match address.rsplit_once(':')?.1 {
        "6379" => Some("redis"),
        "11211" => Some("memcached"),
        "1433" | "1521" | "1883" | "3306" | "4222" | "5432" | "5672" | "6033" | "6432" | "9000" | "9042" | "9092"
        | "27017" => None,
        _ => Some("http"),
    }
}

pub fn full(reading: &AccountRange<'_>) -> Option<FoundLimit> {
    let (high, low) = busiest_backend(reading)?;
    let at = reading.at_high();
    let before = low.map_or(String::new(), |low| format!(", {} at the lowest load", format_nanos(low.call_us * 1e3)));
    let facts = format!(
        "at {at} {:.1} calls to {} were in progress at any time, on {}; a call took {}{before}, {} calls/s",
        high.busy,
        high.address,
        count(high.connections.round() as usize, "connection"),
        format_nanos(high.call_us * 1e3),
        format_si(high.calls_per_sec)
    );
    let (because, advice) = if is_slower(high, low) {
        (
            format!("The backend {} is full: {facts}. Its answers take longer under load.", high.address),
            "then add capacity to it, or send it fewer and cheaper requests",
        )
    } else if let Some(group) = reading.waiting_at_backends(high.busy) {
        let words = format!("{} had no idle time and made one call after another", group.label());
        (
            format!("The server waits for its backend {}: {facts}; {words}.", high.address),
            "then make its answers faster, send it fewer requests, cache its answers, or make more calls at once (more \
             workers, an asynchronous client): the backend is not full yet",
        )
    } else {
        (
            format!("The server waits for its backend {}: {facts}.", high.address),
            "then make its answers faster, send it fewer requests, or cache its answers",
        )
    };
    let kind = high.address.split_once(':').map_or("", |(kind, _)| kind);
    let (command, alone) = match kind {
        "unix" => ("ss -xlp".into(), "shows how many connections wait in its queue (Recv-Q)"),
        "udp" => ("ss -uanp".into(), "shows the process that answers there, and its queue (Recv-Q)"),
        _ => match scheme(&high.address) {
            Some("http") => {
                (format!("straingauge find http://{}/", high.address), "measures it alone, if it speaks HTTP")
            }
            Some(scheme) => (format!("straingauge find {scheme}://{}/", high.address), "measures it alone"),
            None => (format!("ss -tnp dst {}", high.address), "shows the connections to it and their queues"),
        },
    };
    let advice = if kind == "udp" && high.address.ends_with(":53") {
        "it is a name server: look names up once, or cache the answers (nscd, systemd-resolved, dnsmasq)"
    } else {
        advice
    };
    let remedy = format!("To try: `{command}` {alone}; {advice}.");
    let found = FoundLimit::new(RULE.id, because, remedy, &[command])?;
    if is_slower(high, low) { found.dearer(SlowPlace::Request, ELSEWHERE) } else { Some(found) }
}
