//! The first process of the guest: prepares the two ends of a network, gives the host the addresses of the kernel's
//! functions, stops the machine so that it can be saved, and does one job after each resumption.

mod bench;
mod host;
mod network;
mod server;
mod sys;

use model::job::{Job, Work};
use std::fmt::Display;

/// A sentence for the host in place of a result.
pub type Outcome<T> = Result<T, String>;

/// Makes a message of the failed action and the reason.
pub fn because<E: Display>(what: impl Display) -> impl FnOnce(E) -> String {
    move |why| format!("{what}: {why}")
}

fn main() {
    if std::process::id() != 1 {
        eprintln!("this program runs only as the first process of a simulated machine");
        std::process::exit(2);
    }
    let outcome = prepare().and_then(|()| {
        host::save_here();
        host::read_job().and_then(|text| Job::from_text(&text)).and_then(work)
    });
    if let Err(sentence) = outcome {
        host::say(&format!("error {}\n", sentence.replace('\n', " ")));
    }
    host::say("done\n");
    sys::power_off();
}

/// Prepares the guest up to the state that is saved.
fn prepare() -> Outcome<()> {
    sys::mount("proc", "/proc", "proc")?;
    sys::mount("sysfs", "/sys", "sysfs")?;
    sys::mount("devtmpfs", "/dev", "devtmpfs")?;
    sys::mount("tmpfs", "/run", "tmpfs")?;
    sys::allow_ports()?;
    sys::allow_descriptors(65_536)?;
    for module in ["veth", "sch_netem"] {
        sys::load_module(&format!("/modules/{module}.ko"))?;
    }
    network::lay()?;
    let kernel = std::fs::read_to_string("/proc/kallsyms").map_err(because("cannot read the kernel's functions"))?;
    host::show("symbols", kernel.as_bytes());
    // Some kernels lack it. Without it objects are not distinguished.
    let types = std::fs::read("/sys/kernel/btf/vmlinux").unwrap_or_default();
    host::show("types", &types);
    // They stay where the host will look for them.
    std::mem::forget((kernel, types));
    Ok(())
}

fn work(job: Job) -> Outcome<()> {
    network::introduce(false)?;
    sys::mark::<1>();
    network::introduce(true)?;
    network::delay(job.delay_us)?;
    match &job.work {
        Work::Bench(bench) => bench::run(bench),
        Work::Server(server) => server::run(server),
    }
}
