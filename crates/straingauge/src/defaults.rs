//! The default values of options. The code uses these values, and help quotes them by name, as in
//! `[default: {budget}]`, so the two cannot differ.

use crate::quantity::{Bytes, Share};
use analyze::sweep;
use record::Criteria;
use std::time::Duration;

/// As it would be typed.
trait AsTyped {
    fn as_typed(&self) -> String;
}

impl AsTyped for u64 {
    fn as_typed(&self) -> String {
        self.to_string()
    }
}

impl AsTyped for &str {
    fn as_typed(&self) -> String {
        self.to_string()
    }
}

impl AsTyped for Duration {
    fn as_typed(&self) -> String {
        let ms = self.as_millis();
        if ms.is_multiple_of(1000) { format!("{}s", ms / 1000) } else { format!("{ms}ms") }
    }
}

impl AsTyped for Share {
    fn as_typed(&self) -> String {
        // Two decimals are more than any of them has.
        format!("{}%", (self.0 * 1e4).round() / 1e2)
    }
}

impl AsTyped for Bytes {
    fn as_typed(&self) -> String {
        match self.0 {
            bytes if bytes > 0 && bytes.is_multiple_of(1 << 30) => format!("{}GiB", bytes >> 30),
            bytes if bytes > 0 && bytes.is_multiple_of(1 << 20) => format!("{}MiB", bytes >> 20),
            bytes if bytes > 0 && bytes.is_multiple_of(1 << 10) => format!("{}KiB", bytes >> 10),
            bytes => bytes.to_string(),
        }
    }
}

impl<T: AsTyped> AsTyped for &[T] {
    fn as_typed(&self) -> String {
        self.iter().map(T::as_typed).collect::<Vec<_>>().join(",")
    }
}

/// A duration as it would be typed.
pub fn typed(time: &Duration) -> String {
    time.as_typed()
}

macro_rules! defaults {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty = $value:expr;)+) => {
        $($(#[doc = $doc])+ pub const $name: $type = $value;)+

        fn constants() -> Vec<(&'static str, String)> {
            vec![$((stringify!($name), $name.as_typed())),+]
        }
    };
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn milliseconds(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

defaults! {
    /// The folder of runs that are told no other place.
    RUNS: &str = "runs";
    /// Connections of a closed loop.
    CONNECTIONS: u64 = 10;
    /// Most connections of an open loop of `load`.
    OPEN_LOOP_CONNECTIONS: u64 = 256;
    /// Window of `load`.
    DURATION: Duration = seconds(10);
    /// Load before the window of `load`.
    WARMUP: Duration = seconds(1);
    /// Point of `find`.
    POINT_DURATION: Duration = seconds(1);
    /// Time for a response.
    TIMEOUT: Duration = seconds(10);
    /// Time for a connection attempt.
    CONNECT_TIMEOUT: Duration = seconds(5);
    /// The same for an axis of rates (Banga and Druschel 1997).
    OVERLOAD_CONNECT_TIMEOUT: Duration = milliseconds(500);
    /// Seed of what is random.
    SEED: u64 = 1;
    /// Time for a server to listen.
    SERVER_TIMEOUT: Duration = seconds(10);
    /// Share of the server's CPU time for watching it.
    OVERHEAD: Share = Share(0.01);
    /// Share of the requests for dynamic documents.
    DYNAMIC_SHARE: Share = Share(0.3);
    /// Largest sizes of the classes of documents: those of `workload`.
    CLASSES: &str = "64KiB,1MiB";
    /// Boundaries of the classes of responses: those of `observe`.
    RESPONSE_CLASSES: &str = "10KiB,50KiB,640KiB";
    /// Format of a log.
    TRACE_FORMAT: &str = "auto";
    /// Gap in a log that ends a connection.
    SESSION_GAP: Duration = seconds(15);
    /// Share of the bandwidth asked for that a connection must get: SPECweb99 demands 320 of 400 kbit/s.
    DEMANDED_SHARE: Share = Share(0.8);

    /// Requests in flight on a connection.
    IN_FLIGHT: u64 = 1;
    /// Keys of Redis and memcached.
    KEYS: u64 = 10_000;
    /// Length of their values.
    VALUE_SIZE: Bytes = Bytes(100);
    /// Share of the requests to them that read.
    READ_SHARE: Share = Share(0.9);
    /// Keys in each get of memcached.
    KEYS_PER_GET: u64 = 1;
    /// The end of an answer over TCP.
    EXPECT: &str = "line";

    /// Fewest connections of `find`'s closed loop.
    MIN_CONNECTIONS: u64 = 1;
    /// Most connections of `find`'s closed loop.
    MAX_CONNECTIONS: u64 = 4096;
    /// Connections of `find`'s open loop.
    OPEN_CONNECTIONS: u64 = 1024;
    /// Time of `find`.
    BUDGET: Duration = seconds(90);
    /// Time limit of `find --until-sure`.
    UNTIL_SURE_BUDGET: Duration = seconds(1800);
    /// Time of `find --beside`: five rounds of the loads from 1 to 4096 connections, without and with the command.
    BESIDE_BUDGET: Duration = seconds(240);
    /// Time that a command beside the server gets to start or to end.
    SETTLE: Duration = seconds(2);
    /// Repeats of a point.
    REPEATS: u64 = 5;
    /// Fewest rounds of a comparison; with a budget of two minutes and more, twice as many.
    ROUNDS: u64 = 6;
    /// Highest rate of an axis, as a multiple of the capacity.
    OVERLOAD: u64 = 3;
    /// Places that are slowed down.
    PLACES: &str = "receive,send,wake-up,request";
    /// Share of the connections that must conform.
    CONFORMING_SHARE: Share = Share(1.0);
    /// Regression threshold.
    THRESHOLD: Share = Share(analyze::compare::THRESHOLD_RATIO);

    /// Time between readings of `watch`.
    INTERVAL: Duration = seconds(1);
    /// Time between its readings of the machine's counters.
    SYSTEM_INTERVAL: Duration = observe::watch::intervals::DEFAULT;

    /// Window of `profile`.
    PROFILE_DURATION: Duration = seconds(10);
    /// Point of `profile --axis`.
    PROFILE_POINT: Duration = seconds(4);
    /// All bursts of exact accounting.
    EXACT_DURATION: Duration = seconds(1);
    /// Samples a second.
    FREQUENCY: u64 = 997;
    /// Time of `profile --axis`: enough for five values.
    PROFILE_BUDGET: Duration = seconds(175);
    /// Up to the most that a web server's usual limits allow.
    PROFILE_CONNECTIONS: &[u64] = &[4, 32, 128, 512, 1024];
    /// Held while something else is varied.
    PROFILE_HELD_CONNECTIONS: u64 = 256;
    /// As in Figure 6 of Kim and Rixner (2005).
    PROFILE_DELAYS: &[Duration] =
        &[seconds(0), milliseconds(5), milliseconds(10), milliseconds(20), milliseconds(40)];

    /// CPUs that Ray sets aside for a worker.
    WORKER_CPUS: u64 = 1;
    /// Time for nodes and their workers.
    NODE_TIMEOUT: Duration = seconds(60);
    /// Python that has Ray.
    PYTHON: &str = "python3";
    /// Most bytes that `files` makes.
    LIMIT: Bytes = Bytes(10 << 30);
}

/// The value of each name in help, in lower case.
pub fn options() -> Vec<(String, String)> {
    let criteria = Criteria::default();
    let counts = |values: &[f64]| values.iter().map(|value| value.to_string()).collect::<Vec<_>>().join(",");
    let more = [
        ("P99_LIMIT", Duration::from_nanos(criteria.p99_limit_ns).as_typed()),
        ("AXIS_IN_FLIGHT", counts(&sweep::IN_FLIGHT)),
        ("AXIS_COLD", counts(&sweep::COLD)),
        ("AXIS_TIME_WAIT", counts(&sweep::TIME_WAIT)),
        ("AXIS_SLOW_DOWN", sweep::SLOW_DOWN_RATIOS.map(|ratio| Share(ratio).as_typed()).join(",")),
        ("AXIS_DELAY", sweep::DELAYS_MS.map(|ms| Duration::from_millis(ms as u64).as_typed()).join(",")),
    ];
    constants().into_iter().chain(more).map(|(name, value)| (name.to_lowercase(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_they_would_be_typed() {
        assert_eq!((seconds(90).as_typed(), milliseconds(200).as_typed()), ("90s".into(), "200ms".into()));
        assert_eq!((Share(0.001).as_typed(), Share(0.07).as_typed()), ("0.1%".into(), "7%".into()));
        assert_eq!((Bytes(64 << 10).as_typed(), Bytes(100).as_typed()), ("64KiB".into(), "100".into()));
        assert_eq!((&[1u64, 2][..]).as_typed(), "1,2");
        assert_eq!(workload::mix::SizeClasses::parse(CLASSES), Ok(Default::default()));
        assert!(options().contains(&("p99_limit".into(), "100ms".into())));
    }
}
