//! Combines the levels: L1I and L1D, any number of L2 geometries after them, an L3 after the first L2, and the TLBs.

use super::{Counts, Geometry, GeometryError, Level, LevelCounts, MOST_L2, Misses, StackDistances};
use std::fmt::Write;

/// The simulated caches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// First level for instructions.
    pub l1i: Geometry,
    /// First level for data.
    pub l1d: Geometry,
    /// Unified second levels. All see the same L1 misses, and none affects another. At most [`MOST_L2`].
    pub l2: Vec<Geometry>,
    /// Third level after the first L2.
    pub l3: Option<Geometry>,
    /// TLB of instructions. Its lines are pages.
    pub itlb: Option<Geometry>,
    /// TLB of data. Its lines are pages.
    pub dtlb: Option<Geometry>,
    /// Whether each L2 loads the next line when it misses.
    pub next_line_prefetch: bool,
    /// Keeps the reuse distances of the accesses that reach L2, for one line in 2^this.
    pub curve_sample_shift: Option<u32>,
}

impl Setup {
    /// The setup as lines of text for the plugin.
    pub fn to_text(&self) -> String {
        let mut text = format!("l1i {}\nl1d {}\n", self.l1i, self.l1d);
        for l2 in &self.l2 {
            let _ = writeln!(text, "l2 {l2}");
        }
        for (name, level) in [("l3", self.l3), ("itlb", self.itlb), ("dtlb", self.dtlb)] {
            if let Some(level) = level {
                let _ = writeln!(text, "{name} {level}");
            }
        }
        if self.next_line_prefetch {
            text.push_str("next_line_prefetch\n");
        }
        if let Some(shift) = self.curve_sample_shift {
            let _ = writeln!(text, "curve {shift}");
        }
        text
    }

    /// Reads the text of [`Setup::to_text`]. An error names the unreadable line.
    pub fn from_text(text: &str) -> Result<Setup, String> {
        let mut levels: [Option<Geometry>; 5] = [None; 5];
        let (mut l2, mut next_line_prefetch, mut curve_sample_shift) = (Vec::new(), false, None);
        for line in text.lines() {
            let wrong = |why: GeometryError| format!("'{line}': {why}");
            let (word, value) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "l1i" => levels[0] = Some(value.parse().map_err(wrong)?),
                "l1d" => levels[1] = Some(value.parse().map_err(wrong)?),
                "l2" => l2.push(value.parse().map_err(wrong)?),
                "l3" => levels[2] = Some(value.parse().map_err(wrong)?),
                "itlb" => levels[3] = Some(value.parse().map_err(wrong)?),
                "dtlb" => levels[4] = Some(value.parse().map_err(wrong)?),
                "next_line_prefetch" => next_line_prefetch = true,
                "curve" => curve_sample_shift = Some(value.parse().map_err(|_| format!("'{line}' has no shift"))?),
                _ => return Err(format!("'{line}' is not part of a cache setup")),
            }
        }
        let [l1i, l1d, l3, itlb, dtlb] = levels;
        let (Some(l1i), Some(l1d)) = (l1i, l1d) else { return Err("L1I or L1D is missing".into()) };
        if l2.is_empty() || l2.len() > MOST_L2 {
            return Err(format!("{} L2 geometries are not between 1 and {MOST_L2}", l2.len()));
        }
        Ok(Setup { l1i, l1d, l2, l3, itlb, dtlb, next_line_prefetch, curve_sample_shift })
    }
}

/// The state of the caches.
#[derive(Debug)]
pub struct Hierarchy {
    l1i: Level,
    l1d: Level,
    l2: Vec<Level>,
    l3: Option<Level>,
    itlb: Option<Level>,
    dtlb: Option<Level>,
    next_line_prefetch: bool,
    curve: Option<StackDistances>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Fetch,
    Data,
}

impl Hierarchy {
    /// Empty caches.
    pub fn new(setup: &Setup) -> Hierarchy {
        Hierarchy {
            l1i: Level::new(setup.l1i),
            l1d: Level::new(setup.l1d),
            l2: setup.l2.iter().take(MOST_L2).map(|geometry| Level::new(*geometry)).collect(),
            l3: setup.l3.map(Level::new),
            itlb: setup.itlb.map(Level::new),
            dtlb: setup.dtlb.map(Level::new),
            next_line_prefetch: setup.next_line_prefetch,
            curve: setup.curve_sample_shift.map(StackDistances::new),
        }
    }

    /// Number of bits by which an address is shifted to give its line in L1I and L1D.
    pub fn l1_line_shifts(&self) -> (u32, u32) {
        (self.l1i.line_shift(), self.l1d.line_shift())
    }

    /// Whether fetching the instruction line with this number changes nothing, because it is in L1I. The check is fast,
    /// and may wrongly return false.
    #[inline(always)]
    pub fn is_latest_code(&self, line: u64) -> bool {
        self.l1i.is_latest_line(line, false)
    }

    /// Fetches the instruction line with this number.
    #[inline(never)]
    pub fn fetch(&mut self, line: u64, counts: &mut Counts) {
        let address = line << self.l1i.line_shift();
        if !self.l1i.access(address, false).is_hit {
            counts.l1i_misses += 1;
            let _ = self.second(address, Kind::Fetch, counts);
        }
    }

    /// Whether translating a page of data changes nothing. The check is fast, and may wrongly return false.
    #[inline(always)]
    pub fn is_latest_page(&self, page_address: u64) -> bool {
        self.dtlb.as_ref().is_none_or(|dtlb| dtlb.is_latest(page_address, false))
    }

    /// Whether an access within one line of L1D changes nothing, like [`Hierarchy::is_latest_page`].
    #[inline(always)]
    pub fn is_latest_data(&self, address: u64, is_write: bool) -> bool {
        self.l1d.is_latest(address, is_write)
    }

    /// Translates an instruction's page. The address is virtual, and shifted so that a page of the TLB is its page.
    #[inline(always)]
    pub fn translate_fetch(&mut self, page_address: u64, counts: &mut Counts) {
        let Some(itlb) = &mut self.itlb else { return };
        if !itlb.is_latest(page_address, false) {
            counts.itlb_misses += u64::from(!itlb.access(page_address, false).is_hit);
        }
    }

    /// Translates a page of data, like [`Hierarchy::translate_fetch`].
    #[inline(always)]
    pub fn translate_data(&mut self, page_address: u64, counts: &mut Counts) {
        let Some(dtlb) = &mut self.dtlb else { return };
        if !dtlb.is_latest(page_address, false) {
            counts.dtlb_misses += u64::from(!dtlb.access(page_address, false).is_hit);
        }
    }

    /// Starts counting reuse distances. The contents of the caches stay.
    pub fn restart_curve(&mut self) {
        if let Some(curve) = &mut self.curve {
            curve.restart();
        }
    }

    /// Reuse distances of the accesses that reached L2.
    pub fn curve(&self) -> Option<&StackDistances> {
        self.curve.as_ref()
    }

    /// Reads or writes within one line of L1D; returns which levels missed.
    #[inline(never)]
    pub fn data(&mut self, address: u64, is_write: bool, counts: &mut Counts) -> Misses {
        let outcome = self.l1d.access(address, is_write);
        if let Some(evicted) = outcome.written_back {
            counts.l1d_write_backs += 1;
            for l2 in &mut self.l2 {
                l2.mark_dirty(evicted);
            }
        }
        if outcome.is_hit {
            return Misses::default();
        }
        counts.l1d_misses += 1;
        // The line is dirty in L1D. L2 learns that when it is written back.
        self.second(address, Kind::Data, counts)
    }

    fn second(&mut self, address: u64, kind: Kind, counts: &mut Counts) -> Misses {
        let mut misses = Misses::of_l1d();
        if let Some(curve) = &mut self.curve {
            curve.access(address >> self.l1d.line_shift());
        }
        for (index, l2) in self.l2.iter_mut().enumerate() {
            let counted = &mut counts.l2[index];
            let mut l3 = self.l3.as_mut().filter(|_| index == 0);
            let outcome = l2.access(address, false);
            counted.useful_prefetches += u64::from(outcome.was_prefetched);
            if outcome.is_hit {
                continue;
            }
            misses.add_l2(index);
            counted.write_backs += u64::from(outcome.written_back.is_some());
            *misses_of(counted, kind) += 1;
            if let Some(l3) = &mut l3
                && !is_in_third(l3, address, outcome.written_back, &mut counts.l3)
            {
                *misses_of(&mut counts.l3, kind) += 1;
            }
            if !self.next_line_prefetch {
                continue;
            }
            let next = address.wrapping_add(1 << l2.line_shift());
            let brought = l2.prefetch(next);
            if brought.is_hit {
                continue;
            }
            counted.prefetches += 1;
            counted.write_backs += u64::from(brought.written_back.is_some());
            if let Some(l3) = l3
                && !is_in_third(l3, next, brought.written_back, &mut counts.l3)
            {
                counts.l3.prefetches += 1;
            }
        }
        misses
    }
}

fn misses_of(counts: &mut LevelCounts, kind: Kind) -> &mut u64 {
    match kind {
        Kind::Fetch => &mut counts.fetch_misses,
        Kind::Data => &mut counts.data_misses,
    }
}

/// The first L2 takes a line from the L3, perhaps in exchange for a dirty one; returns whether the L3 had it.
fn is_in_third(l3: &mut Level, address: u64, written_back: Option<u64>, counts: &mut LevelCounts) -> bool {
    if let Some(line) = written_back {
        l3.mark_dirty(line);
    }
    let outcome = l3.access(address, false);
    counts.write_backs += u64::from(outcome.written_back.is_some());
    outcome.is_hit
}
