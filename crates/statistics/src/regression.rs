//! Linear and non-linear least squares, with intervals of the parameters (Student's t).

use crate::{student, with_error};
use levenberg_marquardt::{LeastSquaresProblem, LevenbergMarquardt};
use nalgebra::storage::Owned;
use nalgebra::{DMatrix, DVector, Dyn};
use record::Estimate;
use serde::Serialize;

/// A straight line through points: y = intercept + slope x.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct FittedLine {
    /// y at x = 0.
    pub intercept: Estimate,
    /// Change of y per unit of x.
    pub slope: Estimate,
    /// Pearson's correlation, -1 to 1.
    pub correlation: f64,
    /// Value of x at which the line crosses zero, with an interval by Fieller's theorem unless the slope may be zero;
    /// absent for a horizontal line.
    pub x_intercept: Option<Estimate>,
}

/// Fits a line by least squares. `None` with fewer than three points, or if all have the same x.
pub fn line(points: &[(f64, f64)], confidence: f64) -> Option<FittedLine> {
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
    let x0 = Some(-intercept / slope).filter(|x| x.is_finite());
    let fieller = || {
        let t = student(confidence, freedom as f64)?;
        let g = t * t * variance / (sxx * slope * slope);
        let x0 = x0.filter(|_| g < 1.0)?;
        let centre = mx + (x0 - mx) / (1.0 - g);
        let reach = t * variance.sqrt() / (slope.abs() * (1.0 - g)) * ((x0 - mx).powi(2) / sxx + (1.0 - g) / n).sqrt();
        Some((centre - reach, centre + reach))
    };
    let parameter = |value, error| with_error(value, error, freedom as f64, confidence, points.len());
    Some(FittedLine {
        intercept: parameter(intercept, (variance * (1.0 / n + mx * mx / sxx)).sqrt()),
        slope: parameter(slope, (variance / sxx).sqrt()),
        correlation,
        x_intercept: x0.map(|x0| Estimate::new(x0, fieller(), confidence, points.len())),
    })
}

/// Residuals of given parameters; their number is constant. Parameters are unbounded, so the model maps bounded ones.
type Residuals<'a> = dyn Fn(&[f64]) -> Vec<f64> + 'a;

struct FitProblem<'a> {
    model: &'a Residuals<'a>,
    at: DVector<f64>,
    scales: &'a [f64],
}

impl LeastSquaresProblem<f64, Dyn, Dyn> for FitProblem<'_> {
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
    let problem = FitProblem { model, at: DVector::from_row_slice(start), scales };
    if problem.residuals().is_none_or(|values| values.len() < start.len()) {
        return None;
    }
    let patience = evaluations.div_ceil(start.len() + 1).max(1);
    let (problem, report) = LevenbergMarquardt::new().with_patience(patience).minimize(problem);
    let sum = 2.0 * report.objective_function;
    sum.is_finite().then(|| (problem.at.as_slice().to_vec(), sum))
}
