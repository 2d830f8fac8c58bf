//! The intended send times of an open loop: a pure function of rate, distribution and seed. The server's handling of
//! earlier requests cannot move a later one, which prevents coordinated omission.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Exp1};
use record::{Arrival, LoadShare};

/// The intended send times of one thread, in order, each in `[start_ns, end_ns)`.
///
/// Constant arrivals are dealt in turn, so that the threads together keep equal gaps. Poisson arrivals are independent
/// streams of `rate / threads` each, which add up to a Poisson process of the full rate.
pub struct Schedule<'a> {
    gaps: Gaps<'a>,
    start_ns: u64,
    end_ns: u64,
    next_ns: Option<u64>,
}

enum Gaps<'a> {
    Constant {
        next: u64,
        share: LoadShare,
        gap_ns: f64,
    },
    Poisson(Poisson),
    /// Poisson arrivals up to `begin_ns`, then given times relative to `begin_ns`.
    Given {
        before: Option<Poisson>,
        begin_ns: u64,
        times: Box<dyn Iterator<Item = u64> + Send + 'a>,
    },
}

struct Poisson {
    offset_ns: f64,
    mean_gap_ns: f64,
    rng: Box<ChaCha8Rng>,
}

impl Poisson {
    fn new(mean_gap_ns: f64, seed: u64, stream: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream);
        Poisson { offset_ns: 0.0, mean_gap_ns, rng: Box::new(rng) }
    }

    fn next_offset(&mut self) -> f64 {
        let draw: f64 = Exp1.sample(&mut self.rng);
        self.offset_ns += draw * self.mean_gap_ns;
        self.offset_ns
    }
}

impl<'a> Schedule<'a> {
    /// The arrivals of one thread. `rate_per_sec` is the rate of all threads of all machines, positive and finite.
    /// All but constant arrivals become a Poisson process; [`Schedule::given`] takes other arrivals.
    pub fn new(rate_per_sec: f64, arrival: Arrival, seed: u64, share: LoadShare, start_ns: u64, end_ns: u64) -> Self {
        let gap_ns = 1e9 / rate_per_sec;
        let gaps = match arrival {
            Arrival::Constant => Gaps::Constant { next: 0, share, gap_ns },
            Arrival::Poisson | Arrival::Series | Arrival::Trace => {
                Gaps::Poisson(Poisson::new(gap_ns / share.fraction(), seed, u64::from(share.index)))
            }
        };
        Schedule::from_gaps(gaps, start_ns, end_ns)
    }

    /// Given arrivals of one thread, in nanoseconds since the window's begin, never decreasing. The warm-up has Poisson
    /// arrivals of the same mean rate. `span`: start, begin and end.
    pub fn given(
        rate_per_sec: f64,
        seed: u64,
        share: LoadShare,
        (start_ns, begin_ns, end_ns): (u64, u64, u64),
        times: Box<dyn Iterator<Item = u64> + Send + 'a>,
    ) -> Self {
        // A separate random stream, because the given times may come from the first one.
        let before = Poisson::new(1e9 / rate_per_sec / share.fraction(), seed, 1 << 33 | u64::from(share.index));
        Schedule::from_gaps(Gaps::Given { before: Some(before), begin_ns, times }, start_ns, end_ns)
    }

    fn from_gaps(gaps: Gaps<'a>, start_ns: u64, end_ns: u64) -> Self {
        let mut schedule = Schedule { gaps, start_ns, end_ns, next_ns: None };
        schedule.next_ns = schedule.compute();
        schedule
    }

    /// The next intended send, without removing it; `None` at the end.
    #[inline]
    pub fn peek(&self) -> Option<u64> {
        self.next_ns
    }

    /// Removes the arrivals at or after `end_ns`.
    pub fn cut(&mut self, end_ns: u64) {
        self.end_ns = self.end_ns.min(end_ns);
        self.next_ns = self.next_ns.filter(|next| *next < self.end_ns);
    }

    fn compute(&mut self) -> Option<u64> {
        let offset_ns = match &mut self.gaps {
            Gaps::Constant { next, share, gap_ns } => {
                let (round, place) = (*next / u64::from(share.parts), *next % u64::from(share.parts));
                *next += 1;
                // Multiply instead of adding up gaps: rounding must not shift the rate in a long run.
                (round * u64::from(share.of) + u64::from(share.index) + place) as f64 * *gap_ns
            }
            Gaps::Poisson(poisson) => poisson.next_offset(),
            Gaps::Given { before, begin_ns, times } => {
                if let Some(poisson) = before {
                    let at = self.start_ns.saturating_add(poisson.next_offset() as u64);
                    if at < *begin_ns {
                        return (at < self.end_ns).then_some(at);
                    }
                    *before = None;
                }
                let at = begin_ns.saturating_add(times.next()?);
                return (at < self.end_ns).then_some(at);
            }
        };
        // A float beyond u64 saturates, so it is after every end.
        let at = self.start_ns.saturating_add(offset_ns as u64);
        (at < self.end_ns).then_some(at)
    }
}

impl Iterator for Schedule<'_> {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        let taken = self.next_ns?;
        self.next_ns = self.compute();
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn constant_arrivals_do_not_drift() {
        let times: Vec<u64> =
            Schedule::new(3.0, Arrival::Constant, 1, LoadShare::WHOLE, 1_000, 1_000 + 1_000_000_000_000).collect();
        assert_eq!(times.len(), 3000);
        assert_eq!(times[0], 1_000);
        assert_eq!(times[2997], 1_000 + 999_000_000_000);
    }

    #[test]
    fn all_threads_of_several_machines_keep_the_constant_gap() {
        let machines = LoadShare::by_weight(&[1, 3, 2]);
        let mut all: Vec<u64> = Vec::new();
        for (machine, of) in machines.into_iter().zip([1, 3, 2]) {
            for thread in 0..of {
                let share = LoadShare::one(thread, of).within(machine);
                all.extend(Schedule::new(1000.0, Arrival::Constant, 9, share, 0, 1_000_000_000));
            }
        }
        all.sort_unstable();
        assert_eq!(all, (0..1000).map(|n| n * 1_000_000).collect::<Vec<u64>>());
    }

    #[test]
    fn poisson_gaps_have_the_mean_and_spread_of_an_exponential() {
        let times: Vec<u64> =
            Schedule::new(10_000.0, Arrival::Poisson, 7, LoadShare::WHOLE, 0, 20_000_000_000).collect();
        let n = times.len() as f64;
        // 200,000 expected with a standard deviation of 447; the tolerance is six of them.
        assert!((n - 200_000.0).abs() < 6.0 * 447.0, "{n}");
        let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.02, "coefficient of variation {}", variance.sqrt() / mean);
    }

    #[test]
    fn given_times_begin_with_the_window_and_the_warm_up_has_other_times() {
        let times = Box::new((0..100u64).map(|n| n * 10_000_000));
        let span = (500, 1_000_000_500, 2_000_000_500);
        let all: Vec<u64> = Schedule::given(1000.0, 1, LoadShare::WHOLE, span, times).collect();
        assert!(all.windows(2).all(|pair| pair[0] <= pair[1]));
        let window: Vec<u64> = all.iter().copied().filter(|at| *at >= span.1).collect();
        assert_eq!(window, (0..100).map(|n| span.1 + n * 10_000_000).collect::<Vec<_>>());
        // 1,000 expected in the warm-up with a standard deviation of 32; the tolerance is six of them.
        assert!((all.len() - window.len()).abs_diff(1000) < 192, "{}", all.len() - window.len());
    }

    #[test]
    fn a_seed_repeats_the_arrivals_and_threads_have_different_ones() {
        let make = |seed, index| -> Vec<u64> {
            Schedule::new(100.0, Arrival::Poisson, seed, LoadShare::one(index, 2), 0, 1_000_000_000).collect()
        };
        assert_eq!(make(5, 0), make(5, 0));
        assert_ne!(make(5, 0), make(5, 1));
        assert_ne!(make(5, 0), make(6, 0));
    }

    proptest! {
        #[test]
        fn times_are_ordered_and_within_the_duration(
            rate in 0.01f64..1e6,
            poisson: bool,
            seed: u64,
            index in 0u32..4,
            span in 0u64..50_000_000,
        ) {
            let arrival = if poisson { Arrival::Poisson } else { Arrival::Constant };
            let start = 123_456;
            let mut last = start;
            for at in Schedule::new(rate, arrival, seed, LoadShare::one(index, 4), start, start + span) {
                prop_assert!(at >= last && at < start + span);
                last = at;
            }
        }

        #[test]
        fn cutting_keeps_the_earlier_arrivals(cut in 0u64..2_000_000) {
            let whole: Vec<u64> = Schedule::new(1e5, Arrival::Poisson, 3, LoadShare::WHOLE, 0, 1_000_000).collect();
            let mut schedule = Schedule::new(1e5, Arrival::Poisson, 3, LoadShare::WHOLE, 0, 1_000_000);
            schedule.cut(cut);
            let kept: Vec<u64> = schedule.collect();
            let expected: Vec<u64> = whole.into_iter().filter(|at| *at < cut).collect();
            prop_assert_eq!(kept, expected);
        }
    }
}
