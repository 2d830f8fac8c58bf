//! The guest's part of the tests of the exact profile.

use super::load::Actor;
use crate::boot::LONG;
use crate::guest::print_verified;
use observe::profile::exact::{self, BURSTS, BurstOptions, ExactProfiler};
use observe::profile::{ProfileOptions, Profiler};
use record::layers::Layer;
use record::profile::{ExactProfile, LayerRow, MEASUREMENT, SampledEstimate};
use std::time::Duration;

/// Percentage points by which the two methods may differ in a layer, beyond the interval of the difference.
const POINTS: f64 = 2.0;

/// Fails unless layers are charged correctly. `profile.rs` shows for the sampled profile that a known share of user
/// time is recovered; the long form does so for this one, because hooking takes most of the time.
pub fn charges_every_layer() {
    let mut failed = 0;
    let mut say = |what: &str, result: Result<String, String>| match result {
        Ok(said) => println!("guest: {what}: {said}"),
        Err(said) => {
            failed += 1;
            println!("guest: {what}: NOT AS ASKED: {said}");
        }
    };
    assert_eq!(exact::why_not_possible(), None);
    if std::env::var_os(LONG).is_some() {
        say("a known share of user time", known_share());
    }
    say("layers of a server, exact and sampled", both_ways(&mut |what, result| println!("guest: {what}: {result}")));
    assert_eq!(failed, 0);
}

fn burst_options(port: u16) -> BurstOptions {
    let burst = Duration::from_millis(if std::env::var_os(LONG).is_some() { 100 } else { 50 });
    BurstOptions { port, netns_pid: None, burst }
}

fn known_share() -> Result<String, String> {
    let mut server = Actor::start("share");
    let mut profiler = ExactProfiler::attach(burst_options(server.port())).map_err(|error| error.to_string())?;
    server.say("1.5");
    for _ in 0..BURSTS {
        profiler.burst().map_err(|error| error.to_string())?;
    }
    server.read("share");
    let exact = profiler.finish().map_err(|error| error.to_string())?;
    // The server reads its clock without hooks, whose cost would be included.
    server.say("1");
    let truth = server.read("share").parse::<f64>().unwrap() * 100.0;
    let user = exact.layer(Some(Layer::User)).unwrap().share_ratio.unwrap().value * 100.0;
    let said = format!("true {truth:.2} %, exact {user:.2} %");
    check_sums(&exact)?;
    if (user - truth).abs() < 1.0 { Ok(said) } else { Err(said) }
}

fn check_sums(exact: &ExactProfile) -> Result<(), String> {
    for check in [exact.scheduler_check, exact.clock_check] {
        if check.difference_ratio.is_none_or(|difference| difference.abs() > 0.02) {
            return Err(format!("{check:?}"));
        }
    }
    let lost = exact.unpaired;
    let unpaired = lost.not_entered + lost.not_left + lost.too_deep + lost.lost_threads;
    if unpaired * 1000 > exact.perturbation.hooks { Err(format!("{lost:?}")) } else { Ok(()) }
}

fn both_ways(show: &mut dyn FnMut(&str, &str)) -> Result<String, String> {
    let mut server = Actor::start("server");
    let port = server.port();
    let client = Actor::start(&format!("client {port}"));
    // Programs are attached and removed while no thread waits for the CPU: the kernel waits for every thread to pass,
    // and the guest's clock skips waiting time.
    let mut options = ProfileOptions::new(port);
    options.events.clear();
    // As many samples as in six seconds at the usual frequency, or in two.
    let seconds = if std::env::var_os(LONG).is_some() { 3 } else { 1 };
    (options.frequency_hz, options.duration) = (1_999, Duration::from_secs(seconds));
    let mut sampler = Profiler::attach(options).map_err(|error| error.to_string())?;
    print_verified();
    client.go_on();
    std::thread::sleep(Duration::from_millis(100));
    sampler.begin().map_err(|error| error.to_string())?;
    while !sampler.is_due() {
        std::thread::sleep(Duration::from_millis(100));
        sampler.tick().map_err(|error| error.to_string())?;
    }
    client.pause();
    let sampled = sampler.end(None).map_err(|error| error.to_string())?;
    drop(sampler);
    let mut profiler = ExactProfiler::attach(burst_options(port)).map_err(|error| error.to_string())?;
    print_verified();
    client.go_on();
    std::thread::sleep(Duration::from_millis(100));
    for _ in 0..BURSTS {
        profiler.burst().map_err(|error| error.to_string())?;
    }
    client.pause();
    let exact = profiler.finish().map_err(|error| error.to_string())?;
    let words = |layer: Option<Layer>, share: Option<SampledEstimate>| {
        let share = share.map_or("not measured".into(), |share| format!("{:.1} %", share.value * 100.0));
        format!("{}: {share}", layer.map_or("unattributed", Layer::word))
    };
    for row in &exact.layers {
        show("exact", &words(row.layer, row.share_ratio));
    }
    // The sampler's own work belongs to neither.
    let is_own = |row: &&LayerRow| row.layer == Some(Layer::Other) && row.part == MEASUREMENT;
    let own = sampled.layers.iter().find(is_own).and_then(|row| row.share_ratio).map_or(0.0, |share| share.value);
    let by_samples = |layer: Option<Layer>| {
        let share = sampled.layer(layer).and_then(|row| row.share_ratio)?;
        let without = if layer == Some(Layer::Other) { share.value - own } else { share.value };
        Some(SampledEstimate { value: without / (1.0 - own), ..share })
    };
    for row in &exact.layers {
        show("sampled", &words(row.layer, by_samples(row.layer)));
    }
    check_sums(&exact)?;
    let mut worst = (f64::MIN, String::new());
    let mut sums = (0.0, 0.0);
    for row in &exact.layers {
        let percent = |share: Option<SampledEstimate>| share.map_or(0.0, |share| share.value * 100.0);
        let half = |share: Option<SampledEstimate>| share.and_then(|share| share.plus_minus);
        let (exactly, sampled) = (row.share_ratio, by_samples(row.layer));
        sums = (sums.0 + percent(exactly), sums.1 + percent(sampled));
        let interval = half(exactly).zip(half(sampled)).map_or(0.0, |(a, b)| a.hypot(b)) * 100.0;
        let beyond = (percent(exactly) - percent(sampled)).abs() - interval;
        if beyond >= worst.0 {
            let shares = format!("exact {:.1} %, sampled {:.1} %", percent(exactly), percent(sampled));
            worst = (beyond, format!("{:?}: {shares}, +-{interval:.1}", row.layer));
        }
    }
    if (sums.0 - 100.0).abs() > 0.01 || (sums.1 - 100.0).abs() > 0.01 {
        return Err(format!("the shares' sums are {sums:?}"));
    }
    let said = format!(
        "largest difference {:.2} points beyond the interval ({}), n = {} samples",
        worst.0,
        worst.1,
        sampled.samples.server()
    );
    if worst.0 < POINTS { Ok(said) } else { Err(said) }
}
