//! The knee: where the line of throughput at low loads meets its line at high loads.
//!
//! Both lines are straight in logarithms. The first has slope 1 (throughput is proportional to the connections). The
//! second may have any slope below the criterion's, so the knee is not moved by a cost that grows with the
//! connections, nor by a plateau that still rises slowly. Between them the bend may be sharp (a pool of workers) or
//! gentle (a queue): X = (L1^-p + L2^-p)^(-1/p), where p is fitted, too. For any bend, the lines meet at the N* of
//! operational analysis, (service + path) / service for each worker (Lazowska and others, 1984, section 5.2).

use crate::curve::{BlockCurve, Crossing};

/// Sharpness of the bend: about 2 for a queue before one CPU on a short path, 5 on a long one; unbounded for a pool.
const BENDS: [f64; 6] = [2.0, 3.0, 4.5, 7.0, 12.0, 50.0];
/// Loads below this share of the knee, or above its inverse, are not used, because the server's cost differs there.
const FROM: f64 = 1.0 / 16.0;
const UP_TO: f64 = 5.0;
/// Fits with up to this multiple of the least sum of squares are equally good.
const AS_WELL: f64 = 1.5;
/// The fit ends with a step that reduces the sum of squares by a smaller share.
const ENOUGH: f64 = 1e-4;
const STEPS: usize = 25;

impl BlockCurve {
    /// The knee. [`gain_falls_below`](Self::gain_falls_below) decides whether there is one. A single connection never
    /// waits, so a curve that begins with one connection has a knee even if the second one adds nothing.
    pub fn knee(&self, gain_ratio: f64) -> Option<Crossing> {
        let (first, last) = self.ends();
        let guess = match self.gain_falls_below(gain_ratio)? {
            Crossing::Beyond => return Some(Crossing::Beyond),
            Crossing::Below if first > 1.0 => return Some(Crossing::Below),
            Crossing::Below => first,
            // At a sharp knee, doublings centred below it still have that gain.
            Crossing::At(load) => load * (1.0 + gain_ratio) / std::f64::consts::SQRT_2,
        };
        let used = self.at.iter().filter(|at| speaks_for(guess, at.load));
        let measured: Vec<LogPoint> =
            used.map(|at| LogPoint { x: at.load.ln(), level: at.level, precision: at.precision }).collect();
        let most_slope = (1.0 + gain_ratio).log2();
        let fits = BENDS.map(|bend| KneeFit::new(&measured, guess.ln(), bend).improved(&measured, most_slope));
        let least = fits.iter().map(|fit| fit.squares).fold(f64::INFINITY, f64::min);
        // Noise makes a bend look gentle, so the estimate uses the sharpest of the equally good fits. Draws use any
        // of them, so the interval covers the form of the bend.
        let as_well: Vec<&KneeFit> = fits.iter().filter(|fit| fit.squares <= AS_WELL * least + 1e-9).collect();
        let best = as_well[((self.sharpness * as_well.len() as f64) as usize).min(as_well.len() - 1)];
        Some(Crossing::At(best.knee.exp().clamp(first, last)))
    }
}

/// Whether a load is near enough to a knee to show where it is.
pub fn speaks_for(knee: f64, load: f64) -> bool {
    (knee * FROM..=knee * UP_TO).contains(&load)
}

/// The logarithm of a load, the logarithm of its throughput, and the precision of the latter.
#[derive(Debug, Clone, Copy)]
struct LogPoint {
    x: f64,
    level: f64,
    precision: f64,
}

/// A curve with a bend: `level + x - softplus(bend (1 - slope) (x - knee)) / bend` over x = ln(load).
#[derive(Debug, Clone, Copy)]
struct KneeFit {
    /// ln of the throughput with one connection.
    level: f64,
    /// ln of the load at which the lines meet.
    knee: f64,
    slope: f64,
    bend: f64,
    squares: f64,
}

impl KneeFit {
    fn new(measured: &[LogPoint], knee: f64, bend: f64) -> KneeFit {
        let level = measured.iter().take(3).map(|at| at.level - at.x).fold(f64::NEG_INFINITY, f64::max);
        let fit = KneeFit { level, knee, slope: 0.0, bend, squares: 0.0 };
        KneeFit { squares: fit.squares_of(measured), ..fit }
    }

    /// The height of a measured level above the curve, and the weight of the second line there.
    fn residual(&self, at: &LogPoint) -> (f64, f64) {
        let z = self.bend * (1.0 - self.slope) * (at.x - self.knee);
        let small = (-z.abs()).exp();
        let softplus = z.max(0.0) + small.ln_1p();
        let share = if z > 0.0 { 1.0 } else { small } / (1.0 + small);
        (at.level - (self.level + at.x - softplus / self.bend), share)
    }

    fn squares_of(&self, measured: &[LogPoint]) -> f64 {
        measured.iter().map(|at| at.precision * self.residual(at).0.powi(2)).sum()
    }

    /// The nearest least-squares fit (Levenberg and Marquardt) with a slope of at most this.
    fn improved(mut self, measured: &[LogPoint], most_slope: f64) -> KneeFit {
        let mut damping = 1e-3;
        for _ in 0..STEPS {
            let (mut matrix, mut right) = ([[0.0; 3]; 3], [0.0; 3]);
            for at in measured {
                let (residual, share) = self.residual(at);
                let row = [1.0, share * (1.0 - self.slope), share * (at.x - self.knee)];
                let [_, of_knee, of_slope] = row.map(|share| at.precision * share);
                right[0] += at.precision * residual;
                right[1] += of_knee * residual;
                right[2] += of_slope * residual;
                matrix[0][0] += at.precision;
                matrix[0][1] += of_knee;
                matrix[0][2] += of_slope;
                matrix[1][1] += of_knee * row[1];
                matrix[1][2] += of_knee * row[2];
                matrix[2][2] += of_slope * row[2];
            }
            (matrix[1][0], matrix[2][0], matrix[2][1]) = (matrix[0][1], matrix[0][2], matrix[1][2]);
            for (i, row) in matrix.iter_mut().enumerate() {
                row[i] = row[i] * (1.0 + damping) + 1e-9;
            }
            let Some([level, knee, slope]) = solved(matrix, right) else { break };
            let mut next = KneeFit {
                level: self.level + level,
                knee: self.knee + knee,
                slope: (self.slope + slope).clamp(-1.5, most_slope),
                ..self
            };
            next.squares = next.squares_of(measured);
            if next.squares < self.squares {
                let is_enough = self.squares - next.squares < ENOUGH * self.squares + 1e-12;
                self = next;
                damping /= 4.0;
                if is_enough {
                    break;
                }
            } else {
                damping *= 8.0;
                if damping > 1e8 {
                    break;
                }
            }
        }
        self
    }
}

/// The solution of three linear equations by Cramer's rule; `None` without one.
fn solved(matrix: [[f64; 3]; 3], right: [f64; 3]) -> Option<[f64; 3]> {
    let determinant = |m: [[f64; 3]; 3]| {
        m[0][0] * (m[1][1] * m[2][2] - m[1][2] * m[2][1]) - m[0][1] * (m[1][0] * m[2][2] - m[1][2] * m[2][0])
            + m[0][2] * (m[1][0] * m[2][1] - m[1][1] * m[2][0])
    };
    let whole = determinant(matrix);
    let with_column = |column: usize| {
        let mut replaced = matrix;
        for (row, value) in replaced.iter_mut().zip(right) {
            row[column] = value;
        }
        determinant(replaced) / whole
    };
    let found = [with_column(0), with_column(1), with_column(2)];
    found.iter().all(|value| value.is_finite()).then_some(found)
}

/// The knee of a throughput that is known for any number of connections; `None` if there is none up to a few million.
pub fn knee_of(throughput: impl Fn(f64) -> f64, gain_ratio: f64) -> Option<f64> {
    const MOST: f64 = 4e6;
    /// Steps of sqrt 2 after the end of the gain, up to five times the knee.
    const BEYOND: usize = 5;
    let (mut loads, mut levels): (Vec<f64>, Vec<f64>) = (Vec::new(), Vec::new());
    let mut ends = usize::MAX;
    while loads.len() < ends && loads.last().is_none_or(|last| *last < MOST) {
        let load = (loads.len() as f64 / 2.0).exp2();
        loads.push(load);
        levels.push(throughput(load).max(f64::MIN_POSITIVE).ln());
        if let [.., before, _, now] = levels[..]
            && ends == usize::MAX
            && now - before < (1.0 + gain_ratio).ln()
        {
            ends = loads.len() + BEYOND;
        }
    }
    match BlockCurve::exact(loads.into_iter().zip(levels)).knee(gain_ratio) {
        Some(Crossing::At(load)) => Some(load),
        _ => None,
    }
}
