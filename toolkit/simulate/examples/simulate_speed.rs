//! Measures the speed of the simulator, with a line of CSV for each timed step. Run by `toolkit/simulate/bench/run`.
//!
//! Arguments: rounds, the emulator (`toolkit/simulate/bench/beside`), and other plugins as NAME=WORDS. An environment
//! variable tells the emulator which of them to load instead of straingauge's; `none` means none.

use simulate::SimulateError;
use simulate::cache::{Geometry, Replacement, Setup};
use simulate::experiment::{Experiment, Workload, sample};
use simulate::guest::{Image, Kernel};
use simulate::machine::{Limits, Qemu, Saved};
use simulate::simulation::{PointPlan, Sample};
use std::path::Path;
use std::time::{Duration, Instant};

/// Number of rounds, unless the first argument names another.
const ROUNDS: usize = 5;
const CONSTANT: PointPlan = PointPlan { connections: 128, rate_per_sec: 8333, delay_us: 0 };
/// The first rate is more than the guest can send, so that it never idles and seldom wakes threads. A packet then
/// takes half the instructions.
const JOBS: [(&str, PointPlan); 2] =
    [("without pause", PointPlan { rate_per_sec: 1_000_000, ..CONSTANT }), ("constant rate", CONSTANT)];
const LIMITS: Limits = Limits { memory_mib: 512, timeout: Duration::from_secs(600) };
const PACKETS: [u64; 3] = [1000, 8000, 9000];

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

/// Processor time in seconds of the children that have ended. The kernel counts it in hundredths.
fn children_cpu_s() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse().ok()).unwrap_or(0.0);
    (ticks(13) + ticks(14)) / 100.0
}

/// Runs the closure, and prints its duration and the emulator's processor time.
fn timed<T>(work: impl FnOnce() -> T) -> (T, String) {
    let (began, cpu_s) = (Instant::now(), children_cpu_s());
    let out = work();
    (out, format!("{:.3},{:.2}", began.elapsed().as_secs_f64(), children_cpu_s() - cpu_s))
}

fn experiment(plan: PointPlan, caches: Option<Setup>, packets: u64) -> Experiment {
    Experiment {
        points: vec![plan],
        seeds: 1,
        caches,
        objects: false,
        pack: Vec::new(),
        cost: None,
        workload: Workload::Bench { warmup_packets: 300, packets },
        limits: LIMITS,
        kernel: None,
        qemu: None,
    }
}

/// Instructions of the server's and of the client's end.
fn counts_of(sample: &Sample) -> String {
    let all = &sample.all;
    format!("{},{}", all.instructions + all.repeats, sample.client_instructions)
}

fn main() -> Result<(), SimulateError> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rounds = arguments.first().and_then(|typed| typed.parse().ok()).unwrap_or(ROUNDS);
    let (qemu, kernel) = (Qemu::find(arguments.get(1).map(Path::new))?, Kernel::find(None)?);
    let image = Image::base(&kernel)?;
    println!("what,seconds,cpu_seconds,instructions,client_instructions");
    let (saved, times) = timed(|| Saved::boot(&qemu, &kernel, (&image, None), 1, LIMITS, &mut || {}, &|| false));
    let mut saved = saved?;
    println!("boot and save,{times},,");
    let kinds = [
        ("instructions alone", None),
        ("full model with 1 L2", caches(&[256 << 10])),
        ("full model with 4 L2", caches(&[256 << 10, 512 << 10, 1 << 20, 2 << 20])),
    ];
    // Interleaved, so that drift of the machine affects all equally.
    let all = (0..rounds).flat_map(|_| JOBS).flat_map(|job| PACKETS.map(|packets| (job, packets)));
    for ((job, plan), packets) in all {
        for (name, setup) in &kinds {
            let experiment = experiment(plan, setup.clone(), packets);
            let (sample, times) = timed(|| sample(&mut saved, &experiment, &plan, &|| false));
            println!("{name}; {packets} packets; {job},{times},{}", counts_of(&sample?));
        }
        for (name, words) in arguments.iter().skip(2).filter_map(|argument| argument.split_once('=')) {
            let experiment = experiment(plan, None, packets);
            // SAFETY: this process has no other thread.
            unsafe { std::env::set_var("STRAINGAUGE_BENCH_PLUGIN", words) };
            // It does the same job, but its answer has another form.
            let (outcome, times) = timed(|| sample(&mut saved, &experiment, &plan, &|| false));
            // SAFETY: as above.
            unsafe { std::env::remove_var("STRAINGAUGE_BENCH_PLUGIN") };
            match outcome {
                Err(SimulateError::Qemu { .. }) => println!("{name}; {packets} packets; {job},{times},,"),
                Err(other) => return Err(other),
                Ok(_) => return Err(SimulateError::Impossible(format!("{name} did not take the plugin's place"))),
            }
        }
    }
    Ok(())
}
