//! Rules on what an idle server waits for by design: its workers, its backend.

use super::Certainty;
use super::command::server_pid;
use super::evidence::{Evidence, pooled, typical};
use super::judge::{Finding, finding};
use super::rules::*;
use crate::statistics::{median, range};
use crate::zones::percent;
use record::text::plain;
use record::units::{count, format_nanos, format_si, grouped};
use record::{Point, names};

/// A server under strain: requests at once by Little's law, and how its threads sleep.
struct Strained<'a> {
    points: Vec<&'a Point>,
    throughput: f64,
    /// Response time at the lowest load, without queueing, seconds.
    alone_s: f64,
    /// Share of the looks that found a thread waiting for events, as an event loop does, or parked until another wakes
    /// it.
    parked_ratio: Option<f64>,
    /// Connections to other servers.
    outgoing: Option<f64>,
}

/// The same of one with idle CPUs.
fn idle<'a>(evidence: &Evidence<'a>) -> Option<Strained<'a>> {
    strained(evidence).filter(|idle| evidence.is_saturated(&idle.points) == Some(false))
}

fn strained<'a>(evidence: &Evidence<'a>) -> Option<Strained<'a>> {
    let (points, lowest) = (evidence.strained(), evidence.lowest());
    let responses: u64 = points.iter().fold(0, |sum, point| sum.saturating_add(point.outcomes.completed()));
    // A disturbance only makes a single request longer.
    // Little's law is one of means. Older runs have the median only.
    let mean_us = |point: &&Point| point.value(names::RESPONSE_MEAN).or(point.value(names::RESPONSE_P50));
    let alone = lowest.iter().filter_map(mean_us).filter(|us| us.is_finite());
    let alone_us = alone.reduce(f64::min)?;
    let share = |name| pooled(&points, name).filter(|(_, looks)| *looks >= LEAST_LOOKS).map(|(share, _)| share);
    let events = share(names::SERVER_EVENT_WAITS);
    (responses as f64 >= LEAST_REQUESTS && alone_us > 0.0).then_some(Strained {
        throughput: typical(&points, names::THROUGHPUT)?,
        alone_s: alone_us * 1e-6,
        parked_ratio: events.map(|events| events + share(names::SERVER_LOCK_WAITS).unwrap_or(0.0)),
        outgoing: typical(&points, names::SERVER_OUTGOING),
        points,
    })
}

impl Strained<'_> {
    fn at_once(&self) -> f64 {
        self.throughput * self.alone_s
    }

    /// Whether several requests are in flight on a connection. They wait for each other at the lowest load, too, so
    /// nothing says how long one takes alone.
    fn is_pipelined(&self, evidence: &Evidence<'_>) -> bool {
        evidence
            .lowest()
            .iter()
            .filter_map(|point| Some((point, point.value(names::THROUGHPUT)?)))
            .any(|(point, throughput)| throughput * self.alone_s > PIPELINED_REQUESTS * point.connections as f64)
    }
}

/// Requests at once that an idle server serves beyond the yield point.
pub fn at_once(evidence: &Evidence<'_>) -> Option<f64> {
    Some(idle(evidence)?.at_once())
}

/// How many requests an idle server serves at a time, however many connections there are: what it waits for has room
/// for so many.
pub fn at_a_time(evidence: &Evidence<'_>) -> Option<String> {
    let idle = idle(evidence)?;
    let at_once = idle.at_once();
    let loads = idle.points.iter().map(|point| point.connections as f64);
    if at_once < 0.5 || loads.reduce(f64::min)? < 2.0 * at_once || idle.is_pipelined(evidence) {
        return None;
    }
    let count = at_once.round().max(1.0);
    Some(format!(
        "It serves about {} at a time ({}/s x {}, the time of one alone = {at_once:.1}): a limit of so many would do \
         that (connections to a database, a semaphore), or one thing that each request needs for {}.",
        if count == 1.0 { "one request".into() } else { format!("{} requests", grouped(count)) },
        format_si(idle.throughput),
        format_nanos(idle.alone_s * 1e9),
        format_nanos(1e9 / idle.throughput)
    ))
}

/// A fixed number of workers, all asleep in a request: throughput is workers over time.
pub fn worker_pool(evidence: &Evidence<'_>) -> Option<Finding> {
    let idle = idle(evidence)?;
    let threads: Vec<f64> = idle.points.iter().filter_map(|point| point.value(names::SERVER_THREADS)).collect();
    let (least, most) = range(&threads)?;
    let loads = idle.points.iter().map(|point| point.connections as f64);
    let most_connections = loads.fold(0.0, f64::max);
    let at_once = idle.at_once();
    // One or two threads of a pool accept or keep time.
    let workers = (0..=HELPER_THREADS)
        .map(|helpers| most - f64::from(helpers))
        .filter(|workers| *workers >= 1.0 && (1.0 - POOL_TOLERANCE..=1.0 + POOL_PATH).contains(&(at_once / workers)))
        .min_by(|a, b| (at_once / a - 1.0).abs().total_cmp(&(at_once / b - 1.0).abs()))?;
    // Threads without work are parked; workers of a full pool sleep in their requests, and share the work.
    let is_parked = idle.parked_ratio? > POOL_PARKED;
    let (busiest, used) = (names::SERVER_BUSIEST_THREAD, names::SERVER_CPUS_USED);
    let busiest = typical(&idle.points, busiest).zip(typical(&idle.points, used));
    let is_one_thread = workers > 1.0 && busiest.is_some_and(|(busiest, used)| busiest > POOL_BUSIEST_RATIO * used);
    // Workers that compute are not a pool that sleeps: more of them would need more CPUs.
    let cpu_us = typical(&idle.points, names::SERVER_CPU)?;
    let computes = cpu_us > POOL_CPU_RATIO * idle.alone_s * 1e6;
    if most - least > 1.0
        || is_parked
        || is_one_thread
        || computes
        || most_connections < 2.0 * workers
        || idle.is_pipelined(evidence)
    {
        return None;
    }
    let pid = server_pid(evidence.run);
    let command = format!("grep -H . /proc/{pid}/task/*/wchan");
    let word = if workers == 1.0 { "worker serves one request" } else { "workers serve that many requests" };
    let mut found = finding(
        format!(
            "The server has a fixed pool: its {} {word} at a time, {} each, and sleep meanwhile; {}/s x {} = {:.1} at \
             once, however many connections there are ({} threads at up to {} connections, no CPU of the server \
             saturated).",
            grouped(workers),
            format_nanos(idle.alone_s * 1e9),
            format_si(idle.throughput),
            format_nanos(idle.alone_s * 1e9),
            at_once,
            grouped(most),
            grouped(most_connections)
        ),
        format!(
            "To try: more workers (threads, processes) in its configuration, or shorter requests; `{command}` under \
             load shows what they sleep for."
        ),
        &[command],
    )?;
    // As many connections to a backend may be the limit as well.
    if idle.outgoing.is_some_and(|outgoing| (outgoing / at_once - 1.0).abs() <= POOL_TOLERANCE) {
        found.certainty = Certainty::Possibility;
    }
    Some(found)
}

/// A small write that waits until the client has acknowledged the one before, which it does 40 ms later, whatever the
/// load.
pub fn delayed_ack(evidence: &Evidence<'_>) -> Option<Finding> {
    let sweep = evidence.sweep()?;
    let from = evidence.strained_from().unwrap_or(f64::INFINITY);
    let loads = sweep.levels.iter().map(|level| level.load).filter(|load| *load < from);
    let points: Vec<&Point> = loads
        .flat_map(|load| evidence.quiet_at(sweep.sweep, load))
        .filter(|point| point.outcomes.completed() >= LEAST_ANSWERS)
        .collect();
    let gap_us = |point: &&Point| Some(point.value(names::RESPONSE_P50)? - point.value(names::FIRST_BYTE_P50)?);
    // The acknowledgement and the rest of the answer cross the path: one round trip, which connecting takes, too.
    let round_trip_us = |point: &Point| point.value(names::CONNECT_P50).unwrap_or(0.0);
    let gaps: Vec<f64> = points.iter().map(gap_us).collect::<Option<_>>()?;
    let round_trips: Vec<f64> = points.iter().map(|point| round_trip_us(point)).collect();
    let (least, most) = range(&gaps)?;
    let (shortest, longest) = range(&gaps.iter().zip(&round_trips).map(|(gap, trip)| gap - trip).collect::<Vec<_>>())?;
    let requests: u64 = points.iter().fold(0, |sum, point| sum.saturating_add(point.outcomes.completed()));
    let is_long = |point: &&Point| {
        let answer = point.value(names::BODY_BYTES).map(|bytes| bytes / point.outcomes.completed() as f64);
        if round_trip_us(point) > FAR_CONNECT_US {
            answer.is_none_or(|bytes| bytes > MOST_ANSWER_FAR_BYTES)
        } else {
            answer.is_some_and(|bytes| bytes > MOST_ANSWER_BYTES)
        }
    };
    let is_one_load = points.iter().all(|point| point.connections == points[0].connections);
    if is_one_load
        || points.iter().any(is_long)
        || (requests as f64) < LEAST_REQUESTS
        || !(DELAYED_ACK_US.contains(&shortest) && DELAYED_ACK_US.contains(&longest))
    {
        return None;
    }
    let command = format!("strace -f -e trace=write,writev,sendto,sendmsg -p {}", server_pid(evidence.run));
    let round_trip_us = median(&round_trips)?;
    let far = if round_trip_us > FAR_CONNECT_US {
        format!(" and a round trip ({} to connect)", format_nanos(round_trip_us * 1e3))
    } else {
        String::new()
    };
    finding(
        format!(
            "The end of each answer waits for a delayed acknowledgement: the last byte came {} to {} after the first \
             at every load below the yield point (medians, n = {}). The server sends an answer in two small pieces, \
             and Nagle's algorithm holds the second back until the client's kernel has acknowledged the first, which \
             it does after 40 ms{far}.",
            format_nanos(least * 1e3),
            format_nanos(most * 1e3),
            grouped(requests as f64)
        ),
        format!(
            "To try: TCP_NODELAY on its connections, or head and body in one write (a buffered writer); `{command}` \
             shows the writes of an answer."
        ),
        &[command],
    )
}

/// Less CPU time than this for a request, in microseconds: a process that did nothing for it. To read and to answer
/// takes more.
const ASKED_US: f64 = 3.0;

/// An event loop with idle time, or whose backend fills the CPUs of both, and with connections to another server, which
/// works for the requests if it can be seen to.
pub fn backend(evidence: &Evidence<'_>) -> Option<Finding> {
    let is_filled = evidence.is_filled_by_backend(&evidence.strained());
    let idle = if is_filled { strained(evidence) } else { idle(evidence) }?;
    let outgoing = idle.outgoing.filter(|count| *count >= 1.0)?;
    let lowest = typical(&evidence.lowest(), names::SERVER_OUTGOING);
    let facts = &evidence.run.record.server_facts;
    let address = facts.get("backend").map(|address| plain(address, 60));
    let used = typical(&idle.points, names::BACKEND_CPUS);
    let is_here = facts.contains_key("backend_is_here");
    if is_here && used.is_some_and(|cpus| cpus * 1e6 < ASKED_US * idle.throughput) {
        return None;
    }
    let named = address.as_ref().map_or("another server".into(), |address| format!("its backend {address}"));
    // Fewer connections than requests at once, and no more of them than at the lowest load: nothing shows that these
    // requests use them.
    let is_idle_perhaps =
        !is_here && outgoing <= lowest.unwrap_or(0.0) && outgoing < BACKEND_OF_REQUESTS * idle.at_once();
    let before = lowest.map(|count| format!(" ({} at the lowest load)", grouped(count))).unwrap_or_default();
    let own =
        evidence.own_typical(&idle.points).map(|own| format!(", and its own work took {} of its CPUs", percent(own)));
    let used = used.map(|cpus| format!("; the backend's processes used {cpus:.2} CPUs of this machine"));
    let unix = address.as_ref().is_some_and(|address| address.starts_with("unix:"));
    let url = address.map_or("http://BACKEND/".into(), |address| format!("http://{address}/"));
    let command = if unix { "ss -xlp".to_string() } else { format!("straingauge find {url}") };
    let advice = if is_filled {
        "the CPUs are full, most of them of the backend: fewer and cheaper requests to it, or CPUs of its own"
    } else {
        "then more of it, or fewer and cheaper requests to it"
    };
    let alone = if unix { "shows how many connections wait for it (Recv-Q)" } else { "measures the backend alone" };
    let mut found = finding(
        format!(
            "The server waits for {named}: beyond the yield point it held {} to it{before}{}{}. The backend answers \
             {}/s; at {} a request that is {:.1} at once.",
            count(outgoing as u64, "connection"),
            own.unwrap_or_default(),
            used.unwrap_or_default(),
            format_si(idle.throughput),
            format_nanos(idle.alone_s * 1e9),
            idle.at_once()
        ),
        format!("To try: `{command}` {alone}; {advice}."),
        &[command],
    )?;
    // A process that stays at one CPU may be the limit as well.
    if is_idle_perhaps || super::one_at_a_time::held(evidence).is_some() {
        found.certainty = Certainty::Possibility;
    }
    Some(found)
}
