//! Default values of options. Help texts quote them by name, e.g. `[default: {budget}]`, so they cannot differ from
//! the code.

use crate::quantity::{Bytes, Share};
use analyze::sweep;
use record::Criteria;
use std::time::Duration;

pub trait AsTyped {
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
        // No default has more than two decimals.
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

pub fn typed(time: &Duration) -> String {
    time.as_typed()
}

macro_rules! defaults {
    ($($(#[doc = $doc:literal])* $name:ident: $type:ty = $value:expr;)+) => {
        $($(#[doc = $doc])* pub const $name: $type = $value;)+

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
    /// Folder for runs without --out.
    RUNS: &str = "runs";
    /// Connections of a closed loop.
    CONNECTIONS: u64 = 10;
    /// Most connections of an open loop of `load`.
    OPEN_LOOP_CONNECTIONS: u64 = 256;
    /// Window of `load`.
    DURATION: Duration = seconds(10);
    /// Warm-up of `load`.
    WARMUP: Duration = seconds(1);
    /// Duration of a point of `find`.
    POINT_DURATION: Duration = seconds(1);
    TIMEOUT: Duration = seconds(10);
    CONNECT_TIMEOUT: Duration = seconds(5);
    /// Timeout of a connection attempt on an axis of rates (Banga and Druschel 1997).
    OVERLOAD_CONNECT_TIMEOUT: Duration = milliseconds(500);
    SEED: u64 = 1;
    SERVER_TIMEOUT: Duration = seconds(10);
    /// Share of the server's CPU time that watching may cost.
    OVERHEAD: Share = Share(0.01);
    DYNAMIC_SHARE: Share = Share(0.3);
    /// Bounds of the response classes of `observe`.
    RESPONSE_CLASSES: &str = "10KiB,50KiB,640KiB";
    TRACE_FORMAT: &str = "auto";
    /// A longer gap in the log ends a connection.
    SESSION_GAP: Duration = seconds(15);
    /// Share of the requested bandwidth that a connection must get, as in SPECweb99: 320 of 400 kbit/s.
    DEMANDED_SHARE: Share = Share(0.8);

    IN_FLIGHT: u64 = 1;
    KEYS: u64 = 10_000;
    /// Length of the values of Redis and memcached.
    VALUE_SIZE: Bytes = Bytes(100);
    /// Share of requests to Redis and memcached that read.
    READ_SHARE: Share = Share(0.9);
    KEYS_PER_GET: u64 = 1;
    /// End of a response over TCP.
    EXPECT: &str = "line";

    /// Fewest connections of `find`'s closed loop.
    MIN_CONNECTIONS: u64 = 1;
    /// Most connections of `find`'s closed loop.
    MAX_CONNECTIONS: u64 = 4096;
    /// Connections of `find`'s open loop.
    OPEN_CONNECTIONS: u64 = 1024;
    BUDGET: Duration = seconds(90);
    /// Time limit of `find --until-sure`.
    UNTIL_SURE_BUDGET: Duration = seconds(1800);
    /// Duration of `find --beside`: five rounds of loads from 1 to 4,096 connections, without and with the command.
    BESIDE_BUDGET: Duration = seconds(240);
    /// Time for the command of `find --beside` to start or end.
    SETTLE: Duration = seconds(2);
    REPEATS: u64 = 5;
    /// Minimum rounds of a comparison; a budget of two minutes or more allows twice as many.
    ROUNDS: u64 = 6;
    /// Highest rate of an axis, as a multiple of the capacity.
    OVERLOAD: u64 = 3;
    /// Places that the axis slow-down delays.
    PLACES: &str = "receive,send,wake-up,request";
    CONFORMING_SHARE: Share = Share(1.0);
    THRESHOLD: Share = Share(analyze::compare::THRESHOLD_RATIO);

    /// Time between readings of `watch`.
    INTERVAL: Duration = seconds(1);
    /// Time between the readings of `watch` from the machine's counters.
    SYSTEM_INTERVAL: Duration = observe::watch::intervals::DEFAULT;

    PROFILE_DURATION: Duration = seconds(10);
    /// Duration of a point of `profile --axis`.
    PROFILE_POINT: Duration = seconds(4);
    /// Duration of all bursts of exact accounting.
    EXACT_DURATION: Duration = seconds(1);
    FREQUENCY: u64 = 997;
    /// Duration of `profile --axis`: enough for five values.
    PROFILE_BUDGET: Duration = seconds(175);
    /// Connections of `profile --axis`, up to the usual limit of web servers.
    PROFILE_CONNECTIONS: &[u64] = &[4, 32, 128, 512, 1024];
    /// Connections while `profile --axis` varies another quantity.
    PROFILE_HELD_CONNECTIONS: u64 = 256;
    /// Delays of `profile --axis`: those in Figure 6 of Kim and Rixner (2005).
    PROFILE_DELAYS: &[Duration] =
        &[seconds(0), milliseconds(5), milliseconds(10), milliseconds(20), milliseconds(40)];

    /// CPUs that Ray reserves for a worker.
    WORKER_CPUS: u64 = 1;
    /// Timeout for nodes and their workers.
    NODE_TIMEOUT: Duration = seconds(60);
    /// Python that has Ray.
    PYTHON: &str = "python3";
    /// Maximum bytes that `files` writes.
    LIMIT: Bytes = Bytes(10 << 30);
}

/// The value of each lower-case name in help texts.
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
