//! Exact mean value analysis of closed networks with several classes (Reiser and Lavenberg, 1980; Lazowska, Zahorjan,
//! Graham and Sevcik, Quantitative System Performance, 1984, chapters 6 and 7): single servers and delays.
//!
//! The recursion visits every population vector. Only two planes of the last class's dimension are kept, so memory is the
//! product of the other classes' populations.

use super::network::{Class, NetworkError, Service, Solution, Station, check_closed, solution};

/// Population vectors that are visited at most: about 2 s of work.
pub const MOST_STATES: u64 = 50_000_000;

/// Solves a closed network of single servers and delays exactly.
///
/// # Errors
/// [`NetworkError::TooLarge`] beyond [`MOST_STATES`]; [`NetworkError::Unsupported`] for several servers or load
/// dependence, which [`super::convolution`] covers for one class.
pub fn closed(stations: &[Station], classes: &[Class]) -> Result<Solution, NetworkError> {
    check_closed(stations, classes)?;
    for station in stations {
        if !station.is_single() && station.service != Service::Delay {
            let why = "the exact solution of several classes covers single servers and delays; use the approximate one";
            return Err(NetworkError::Unsupported { station: station.name.clone(), why });
        }
    }
    let states: f64 = classes.iter().map(|class| class.population as f64 + 1.0).product();
    if states > MOST_STATES as f64 {
        return Err(NetworkError::TooLarge { states, most: MOST_STATES });
    }
    Ok(Recursion::new(stations, classes).run())
}

struct Recursion<'a> {
    stations: &'a [Station],
    classes: &'a [Class],
    /// Classes in the order of the recursion: the largest population is the outermost.
    order: Vec<usize>,
    /// Distance in a plane between neighbours of each inner class.
    strides: Vec<usize>,
    /// The queueing stations, and their demands `[class in order][queue]`.
    queues: Vec<usize>,
    demands: Vec<Vec<f64>>,
    /// Demands at delays and think time, by class in order.
    pauses: Vec<f64>,
    plane_len: usize,
}

impl<'a> Recursion<'a> {
    fn new(stations: &'a [Station], classes: &'a [Class]) -> Self {
        let mut order: Vec<usize> = (0..classes.len()).collect();
        order.sort_by_key(|class| classes[*class].population);
        let queues: Vec<usize> = (0..stations.len()).filter(|k| stations[*k].is_single()).collect();
        let mut strides = Vec::new();
        let mut plane_len = 1;
        for class in &order[..order.len() - 1] {
            strides.push(plane_len);
            plane_len *= classes[*class].population as usize + 1;
        }
        let demands = order.iter().map(|c| queues.iter().map(|k| stations[*k].demands_s[*c]).collect()).collect();
        let pause = |class: &usize| {
            let delays = stations.iter().filter(|station| !station.is_single());
            classes[*class].think_s + delays.map(|station| station.demands_s[*class]).sum::<f64>()
        };
        let pauses = order.iter().map(pause).collect();
        Recursion { stations, classes, order, strides, queues, demands, pauses, plane_len }
    }

    fn run(&self) -> Solution {
        let (inner, width) = (self.order.len() - 1, self.queues.len());
        let outer = self.classes[self.order[inner]].population as usize;
        // Queue lengths of all classes together, [population of the inner classes][queue].
        let mut before = vec![0.0; self.plane_len * width];
        let mut plane = vec![0.0; self.plane_len * width];
        let mut counts = vec![0usize; inner];
        let mut residence = vec![0.0; width];
        let mut throughput = vec![0.0; self.order.len()];
        for n in 0..=outer {
            counts.fill(0);
            for at in 0..self.plane_len {
                let (done, rest) = plane.split_at_mut(at * width);
                let queue = &mut rest[..width];
                queue.fill(0.0);
                for class in 0..=inner {
                    let count = if class == inner { n } else { counts[class] };
                    if count == 0 {
                        continue;
                    }
                    let less = if class == inner {
                        &before[at * width..][..width]
                    } else {
                        &done[(at - self.strides[class]) * width..][..width]
                    };
                    let demands = &self.demands[class];
                    let mut cycle = self.pauses[class];
                    for k in 0..width {
                        residence[k] = demands[k] * (1.0 + less[k]);
                        cycle += residence[k];
                    }
                    let rate = count as f64 / cycle;
                    throughput[class] = rate;
                    for k in 0..width {
                        queue[k] += rate * residence[k];
                    }
                }
                if at + 1 < self.plane_len {
                    self.advance(&mut counts);
                }
            }
            if n < outer {
                std::mem::swap(&mut before, &mut plane);
            }
        }
        self.last(&before, &plane, &throughput)
    }

    fn advance(&self, counts: &mut [usize]) {
        for (at, count) in counts.iter_mut().enumerate() {
            if (*count as u64) < self.classes[self.order[at]].population {
                *count += 1;
                return;
            }
            *count = 0;
        }
    }

    /// Residence times of each class at the full population, from the populations with one customer less.
    fn last(&self, before: &[f64], plane: &[f64], throughput: &[f64]) -> Solution {
        let (inner, width) = (self.order.len() - 1, self.queues.len());
        let end = self.plane_len - 1;
        let mut rates = vec![0.0; self.classes.len()];
        let mut residence = vec![vec![0.0; self.stations.len()]; self.classes.len()];
        for (position, class) in self.order.iter().enumerate() {
            if self.classes[*class].population == 0 {
                continue;
            }
            let less = if position == inner {
                &before[end * width..][..width]
            } else {
                &plane[(end - self.strides[position]) * width..][..width]
            };
            rates[*class] = throughput[position];
            for (k, station) in self.stations.iter().enumerate() {
                residence[*class][k] = match self.queues.iter().position(|queue| *queue == k) {
                    Some(queue) => station.demands_s[*class] * (1.0 + less[queue]),
                    None => station.demands_s[*class],
                };
            }
        }
        solution(self.stations, rates, residence)
    }
}
