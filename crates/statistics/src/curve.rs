//! Curves over load, compared within repeats: a blocked design, because the machine's speed drifts.
//!
//! Model: ln(value) = level of the load + level of the repeat + residual. Drift moves all points of a repeat together,
//! so it goes into the repeat's level; the remaining difference between loads is the effect of load. The model is
//! fitted by alternating weighted means with Huber weights, so one disturbed point has little influence.

use crate::median;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeSet;

/// A reading: a load, its repeat, a positive value and its weight.
#[derive(Debug, Clone, Copy)]
pub struct CurvePoint {
    /// Connections, or requests per second.
    pub load: f64,
    /// Number of the repeat.
    pub repeat: u32,
    /// The value, positive.
    pub value: f64,
    /// Share of a full-length point, less if it was disturbed.
    pub weight: f64,
    /// Relative precision of the value: 1, or less with few requests.
    pub precision: f64,
}

/// Iterations of the fit, and updates of the weights against outliers.
const ROUNDS: usize = 40;
const ROBUST_ROUNDS: usize = 4;

/// Share of the loads that a draw leaves out.
const LEFT_OUT: f64 = 0.2;

/// Position of a reading in the table of loads and repeats, and the logarithm of its value.
struct GridCell {
    load: usize,
    repeat: usize,
    value: f64,
    length: f64,
    precision: f64,
    weight: f64,
}

/// Sets each of `means` to the weighted mean of its cells' values minus the other side's level. `sides` returns a
/// cell's positions in `means` and in `others`.
fn means(cells: &[GridCell], means: &mut [f64], sides: impl Fn(&GridCell) -> (usize, usize), others: &[f64]) {
    let mut sums = vec![(0.0, 0.0); means.len()];
    for cell in cells {
        let (mine, other) = sides(cell);
        sums[mine].0 += cell.weight * (cell.value - others[other]);
        sums[mine].1 += cell.weight;
    }
    for (mean, (sum, weight)) in means.iter_mut().zip(sums) {
        *mean = sum / weight;
    }
}

/// Where a curve crosses a threshold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Crossing {
    /// The threshold is crossed at the lowest load already.
    Below,
    /// The threshold is crossed at this load.
    At(f64),
    /// The threshold is not crossed up to the highest load.
    Beyond,
}

/// One load of a fitted curve.
#[derive(Debug, Clone, Copy)]
pub struct FittedLoad {
    /// The load.
    pub load: f64,
    /// Logarithm of the value, without the repeats' levels.
    pub level: f64,
    /// As [`CurvePoint::precision`].
    pub precision: f64,
}

/// A fitted curve over ascending loads.
#[derive(Debug, Clone)]
pub struct BlockCurve {
    /// The loads, ascending.
    pub at: Vec<FittedLoad>,
    /// By load.
    residuals: Vec<f64>,
    /// Where the residuals of each load begin, and where the last ones end.
    begins: Vec<usize>,
    /// Repeats with at least two loads: only these separate the effect of load from drift.
    pub repeats: usize,
    /// Which of the equally good bends to choose: 0 the gentlest, 1 the sharpest.
    pub sharpness: f64,
}

impl BlockCurve {
    /// Fits the model. `None` without a usable reading. A zero counts as a millionth of the largest value.
    pub fn fit(readings: &[CurvePoint]) -> Option<Self> {
        let largest = readings.iter().map(|r| r.value).filter(|v| v.is_finite()).fold(0.0, f64::max);
        let usable: Vec<CurvePoint> = readings
            .iter()
            .filter(|r| r.load.is_finite() && r.load > 0.0 && r.value.is_finite() && r.value >= 0.0 && r.weight > 0.0)
            .map(|r| CurvePoint { value: r.value.max(largest * 1e-6).max(f64::MIN_POSITIVE).ln(), ..*r })
            .collect();
        if usable.is_empty() {
            return None;
        }
        let mut loads: Vec<f64> = usable.iter().map(|r| r.load).collect();
        loads.sort_by(f64::total_cmp);
        loads.dedup();
        let mut repeats: Vec<u32> = usable.iter().map(|r| r.repeat).collect();
        repeats.sort_unstable();
        repeats.dedup();
        let place =
            |r: &CurvePoint| (loads.partition_point(|load| *load < r.load), repeats.partition_point(|n| *n < r.repeat));
        let mut cells: Vec<GridCell> = usable
            .iter()
            .map(|r| {
                let (load, repeat) = place(r);
                GridCell {
                    load,
                    repeat,
                    value: r.value,
                    length: r.weight,
                    precision: r.precision,
                    weight: r.weight * r.precision,
                }
            })
            .collect();
        let (mut levels, mut shifts) = (vec![0.0; loads.len()], vec![0.0; repeats.len()]);
        for _ in 0..ROBUST_ROUNDS {
            for _ in 0..ROUNDS {
                means(&cells, &mut levels, |cell| (cell.load, cell.repeat), &shifts);
                means(&cells, &mut shifts, |cell| (cell.repeat, cell.load), &levels);
            }
            // Only differences are determined; the levels refer to the middle repeat.
            let middle = median(&shifts).unwrap_or(0.0);
            shifts.iter_mut().for_each(|shift| *shift -= middle);
            means(&cells, &mut levels, |cell| (cell.load, cell.repeat), &shifts);
            let residual = |cell: &GridCell| cell.value - levels[cell.load] - shifts[cell.repeat];
            let scatter = 1.5 * 1.4826 * median(cells.iter().map(|cell| residual(cell).abs())).unwrap_or(0.0);
            let weights: Vec<f64> = cells
                .iter()
                .map(|cell| {
                    cell.length * cell.precision * (scatter.max(1e-9) / residual(cell).abs().max(1e-12)).min(1.0)
                })
                .collect();
            cells.iter_mut().zip(weights).for_each(|(cell, weight)| cell.weight = weight);
        }
        let mut residuals = vec![Vec::new(); loads.len()];
        let fitted = |(load, level)| FittedLoad { load, level, precision: 0.0 };
        let mut at: Vec<FittedLoad> = loads.into_iter().zip(levels).map(fitted).collect();
        let mut seen = vec![BTreeSet::new(); repeats.len()];
        for cell in &cells {
            // A short point scatters more; the square root of its length scales this to the scatter of a full-length
            // point.
            let fitted = &mut at[cell.load];
            let residual = cell.value - fitted.level - shifts[cell.repeat];
            residuals[cell.load].push(residual * cell.length.min(1.0).sqrt());
            fitted.precision = fitted.precision.max(cell.precision);
            seen[cell.repeat].insert(cell.load);
        }
        let repeats = seen.iter().filter(|loads| loads.len() > 1).count();
        let mut begins = vec![0];
        begins.extend(residuals.iter().scan(0, |end, of_load: &Vec<f64>| {
            *end += of_load.len();
            Some(*end)
        }));
        Some(BlockCurve { at, residuals: residuals.concat(), begins, repeats, sharpness: 1.0 })
    }

    /// A curve without noise: ascending loads and the logarithm of the value at each.
    pub fn exact(points: impl Iterator<Item = (f64, f64)>) -> Self {
        let at = points.map(|(load, level)| FittedLoad { load, level, precision: 1.0 }).collect();
        BlockCurve { at, residuals: Vec::new(), begins: Vec::new(), repeats: 0, sharpness: 1.0 }
    }

    /// The lowest and the highest load.
    pub fn ends(&self) -> (f64, f64) {
        (self.at[0].load, self.at[self.at.len() - 1].load)
    }

    /// One bootstrap draw of the curve. Every load's level is moved by the mean of as many residuals as it has
    /// readings, drawn from those of the load and its two neighbours (times sqrt(n / (n - 1)), because they are
    /// deviations from a fitted centre). `drops_loads` leaves out a fifth of the inner loads, so the interval
    /// includes the error of interpolation.
    pub fn draw(&self, random: &mut ChaCha8Rng, drops_loads: bool) -> BlockCurve {
        let last = self.at.len() - 1;
        let mut drawn = Vec::with_capacity(self.at.len());
        for (at, fitted) in self.at.iter().enumerate() {
            let readings = self.begins[at + 1] - self.begins[at];
            let pool = &self.residuals[self.begins[at.saturating_sub(1)]..self.begins[(at + 2).min(last + 1)]];
            let inflation = if readings > 1 { (readings as f64 / (readings as f64 - 1.0)).sqrt() } else { 1.41 };
            let mean = (0..readings).map(|_| pool[random.random_range(0..pool.len())]).sum::<f64>() / readings as f64;
            // Drawn even if unused, so that the draws at one load do not depend on other loads.
            let left_out = random.random_range(0.0..1.0) < LEFT_OUT;
            if !(left_out && drops_loads && at > 0 && at < last) {
                drawn.push(FittedLoad { level: fitted.level + mean * inflation, ..*fitted });
            }
        }
        let sharpness = random.random_range(0.0..1.0);
        BlockCurve { at: drawn, residuals: Vec::new(), begins: Vec::new(), repeats: self.repeats, sharpness }
    }

    /// The change of `found`, as a logarithm, when each inner load is left out in turn: the root of the sum of squares.
    /// Loads without which there is no knee are ignored.
    pub fn change_without_a_load(&self, found: f64, find: impl Fn(&BlockCurve) -> Option<Crossing>) -> f64 {
        let without = |left_out: usize| {
            let mut curve = self.clone();
            curve.at.remove(left_out);
            match find(&curve) {
                Some(Crossing::At(at)) => (at / found).ln().powi(2),
                _ => 0.0,
            }
        };
        (1..self.at.len().saturating_sub(1)).map(without).sum::<f64>().sqrt()
    }

    /// The load x at which value(x sqrt 2) / value(x / sqrt 2) falls below 1 + `gain_ratio`. The gains are made
    /// monotone first (pooled adjacent violators). `None` if the loads span less than a doubling.
    pub fn gain_falls_below(&self, gain_ratio: f64) -> Option<Crossing> {
        const PER_DOUBLING: f64 = 16.0;
        let (first, last) = self.ends();
        let doublings = (last / first).log2() - 1.0;
        if !(doublings >= -1e-9 && doublings.is_finite()) {
            return None;
        }
        let steps = (doublings.max(0.0) * PER_DOUBLING).floor() as usize;
        let half = std::f64::consts::SQRT_2;
        let centre = |step: usize| first * half * (step as f64 / PER_DOUBLING).exp2();
        let curve = Interpolant::new(&self.at);
        let losses: Vec<(f64, f64)> = (0..=steps)
            .map(|step| {
                let x = centre(step);
                (curve.at(x / half) - curve.at(x * half), 1.0)
            })
            .collect();
        let rising = isotonic(&losses);
        let threshold = -(1.0 + gain_ratio).ln();
        Some(cross(&(0..=steps).map(centre).collect::<Vec<_>>(), &rising, threshold))
    }

    /// The load at which the value, made monotone, reaches `threshold` (in the value's unit), from load number `from`
    /// on.
    pub fn rises_to(&self, threshold: f64, from: usize) -> Crossing {
        let (loads, weighted): (Vec<f64>, Vec<_>) = self.at[from..].iter().map(|at| (at.load, (at.level, 1.0))).unzip();
        cross(&loads, &isotonic(&weighted), threshold.max(f64::MIN_POSITIVE).ln())
    }

    /// The index of the lowest level after a running median of three, so that a single low point is not the
    /// reference.
    pub fn lowest(&self) -> (usize, f64) {
        let smooth = |at: usize| {
            if self.at.len() < 3 {
                return self.at[at].level;
            }
            let start = at.saturating_sub(1).min(self.at.len() - 3);
            let mut three = [0, 1, 2].map(|next| self.at[start + next].level);
            three.sort_by(f64::total_cmp);
            three[1]
        };
        let at = (0..self.at.len()).min_by(|a, b| smooth(*a).total_cmp(&smooth(*b))).unwrap_or(0);
        (at, smooth(at).exp())
    }
}

/// Monotone cubic interpolation (Fritsch and Butland's slopes) of levels over the logarithm of the loads, constant
/// beyond the ends. Straight lines would place a bend too high on a coarse grid.
struct Interpolant {
    positions: Vec<f64>,
    levels: Vec<f64>,
    slopes: Vec<f64>,
}

impl Interpolant {
    fn new(at: &[FittedLoad]) -> Self {
        let (positions, levels): (Vec<f64>, Vec<f64>) = at.iter().map(|at| (at.load.ln(), at.level)).unzip();
        let last = positions.len() - 1;
        let step = |at: usize| positions[at + 1] - positions[at];
        let chord = |at: usize| (levels[at + 1] - levels[at]) / step(at);
        let slopes = (0..=last)
            .map(|at| match at {
                _ if last == 0 => 0.0,
                0 => chord(0),
                _ if at == last => chord(last - 1),
                _ => {
                    let (before, after) = (chord(at - 1), chord(at));
                    if before * after <= 0.0 {
                        return 0.0;
                    }
                    let (w1, w2) = (2.0 * step(at) + step(at - 1), step(at) + 2.0 * step(at - 1));
                    (w1 + w2) / (w1 / before + w2 / after)
                }
            })
            .collect();
        Interpolant { positions, levels, slopes }
    }

    fn at(&self, load: f64) -> f64 {
        let x = load.ln();
        let above = self.positions.partition_point(|known| *known < x);
        if above == 0 {
            return self.levels[0];
        }
        if above == self.positions.len() {
            return self.levels[above - 1];
        }
        let below = above - 1;
        let width = self.positions[above] - self.positions[below];
        let t = (x - self.positions[below]) / width;
        let (t2, t3) = (t * t, t * t * t);
        (2.0 * t3 - 3.0 * t2 + 1.0) * self.levels[below]
            + (t3 - 2.0 * t2 + t) * width * self.slopes[below]
            + (3.0 * t2 - 2.0 * t3) * self.levels[above]
            + (t3 - t2) * width * self.slopes[above]
    }
}

/// The non-decreasing sequence that fits (value, weight) best in least squares: pooled adjacent violators.
pub fn isotonic(values: &[(f64, f64)]) -> Vec<f64> {
    let mut pools: Vec<(f64, f64, usize)> = Vec::with_capacity(values.len());
    for (value, weight) in values {
        pools.push((*value, *weight, 1));
        while let [.., (low, low_weight, low_count), (high, high_weight, high_count)] = pools[..]
            && low > high
        {
            let weight = low_weight + high_weight;
            let mean = (low * low_weight + high * high_weight) / weight;
            pools.truncate(pools.len() - 2);
            pools.push((mean, weight, low_count + high_count));
        }
    }
    pools.into_iter().flat_map(|(value, _, count)| std::iter::repeat_n(value, count)).collect()
}

/// The load at which a non-decreasing sequence crosses `threshold`, interpolated over the logarithm of the loads.
fn cross(loads: &[f64], rising: &[f64], threshold: f64) -> Crossing {
    match rising.partition_point(|value| *value < threshold) {
        0 => Crossing::Below,
        above if above == rising.len() => Crossing::Beyond,
        above => {
            let share = (threshold - rising[above - 1]) / (rising[above] - rising[above - 1]);
            Crossing::At(loads[above - 1] * (loads[above] / loads[above - 1]).powf(share.clamp(0.0, 1.0)))
        }
    }
}
