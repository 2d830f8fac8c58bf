//! How fast the simulator is: a line of CSV for each timed step. Run by `bench/simulate/run`.

use simulate::cache::{Geometry, Replacement, Setup};
use simulate::experiment::{Experiment, PointPlan, Workload, sample};
use simulate::guest::{Image, Kernel};
use simulate::machine::{Limits, Qemu, Saved};
use std::time::{Duration, Instant};

/// Rounds, unless the first argument says otherwise.
const ROUNDS: usize = 5;

fn caches(l2_sizes: &[u64]) -> Option<Setup> {
    let level = |size| Geometry::new(size, 16, 64, Replacement::Lru).ok();
    let l1 = Geometry::new(64 << 10, 2, 64, Replacement::Lru).ok()?;
    let tlb = Geometry::new(64 << 12, 8, 4096, Replacement::Lru).ok();
    let l2 = l2_sizes.iter().map(|size| level(*size)).collect::<Option<_>>()?;
    Some(Setup {
        l1i: l1,
        l1d: l1,
        l2,
        l3: None,
        itlb: tlb,
        dtlb: tlb,
        next_line_prefetch: false,
        curve_sample_shift: None,
    })
}

fn main() -> Result<(), simulate::SimulateError> {
    let (qemu, kernel) = (Qemu::find(None)?, Kernel::find(None)?);
    let image = Image::base(&kernel)?;
    let limits = Limits { memory_mib: 512, timeout: Duration::from_secs(600) };
    println!("what,seconds,instructions,client_instructions");
    let began = Instant::now();
    let mut saved = Saved::boot(&qemu, &kernel, &image, 1, limits, &|| false)?;
    println!("boot and save,{:.3},,", began.elapsed().as_secs_f64());
    let plan = PointPlan { connections: 128, rate_per_sec: 8333, delay_us: 0 };
    let kinds = [
        ("instructions alone", None),
        ("full model with 1 L2", caches(&[256 << 10])),
        ("full model with 4 L2", caches(&[256 << 10, 512 << 10, 1 << 20, 2 << 20])),
    ];
    // Interleaved, so that the machine's drift meets all alike.
    let rounds = std::env::args().nth(1).and_then(|typed| typed.parse().ok()).unwrap_or(ROUNDS);
    for _ in 0..rounds {
        for (name, setup) in &kinds {
            for packets in [1000, 9000] {
                let experiment = Experiment {
                    points: vec![plan],
                    seeds: 1,
                    caches: setup.clone(),
                    objects: false,
                    pack: Vec::new(),
                    cost: None,
                    workload: Workload::Bench { warmup_packets: 300, packets },
                    limits,
                    kernel: None,
                    qemu: None,
                };
                let began = Instant::now();
                let sample = sample(&mut saved, &experiment, &plan, &|| false)?;
                let all = sample.all();
                let seconds = began.elapsed().as_secs_f64();
                println!(
                    "{name}; {packets} packets,{seconds:.3},{},{}",
                    all.instructions + all.repeats,
                    sample.client_instructions
                );
            }
        }
    }
    Ok(())
}
