//! Times the solvers of `analyze::predict` for `bench/predict/run`: one CSV line per round.

use analyze::predict::check;
use statistics::server::ModelPoint;
use std::time::Instant;

fn readings() -> Vec<ModelPoint> {
    let mut all = Vec::new();
    for repeat in 0..5 {
        for step in 0..13 {
            let load = f64::from(1 << step);
            let wobble = 1.0 + 0.01 * f64::from((repeat * 7 + step * 3) % 5 - 2);
            let demand_s = 12e-6 * (1.0 + load / 5000.0) / wobble;
            let rate = (load / (100e-6 + demand_s)).min(0.98 / demand_s);
            all.push(ModelPoint {
                load,
                in_flight: 1.0,
                is_in_order: true,
                cold: 0.0,
                throughput_per_sec: rate,
                demand_s,
                busy_cpus: rate * demand_s,
                user_cpus: None,
                kernel_cpus: None,
                mean_s: Some(load / rate),
                p50_s: None,
                p99_s: None,
                failed: false,
                threads: None,
            });
        }
    }
    all.sort_by(|a, b| a.load.total_cmp(&b.load));
    all
}

fn timed<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let started = Instant::now();
    let result = work();
    (started.elapsed().as_secs_f64() * 1e3, result)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("round,what,ms,check");
    for round in 0..9 {
        let readings = readings();
        let (ms, chosen) = timed(|| check::choose(&readings, 1.0));
        let server = chosen?.server;
        println!("{round},cross-validation of 12 models on 13 levels,{ms:.2},{}", server.form.word().replace(',', ""));
        let (ms, servers) = timed(|| check::resampled(&readings, &server, 1000));
        println!("{round},bootstrap of 1000 resamples of 65 points,{ms:.2},{} fits", servers.len());
    }
    Ok(())
}
