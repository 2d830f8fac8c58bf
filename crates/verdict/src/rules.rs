//! The rules of the verdict as a table, each in a file of its own: evidence, threshold, cause, remedy and source.
//! `--generate reference-rules` prints it.
//!
//! A rule that is `hidden_by` another is left out if the other holds: its evidence is then a consequence. The order
//! matters: the first cause of a verdict is the one to fix first.

mod affinity;
pub(super) mod backend;
mod backend_connects;
pub(super) mod backend_pool;
mod background;
mod backlog;
mod bandwidth;
mod blocked_loop;
mod client;
mod client_ports;
mod connection_limit;
mod conntrack;
mod cpu_bursts;
mod cpu_quota;
pub(super) mod delayed_ack;
mod descriptors;
mod dropped_packets;
mod forks;
mod garbage_collection;
mod hangs;
mod held_answers;
mod interrupts;
mod leak;
pub(super) mod lock;
mod loss;
mod memory_bound;
mod memory_limit;
pub(super) mod neighbour;
mod not_accepted;
pub(super) mod one_at_a_time;
mod own_limit;
mod paced_answers;
mod page_faults;
mod paging;
mod receive_budget;
mod restarts;
mod scalable_select;
mod send_buffer;
mod server_errors;
pub(super) mod server_log;
pub(super) mod slow_file;
pub(super) mod slow_readers;
mod slow_requests;
mod slows_with_time;
mod spin;
mod stalls;
mod stays_down;
mod stopped;
mod time_wait;
mod tls_handshakes;
pub(super) mod unequal_workers;
pub(super) mod worker_pool;

use super::Certainty;
use super::command::{again, quoted, requests, served_port, server_pid};
use super::evidence::{Evidence, at_least, cpu_share, pooled, typical};
use super::proof::{Dearer, ELSEWHERE};
use super::stage::{AccountRange, FoundLimit, LITTLE_IDLE};
use analyze::account::{AccountLevel, BackendLevel, GroupLevel, PlaceKind, ProcessLevel, WaitLevel};
use analyze::point::answers;
use analyze::zones::{load_words, percent};
use record::account::{ADDRESS_SPACE, WaitKind};
use record::text::plain;
use record::units::{count, format_bytes, format_nanos, format_si, grouped};
use record::{Point, SlowPlace, Sweep, names};
use statistics::regression;
use statistics::{median, range};

/// One rule.
pub struct Rule {
    /// Name of the rule in JSON.
    pub id: &'static str,
    /// The cause, in a few words.
    pub cause: &'static str,
    /// The evidence: figures of [`record::names`] and findings.
    pub evidence: &'static str,
    /// The thresholds at which the rule holds.
    pub threshold: &'static str,
    /// The observation that would refute the cause.
    pub refuted_by: &'static str,
    /// The remedy, with the general form of its command.
    pub remedy: &'static str,
    /// The source of the rule.
    pub source: &'static str,
    /// Whether the cause explains the limit of throughput, not only the cost or the time of a request.
    pub is_limit: bool,
    /// Whether the evidence is events that the kernel or the client counted, so that other work on the machine cannot
    /// cause it.
    pub is_counted: bool,
    /// Rules whose consequence this one is if they hold.
    pub hidden_by: &'static [&'static str],
    /// Checks a run; `None` if the rule does not hold.
    pub judge: fn(&Evidence<'_>) -> Option<Finding>,
}

/// The finding of a rule.
#[derive(Clone)]
pub struct Finding {
    /// The cause with its evidence, one or two sentences.
    pub because: String,
    /// The remedy, one sentence with the commands in it.
    pub remedy: String,
    /// The commands in the remedy.
    pub commands: Vec<String>,
    /// Certainty of the cause.
    pub certainty: Certainty,
    /// Whether something else limits the throughput below the loads of this evidence.
    pub is_beyond_limit: bool,
    /// How the full stage is made dearer, if that is known.
    pub dearer: Option<Dearer>,
}

pub(super) fn finding(because: String, remedy: String, commands: &[String]) -> Option<Finding> {
    let commands = commands.to_vec();
    Some(Finding { because, remedy, commands, certainty: Certainty::Cause, is_beyond_limit: false, dearer: None })
}

impl Finding {
    /// Notes how the full stage is made dearer.
    pub(super) fn dearer(mut self, place: SlowPlace, at_once: f64) -> Option<Finding> {
        self.dearer = Some(Dearer { place, function: None, at_once });
        Some(self)
    }

    /// Notes that something else limits the throughput at lower loads.
    pub(super) fn beyond_limit_if(mut self, is_beyond_limit: bool) -> Option<Finding> {
        self.is_beyond_limit = is_beyond_limit;
        Some(self)
    }

    /// The finding as certain or, unless proven, as a possibility.
    pub(super) fn proven_if(mut self, is_proven: bool) -> Option<Finding> {
        if !is_proven {
            self.certainty = Certainty::Possibility;
        }
        Some(self)
    }
}

/// Least number of kernel ticks for a split of CPU time into user and system.
pub(super) const LEAST_TICKS: u64 = 20;
/// Least number of requests for a cost or a rate.
pub(super) const LEAST_REQUESTS: f64 = 30.0;
/// Least number of events (errors, overflows, lost sends) for a rate.
const LEAST_ERRORS: u64 = 5;
/// Least number of accept-queue overflows, of dropped packets, or of connections that skipped TIME_WAIT, per second.
const LOST_PER_SEC: f64 = 1.0;
const SENT_AGAIN: &str = "A lost segment is sent again after 200 ms, a lost SYN after a second.";
/// Least CPU time of a request at the most expensive load over that at the cheapest.
pub(super) const GROWTH_RATIO: f64 = 1.25;

/// Two times in words: `40.5 ms to 41.0 ms`, or one if they are the same.
fn from_to(least_us: f64, most_us: f64) -> String {
    let (least, most) = (format_nanos(least_us * 1e3), format_nanos(most_us * 1e3));
    if least == most { least } else { format!("{least} to {most}") }
}

/// The slope of a straight line, and the share of the scatter that it explains.
fn line(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    regression::line(points, 0.95).map(|line| (line.slope.value, line.correlation.powi(2)))
}

/// All rules.
pub const RULES: [Rule; 52] = [
    client_ports::RULE,
    client::RULE,
    descriptors::RULE,
    hangs::RULE,
    stopped::RULE,
    cpu_quota::RULE,
    cpu_bursts::RULE,
    stays_down::RULE,
    server_errors::RULE,
    server_log::RULE,
    slow_file::RULE,
    paging::RULE,
    memory_limit::RULE,
    lock::RULE,
    one_at_a_time::RULE,
    worker_pool::RULE,
    slow_readers::RULE,
    send_buffer::RULE,
    delayed_ack::RULE,
    held_answers::RULE,
    paced_answers::RULE,
    backend::RULE,
    backend_pool::RULE,
    backend_connects::RULE,
    unequal_workers::RULE,
    neighbour::RULE,
    affinity::RULE,
    blocked_loop::RULE,
    connection_limit::RULE,
    not_accepted::RULE,
    slows_with_time::RULE,
    stalls::RULE,
    slow_requests::RULE,
    forks::RULE,
    restarts::RULE,
    garbage_collection::RULE,
    page_faults::RULE,
    tls_handshakes::RULE,
    background::RULE,
    scalable_select::RULE,
    spin::RULE,
    memory_bound::RULE,
    interrupts::RULE,
    conntrack::RULE,
    dropped_packets::RULE,
    receive_budget::RULE,
    loss::RULE,
    backlog::RULE,
    time_wait::RULE,
    bandwidth::RULE,
    own_limit::RULE,
    leak::RULE,
];
