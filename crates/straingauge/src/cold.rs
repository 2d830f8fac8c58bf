//! Cold connections for machines without io_uring where one process may not open as many descriptors: several
//! processes, each with its own herd, and one interface to all.
//!
//! A helper is this program again. It reads its part as a line of JSON on its standard input, then target numbers, one
//! a line. It answers with its counts, one line of JSON every 100 ms, and ends when its input does.

use crate::failure::wrong_usage;
use anyhow::{Context, Result, bail};
use load::LoadError;
use load::cold::{ColdCounts, ColdHerd, Keep, figures};
use record::{Figures, LoadPlan};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Descriptors of a helper that are not cold connections.
const SPARE: u64 = 128;
/// More processes than this would be a mistake.
const MOST_HELPERS: u64 = 64;
const TOLD_EVERY: Duration = Duration::from_millis(100);

/// Environment variable that forces a way of holding connections: `descriptors` or `helpers`, for tests.
const FORCED: &str = "STRAINGAUGE_COLD";

/// A herd in this process, or in helpers.
pub enum Cold {
    /// All of it is in this process.
    Here(ColdHerd),
    /// Each holds a part.
    Helpers(Helpers),
}

/// Helper processes.
pub struct Helpers {
    all: Vec<Helper>,
    slab_before: Option<u64>,
    slab_filled: Option<u64>,
    why: String,
}

struct Helper {
    child: Child,
    /// `None` once it is ordered to end.
    input: Option<ChildStdin>,
    counts: Arc<Mutex<Counts>>,
    most: u64,
}

/// What a helper reports.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Counts {
    established: u64,
    #[serde(default)]
    is_in_doubt: bool,
    opened: u64,
    dropped: u64,
    failed: u64,
    cpu_ns: u64,
    user_bytes: u64,
    #[serde(default)]
    trouble: Option<String>,
}

/// The first line that a helper is sent.
#[derive(Serialize, Deserialize)]
struct Part {
    plan: LoadPlan,
    most: u64,
}

impl Cold {
    /// Begins an empty herd that can grow to `most`: by io_uring where the kernel has it, else with a descriptor for
    /// each where they suffice, else in several processes.
    pub fn begin(plan: &LoadPlan, most: u64) -> Result<Cold> {
        let forced = std::env::var(FORCED).unwrap_or_default();
        let keep = if forced.is_empty() { Keep::Best } else { Keep::Descriptors };
        let begun = if forced == "helpers" { None } else { Some(ColdHerd::begin(plan, most, keep)) };
        match begun {
            Some(Ok(herd)) => Ok(Cold::Here(herd)),
            Some(Err(error @ LoadError::ColdDescriptors { .. })) => {
                Ok(Cold::Helpers(Helpers::begin(plan, most, error.to_string())?))
            }
            None => Ok(Cold::Helpers(Helpers::begin(plan, most, "helpers are forced".into())?)),
            Some(Err(error)) => Err(error.into()),
        }
    }

    /// Brings the connections to `target`; see [`ColdHerd::resize`].
    pub fn resize(
        &mut self,
        target: u64,
        patience: Duration,
        stop: &AtomicBool,
        progress: impl FnMut(u64),
    ) -> Result<()> {
        match self {
            Cold::Here(herd) => herd.resize(target, patience, stop, progress).map_err(anyhow::Error::from),
            Cold::Helpers(helpers) => helpers.resize(target, patience, stop, progress),
        }
    }

    /// The counts now.
    pub fn counts(&self) -> ColdCounts {
        match self {
            Cold::Here(herd) => herd.counts(),
            Cold::Helpers(helpers) => helpers.counts(),
        }
    }

    /// Kernel memory for each connection; see [`ColdHerd::kernel_bytes_per_connection`].
    pub fn kernel_bytes_per_connection(&self) -> Option<f64> {
        match self {
            Cold::Here(herd) => herd.kernel_bytes_per_connection(),
            Cold::Helpers(helpers) => {
                let grown = helpers.slab_filled?.checked_sub(helpers.slab_before?)?;
                let established = helpers.counts().established;
                (established > 0).then(|| grown as f64 / established as f64)
            }
        }
    }

    /// The herd as figures of a point.
    pub fn figures(&self, before: ColdCounts, window_ns: u64) -> Figures {
        figures(self.counts(), before, self.kernel_bytes_per_connection(), window_ns)
    }
}

impl Helpers {
    fn begin(plan: &LoadPlan, most: u64, why: String) -> Result<Helpers> {
        let limit = record::machine::raise_descriptor_limit();
        let each = limit.saturating_sub(SPARE).max(1);
        let count = most.div_ceil(each).max(2);
        if count > MOST_HELPERS {
            bail!(
                "{most} cold connections would need {count} processes of {each} descriptors each ({why}): raise the limit \
                 (ulimit -n), or ask for fewer"
            );
        }
        let program = std::env::current_exe().context("the helpers of the cold connections cannot be started")?;
        let mut all = Vec::new();
        for index in 0..count {
            let part = Part { plan: part_of(plan, index), most: most.div_ceil(count).min(each) };
            all.push(Helper::start(&program, &part).with_context(|| {
                format!("{why}; a helper process for the cold connections cannot be started, either")
            })?);
        }
        Ok(Helpers { all, slab_before: load::cold::kernel_memory(), slab_filled: None, why })
    }

    fn counts(&self) -> ColdCounts {
        let mut sum = ColdCounts::default();
        for helper in &self.all {
            let Ok(counts) = helper.counts.lock() else { continue };
            sum.established += counts.established;
            sum.is_in_doubt |= counts.is_in_doubt;
            sum.opened += counts.opened;
            sum.dropped += counts.dropped;
            sum.failed += counts.failed;
            sum.cpu_ns += counts.cpu_ns;
            sum.user_bytes += counts.user_bytes;
        }
        sum
    }

    fn resize(
        &mut self,
        target: u64,
        patience: Duration,
        stop: &AtomicBool,
        mut progress: impl FnMut(u64),
    ) -> Result<()> {
        let capacity: u64 = self.all.iter().map(|helper| helper.most).sum();
        if target > capacity {
            bail!("{target} cold connections are more than the {capacity} that were prepared for");
        }
        let mut left = target;
        for helper in &mut self.all {
            let part = left.min(helper.most);
            left -= part;
            helper.set_target(part)?;
        }
        let (mut nearest, mut since) = (u64::MAX, Instant::now());
        loop {
            let counts = self.counts();
            if counts.established == target && !counts.is_in_doubt {
                self.slab_filled = load::cold::kernel_memory();
                return Ok(());
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let trouble = self.all.iter().find_map(|helper| helper.counts.lock().ok()?.trouble.clone());
            let distance = counts.established.abs_diff(target);
            if distance < nearest {
                (nearest, since) = (distance, Instant::now());
            } else if trouble.is_some() || since.elapsed() > patience {
                let cause = trouble.unwrap_or_else(|| load::cold::why_not(counts));
                bail!(
                    "only {} of {target} cold connections are established: {cause} ({})",
                    counts.established,
                    self.why
                );
            }
            progress(counts.established);
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The plan of one helper: on loopback with separate source addresses, so that helpers share no ports.
fn part_of(plan: &LoadPlan, index: u64) -> LoadPlan {
    let mut part = plan.clone();
    let target = plan.addresses[0].ip();
    if part.source_addresses.is_empty() && target.is_loopback() && target.is_ipv4() {
        part.source_addresses = (1..=4).map(|last| IpAddr::V4(Ipv4Addr::new(127, 0, 10 + index as u8, last))).collect();
    }
    part
}

impl Helper {
    fn start(program: &std::path::Path, part: &Part) -> Result<Helper> {
        let mut child = Command::new(program)
            .arg("cold-helper")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| program.display().to_string())?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (Some(mut input), Some(output)) = (input, output) else { bail!("a helper has no pipes") };
        let counts = Arc::new(Mutex::new(Counts::default()));
        let theirs = counts.clone();
        std::thread::Builder::new().name("cold-counts".into()).spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if let (Ok(told), Ok(mut counts)) = (serde_json::from_str(&line), theirs.lock()) {
                    *counts = told;
                }
            }
            if let Ok(mut counts) = theirs.lock() {
                counts.trouble.get_or_insert_with(|| "a helper process ended".into());
                counts.established = 0;
            }
        })?;
        writeln!(input, "{}", serde_json::to_string(part)?)?;
        Ok(Helper { child, input: Some(input), counts, most: part.most })
    }

    fn set_target(&mut self, target: u64) -> Result<()> {
        let input = self.input.as_mut().context("the helper was already stopped")?;
        writeln!(input, "{target}").context("a helper process of the cold connections ended")
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // The end of its input ends it.
        self.input = None;
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if begun.elapsed() > Duration::from_secs(5) {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// `straingauge cold-helper`: holds a part of the herd.
pub fn help() -> Result<std::process::ExitCode> {
    let mut lines = BufReader::new(std::io::stdin()).lines();
    let first = lines.next().and_then(Result::ok).unwrap_or_default();
    let part: Part = serde_json::from_str(&first)
        .map_err(|_| wrong_usage("cold-helper is started by straingauge itself, for --cold without io_uring"))?;
    record::machine::raise_descriptor_limit();
    let target = Arc::new(AtomicU64::new(0));
    let is_over = Arc::new(AtomicBool::new(false));
    let (wanted, over) = (target.clone(), is_over.clone());
    std::thread::spawn(move || {
        for line in lines.map_while(Result::ok) {
            if let Ok(number) = line.trim().parse() {
                wanted.store(number, Ordering::SeqCst);
            }
        }
        over.store(true, Ordering::SeqCst);
    });
    let herd = ColdHerd::begin(&part.plan, part.most, Keep::Descriptors);
    let herd = match herd {
        Ok(herd) => herd,
        Err(error) => {
            let counts = Counts { trouble: Some(error.to_string()), ..Counts::default() };
            println!("{}", serde_json::to_string(&counts)?);
            return Ok(std::process::ExitCode::FAILURE);
        }
    };
    while !is_over.load(Ordering::SeqCst) {
        herd.aim(target.load(Ordering::SeqCst).min(part.most));
        let now = herd.counts();
        let counts = Counts {
            established: now.established,
            is_in_doubt: now.is_in_doubt,
            opened: now.opened,
            dropped: now.dropped,
            failed: now.failed,
            cpu_ns: now.cpu_ns,
            user_bytes: now.user_bytes,
            trouble: herd.trouble(),
        };
        // The program that started us is gone.
        if writeln!(std::io::stdout(), "{}", serde_json::to_string(&counts)?).is_err() {
            break;
        }
        std::thread::sleep(TOLD_EVERY);
    }
    Ok(std::process::ExitCode::SUCCESS)
}
