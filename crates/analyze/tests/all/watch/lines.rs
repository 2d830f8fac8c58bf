//! CPU time against request rate.

use analyze::watch::Recording;
use analyze::watch::lines::{between, find};
use analyze::watch::recording::Sample;
use record::watch::system::CpuModes;

fn recording(rates: &[f64], cpus: f64, user_us: f64, kernel_us: f64) -> Recording {
    let mut recording = Recording { has_requests: true, cpus: cpus as u64, ..Recording::default() };
    let (mut requests, mut modes) = (0.0, CpuModes::default());
    let sample = |second: usize, requests: f64, modes: CpuModes| Sample {
        seconds: second as f64 * 2.0,
        requests: requests as u64,
        machine: Some((second as f64 * 2.0, modes)),
        ..Sample::default()
    };
    recording.samples.push(sample(0, 0.0, modes));
    for (index, rate) in rates.iter().enumerate() {
        requests += rate * 2.0;
        modes.user_ms += (rate * 2.0 * user_us / 1e3) as u64;
        modes.system_ms += (rate * 2.0 * kernel_us / 1e3) as u64;
        modes.idle_ms += (cpus * 2e3 - rate * 2.0 * (user_us + kernel_us) / 1e3) as u64;
        recording.samples.push(sample(index + 1, requests, modes));
    }
    recording
}

#[test]
fn rates_use_only_the_counted_time() {
    let at = |seconds: f64, requests, counted_s| Sample {
        seconds,
        requests,
        counted_s,
        server_cpu_s: Some(seconds),
        server_user_s: Some(seconds),
        ..Sample::default()
    };
    let rate = |end| between(&at(0.0, 0, None), &end).map(|window| window.rate_per_sec);
    assert_eq!(rate(at(2.0, 100, None)), Some(50.0));
    assert_eq!(rate(at(2.0, 100, Some(0.5))), Some(200.0));
    assert_eq!(rate(at(2.0, 0, Some(0.0))), None);
}

#[test]
fn slopes_and_capacity_are_recovered() {
    let rates: Vec<f64> = (1..=20).map(|step| step as f64 * 500.0).collect();
    let lines = find(&recording(&rates, 2.0, 20.0, 60.0)).unwrap();
    assert!((lines.user.slope.value * 1e6 - 20.0).abs() < 0.2, "{:?}", lines.user);
    assert!((lines.kernel.slope.value * 1e6 - 60.0).abs() < 0.2);
    let capacity = lines.idle.unwrap().x_intercept.unwrap().value;
    assert!((capacity - 25_000.0).abs() < 100.0, "{capacity}");
}

#[test]
fn a_steady_rate_or_too_few_readings_give_a_reason() {
    let steady = find(&recording(&[1000.0; 20], 2.0, 20.0, 60.0)).unwrap_err();
    assert!(steady.contains("hardly changed"), "{steady}");
    assert!(find(&recording(&[1000.0, 2000.0], 2.0, 20.0, 60.0)).unwrap_err().contains("record for longer"));
    assert!(find(&Recording::default()).unwrap_err().contains("not counted"));
}

#[test]
fn the_servers_own_counters_replace_missing_machine_counters() {
    let mut recording = recording(&[], 2.0, 0.0, 0.0);
    recording.samples = (0..20u64)
        .map(|second| {
            let requests = second * second * 100;
            let cpu = requests as f64 * 50e-6;
            let seconds = second as f64 * 2.0;
            Sample { seconds, requests, server_cpu_s: Some(cpu), server_user_s: Some(cpu / 5.0), ..Sample::default() }
        })
        .collect();
    let lines = find(&recording).unwrap();
    assert!(lines.idle.is_none() && lines.cpus == 0);
    assert!((lines.user.slope.value * 1e6 - 10.0).abs() < 0.1 && (lines.kernel.slope.value * 1e6 - 40.0).abs() < 0.1);
}
