//! Counts accesses and misses by kind of object and by its words.

use super::{Cache, FIXED, Fixed, Found, Memory, PhysicalMemory, Places};
use crate::cache::{MOST_L2, Misses};
use std::collections::HashMap;

/// Size of a word of an object that is counted separately.
pub const WORD_BYTES: u32 = 4;
/// Words that are moved together when fields are packed.
const GRAIN_BYTES: u32 = 8;
/// Upper bounds of the classes of instructions from the first touch of an object to the miss of one of its lines; one
/// more class is above all of them.
pub const DISTANCES: [u64; 9] = [1, 25, 50, 100, 200, 400, 800, 1600, 3200];
/// Maximum number of kinds. Further ones count as unattributed.
const MOST_KINDS: usize = 4096;
/// Maximum number of distinguished lines of variables.
const MOST_LINES: usize = 1 << 16;
const UNKNOWN_PAGE: u16 = u16::MAX;

/// Counts of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Word {
    /// Loads that begin here.
    pub reads: u64,
    /// Stores that begin here.
    pub writes: u64,
    /// Misses of the first L2 that they caused.
    pub misses: u64,
}

/// Counts of a kind of memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObjectCounts {
    /// Name of the slab cache, or of a fixed kind.
    pub name: String,
    /// Distance from one object to the next in bytes; 0 without objects.
    pub size: u32,
    /// Bytes of an object.
    pub object_size: u32,
    /// Loads.
    pub reads: u64,
    /// Stores.
    pub writes: u64,
    /// Misses of L1D.
    pub l1d_misses: u64,
    /// Misses of the L2 geometries.
    pub l2_misses: [u64; MOST_L2],
    /// Number of times that another object than the last one of this kind was touched.
    pub visits: u64,
    /// Misses of the first L2 by instructions since the visit began, in the classes of [`DISTANCES`] and one more.
    pub distances: [u64; DISTANCES.len() + 1],
    /// Counts by word; empty without objects.
    pub words: Vec<Word>,
    /// Misses of the first L2 by line of 64 bytes of variables, as address (per-CPU: offset) and count.
    pub lines: Vec<(u64, u64)>,
}

/// A layout to try: the new places of the words of a cache's objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packing {
    /// Name of the slab cache.
    pub cache: String,
    /// The new place of each 8 bytes of the object, in order, in units of 8 bytes.
    pub places: Vec<u16>,
}

#[derive(Debug, Default)]
struct Kind {
    counts: ObjectCounts,
    /// 2^32 / size, rounded up, which replaces a division.
    reciprocal: u64,
    /// Places of its words, if another layout is tried.
    packed: Option<Box<[u16]>>,
    object: u64,
    visit_began: u64,
    lines: HashMap<u64, u64>,
}

/// A page of the guest's memory, with its kind and its index in its slab.
#[derive(Debug, Clone, Copy)]
struct Page {
    kind: u16,
    number: u16,
}

/// The place of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    kind: u16,
    /// Offset within the object; 0 without one.
    offset: u32,
    /// The physical address that the caches see.
    pub physical: u64,
}

/// All counts.
pub struct Tally {
    places: Places,
    memory: Option<PhysicalMemory>,
    kinds: Vec<Kind>,
    by_cache: HashMap<u64, u16>,
    pages: Vec<Page>,
    packings: Vec<Packing>,
}

impl Tally {
    /// No counts yet.
    pub fn new(places: Places, memory_bytes: u64, packings: Vec<Packing>) -> Tally {
        let name = |fixed: &Fixed| Kind {
            counts: ObjectCounts { name: fixed.words().into(), ..ObjectCounts::default() },
            ..Kind::default()
        };
        let page = Page { kind: UNKNOWN_PAGE, number: 0 };
        Tally {
            places,
            memory: None,
            kinds: FIXED.iter().map(name).collect(),
            by_cache: HashMap::new(),
            pages: vec![page; (memory_bytes >> 12) as usize],
            packings,
        }
    }

    /// Sets the guest's memory.
    pub fn set_memory(&mut self, memory: PhysicalMemory) {
        self.memory = Some(memory);
        self.places.look_for_per_cpu(&memory);
    }

    /// Restarts the counts. The contents of pages stay known.
    pub fn restart(&mut self) {
        for kind in &mut self.kinds {
            let old = std::mem::take(&mut kind.counts);
            kind.counts = ObjectCounts {
                name: old.name,
                size: old.size,
                object_size: old.object_size,
                words: vec![Word::default(); old.words.len()],
                ..ObjectCounts::default()
            };
            kind.lines.clear();
            kind.object = 0;
        }
    }

    /// The place of an access to the map of all memory. `now` is the count of instructions.
    #[inline]
    pub fn spot(&mut self, physical: u64, now: u64) -> Spot {
        let number = (physical >> 12) as usize;
        let Some(page) = self.pages.get(number) else { return fixed_spot(Fixed::Unknown, physical) };
        let page = if page.kind == UNKNOWN_PAGE { self.learn(physical) } else { *page };
        self.spot_in(page, physical, now)
    }

    #[inline]
    fn spot_in(&mut self, page: Page, physical: u64, now: u64) -> Spot {
        let kind = &mut self.kinds[usize::from(page.kind)];
        if kind.reciprocal == 0 {
            return Spot { kind: page.kind, offset: 0, physical };
        }
        let within = u64::from(page.number) << 12 | physical & 0xfff;
        let index = (within * kind.reciprocal) >> 32;
        let offset = (within - index * u64::from(kind.counts.size)) as u32;
        let object = physical - u64::from(offset);
        if object != kind.object {
            (kind.object, kind.visit_began) = (object, now);
            kind.counts.visits += 1;
        }
        let moved = match &kind.packed {
            Some(packed) => {
                let grain = packed.get((offset / GRAIN_BYTES) as usize).copied();
                grain.map_or(offset, |grain| u32::from(grain) * GRAIN_BYTES + offset % GRAIN_BYTES)
            }
            None => offset,
        };
        Spot { kind: page.kind, offset, physical: object + u64::from(moved) }
    }

    /// The place of any other access.
    #[inline]
    pub fn spot_elsewhere(&self, address: u64, physical: u64, is_stack: impl FnOnce() -> bool) -> Spot {
        fixed_spot(self.places.fixed(address, is_stack), physical)
    }

    /// The spot of a device register, which touches no cache.
    pub fn device_spot(&self) -> Spot {
        fixed_spot(Fixed::Device, 0)
    }

    /// Counts an access.
    #[inline]
    pub fn count(&mut self, spot: Spot, is_store: bool) {
        let counts = &mut self.kinds[usize::from(spot.kind)].counts;
        let word = counts.words.get_mut((spot.offset / WORD_BYTES) as usize);
        if is_store {
            counts.writes += 1
        } else {
            counts.reads += 1
        }
        if let Some(word) = word {
            if is_store { word.writes += 1 } else { word.reads += 1 }
        }
    }

    /// Counts a line of an access that missed at these levels. `address` is virtual.
    #[inline(never)]
    pub fn miss(&mut self, spot: Spot, address: u64, misses: Misses, now: u64) {
        let kind = &mut self.kinds[usize::from(spot.kind)];
        kind.counts.l1d_misses += 1;
        for (level, count) in kind.counts.l2_misses.iter_mut().enumerate() {
            *count += u64::from(misses.of_l2(level));
        }
        if !misses.of_l2(0) {
            return;
        }
        if let Some(word) = kind.counts.words.get_mut((spot.offset / WORD_BYTES) as usize) {
            word.misses += 1;
            let since = now - kind.visit_began;
            let class = DISTANCES.iter().position(|limit| since < *limit).unwrap_or(DISTANCES.len());
            kind.counts.distances[class] += 1;
        }
        let fixed = FIXED.get(usize::from(spot.kind));
        if matches!(fixed, Some(Fixed::Variable | Fixed::PerCpu | Fixed::Module)) && kind.lines.len() < MOST_LINES {
            let start = if fixed == Some(&Fixed::PerCpu) { self.places.per_cpu_start() } else { 0 };
            *kind.lines.entry(address.wrapping_sub(start) & !63).or_default() += 1;
        }
    }

    /// Call it when a page was missed, so that its contents may have changed since the last look-up. Returns the
    /// current spot.
    pub fn look_again(&mut self, spot: Spot, physical: u64, now: u64) -> Spot {
        let known = self.pages.get((physical >> 12) as usize).map(|page| (page.kind, page.number));
        let page = self.learn(physical);
        if known == Some((page.kind, page.number)) { spot } else { self.spot_in(page, physical, now) }
    }

    fn learn(&mut self, physical: u64) -> Page {
        let unknown = Page { kind: Fixed::Unknown as u16, number: 0 };
        let Some(memory) = self.memory else { return unknown };
        let page = match self.places.page(&memory, physical) {
            Found::Fixed(fixed) => Page { kind: fixed as u16, number: 0 },
            Found::Slab { cache, page } => match self.kind_of(&memory, cache) {
                Some(kind) => Page { kind, number: page },
                None => unknown,
            },
        };
        self.pages[(physical >> 12) as usize] = page;
        page
    }

    fn kind_of(&mut self, memory: &impl Memory, address: u64) -> Option<u16> {
        if let Some(kind) = self.by_cache.get(&address) {
            return Some(*kind);
        }
        let Cache { name, size, object_size, .. } = self.places.cache(memory, address)?;
        if self.kinds.len() >= MOST_KINDS {
            return None;
        }
        let packed = self.packings.iter().find(|packing| packing.cache == name);
        let words = vec![Word::default(); size.div_ceil(WORD_BYTES) as usize];
        self.kinds.push(Kind {
            reciprocal: (1_u64 << 32).div_ceil(u64::from(size)),
            packed: packed.map(|packing| packing.places.clone().into()),
            counts: ObjectCounts { name, size, object_size, words, ..ObjectCounts::default() },
            ..Kind::default()
        });
        let kind = self.kinds.len() as u16 - 1;
        self.by_cache.insert(address, kind);
        Some(kind)
    }

    /// The counts of the kinds that were touched.
    pub fn counts(&self) -> Vec<ObjectCounts> {
        let touched = self.kinds.iter().filter(|kind| kind.counts.reads + kind.counts.writes > 0);
        let whole = |kind: &Kind| {
            let mut counts = kind.counts.clone();
            counts.lines = kind.lines.iter().map(|(line, count)| (*line, *count)).collect();
            counts.lines.sort_unstable();
            counts
        };
        touched.map(whole).collect()
    }
}

fn fixed_spot(fixed: Fixed, physical: u64) -> Spot {
    Spot { kind: fixed as u16, offset: 0, physical }
}
