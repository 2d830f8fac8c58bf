//! Linear and non-linear least squares with the intervals of their parameters (Student's t).

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
    /// Change of y for one x.
    pub slope: Parameter,
    /// Pearson's correlation, -1 to 1.
    pub correlation: f64,
    /// The x at which the line crosses zero; absent for a level line.
    pub x_intercept: Option<f64>,
    /// Interval of `x_intercept` by Fieller's theorem; absent if the slope may be zero.
    pub x_intercept_interval: Option<Interval>,
    /// Number of points.
    pub n: usize,
}

/// Fits a line by least squares. `None` with fewer than three points or all at one x.
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

/// A function of parameters whose residuals are to be small. Parameters are unbounded; a bounded one is mapped by the
/// model.
pub trait Residuals {
    /// Residuals for these parameters; always the same number of them.
    fn residuals(&self, parameters: &[f64]) -> Vec<f64>;
}

impl<F: Fn(&[f64]) -> Vec<f64>> Residuals for F {
    fn residuals(&self, parameters: &[f64]) -> Vec<f64> {
        self(parameters)
    }
}

struct Problem<'a, R: Residuals> {
    model: &'a R,
    at: DVector<f64>,
    scales: &'a [f64],
}

impl<R: Residuals> Problem<'_, R> {
    fn at(&self, parameters: &[f64]) -> DVector<f64> {
        DVector::from_vec(self.model.residuals(parameters))
    }
}

impl<R: Residuals> LeastSquaresProblem<f64, Dyn, Dyn> for Problem<'_, R> {
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
        Some(self.at(self.at.as_slice())).filter(|values| values.iter().all(|value| value.is_finite()))
    }

    fn jacobian(&self) -> Option<DMatrix<f64>> {
        Some(jacobian(self.model, self.at.as_slice(), self.scales)).filter(|j| j.iter().all(|value| value.is_finite()))
    }
}

/// Central differences; a step is a millionth of the parameter's scale.
fn jacobian<R: Residuals>(model: &R, at: &[f64], scales: &[f64]) -> DMatrix<f64> {
    let columns: Vec<DVector<f64>> = (0..at.len())
        .map(|p| {
            let step = 1e-6 * at[p].abs().max(scales[p].abs()).max(1e-300);
            let moved = |by: f64| {
                let mut parameters = at.to_vec();
                parameters[p] += by;
                DVector::from_vec(model.residuals(&parameters))
            };
            (moved(step) - moved(-step)) / (2.0 * step)
        })
        .collect();
    DMatrix::from_columns(&columns)
}

/// Minimises the sum of squared residuals from `start` (Levenberg and Marquardt, as in MINPACK). `scales` are sizes
/// that matter for each parameter. Returns the parameters and the sum; `None` where the residuals are not finite at the
/// start.
pub fn minimise<R: Residuals>(model: &R, start: &[f64], scales: &[f64], evaluations: usize) -> Option<(Vec<f64>, f64)> {
    let problem = Problem { model, at: DVector::from_row_slice(start), scales };
    if problem.residuals().is_none_or(|values| values.len() < start.len()) {
        return None;
    }
    let patience = evaluations.div_ceil(start.len() + 1).max(1);
    let (problem, report) = LevenbergMarquardt::new().with_patience(patience).minimize(problem);
    let sum = 2.0 * report.objective_function;
    sum.is_finite().then(|| (problem.at.as_slice().to_vec(), sum))
}

/// Parameters at a minimum with the errors from the curvature there.
pub fn with_errors<R: Residuals>(model: &R, at: &[f64], scales: &[f64], confidence: f64) -> Vec<Parameter> {
    let residuals = model.residuals(at);
    let freedom = residuals.len().saturating_sub(at.len());
    let variance = residuals.iter().map(|r| r * r).sum::<f64>() / freedom.max(1) as f64;
    let j = jacobian(model, at, scales);
    let inverse = (j.transpose() * &j).try_inverse();
    (0..at.len())
        .map(|p| {
            let error = inverse.as_ref().map_or(f64::NAN, |inverse| (inverse[(p, p)] * variance).sqrt());
            parameter(at[p], error, freedom, confidence)
        })
        .collect()
}
