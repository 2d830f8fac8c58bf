//! The fate of packets. Each direction has one shaper, which knows no packet contents, clock or kernel.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use record::PathPlan;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PacketFate {
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
pub(crate) struct Shaper {
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
    pub(crate) fn new(plan: &PathPlan, direction: u64) -> Self {
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
    pub(crate) fn set_delay(&mut self, delay_ns: u64, queue_bytes: u64) {
        self.delay_ns = delay_ns;
        self.queue_ns = (queue_bytes as f64 * self.ns_per_byte) as u64;
    }

    pub(crate) fn fate(&mut self, now_ns: u64, bytes: usize) -> PacketFate {
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

#[cfg(test)]
mod tests {
    use super::*;
    use record::PathMechanism;

    fn plan(delay_ms: u64, loss_ratio: f64, bandwidth: u64) -> PathPlan {
        let delay_ns = delay_ms * 1_000_000;
        PathPlan {
            delay_ns,
            loss_ratio,
            bandwidth_bits_per_sec: bandwidth,
            queue_bytes: PathPlan::default_queue_bytes(delay_ns, bandwidth),
            mechanism: PathMechanism::TunDelayLine,
            ..PathPlan::default()
        }
    }

    #[test]
    fn a_pure_delay_moves_every_packet_by_the_same_time() {
        let mut shaper = Shaper::new(&plan(20, 0.0, 0), 0);
        for now in [0, 5, 5, 1_000_000] {
            assert_eq!(shaper.fate(now, 1500), PacketFate::Due(now + 20_000_000));
        }
    }

    #[test]
    fn a_link_passes_its_bandwidth_and_drops_packets_beyond_its_queue() {
        // At 12 Mbit/s a packet of 1500 bytes takes 1 ms. The queue holds 50 ms, which is 50 packets.
        let mut shaper = Shaper::new(&plan(10, 0.0, 12_000_000), 0);
        let fates: Vec<PacketFate> = (0..60).map(|_| shaper.fate(0, 1500)).collect();
        for (index, fate) in fates.iter().enumerate() {
            let due = PacketFate::Due(10_000_000 + (index as u64 + 1) * 1_000_000);
            assert_eq!(*fate, if index <= 50 { due } else { PacketFate::Dropped });
        }
        assert_eq!(
            shaper.fate(200_000_000, 1500),
            PacketFate::Due(211_000_000),
            "an idle link has forgotten its queue"
        );
    }

    #[test]
    fn packets_with_a_shorter_delay_do_not_overtake_earlier_ones() {
        let mut shaper = Shaper::new(&plan(20, 0.0, 0), 0);
        assert_eq!(shaper.fate(0, 100), PacketFate::Due(20_000_000));
        shaper.set_delay(1_000_000, 0);
        assert_eq!(shaper.fate(1, 100), PacketFate::Due(20_000_000));
        assert_eq!(shaper.fate(30_000_000, 100), PacketFate::Due(31_000_000));
    }

    #[test]
    fn a_shorter_delay_fills_no_queue() {
        // At 12 Mbit/s and 100 ms, packets in transit are not in the queue, which therefore holds few.
        let mut shaper = Shaper::new(&plan(100, 0.0, 12_000_000), 0);
        assert_eq!(shaper.fate(0, 1500), PacketFate::Due(101_000_000));
        shaper.set_delay(1_000_000, 30_000);
        assert_eq!(shaper.fate(2_000_000, 1500), PacketFate::Due(101_000_000));
        assert_eq!(shaper.fate(99_900_000, 1500), PacketFate::Due(101_900_000));
    }

    #[test]
    fn losses_repeat_with_the_seed_and_differ_between_directions() {
        let lost = |direction, seed| -> Vec<bool> {
            let mut shaper = Shaper::new(&PathPlan { seed, ..plan(0, 0.1, 0) }, direction);
            (0..2000).map(|now| shaper.fate(now, 100) == PacketFate::Lost).collect()
        };
        assert_eq!(lost(0, 7), lost(0, 7));
        assert_ne!(lost(0, 7), lost(1, 7));
        assert_ne!(lost(0, 7), lost(0, 8));
        let count = lost(0, 7).iter().filter(|lost| **lost).count() as f64;
        // Four standard deviations of a binomial distribution of 2000 at 0.1.
        assert!((count - 200.0).abs() < 4.0 * (2000.0 * 0.1 * 0.9f64).sqrt(), "{count} of 2000 lost at 10 %");
    }
}
