//! Tests the attribution against the truth. The plugin counts a window of a real guest, while a debugger steps
//! through the same window instruction by instruction and finds the callers in the stack, with the tables of the
//! kernel's own unwinder. The two share only the layer table and the list of functions.

mod frames;
mod gdb;
mod stepped;

use simulate::attribution::Role;
use simulate::exchange::Order;
use simulate::guest::job::{Bench, Job, Work};
use simulate::guest::{Image, Kernel};
use simulate::machine::{Limits, Qemu, Saved};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use stepped::{Facts, Rows, Truth};

const NAME: &str = "helpers_are_charged_to_the_caller_in_the_stack";
const LIMITS: Limits = Limits { memory_mib: 512, timeout: Duration::from_secs(900) };

/// Packets that are stepped through. Each instruction takes at least a fifth of a millisecond.
fn packets() -> u64 {
    if std::env::var_os("STRAINGAUGE_LONG").is_some_and(|value| value == "1") { 10 } else { 1 }
}

/// The means to run a guest here, or why none can run.
fn guest() -> Result<(Qemu, Kernel, Image), String> {
    let qemu = Qemu::find(None).map_err(|why| why.to_string())?;
    let kernel = Kernel::find(None).map_err(|why| why.to_string())?;
    if !kernel.version.starts_with(frames::KERNEL) {
        return Err(format!("Linux {} has tables of frames that are not those of 6.1", kernel.version));
    }
    let image = Image::base(&kernel).map_err(|why| why.to_string())?;
    Ok((qemu, kernel, image))
}

#[test]
fn helpers_are_charged_to_the_caller_in_the_stack() {
    let (qemu, kernel, image) = match guest() {
        Ok(parts) => parts,
        Err(why) => {
            eprintln!("SKIPPED {NAME}: {why}");
            return;
        }
    };
    let mut saved = Saved::boot(&qemu, &kernel, (&image, None), 1, LIMITS, &mut || {}, &|| false).expect("a boot");
    let types = saved.types().expect("the kernel's types");
    let symbols = saved.functions.symbols();
    let rows = saved.functions.rows.len() as u8;
    let order =
        Order { caches: None, objects: None, watched: saved.functions.watched(), rows, symbols: symbols.clone() };
    let rows = Rows { unattributed: order.unattributed(), user: order.user() };
    let bench = Bench { connections: 2, rate_per_sec: 8333, warmup_packets: 8, packets: packets() };
    let job = Job { delay_us: 0, work: Work::Bench(bench) };
    let facts = Facts::of(&saved, types, symbols.clone(), rows).expect("functions that every kernel has");
    let mut truth = Truth::default();
    let mut debug = |socket| {
        truth = stepped::step(socket, &facts)?;
        Ok(())
    };
    let resumed = saved.resume_debugged(&job, &order, &mut debug, &|| false).expect("a window");

    let mut counted = Counts::new();
    for account in &resumed.answer.accounts {
        *counted.entry((account.function, account.row)).or_default() += account.instructions + account.repeats;
    }
    let found = compare(&counted, &truth.instructions, |function| match function {
        0 => ("(user code)", false),
        number => {
            let name = saved.functions.name(number).map_or("?", |function| &function.name);
            (name, matches!(symbols[number as usize - 1].role, Role::Helps))
        }
    });
    let [all, right, helpers, right_helpers] = found.instructions;
    eprintln!(
        "{right} of {all} instructions of the server's end are charged to the row that the stack names, \
         {right_helpers} of the {helpers} of helpers; {} interrupts of the kernel, {} tail calls",
        truth.interrupts, truth.tail_calls
    );
    let listed = found.wrong.join("\n");
    assert!(truth.interrupts > 0 && truth.tail_calls > 0 && helpers > all / 10, "the window holds too little to tell");
    let (counted, client) = (counted.values().sum::<u64>(), resumed.answer.client_instructions);
    assert_eq!(counted + client, all + truth.client, "no instruction is lost, and none is counted twice\n{listed}");
    assert!(right * 1000 >= all * 999, "{right} of {all}\n{listed}");
    assert!(right_helpers * 1000 >= helpers * 999, "{right_helpers} of {helpers} of helpers\n{listed}");
}

/// Instructions by function and row.
type Counts = BTreeMap<(u32, u8), u64>;

struct Found {
    /// All instructions in truth, those among them that were counted there, and the same for helpers.
    instructions: [u64; 4],
    /// The differences, the largest first.
    wrong: Vec<String>,
}

/// `of_function` returns a function's name and whether it is a helper.
fn compare<'n>(counted: &Counts, truth: &Counts, of_function: impl Fn(u32) -> (&'n str, bool)) -> Found {
    let mut found = Found { instructions: [0; 4], wrong: Vec::new() };
    let places: BTreeSet<_> = counted.keys().chain(truth.keys()).collect();
    let mut wrong = Vec::new();
    for place in places {
        let of = |counts: &Counts| counts.get(place).copied().unwrap_or(0);
        let (said, is) = (of(counted), of(truth));
        let (name, helps) = of_function(place.0);
        found.instructions[0] += is;
        found.instructions[1] += said.min(is);
        if helps {
            found.instructions[2] += is;
            found.instructions[3] += said.min(is);
        }
        if said != is {
            wrong.push((said.abs_diff(is), format!("{name} for row {}: {said} counted, {is} in truth", place.1)));
        }
    }
    wrong.sort_by_key(|(size, _)| std::cmp::Reverse(*size));
    found.wrong = wrong.into_iter().map(|(_, words)| words).collect();
    found
}
