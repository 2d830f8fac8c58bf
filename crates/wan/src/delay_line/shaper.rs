//! The fate of packets. Each direction has one shaper, which knows no packet contents, clock or kernel.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use record::PathPlan;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketFate {
    Due(u64),
    Lost,
    /// The link's queue is full.
    Dropped,
}

/// Decides fates in the order of the packets. Due times never decrease, because the path does not reorder.
///
/// Loss comes first, then a link with a queue, then the delay. netem with a rate (net/sched/sch_netem.c) delays
/// before the link; with a constant delay the result is equal.
#[derive(Debug)]
pub struct Shaper {
    delay_ns: u64,
    /// A packet is lost if a uniform 64-bit number is below this.
    loss_below: u64,
    losses: ChaCha8Rng,
    ns_per_byte: f64,
    queue_ns: u64,
    /// The time when the link will have sent its queue.
    link_is_free_ns: u64,
    last_due_ns: u64,
}

impl Shaper {
    /// Directions 0 and 1 lose different packets.
    pub fn new(plan: &PathPlan, direction: u64) -> Self {
        let ns_per_byte = match plan.bandwidth_bits_per_sec {
            0 => 0.0,
            bandwidth => 8e9 / bandwidth as f64,
        };
        let mut losses = ChaCha8Rng::seed_from_u64(plan.seed);
        losses.set_stream(direction);
        Shaper {
            delay_ns: plan.delay_ns,
            loss_below: (plan.loss_ratio * 2f64.powi(64)) as u64,
            losses,
            ns_per_byte,
            queue_ns: (plan.queue_bytes as f64 * ns_per_byte) as u64,
            link_is_free_ns: 0,
            last_due_ns: 0,
        }
    }

    /// Sets the delay of later packets, which never overtake earlier ones.
    pub fn set_delay(&mut self, delay_ns: u64, queue_bytes: u64) {
        self.delay_ns = delay_ns;
        self.queue_ns = (queue_bytes as f64 * self.ns_per_byte) as u64;
    }

    pub fn fate(&mut self, now_ns: u64, bytes: usize) -> PacketFate {
        if self.loss_below > 0 && self.losses.next_u64() < self.loss_below {
            return PacketFate::Lost;
        }
        let begins_ns = self.link_is_free_ns.max(now_ns);
        if begins_ns - now_ns > self.queue_ns {
            return PacketFate::Dropped;
        }
        self.link_is_free_ns = begins_ns + (bytes as f64 * self.ns_per_byte).round() as u64;
        self.last_due_ns = self.last_due_ns.max(self.link_is_free_ns + self.delay_ns);
        PacketFate::Due(self.last_due_ns)
    }
}
