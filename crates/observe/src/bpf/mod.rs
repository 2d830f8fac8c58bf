//! BPF programs: loads, attaches and reads the objects of `bpf/`, which the build script compiles. Nothing is pinned:
//! when this process ends, the kernel closes its descriptors, which removes every program.

mod mapped;
pub mod members;
pub mod types;

pub(crate) use mapped::MappedArray;
pub use types::Shared;

use flate2::read::GzDecoder;
use libbpf_rs::{
    Error, ErrorExt, ErrorKind, Link, Map, MapCore, MapFlags, Object, ObjectBuilder, OpenObject, PrintLevel, ProgramMut,
};
use record::lock;
use std::io::{self, Read};
use std::sync::Mutex;

/// An object that the build script has compressed.
pub struct Compiled(&'static [u8]);

macro_rules! compiled {
    ($name:literal) => {
        &Compiled(include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".bpf.o.gz")))
    };
}
pub static ACCOUNT: &Compiled = compiled!("account");
pub static WATCH: &Compiled = compiled!("watch");
pub static PROFILE: &Compiled = compiled!("profile");
pub static EXACT: &Compiled = compiled!("exact");
pub static SLOW: &Compiled = compiled!("slow");

/// Maximum bytes of libbpf's last messages, which include the verifier's log.
const LOG_BYTES: usize = 64 << 10;

/// The reason why programs were not loaded, attached or read.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Refusal {
    /// libbpf's error.
    pub error: Error,
    /// Messages of libbpf and the verifier.
    log: String,
}

impl Refusal {
    fn missing(part: &str) -> Self {
        Error::from(io::Error::new(io::ErrorKind::NotFound, format!("the compiled object has no {part}"))).into()
    }

    /// Whether the caller lacks a privilege. For refused programs, the verifier returns the same error number, but
    /// logs a reason.
    pub fn is_permission(&self) -> bool {
        self.error.kind() == ErrorKind::PermissionDenied && !self.log.contains("PROG LOAD LOG")
    }

    /// The last lines of libbpf's and the verifier's messages.
    pub fn last_words(&self, lines: usize) -> String {
        let words: Vec<&str> = self.log.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        words[words.len().saturating_sub(lines)..].join("; ")
    }

    /// The program that libbpf names last, as in `prog 'enter_017': failed to load`.
    pub fn program(&self) -> Option<&str> {
        self.log.lines().filter_map(|line| line.split("prog '").nth(1)?.split('\'').next()).next_back()
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Refusal { error, log: String::new() }
    }
}

/// The oldest Linux version on which all programs load (docs/install.md).
const OLDEST: (u32, u32) = (5, 15);

/// The message if the kernel with this release is too old.
pub fn too_old(release: &str) -> Option<String> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().ok());
    let (major, minor) = (numbers.next()??, numbers.next()??);
    let oldest = format!("{}.{}", OLDEST.0, OLDEST.1);
    ((major, minor) < OLDEST)
        .then(|| format!("Linux {major}.{minor} is older than {oldest}, which the BPF programs need"))
}

/// Loads an object. `prepare` sets constants, sizes of maps and which programs to load.
pub fn load(
    object: &'static Compiled,
    prepare: impl FnOnce(&mut OpenObject) -> Result<(), Error>,
) -> Result<Object, Refusal> {
    let mut bytes = Vec::new();
    logged(|| {
        GzDecoder::new(object.0).read_to_end(&mut bytes)?;
        let mut open = ObjectBuilder::default().name("straingauge")?.open_memory(&bytes)?;
        prepare(&mut open)?;
        open.load()
    })
    .map_err(|refusal| {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        match too_old(&release) {
            Some(why) => Refusal { error: refusal.error.context(why), ..refusal },
            None => refusal,
        }
    })
}

/// Runs `work` with libbpf, whose messages are added to the refusal instead of printed.
pub fn logged<T>(work: impl FnOnce() -> Result<T, Error>) -> Result<T, Refusal> {
    /// libbpf has only one message handler per process.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    static LOG: Mutex<String> = Mutex::new(String::new());
    record::fault::step().map_err(Error::from)?;
    let _alone = lock(&ONE_AT_A_TIME);
    lock(&LOG).clear();
    libbpf_rs::set_print(Some((PrintLevel::Warn, |_, text| {
        let mut log = lock(&LOG);
        log.push_str(&text);
        let surplus = log.len().saturating_sub(LOG_BYTES);
        let cut = (surplus..log.len()).find(|at| log.is_char_boundary(*at)).unwrap_or(log.len());
        log.drain(..cut);
    })));
    let done = work();
    libbpf_rs::set_print(None);
    done.map_err(|error| Refusal { error, log: lock(&LOG).clone() })
}

pub fn set_constants<T: Shared>(object: &mut OpenObject, section: &str, value: &T) -> Result<(), Error> {
    let mut map = object.maps_mut().find(|map| map.name() == section);
    let bytes = map.as_mut().and_then(|map| map.initial_value_mut());
    let bytes = bytes.filter(|bytes| bytes.len() == size_of::<T>());
    bytes.ok_or_else(|| Refusal::missing(section).error)?.copy_from_slice(types::bytes_of(value));
    Ok(())
}

pub fn map<'a>(object: &'a Object, name: &str) -> Result<Map<'a>, Refusal> {
    object.maps().find(|map| map.name() == name).ok_or_else(|| Refusal::missing(name))
}

/// The variables of a section that the programs share: one, or an array of them.
pub fn variables<T: Shared>(object: &Object, section: &str) -> Result<Vec<T>, Refusal> {
    let bytes = map(object, section)?.lookup(&0u32.to_ne_bytes(), MapFlags::ANY)?.unwrap_or_default();
    Ok(bytes.chunks_exact(size_of::<T>()).filter_map(types::value_of).collect())
}

pub fn variable<T: Shared + Default>(object: &Object, section: &str) -> Result<T, Refusal> {
    Ok(variables(object, section)?.into_iter().next().unwrap_or_default())
}

pub fn set_variable<T: Shared>(object: &Object, section: &str, value: &T) -> Result<(), Refusal> {
    Ok(map(object, section)?.update(&0u32.to_ne_bytes(), types::bytes_of(value), MapFlags::ANY)?)
}

/// Every key of a map with its value.
pub fn entries<K: Shared, V: Shared>(object: &Object, name: &str) -> Result<Vec<(K, V)>, Refusal> {
    let map = map(object, name)?;
    let mut all = Vec::new();
    for key in map.keys() {
        let value = map.lookup(&key, MapFlags::ANY)?.and_then(|bytes| types::value_of(&bytes));
        all.extend(types::value_of(&key).zip(value));
    }
    Ok(all)
}

/// Empties a map.
pub fn clear(object: &Object, name: &str) -> Result<(), Refusal> {
    let map = map(object, name)?;
    // Collect the keys first, because walking a table while deleting from it may restart.
    for key in map.keys().collect::<Vec<_>>() {
        map.delete(&key)?;
    }
    Ok(())
}

/// Maps a map of `len` values; 0 = all of them.
pub fn mapped<T: Shared>(object: &Object, name: &str, len: usize) -> Result<MappedArray<T>, Refusal> {
    use std::os::fd::AsFd;
    record::fault::step().map_err(Error::from)?;
    let map = map(object, name)?;
    if map.value_size() as usize != size_of::<T>() {
        return Err(Refusal::missing(name));
    }
    let len = if len == 0 { map.max_entries() as usize } else { len };
    MappedArray::new(map.as_fd(), len).map_err(|error| Error::from(error).into())
}

pub fn program<'a>(object: &'a Object, name: &str) -> Result<ProgramMut<'a>, Refusal> {
    object.progs_mut().find(|program| program.name() == name).ok_or_else(|| Refusal::missing(name))
}

/// Attaches a program to the hook of its section.
pub fn attach(object: &Object, name: &str) -> Result<Link, Refusal> {
    let program = program(object, name)?;
    logged(|| program.attach())
}
