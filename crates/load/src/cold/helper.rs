//! Cold connections where io_uring is missing and one process may not open as many descriptors: several processes, each of which
//! keeps a part of the herd.
//!
//! A helper gets its part as a line of JSON on its standard input, then numbers, one a line. It answers with its counts, one line
//! of JSON every 100 ms, and ends when its input does.

use super::{ColdHerd, Keep, Part, Shared, Told};
use crate::error::LoadError;
use record::LoadPlan;
use record::leftovers::{Kind, MARK, end_process, mark};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Descriptors of a helper that are no cold connections.
const SPARE: u64 = 128;
/// More processes than this would be a mistake.
pub(super) const MOST_HELPERS: u64 = 64;
const TOLD_EVERY: Duration = Duration::from_millis(100);

/// A helper process.
#[derive(Debug)]
pub(super) struct Helper {
    child: Child,
    /// `None` once it is to end.
    input: Option<ChildStdin>,
    pub(super) shared: Arc<Shared>,
    /// It can hold so many.
    pub(super) most: u64,
}

/// What a helper is sent first.
#[derive(Serialize, Deserialize)]
struct Order {
    plan: LoadPlan,
    most: u64,
}

/// As many helpers as `most` connections need; `why` one process is not enough.
pub(super) fn start(plan: &LoadPlan, most: u64, program: &Path, why: &str) -> Result<Vec<Helper>, LoadError> {
    let limit = record::machine::raise_descriptor_limit();
    let each = limit.saturating_sub(SPARE).max(1);
    let count = most.div_ceil(each).max(2);
    if count > MOST_HELPERS {
        return Err(LoadError::Plan(format!(
            "{most} cold connections would need {count} processes of {each} descriptors each ({why}): raise the limit \
             (ulimit -n), or ask for fewer"
        )));
    }
    let start = |index| {
        let order = Order { plan: part_of(plan, index), most: most.div_ceil(count).min(each) };
        Helper::start(program, &order).map_err(|error| {
            LoadError::Plan(format!(
                "{why}; a helper process for the cold connections cannot be started, either: {}: {error}",
                program.display()
            ))
        })
    };
    (0..count).map(start).collect()
}

/// The plan of one helper: on loopback, separate source addresses, so that helpers share no ports.
fn part_of(plan: &LoadPlan, index: u64) -> LoadPlan {
    let mut part = plan.clone();
    let target = plan.addresses[0].ip();
    if part.source_addresses.is_empty() && target.is_loopback() && target.is_ipv4() {
        part.source_addresses = (1..=4).map(|last| IpAddr::V4(Ipv4Addr::new(127, 0, 10 + index as u8, last))).collect();
    }
    part
}

/// The role in the mark of a helper.
const ROLE: &str = "cold-helper";
/// The helpers of a killed process; they end at the end of their input.
pub const LEFTOVERS: Kind = Kind {
    name: "holder of cold connections",
    named: "STRAINGAUGE_MARK=OWNER.cold-helper.NUMBER in its environment",
    find: |scene| scene.processes("holder of cold connections", ROLE),
    remove: end_process,
};

impl Helper {
    fn start(program: &Path, order: &Order) -> io::Result<Helper> {
        let mut child = Command::new(program)
            .arg("cold-helper")
            .env(MARK, mark(ROLE, 0))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let shared = Arc::new(Shared::default());
        let mut helper = Helper { child, input, shared: shared.clone(), most: order.most };
        let output = BufReader::new(output.ok_or(io::ErrorKind::BrokenPipe)?);
        std::thread::Builder::new().name("cold-counts".into()).spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if let Ok(line) = serde_json::from_str::<Told>(&line) {
                    shared.report(|told| *told = line);
                }
            }
            shared.report(|told| {
                told.trouble.get_or_insert_with(|| "a helper process ended".into());
                told.counts.established = 0;
            });
        })?;
        helper.send(&serde_json::to_string(order)?)?;
        Ok(helper)
    }

    fn send(&mut self, line: &str) -> io::Result<()> {
        writeln!(self.input.as_mut().ok_or(io::ErrorKind::BrokenPipe)?, "{line}")
    }

    pub(super) fn aim(&mut self, target: u64) -> Result<(), LoadError> {
        let ended = |error| LoadError::Plan(format!("a helper process of the cold connections ended: {error}"));
        self.send(&target.to_string()).map_err(ended)
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

/// Holds a part of a herd as the process on standard input asks for it, until that ends. An error is of who started this.
pub fn help() -> Result<(), LoadError> {
    let mut lines = BufReader::new(io::stdin()).lines();
    let first = lines.next().and_then(Result::ok).unwrap_or_default();
    let order: Order = serde_json::from_str(&first).map_err(|_| {
        LoadError::Plan("cold-helper is started by straingauge itself, for --cold without io_uring".into())
    })?;
    record::machine::raise_descriptor_limit();
    let herd = match ColdHerd::begin(&order.plan, order.most, Keep::Descriptors) {
        Ok(herd) => herd,
        Err(error) => {
            let _ = tell(&Told { trouble: Some(error.to_string()), ..Told::default() });
            return Ok(());
        }
    };
    let [Part::Thread(shared, _)] = &herd.parts[..] else { return Ok(()) };
    let theirs = shared.clone();
    std::thread::spawn(move || {
        for target in lines.map_while(Result::ok).filter_map(|line| line.trim().parse().ok()) {
            theirs.target.store(order.most.min(target), Ordering::SeqCst);
        }
        theirs.is_ending.store(true, Ordering::SeqCst);
    });
    // If a line cannot be written, the program that started this one is gone.
    while !shared.is_ending.load(Ordering::SeqCst) && tell(&shared.told()).is_ok() {
        std::thread::sleep(TOLD_EVERY);
    }
    Ok(())
}

fn tell(told: &Told) -> io::Result<()> {
    writeln!(io::stdout(), "{}", serde_json::to_string(told)?)
}
