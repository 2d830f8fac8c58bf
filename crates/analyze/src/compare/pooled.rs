//! One change over all loads, of values or of their logarithms (a ratio). The repeat is the independent unit, because
//! its points share the drift. So the error of a mean over loads and repeats is that of the repeats' sums (Liang and
//! Zeger, 1986), tested with Student's t. Paired sides are compared within repeats; otherwise each side has its own
//! error (Welch, 1947).

use crate::within::{RepeatPair, Visit, paired};
use record::Estimate;
use statistics::{weighted_median, with_error};
use std::borrow::Borrow;
use std::collections::BTreeMap;

/// A figure's values, or their logarithms, at one load in both runs, by repeat.
#[derive(Debug, Clone)]
pub struct CommonLoad<K> {
    /// The load.
    pub at: K,
    /// Values of run A.
    pub a: BTreeMap<u32, Visit>,
    /// Values of run B.
    pub b: BTreeMap<u32, Visit>,
}

#[derive(Debug, Clone, Copy)]
struct PointValue {
    load: usize,
    repeat: u32,
    value: f64,
    weight: f64,
}

/// A standard error with its degrees of freedom.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StandardError {
    /// The standard error.
    pub value: f64,
    /// Degrees of freedom.
    pub freedom: f64,
}

/// A mean with its error. One repeat has none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RepeatMean {
    /// The mean.
    pub value: f64,
    /// Its error; absent with one repeat.
    pub error: Option<StandardError>,
    /// Number of repeats.
    pub repeats: usize,
}

/// The change over all loads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PooledChange {
    /// Mean of run A.
    pub a: f64,
    /// Mean of run B.
    pub b: f64,
    /// B - A.
    pub change: RepeatMean,
    /// Points that did not count.
    pub left_out: u64,
}

impl RepeatMean {
    /// The mean with its interval.
    pub fn estimate(&self, confidence: f64) -> Estimate {
        let StandardError { value: error, freedom } = self.error.unwrap_or(StandardError { value: 0.0, freedom: 0.0 });
        with_error(self.value, error, freedom, confidence, self.repeats)
    }
}

impl PooledChange {
    /// B - A with its interval.
    pub fn difference(&self, confidence: f64) -> Estimate {
        Estimate { left_out: self.left_out, ..self.change.estimate(confidence) }
    }

    /// Ratio B / A with its interval, from logarithms.
    pub fn ratio(&self, confidence: f64) -> Estimate {
        self.difference(confidence).map(f64::exp)
    }
}

fn mean(readings: &[PointValue]) -> Option<RepeatMean> {
    let whole: f64 = readings.iter().map(|one| one.weight).sum();
    if whole <= 0.0 {
        return None;
    }
    let value = readings.iter().map(|one| one.weight * one.value).sum::<f64>() / whole;
    let mut by_repeat: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
    for one in readings {
        let (off, weight) = by_repeat.entry(one.repeat).or_default();
        *off += one.weight * (one.value - value);
        *weight += one.weight;
    }
    let repeats = by_repeat.len() as f64;
    let error = (by_repeat.len() > 1).then(|| {
        let squares: f64 = by_repeat.values().map(|(off, _)| off * off).sum();
        let powers = |power: i32| by_repeat.values().map(|(_, weight)| weight.powi(power)).sum::<f64>();
        // The number of equally weighted repeats with the same information.
        let worth = powers(2).powi(2) / powers(4);
        let value = (squares * repeats / (repeats - 1.0)).sqrt() / whole;
        StandardError { value, freedom: (worth - 1.0).max(1.0) }
    });
    Some(RepeatMean { value, error, repeats: by_repeat.len() })
}

/// The difference B - A of two sides that are not paired.
fn unpaired_difference(a: RepeatMean, b: RepeatMean) -> RepeatMean {
    let error = a.error.zip(b.error).map(|(a, b)| {
        let variance = a.value.powi(2) + b.value.powi(2);
        let freedom = variance.powi(2) / (a.value.powi(4) / a.freedom + b.value.powi(4) / b.freedom);
        // Without any scatter the difference is certain.
        let freedom = if freedom.is_finite() { freedom.max(1.0) } else { a.freedom + b.freedom };
        StandardError { value: variance.sqrt(), freedom }
    });
    RepeatMean { value: b.value - a.value, error, repeats: a.repeats.min(b.repeats) }
}

/// The values of both sides, relative to the middle of each load, and the mean of the middles.
struct PooledSides {
    a: Vec<PointValue>,
    b: Vec<PointValue>,
    middle: f64,
    is_paired: bool,
    left_out: u64,
}

fn sides<K>(loads: &[impl Borrow<CommonLoad<K>>], is_paired: bool) -> PooledSides {
    let mut sides = PooledSides { a: Vec::new(), b: Vec::new(), middle: 0.0, is_paired, left_out: 0 };
    let mut middles = Vec::new();
    for (load, common) in loads.iter().map(Borrow::borrow).enumerate() {
        let reading = |repeat, value, weight| PointValue { load, repeat, value, weight };
        let of = |visits: &BTreeMap<u32, Visit>| -> Vec<PointValue> {
            visits.iter().map(|(repeat, visit)| reading(*repeat, visit.value, visit.weight)).collect()
        };
        let (mut of_a, mut of_b) = if is_paired {
            let found = paired(&common.a, &common.b);
            sides.left_out += found.left_out;
            let both = |pair: &RepeatPair| {
                (reading(pair.repeat, pair.before, pair.weight), reading(pair.repeat, pair.after, pair.weight))
            };
            found.pairs.iter().map(both).unzip()
        } else {
            sides.left_out += common.a.values().chain(common.b.values()).map(|visit| visit.left_out).sum::<u64>();
            (of(&common.a), of(&common.b))
        };
        let (Some(a), Some(b)) = (mean(&of_a), mean(&of_b)) else { continue };
        let middle = (a.value + b.value) / 2.0;
        of_a.iter_mut().chain(&mut of_b).for_each(|one| one.value -= middle);
        middles.push(middle);
        sides.a.extend(of_a);
        sides.b.extend(of_b);
    }
    sides.middle = middles.iter().sum::<f64>() / middles.len().max(1) as f64;
    sides
}

impl PooledSides {
    fn change(&self) -> Option<RepeatMean> {
        if !self.is_paired {
            return Some(unpaired_difference(mean(&self.a)?, mean(&self.b)?));
        }
        let changes: Vec<PointValue> =
            self.a.iter().zip(&self.b).map(|(a, b)| PointValue { value: b.value - a.value, ..*a }).collect();
        mean(&changes)
    }

    /// One load relative to the median of the others in the same repeat.
    fn against_others(&self, load: usize) -> PooledSides {
        let of = |side: &[PointValue]| -> Vec<PointValue> {
            let other = |repeat: u32| {
                let others = side.iter().filter(|one| one.repeat == repeat && one.load != load);
                weighted_median(&others.collect::<Vec<_>>(), |one| one.value, |one| one.weight)
            };
            let at_load = side.iter().filter(|one| one.load == load);
            at_load.filter_map(|one| Some(PointValue { value: one.value - other(one.repeat)?, ..*one })).collect()
        };
        PooledSides { a: of(&self.a), b: of(&self.b), ..*self }
    }
}

/// The change over these loads; `None` if no load has a value on each side.
pub fn pooled<K>(loads: &[impl Borrow<CommonLoad<K>>], is_paired: bool) -> Option<PooledChange> {
    let sides = sides(loads, is_paired);
    let level = |side: &[PointValue]| Some(mean(side)?.value + sides.middle);
    Some(PooledChange { a: level(&sides.a)?, b: level(&sides.b)?, change: sides.change()?, left_out: sides.left_out })
}

/// The loads at which the change differs significantly from that of the others, corrected for their number.
pub fn departing<K>(loads: &[impl Borrow<CommonLoad<K>>], is_paired: bool, confidence: f64) -> Vec<bool> {
    let sides = sides(loads, is_paired);
    let corrected = 1.0 - (1.0 - confidence) / loads.len().max(1) as f64;
    let departs = |load: usize| {
        let found = sides.against_others(load).change()?;
        Some(found.estimate(corrected).excludes(0.0))
    };
    (0..loads.len()).map(|load| departs(load).unwrap_or(false)).collect()
}
