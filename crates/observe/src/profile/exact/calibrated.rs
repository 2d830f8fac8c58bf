//! The sampled profile, corrected by bursts of the exact one: the exact bursts give each layer's share, the samples
//! give its division over the layer's parts and functions.

use super::BurstOptions;
use crate::profile::{ProfileError, ProfileOptions, Profiler};
use record::layers::Layer;
use record::profile::{Calibration, Correction, Estimate, ExactProfile, LayerRow, MEASUREMENT, Profile};
use record::{Doubt, DoubtKind};

/// Packets before and after the bursts may differ by this share.
const LOAD_TOLERANCE: f64 = 0.1;

/// Samples half of the window, then measures the bursts, then samples the other half: a steady change affects the
/// samples' mean as it affects the bursts. No hook is attached while samples are taken, and no sample is taken while
/// hooks are.
pub fn run(
    options: ProfileOptions,
    bursts: BurstOptions,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Profile, ProfileError> {
    let mut profiler = Profiler::attach(options)?;
    profiler.begin()?;
    profiler.sample_until(0.5, is_stopped)?;
    let mut exact = None;
    if !is_stopped() {
        profiler.pause()?;
        exact = Some(super::run(bursts, is_stopped)?);
        profiler.resume()?;
        profiler.sample_until(1.0, is_stopped)?;
    }
    let packets = profiler.packets_by_tenth();
    let mut profile = profiler.end(None)?;
    if let Some(exact) = exact {
        profile.doubts.extend(load_doubt(&packets));
        calibrate(&mut profile, exact);
    }
    Ok(profile)
}

/// Packets by tenth of the window, the bursts in the middle: if the load changed, the bursts measured another one.
fn load_doubt(packets: &[u64]) -> Option<Doubt> {
    let half = packets.len() / 2;
    let mean = |part: &[u64]| part.iter().sum::<u64>() as f64 / part.len().max(1) as f64;
    let (before, after) = (mean(&packets[..half]), mean(&packets[half..]));
    let (low, high) = (before.min(after), before.max(after));
    // Few packets differ by chance.
    let is_change = half > 0 && high * half as f64 > 1000.0 && low < high * (1.0 - LOAD_TOLERANCE);
    is_change.then(|| {
        let what = format!(
            "the load changed around the bursts: {before:.0} packets a tenth of the window before, {after:.0} after them"
        );
        DoubtKind::SourcesDisagree.warning(what, "profile under a constant load, or take a longer window")
    })
}

/// Corrects `profile`. The server's CPU time stays the scheduler's; samples stay counts of samples.
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
            // No sample fell on the layer, but the bursts measured it.
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

/// Takes the sampler's own work (the part of Other that the layer table calls measurement) out of the layers, as the
/// bursts take out theirs, and returns its share.
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

#[cfg(test)]
mod tests {
    use super::*;
    use record::profile::exact::{ExactRow, HookCosts, Machine, Perturbation, SumCheck};
    use record::profile::{Arrivals, Coverage, CpuCheck, FunctionRow, Losses, Mode, PacketCounts, SampleSums};

    /// 1 s of the server's CPU time over 1000 packets and 100 requests.
    const CPU_NS: f64 = 1e9;

    fn of(share: f64, per: f64) -> Option<Estimate> {
        Some(Estimate { value: share * CPU_NS / 1e3 / per, plus_minus: Some(share * 0.1 * CPU_NS / 1e3 / per) })
    }

    fn row(layer: Option<Layer>, part: &str, share: f64) -> LayerRow {
        LayerRow {
            layer,
            part: part.into(),
            samples: (share * 1000.0) as u64,
            cpu_ns: share * CPU_NS,
            share_ratio: Some(Estimate { value: share, plus_minus: Some(share * 0.1) }),
            us_per_packet: of(share, 1000.0),
            us_per_request: of(share, 100.0),
            events_per_packet: Default::default(),
        }
    }

    fn sampled(layers: Vec<LayerRow>) -> Profile {
        let function = |name: &str, layer, ratio| FunctionRow {
            function: name.into(),
            module: None,
            layer,
            mode: Mode::Kernel,
            samples: 10,
            cpu_ratio: ratio,
            non_idle_ratio: ratio,
            server_ratio: ratio,
        };
        Profile {
            method: "sampled",
            clock: "cpu-clock",
            period_ns: 1_000_000,
            sample_ns: 1e6,
            duration_ns: 1_000_000_000,
            port: 80,
            pid: 1,
            command: "server".into(),
            cpus: 1,
            samples: SampleSums::default(),
            layers,
            functions: vec![function("tcp_ack", Some(Layer::Tcp), 0.2), function("main", Some(Layer::User), 0.4)],
            groups: Vec::new(),
            unattributed_top: Vec::new(),
            packets: PacketCounts::default(),
            requests: 100,
            requests_are_counted: false,
            cpu_check: CpuCheck {
                sampled_ns: CPU_NS,
                scheduler_ns: CPU_NS,
                difference_ratio: None,
                steal_ratio: None,
                arrivals: Arrivals::default(),
            },
            coverage: Coverage::default(),
            events: Vec::new(),
            losses: Losses::default(),
            calibration: None,
            doubts: Vec::new(),
            stacks: Default::default(),
        }
    }

    fn exact(shares: &[(Option<Layer>, f64)]) -> ExactProfile {
        let layers = shares.iter().map(|(layer, share)| ExactRow {
            layer: *layer,
            cpu_ns: share * 1e8,
            measured_ns: (share * 1.2e8) as u64,
            entries: 10,
            share_ratio: Some(Estimate { value: *share, plus_minus: Some(0.01) }),
            us_per_packet: None,
            us_per_request: None,
        });
        let check = SumCheck { summed_ns: 1, expected_ns: 1, difference_ratio: Some(0.0) };
        ExactProfile {
            method: "exact",
            machine: Machine {
                port: 80,
                pid: 1,
                command: "server".into(),
                cpus: 1,
                hooked: Vec::new(),
                unhooked: Vec::new(),
                attach_ns: 0,
                detach_ns: 0,
                duration_ns: 0,
            },
            bursts: 10,
            measured_ns: 1,
            layers: layers.collect(),
            cpu_ns: 1e8,
            packets: PacketCounts::default(),
            requests: 0,
            system_calls: 0,
            peer_in_server_ns: 0,
            scheduler_check: check,
            clock_check: check,
            perturbation: Perturbation {
                costs: HookCosts::default(),
                hooks: 0,
                programs_ns: 0,
                around_ns: 0.0,
                share_ratio: 0.0,
                ns_per_packet: None,
            },
            unpaired: Default::default(),
            doubts: Vec::new(),
        }
    }

    fn near(found: Option<Estimate>, wanted: f64) {
        let found = found.expect("an estimate").value;
        assert!((found - wanted).abs() < 1e-6 * wanted.max(1.0), "{found} instead of {wanted}");
    }

    fn whole(profile: &Profile, layer: Option<Layer>) -> &LayerRow {
        profile.layer(layer).expect("the layer's row")
    }

    #[test]
    fn every_row_is_scaled_with_its_layer_and_the_whole_stays() {
        let tcp = Some(Layer::Tcp);
        let mut profile = sampled(vec![
            row(Some(Layer::User), "", 0.4),
            row(tcp, "", 0.5),
            row(tcp, "segments", 0.3),
            row(tcp, "acknowledgements", 0.2),
            row(Some(Layer::Driver), "", 0.1),
            row(None, "", 0.0),
        ]);
        let shares = [(Some(Layer::User), 0.2), (tcp, 0.6), (Some(Layer::Driver), 0.2), (None, 0.0)];
        calibrate(&mut profile, exact(&shares));
        for (layer, share) in shares {
            let row = whole(&profile, layer);
            near(row.share_ratio, share);
            assert!((row.cpu_ns - share * CPU_NS).abs() < 1.0, "{row:?}");
            near(row.us_per_packet, share * 1000.0);
            near(row.us_per_request, share * 10_000.0);
        }
        let wholes: f64 = profile.layers.iter().filter(|row| row.part.is_empty()).map(|row| row.cpu_ns).sum();
        assert!((wholes - CPU_NS).abs() < 1.0, "the server's CPU time is the scheduler's");
        // Parts keep their proportion within the layer, and their sum is the layer.
        let part = |part: &str| profile.layers.iter().find(|row| row.part == part).expect("the part's row");
        near(part("segments").share_ratio, 0.36);
        near(part("acknowledgements").share_ratio, 0.24);
        near(part("segments").us_per_packet, 360.0);
        assert!((part("segments").cpu_ns - 0.36 * CPU_NS).abs() < 1.0);
        assert_eq!(part("segments").samples, 300, "samples stay counts of samples");
        let half = part("segments").us_per_packet.and_then(|estimate| estimate.plus_minus).expect("an interval");
        assert!((half - 36.0).abs() < 1e-6, "the interval is scaled too: {half}");
        // Functions follow the layer that they were charged to.
        assert!(
            (profile.functions[0].server_ratio - 0.24).abs() < 1e-9
                && (profile.functions[1].server_ratio - 0.2).abs() < 1e-9
        );
        let calibration = profile.calibration.as_ref().expect("it says what was corrected");
        let tcp = calibration.corrections.iter().find(|correction| correction.layer == tcp).expect("TCP");
        near(tcp.difference, 0.1);
        assert_eq!((profile.method, calibration.sampler_ratio), ("calibrated", 0.0));
    }

    #[test]
    fn a_layer_that_no_sample_met_is_as_large_as_the_bursts_say() {
        let mut profile = sampled(vec![row(Some(Layer::User), "", 1.0), row(Some(Layer::Driver), "", 0.0)]);
        profile.layers[1].share_ratio = None;
        calibrate(&mut profile, exact(&[(Some(Layer::User), 0.9), (Some(Layer::Driver), 0.1)]));
        let driver = whole(&profile, Some(Layer::Driver));
        near(driver.share_ratio, 0.1);
        assert!((driver.cpu_ns - 0.1 * CPU_NS).abs() < 1.0);
        near(driver.us_per_packet, 100.0);
    }

    #[test]
    fn the_samplers_own_work_is_left_out_of_what_is_compared() {
        let other = Some(Layer::Other);
        let mut profile = sampled(vec![
            row(Some(Layer::User), "", 0.6),
            row(other, "", 0.4),
            row(other, MEASUREMENT, 0.2),
            row(other, "interrupts", 0.2),
        ]);
        calibrate(&mut profile, exact(&[(Some(Layer::User), 0.75), (other, 0.25)]));
        let calibration = profile.calibration.as_ref().expect("it says what was corrected");
        assert!((calibration.sampler_ratio - 0.2).abs() < 1e-9);
        // Without the sampler, 0.6 and 0.2 of 0.8: the same as in the bursts.
        for correction in &calibration.corrections {
            assert!(correction.difference.expect("both").value.abs() < 1e-9, "{correction:?}");
        }
        assert!(!profile.layers.iter().any(|row| row.part == MEASUREMENT));
        near(whole(&profile, other).share_ratio, 0.25);
    }

    #[test]
    fn a_load_that_changed_around_the_bursts_is_doubted() {
        let steady = [500, 510, 490, 500, 505, 495, 500, 500, 510];
        assert_eq!(load_doubt(&steady), None);
        let doubt = load_doubt(&[500, 500, 500, 500, 200, 200, 200, 200]).expect("it fell to less than half");
        assert!(doubt.what.contains("500") && doubt.what.contains("200"), "{doubt:?}");
        assert_eq!(load_doubt(&[5, 5, 1, 1]), None, "a few packets differ by chance");
        assert_eq!((load_doubt(&[]), load_doubt(&[7])), (None, None));
    }
}
