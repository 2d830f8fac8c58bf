use load::{LoadResult, MOST_CONNECTIONS};
use record::{DoubtKind, Share};

/// Shares are multiples of this fraction of the smallest one, so that speeds that differ by less than an eighth count
/// as equal. A yardstick is not more exact.
const STEP: f64 = 0.25;
/// A worker is behind if its lateness is this many times that of another.
const MUCH: f64 = 3.0;
const MOST: f64 = 1000.0;

/// Maximum number of shares. With 1,024 threads each, 32 bits suffice to number them.
const MOST_PARTS: u32 = 1 << 20;
/// Factor on the share of a worker that fell behind.
const RELIEF: f64 = 0.75;
const LEAST_WORTH: f64 = 0.25;

/// The worth of a worker after it fell behind.
pub fn relieved(worth: f64) -> f64 {
    (worth * RELIEF).max(LEAST_WORTH)
}

/// Shares in proportion to the capacities, in their order. All are equal if a capacity is unknown, or if a worker
/// would get no connection or more than it can hold.
pub fn divide(capacities: &[Option<f64>], connections: u64) -> Vec<Share> {
    let by_capacity = weights(capacities).map(|weights| Share::by_weight(&weights));
    by_capacity
        .filter(|shares| shares.iter().all(|share| (1..=MOST_CONNECTIONS).contains(&share.part(connections))))
        .unwrap_or_else(|| Share::by_weight(&vec![1; capacities.len()]))
}

fn weights(capacities: &[Option<f64>]) -> Option<Vec<u32>> {
    let known = capacities.iter().copied().collect::<Option<Vec<f64>>>()?;
    let least = known.iter().copied().fold(f64::INFINITY, f64::min);
    let steps = |capacity: &f64| ((capacity / least).min(MOST) / STEP).round() as u32;
    let weights: Vec<u32> = known.iter().map(steps).collect();
    let common = weights.iter().copied().fold(0, greatest_common_divisor);
    let parts: Vec<u32> = weights.iter().map(|weight| weight.checked_div(common)).collect::<Option<_>>()?;
    (parts.iter().sum::<u32>() <= MOST_PARTS).then_some(parts)
}

/// Lateness of a client in nanoseconds: 0 if it kept up, infinite if it ran out of CPU time.
pub fn lateness(result: &LoadResult) -> f64 {
    let has = |kind: DoubtKind| result.doubts.iter().any(|doubt| doubt.kind == kind);
    if has(DoubtKind::ClientSaturated) || has(DoubtKind::Steal) {
        return f64::INFINITY;
    }
    let lag = result.counts.times.own_lag.quantile_ns(0.99).filter(|_| has(DoubtKind::ScheduleLag));
    lag.unwrap_or(0) as f64
}

/// The workers that are much later than the least late one.
pub fn behind(lateness: &[f64]) -> Vec<usize> {
    let least = lateness.iter().copied().fold(f64::INFINITY, f64::min);
    (0..lateness.len()).filter(|place| lateness[*place] > MUCH * least).collect()
}

fn greatest_common_divisor(one: u32, other: u32) -> u32 {
    if other == 0 { one } else { greatest_common_divisor(other, one % other) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Capacity;
    use proptest::prelude::*;

    fn fractions(capacities: &[f64], connections: u64) -> Vec<f64> {
        let known: Vec<Option<f64>> = capacities.iter().copied().map(Some).collect();
        divide(&known, connections).into_iter().map(Share::fraction).collect()
    }

    #[test]
    fn shares_follow_the_capacity_and_equal_machines_get_equal_shares() {
        assert_eq!(fractions(&[4e9, 12e9], 100), [0.25, 0.75]);
        assert_eq!(fractions(&[4.1e9, 3.9e9, 4.2e9], 100), [1.0 / 3.0; 3]);
        assert_eq!(fractions(&[2e9, 3e9], 100), [0.4, 0.6]);
        assert_eq!(fractions(&[7e9], 1), [1.0]);
        assert_eq!(divide(&[Some(7e9)], 1), [Share::WHOLE]);
        assert_eq!(divide(&[Some(1e9), None], 9), [Share::one(0, 2), Share::one(1, 2)]);
        let unlike: Vec<Option<f64>> =
            (0..1100).map(|number| Some(if number == 0 { 1.0 } else { 1e9 + f64::from(number) })).collect();
        assert_eq!(divide(&unlike, 10_000_000)[1099], Share::one(1099, 1100), "so many parts no worker takes");
        assert_eq!(fractions(&[3e9, 1e9], 2), [0.5, 0.5]);
        assert_eq!(fractions(&[3e9, 1e9], 4), [0.75, 0.25]);
        assert_eq!(fractions(&[3e9, 1e9], 1_300_000), [0.75, 0.25]);
        assert_eq!(fractions(&[3e9, 1e9], 1_400_000), [0.5, 0.5], "one client holds a million");
    }

    #[test]
    fn a_worker_is_behind_if_it_is_late_and_another_is_not() {
        const NOBODY: [usize; 0] = [];
        let never = f64::INFINITY;
        assert_eq!(behind(&[0.0, 0.0]), NOBODY);
        assert_eq!(behind(&[0.0, 2e6, 0.0, never]), [1, 3]);
        assert_eq!(behind(&[1e6, 2e6, 9e7]), [2], "all are late on a busy machine");
        assert_eq!(behind(&[never, never]), NOBODY, "there is nobody else");
        assert_eq!(behind(&[5e6]), NOBODY);
        assert_eq!(behind(&[]), NOBODY);
    }

    proptest! {
        #[test]
        fn any_capacities_give_every_worker_a_share_of_the_whole(
            capacities in prop::collection::vec((any::<u32>(), any::<f64>()), 1..200), connections in 200u64..1_000_000
        ) {
            let total = |(cpus, speed_per_sec)| Capacity { cpus, speed_per_sec }.total();
            let totals: Vec<Option<f64>> = capacities.into_iter().map(total).collect();
            let shares = divide(&totals, connections);
            prop_assert_eq!(shares.len(), totals.len());
            prop_assert!(shares.iter().all(|share| share.exists() && share.part(connections) > 0));
            prop_assert_eq!(shares.iter().map(|share| share.part(connections)).sum::<u64>(), connections);
            prop_assert_eq!(shares.iter().map(|share| share.parts).sum::<u32>(), shares[0].of);
        }
    }
}
