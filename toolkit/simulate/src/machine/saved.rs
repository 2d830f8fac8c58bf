//! One boot, from which every point begins.

use super::cache::{self, Cache};
use super::free_memory;
use super::memory_file::MemoryFile;
use super::plugin_file;
use super::qemu::{Limits, Qemu, Running, Start};
use super::qmp::Qmp;
use crate::SimulateError;
use crate::exchange::{Answer, Order};
use crate::guest::job::Job;
use crate::guest::{Functions, Image, Kernel};
use crate::kernel_types::{Btf, Variables};
use record::PlainText;
use serde_json::json;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Every job file has this size, because the size is part of the saved machine.
const JOB_BYTES: usize = 16 << 10;
/// Maximum size of the kernel's list of functions, and of its types.
const LONGEST_LIST: u64 = 64 << 20;

/// A guest that booted and stopped before the instruction that reads its job.
pub struct Saved {
    kernel: Kernel,
    image: MemoryFile,
    state: MemoryFile,
    plugin: MemoryFile,
    seed: u64,
    limits: Limits,
    qemu: Qemu,
    /// Its kernel's functions.
    pub functions: Functions,
    /// Its kernel's variables.
    pub variables: Variables,
    types: Vec<u8>,
}

/// A debugger that steps a stopped machine. The socket carries gdb's remote protocol.
pub type Debugger<'d> = dyn FnMut(UnixStream) -> Result<(), SimulateError> + 'd;

/// The result of a point.
pub struct Resumed {
    /// Lines of the guest's first process, as word and value.
    pub words: Vec<(String, String)>,
    /// The plugin's counts.
    pub answer: Answer,
}

/// The kept parts of a guest: the machine, the kernel's list of functions, and its types.
const FILES: [&str; 3] = ["state", "symbols", "types"];

impl Saved {
    /// The guest that booted this image with a workload's files, kept from an earlier boot on this machine, or booted
    /// and kept now. `seed` is a word on the kernel's command line, which only changes addresses in memory.
    pub fn boot(
        qemu: &Qemu,
        kernel: &Kernel,
        (image, files): (&Image, Option<&Image>),
        seed: u64,
        limits: Limits,
        begins: &mut dyn FnMut(),
        stop: &dyn Fn() -> bool,
    ) -> Result<Saved, SimulateError> {
        // The kernel unpacks one archive after another.
        let bytes = [image.to_bytes(), files.map(Image::to_bytes).unwrap_or_default()].concat();
        free_memory::check(limits.memory_mib, 2 * bytes.len() as u64)?;
        let kernel_bytes = std::fs::read(&kernel.image)
            .map_err(SimulateError::system(format!("cannot read {}", kernel.image.display())))?;
        let numbers = format!("{seed} {}", limits.memory_mib);
        let name = cache::name_of(&[qemu.identity().as_bytes(), &kernel_bytes, &bytes, numbers.as_bytes()]);
        let image = MemoryFile::with("guest-image", &bytes)?;
        let cache = Cache::open();
        let [state, symbols, types] = match cache.as_ref().and_then(|cache| cache.get(&name, FILES)) {
            Some(files) => files.map(MemoryFile::opened),
            None => {
                begins();
                let mut files = boot(qemu, kernel, &image, seed, limits, stop)?;
                if let Some(cache) = cache {
                    let [state, symbols, types] = files.each_mut().map(MemoryFile::rewound);
                    let [mut state, mut symbols, mut types] = [state?, symbols?, types?];
                    // A guest that cannot be kept is booted again the next time.
                    let _ =
                        cache.put(&name, [(FILES[0], &mut state), (FILES[1], &mut symbols), (FILES[2], &mut types)]);
                }
                files
            }
        };
        let symbols = symbols.text();
        let functions = Functions::parse(&symbols);
        if functions.functions.len() < 1000 {
            return Err(SimulateError::Guest("the guest's kernel does not list its functions".into()));
        }
        Ok(Saved {
            kernel: kernel.clone(),
            image,
            state,
            plugin: MemoryFile::with("straingauge-plugin", &plugin_file::for_interface(qemu.interface)?)?,
            seed,
            limits,
            qemu: qemu.clone(),
            functions,
            variables: Variables::parse(&symbols),
            types: types.bytes(),
        })
    }

    /// The machine as it was saved.
    fn start<'s>(&'s self, job: &'s MemoryFile) -> Start<'s> {
        Start {
            kernel: &self.kernel.image,
            image: &self.image,
            seed: self.seed,
            limits: self.limits,
            job,
            state: Some(&self.state),
            plugin: None,
            debugger: None,
        }
    }

    /// Loads the state into a machine that waits for it.
    fn bring_back(&mut self, control: &mut Qmp, alive: &mut Alive<'_>) -> Result<(), SimulateError> {
        control.give_file("state", self.state.rewound()?.as_fd(), alive)?;
        control.command("migrate-incoming", json!({ "uri": "fd:state" }), alive)?;
        while control.command("query-status", json!({}), alive)?["status"] == "inmigrate" {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Bytes of the guest's memory.
    pub fn memory_bytes(&self) -> u64 {
        self.limits.memory_mib << 20
    }

    /// Its kernel's types, or why they are unknown.
    pub fn types(&self) -> Result<Btf, String> {
        if self.types.is_empty() {
            return Err("this kernel has no type information (CONFIG_DEBUG_INFO_BTF)".into());
        }
        Btf::parse(self.types.clone()).map_err(|why| why.to_string())
    }

    /// The seed of its boot.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Resumes the machine, does the job under the plugin, and reads the result.
    pub fn resume(&mut self, job: &Job, order: &Order, stop: &dyn Fn() -> bool) -> Result<Resumed, SimulateError> {
        self.resume_by(job, order, None, stop)
    }

    /// Like [`Saved::resume`], but under a debugger, with which a test learns more about each instruction than the
    /// plugin can know. The debugger gets the machine stopped and starts it by gdb's remote protocol; the guest does
    /// its job after the debugger detaches.
    pub fn resume_debugged(
        &mut self,
        job: &Job,
        order: &Order,
        debugger: &mut Debugger<'_>,
        stop: &dyn Fn() -> bool,
    ) -> Result<Resumed, SimulateError> {
        self.resume_by(job, order, Some(debugger), stop)
    }

    fn resume_by(
        &mut self,
        job: &Job,
        order: &Order,
        debugger: Option<&mut Debugger<'_>>,
        stop: &dyn Fn() -> bool,
    ) -> Result<Resumed, SimulateError> {
        let mut text = job.to_text().into_bytes();
        if text.len() > JOB_BYTES {
            return Err(SimulateError::Impossible(format!(
                "the server's and the load's command lines are longer than the {JOB_BYTES} bytes that the guest reads"
            )));
        }
        text.resize(JOB_BYTES, b'\n');
        let job = MemoryFile::with("guest-job", &text)?;
        let order = MemoryFile::with("plugin-order", order.to_text().as_bytes())?;
        let answer = MemoryFile::new("plugin-answer")?;
        let (ours, theirs) = UnixStream::pair().map_err(SimulateError::system("cannot make a socket"))?;
        let start = Start {
            plugin: Some([&self.plugin, &order, &answer]),
            debugger: debugger.as_ref().map(|_| theirs.as_fd()),
            ..self.start(&job)
        };
        let mut running = self.qemu.start(&start)?;
        let mut control = running.control.take().ok_or(no_control())?;
        let alive = &mut || running.is_alive(stop);
        self.bring_back(&mut control, alive)?;
        drop(theirs);
        match debugger {
            None => drop(control.command("cont", json!({}), alive)?),
            Some(debugger) => {
                // QEMU reports every stop and start; these reports are not read.
                drop(control);
                debugger(ours)?;
            }
        }
        running.wait(stop)?;
        let words = words_of(&running);
        if let Some(error) = said_error(&words) {
            return Err(error);
        }
        match (words.iter().any(|(word, _)| word == "done"), Answer::from_text(&answer.text())) {
            (true, Some(answer)) => Ok(Resumed { words, answer }),
            _ => Err(SimulateError::Qemu { words: running.last_words() }),
        }
    }
}

type Alive<'a> = dyn FnMut() -> Result<(), SimulateError> + 'a;

/// Boots the image; returns the machine, the kernel's list of functions, and its types.
fn boot(
    qemu: &Qemu,
    kernel: &Kernel,
    image: &MemoryFile,
    seed: u64,
    limits: Limits,
    stop: &dyn Fn() -> bool,
) -> Result<[MemoryFile; 3], SimulateError> {
    let job = MemoryFile::with("guest-job", &[b'\n'; JOB_BYTES])?;
    let kernel = &kernel.image;
    let start = Start { kernel, image, seed, limits, job: &job, state: None, plugin: None, debugger: None };
    let mut running = qemu.start(&start)?;
    let mut control = running.control.take().ok_or(no_control())?;
    let words = stops_ready(&mut running, &mut control, stop)?;
    let alive = &mut || running.is_alive(stop);
    let symbols = shown(&words, "symbols", &mut control, alive)?;
    let types = shown(&words, "types", &mut control, alive)?;
    let state = save(&mut control, alive)?;
    free_memory::check(limits.memory_mib, 0)?;
    Ok([state, symbols, types])
}

/// Waits until the guest has stopped to be saved; returns its words.
fn stops_ready(
    running: &mut Running,
    control: &mut Qmp,
    stop: &dyn Fn() -> bool,
) -> Result<Vec<(String, String)>, SimulateError> {
    control.event("GUEST_PANICKED", &mut || running.is_alive(stop))?;
    let words = words_of(running);
    if !words.iter().any(|(word, _)| word == "ready") {
        // A panic of the kernel itself stops the machine, too.
        return Err(said_error(&words).unwrap_or_else(|| SimulateError::Qemu { words: running.last_words() }));
    }
    Ok(words)
}

/// The state of a machine that has stopped.
fn save(control: &mut Qmp, alive: &mut Alive<'_>) -> Result<MemoryFile, SimulateError> {
    let mut state = MemoryFile::new("guest-state")?;
    control.command("migrate-set-parameters", json!({ "max-bandwidth": 10_000_000_000_u64 }), alive)?;
    control.give_file("state", state.rewound()?.as_fd(), alive)?;
    control.command("migrate", json!({ "uri": "fd:state" }), alive)?;
    loop {
        let progress = control.command("query-migrate", json!({}), alive)?;
        match progress["status"].as_str() {
            Some("completed") => return Ok(state),
            Some("failed" | "cancelled") => {
                return Err(SimulateError::Qemu { words: format!("the machine cannot be saved: {progress}") });
            }
            _ => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Reads the memory that the guest's first process shows under a name; empty if it shows none.
fn shown(
    words: &[(String, String)],
    name: &str,
    control: &mut Qmp,
    alive: &mut Alive<'_>,
) -> Result<MemoryFile, SimulateError> {
    let place = words.iter().find(|(word, _)| word == name).and_then(|(_, value)| {
        let (address, size) = value.split_once(' ')?;
        Some((address.parse::<u64>().ok()?, size.parse::<u64>().ok()?))
    });
    let file = MemoryFile::new("guest-memory")?;
    let Some((address, size)) = place.filter(|(_, size)| (1..=LONGEST_LIST).contains(size)) else { return Ok(file) };
    // The machine is stopped in the first process, so addresses refer to its memory. QEMU opens the file of this
    // process by its descriptor.
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.number());
    let read = json!({ "val": address, "size": size, "filename": path, "cpu-index": 0 });
    control.command("memsave", read, alive)?;
    Ok(file)
}

fn no_control() -> SimulateError {
    SimulateError::Qemu { words: "its control socket is gone".into() }
}

fn words_of(running: &Running) -> Vec<(String, String)> {
    let text = running.words.text();
    let split = |line: &str| match line.split_once(' ') {
        Some((word, value)) => (word.to_string(), value.to_string()),
        None => (line.to_string(), String::new()),
    };
    text.lines().map(split).collect()
}

fn said_error(words: &[(String, String)]) -> Option<SimulateError> {
    words.iter().find(|(word, _)| word == "error").map(|(_, why)| SimulateError::Guest(PlainText::new(why, 500).into()))
}
