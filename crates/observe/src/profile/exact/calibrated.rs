//! The sampled profile, corrected by bursts of the exact one: the exact bursts say what each layer's share is, the samples
//! say how it divides over the layer's parts and functions.

use super::result::ExactProfile;
use crate::profile::interval::Estimate;
use crate::profile::result::{LayerRow, Profile};
use record::layers::Layer;
use serde::Serialize;

/// The part of Other in `record/data/layers.txt` that is this program's own work.
const MEASUREMENT: &str = "measurement";

/// What the bursts changed in one layer.
#[derive(Debug, Clone, Serialize)]
pub struct Correction {
    /// The layer; `None` = unattributed.
    pub layer: Option<Layer>,
    /// Its share by samples.
    pub sampled: Option<Estimate>,
    /// Its share by the bursts.
    pub exact: Option<Estimate>,
    /// Exact less sampled, with the interval of both.
    pub difference: Option<Estimate>,
}

/// A correction of a profile.
#[derive(Debug, Clone, Serialize)]
pub struct Calibration {
    /// Layers in the order of the table.
    pub corrections: Vec<Correction>,
    /// Share of the server's time that was the sampler's own programs; left out of the sampled shares.
    pub sampler_ratio: f64,
    /// The bursts.
    pub exact: ExactProfile,
}

/// Corrects `profile`. The server's CPU time stays what the scheduler says; samples stay counts of samples.
pub fn calibrate(profile: &mut Profile, exact: ExactProfile) {
    let sampler_ratio = leave_out_measurement(profile);
    let corrections: Vec<Correction> = exact
        .layers
        .iter()
        .map(|row| {
            let sampled = profile.layer(row.layer).and_then(|row| row.share_ratio);
            Correction { layer: row.layer, sampled, exact: row.share_ratio, difference: less(row.share_ratio, sampled) }
        })
        .collect();
    let cpu_ns: f64 = profile.layers.iter().filter(|row| row.part.is_empty()).map(|row| row.cpu_ns).sum();
    let factor = |layer: Option<Layer>| {
        let correction = corrections.iter().find(|correction| correction.layer == layer)?;
        let (sampled, exact) = (correction.sampled?.value, correction.exact?.value);
        (sampled > 0.0).then_some(exact / sampled)
    };
    let per = |whole: Option<Estimate>| whole.map(|whole| whole.value);
    let packet_us = per_unit(profile, |row| per(row.us_per_packet));
    let request_us = per_unit(profile, |row| per(row.us_per_request));
    for row in &mut profile.layers {
        let exact_row = exact.layer(row.layer).and_then(|row| row.share_ratio);
        match (factor(row.layer), exact_row) {
            (Some(factor), Some(share)) => {
                row.cpu_ns *= factor;
                let scale = |old: Option<Estimate>| old.map(|old| scaled(old, factor));
                row.us_per_packet = scale(row.us_per_packet);
                row.us_per_request = scale(row.us_per_request);
                row.share_ratio = if row.part.is_empty() { Some(share) } else { scale(row.share_ratio) };
            }
            // No sample fell on the layer, but the bursts saw it.
            (None, Some(share)) if row.part.is_empty() => {
                row.cpu_ns = cpu_ns * share.value;
                row.us_per_packet = packet_us.map(|whole| scaled(share, whole));
                row.us_per_request = request_us.map(|whole| scaled(share, whole));
                row.share_ratio = Some(share);
            }
            _ => {}
        }
    }
    for row in &mut profile.functions {
        if let Some(factor) = factor(row.layer) {
            row.cpu_ratio *= factor;
            row.non_idle_ratio *= factor;
            row.server_ratio *= factor;
        }
    }
    profile.method = "calibrated";
    profile.doubts.extend(exact.doubts.iter().cloned());
    profile.calibration = Some(Calibration { corrections, sampler_ratio, exact });
}

/// Takes the sampler's own work (the part of Other that the layer table calls measurement) out of the layers, as the bursts
/// take out theirs, and returns its share.
fn leave_out_measurement(profile: &mut Profile) -> f64 {
    let is_own = |row: &LayerRow| row.layer == Some(Layer::Other) && row.part == MEASUREMENT;
    let Some(own) = profile.layers.iter().find(|row| is_own(row)).cloned() else { return 0.0 };
    let own_ratio = own.share_ratio.map_or(0.0, |share| share.value);
    profile.layers.retain(|row| !is_own(row));
    let minus = |whole: Option<Estimate>, part: Option<Estimate>| {
        whole.map(|whole| Estimate {
            value: (whole.value - part.map_or(0.0, |part| part.value)).max(0.0),
            plus_minus: whole.plus_minus,
        })
    };
    for row in &mut profile.layers {
        if row.layer == Some(Layer::Other) && row.part.is_empty() {
            row.samples = row.samples.saturating_sub(own.samples);
            row.cpu_ns = (row.cpu_ns - own.cpu_ns).max(0.0);
            row.share_ratio = minus(row.share_ratio, own.share_ratio);
            row.us_per_packet = minus(row.us_per_packet, own.us_per_packet);
            row.us_per_request = minus(row.us_per_request, own.us_per_request);
        }
        row.share_ratio = row.share_ratio.map(|share| scaled(share, 1.0 / (1.0 - own_ratio).max(1e-9)));
    }
    own_ratio
}

fn per_unit(profile: &Profile, of: impl Fn(&LayerRow) -> Option<f64>) -> Option<f64> {
    let values: Vec<f64> = profile.layers.iter().filter(|row| row.part.is_empty()).filter_map(of).collect();
    (!values.is_empty()).then(|| values.iter().sum())
}

fn scaled(estimate: Estimate, factor: f64) -> Estimate {
    Estimate { value: estimate.value * factor, plus_minus: estimate.plus_minus.map(|half| half * factor) }
}

fn less(a: Option<Estimate>, b: Option<Estimate>) -> Option<Estimate> {
    let (a, b) = (a?, b?);
    let plus_minus = a.plus_minus.zip(b.plus_minus).map(|(a, b)| a.hypot(b));
    Some(Estimate { value: a.value - b.value, plus_minus })
}
