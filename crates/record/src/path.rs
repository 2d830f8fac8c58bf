//! The emulated wide-area path between client and server, with the same settings for each direction.

use crate::units::{exact_percent, format_bits_per_sec, format_nanos};
use serde::{Deserialize, Serialize};

/// The longest one-way delay: 10 s, several times that of the longest terrestrial and satellite paths.
pub const MAX_DELAY_NS: u64 = 10_000_000_000;
/// The slowest link, bits per second; a full packet on a slower one takes more than 12 s.
pub const MIN_BANDWIDTH_BITS_PER_SEC: u64 = 1_000;
/// The fastest limited link, bits per second.
pub const MAX_BANDWIDTH_BITS_PER_SEC: u64 = 100_000_000_000;

/// The largest IP packet of the path, bytes.
pub const MTU_BYTES: u64 = 1500;

crate::worded! {
    /// The mechanism that makes the path.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum PathMechanism {
        /// The kernel's netem queueing discipline on both ends of the link.
        Netem = "netem",
        /// A straingauge thread between two TUN devices.
        TunDelayLine = "TUN delay line",
        /// The bare link, without delay, loss or limit.
        Link = "bare link",
        /// A mechanism that this version does not know.
        #[serde(other)]
        Other = "unknown mechanism",
    }
}

/// A resolved path. Every quantity applies to each direction separately.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PathPlan {
    /// One-way delay, nanoseconds; a round trip takes twice as long.
    pub delay_ns: u64,
    /// Share of the packets that are lost, independently of each other (0.001 = 0.1 %).
    pub loss_ratio: f64,
    /// Bandwidth in bits of IP packets per second; 0 = not limited.
    pub bandwidth_bits_per_sec: u64,
    /// Bytes that may wait for the link before further ones are dropped; 0 if the bandwidth is not limited.
    pub queue_bytes: u64,
    /// Whether both ends acknowledge every segment at once (no delayed ACKs).
    pub quickack: bool,
    /// Seed of the losses.
    pub seed: u64,
    /// The mechanism that makes the path.
    pub mechanism: PathMechanism,
}

impl Default for PathPlan {
    fn default() -> Self {
        PathPlan {
            delay_ns: 0,
            loss_ratio: 0.0,
            bandwidth_bits_per_sec: 0,
            queue_bytes: 0,
            quickack: false,
            seed: 1,
            mechanism: PathMechanism::Link,
        }
    }
}

/// The reason why a path is not possible.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PathError {
    /// The delay is too long.
    #[error("a delay of {} is too long: a path has at most {} in each \
             direction", format_nanos(*.0 as f64), format_nanos(MAX_DELAY_NS as f64))]
    Delay(u64),
    /// Nothing would arrive, or the value is not a share.
    #[error("a loss of {} is not possible: give at least 0% and less than 100%", exact_percent(*.0))]
    Loss(f64),
    /// The bandwidth is outside of the emulated range.
    #[error(
        "a bandwidth of {0} bit/s is not possible: give at least 1kbit and at most 100Gbit, or leave it out for no \
         limit"
    )]
    Bandwidth(u64),
}

impl PathPlan {
    /// The default queue of a link: the data that passes it in twice the delay (a round trip), or in 50 ms if that is
    /// longer, and at least 20 full packets.
    pub fn default_queue_bytes(delay_ns: u64, bandwidth_bits_per_sec: u64) -> u64 {
        if bandwidth_bits_per_sec == 0 {
            return 0;
        }
        let seconds = (2.0 * delay_ns as f64 / 1e9).max(0.05);
        (bandwidth_bits_per_sec as f64 / 8.0 * seconds).round().max((20 * MTU_BYTES) as f64) as u64
    }

    /// Refuses impossible values.
    pub fn check(&self) -> Result<(), PathError> {
        if self.delay_ns > MAX_DELAY_NS {
            return Err(PathError::Delay(self.delay_ns));
        }
        if !(0.0..1.0).contains(&self.loss_ratio) {
            return Err(PathError::Loss(self.loss_ratio));
        }
        let bandwidth = self.bandwidth_bits_per_sec;
        if bandwidth != 0 && !(MIN_BANDWIDTH_BITS_PER_SEC..=MAX_BANDWIDTH_BITS_PER_SEC).contains(&bandwidth) {
            return Err(PathError::Bandwidth(bandwidth));
        }
        Ok(())
    }

    /// Whether packets are delayed, lost or limited, so that a mechanism is needed.
    pub fn shapes_packets(&self) -> bool {
        self.delay_ns > 0 || self.loss_ratio > 0.0 || self.bandwidth_bits_per_sec > 0
    }

    /// Whether the path has only a delay, so that several segments may cross as one packet.
    pub fn is_pure_delay(&self) -> bool {
        self.loss_ratio == 0.0 && self.bandwidth_bits_per_sec == 0
    }

    /// The round trip of an IP packet of `bytes` with a response of the same size, on an idle path, nanoseconds.
    pub fn round_trip_ns(&self, bytes: u64) -> f64 {
        let serialisation = match self.bandwidth_bits_per_sec {
            0 => 0.0,
            bandwidth => bytes as f64 * 8e9 / bandwidth as f64,
        };
        2.0 * (self.delay_ns as f64 + serialisation)
    }

    /// The round trip of a full packet with a response of the same size, nanoseconds. Timeouts for an exchange across
    /// the path must allow for it.
    pub fn full_round_trip_ns(&self) -> u64 {
        self.round_trip_ns(MTU_BYTES) as u64
    }

    /// Describes the path: `20 ms each way (round trip 40 ms), loss 0.1 %, 100 Mbit/s, quick ACKs, by TUN delay
    /// line`.
    pub fn description(&self) -> String {
        let mut parts = Vec::new();
        if self.delay_ns > 0 {
            let round_trip = format_nanos(2.0 * self.delay_ns as f64);
            parts.push(format!("{} each way (round trip {round_trip})", format_nanos(self.delay_ns as f64)));
        }
        if self.loss_ratio > 0.0 {
            parts.push(format!("loss {}", exact_percent(self.loss_ratio)));
        }
        if self.bandwidth_bits_per_sec > 0 {
            parts.push(format_bits_per_sec(self.bandwidth_bits_per_sec as f64));
        }
        if parts.is_empty() {
            parts.push("no delay, loss or limit".into());
        }
        if self.quickack {
            parts.push("quick ACKs".into());
        }
        parts.push(format!("by {}", self.mechanism.word()));
        parts.join(", ")
    }
}
