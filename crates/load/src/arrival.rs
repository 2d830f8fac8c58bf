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
