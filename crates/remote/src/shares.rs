use load::{LoadResult, MOST_CONNECTIONS};
use record::{DoubtKind, LoadShare};

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
pub fn divide(capacities: &[Option<f64>], connections: u64) -> Vec<LoadShare> {
    let by_capacity = weights(capacities).map(|weights| LoadShare::by_weight(&weights));
    by_capacity
        .filter(|shares| shares.iter().all(|share| (1..=MOST_CONNECTIONS).contains(&share.part(connections))))
        .unwrap_or_else(|| LoadShare::by_weight(&vec![1; capacities.len()]))
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
