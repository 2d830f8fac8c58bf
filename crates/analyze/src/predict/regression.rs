//! Linear and non-linear least squares, with intervals of the parameters (Student's t).

use crate::statistics::{Interval, student};
use levenberg_marquardt::{LeastSquaresProblem, LevenbergMarquardt};
use nalgebra::storage::Owned;
use nalgebra::{DMatrix, DVector, Dyn};
use serde::Serialize;

/// A parameter with its standard error and interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Parameter {
    /// Value of the estimate.
    pub value: f64,
    /// Standard error; absent if no degrees of freedom are left to estimate it.
    pub standard_error: Option<f64>,
    /// Interval by Student's t.
    pub interval: Option<Interval>,
}

impl Parameter {
    /// Whether the interval lies above zero.
    pub fn is_positive(&self) -> bool {
        self.interval.is_some_and(|interval| interval.low > 0.0)
    }
}

fn parameter(value: f64, standard_error: f64, freedom: usize, confidence: f64) -> Parameter {
    let error = Some(standard_error).filter(|error| freedom > 0 && error.is_finite());
    let interval = error.and_then(|error| {
        let reach = student(confidence, freedom as f64)? * error;
        Some(Interval { low: value - reach, high: value + reach, confidence })
    });
    Parameter { value, standard_error: error, interval }
}

/// A straight line through points: y = intercept + slope x.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Line {
    /// y at x = 0.
    pub intercept: Parameter,
    /// Change of y per unit of x.
    pub slope: Parameter,
    /// Pearson's correlation, -1 to 1.
    pub correlation: f64,
    /// Value of x at which the line crosses zero; absent for a horizontal line.
    pub x_intercept: Option<f64>,
    /// Interval of `x_intercept` by Fieller's theorem; absent if the slope may be zero.
    pub x_intercept_interval: Option<Interval>,
    /// Number of points.
    pub n: usize,
}

/// Fits a line by least squares. `None` with fewer than three points, or if all have the same x.
pub fn line(points: &[(f64, f64)], confidence: f64) -> Option<Line> {
    let points: Vec<(f64, f64)> = points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
    let n = points.len() as f64;
    if points.len() < 3 {
        return None;
    }
    let mean = |value: fn(&(f64, f64)) -> f64| points.iter().map(value).sum::<f64>() / n;
    let (mx, my) = (mean(|p| p.0), mean(|p| p.1));
    let sxx: f64 = points.iter().map(|(x, _)| (x - mx).powi(2)).sum();
    let syy: f64 = points.iter().map(|(_, y)| (y - my).powi(2)).sum();
    let sxy: f64 = points.iter().map(|(x, y)| (x - mx) * (y - my)).sum();
    if sxx <= 1e-12 * mx * mx * n {
        return None;
    }
    let slope = sxy / sxx;
    let intercept = my - slope * mx;
    let freedom = points.len() - 2;
    let variance = points.iter().map(|(x, y)| (y - intercept - slope * x).powi(2)).sum::<f64>() / freedom as f64;
    let correlation = if syy > 0.0 { (sxy / (sxx * syy).sqrt()).clamp(-1.0, 1.0) } else { 0.0 };
    let x_intercept = Some(-intercept / slope).filter(|x| x.is_finite());
    let fieller = || {
        let t = student(confidence, freedom as f64)?;
        let g = t * t * variance / (sxx * slope * slope);
        let x0 = x_intercept.filter(|_| g < 1.0)?;
        let centre = mx + (x0 - mx) / (1.0 - g);
        let reach = t * variance.sqrt() / (slope.abs() * (1.0 - g)) * ((x0 - mx).powi(2) / sxx + (1.0 - g) / n).sqrt();
        Some(Interval { low: centre - reach, high: centre + reach, confidence })
    };
    Some(Line {
        intercept: parameter(intercept, (variance * (1.0 / n + mx * mx / sxx)).sqrt(), freedom, confidence),
        slope: parameter(slope, (variance / sxx).sqrt(), freedom, confidence),
        correlation,
        x_intercept,
        x_intercept_interval: fieller(),
        n: points.len(),
    })
}

/// Residuals of given parameters; their number is constant. Parameters are unbounded, so the model maps bounded ones.
type Residuals<'a> = dyn Fn(&[f64]) -> Vec<f64> + 'a;

struct Problem<'a> {
    model: &'a Residuals<'a>,
    at: DVector<f64>,
    scales: &'a [f64],
}

impl LeastSquaresProblem<f64, Dyn, Dyn> for Problem<'_> {
    type ResidualStorage = Owned<f64, Dyn>;
    type JacobianStorage = Owned<f64, Dyn, Dyn>;
    type ParameterStorage = Owned<f64, Dyn>;

    fn set_params(&mut self, x: &DVector<f64>) {
        self.at.copy_from(x);
    }

    fn params(&self) -> DVector<f64> {
        self.at.clone()
    }

    fn residuals(&self) -> Option<DVector<f64>> {
        let values = DVector::from_vec((self.model)(self.at.as_slice()));
        Some(values).filter(|values| values.iter().all(|value| value.is_finite()))
    }

    fn jacobian(&self) -> Option<DMatrix<f64>> {
        // Central differences, with steps of a millionth of the parameter's scale.
        let column = |p: usize| {
            let step = 1e-6 * self.at[p].abs().max(self.scales[p].abs()).max(1e-300);
            let moved = |by: f64| {
                let mut parameters = self.at.clone();
                parameters[p] += by;
                DVector::from_vec((self.model)(parameters.as_slice()))
            };
            (moved(step) - moved(-step)) / (2.0 * step)
        };
        let columns: Vec<DVector<f64>> = (0..self.at.len()).map(column).collect();
        Some(DMatrix::from_columns(&columns)).filter(|j| j.iter().all(|value| value.is_finite()))
    }
}

/// Minimises the sum of squared residuals from `start` (Levenberg and Marquardt, as in MINPACK). `scales`: a typical
/// size of each parameter. Returns the parameters and the sum; `None` if the residuals are not finite at the start.
pub fn minimise(
    model: &dyn Fn(&[f64]) -> Vec<f64>,
    start: &[f64],
    scales: &[f64],
    evaluations: usize,
) -> Option<(Vec<f64>, f64)> {
    let problem = Problem { model, at: DVector::from_row_slice(start), scales };
    if problem.residuals().is_none_or(|values| values.len() < start.len()) {
        return None;
    }
    let patience = evaluations.div_ceil(start.len() + 1).max(1);
    let (problem, report) = LevenbergMarquardt::new().with_patience(patience).minimize(problem);
    let sum = 2.0 * report.objective_function;
    sum.is_finite().then(|| (problem.at.as_slice().to_vec(), sum))
}
