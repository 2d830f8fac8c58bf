//! Tests the cache model against models that are simple enough to be obviously right.

use proptest::prelude::*;
use simulate::cache::{Counts, Geometry, Hierarchy, Level, Replacement, Setup, StackDistances};

/// LRU by its definition: a list per set, latest first.
struct Lists {
    sets: Vec<Vec<(u64, bool)>>,
    ways: usize,
    line: u64,
}

impl Lists {
    fn new(geometry: Geometry) -> Lists {
        let sets = vec![Vec::new(); geometry.sets() as usize];
        Lists { sets, ways: geometry.ways() as usize, line: u64::from(geometry.line_bytes()) }
    }

    /// Whether it hit, and the dirty line that left.
    fn access(&mut self, address: u64, is_write: bool) -> (bool, Option<u64>) {
        let number = address / self.line;
        let index = (number % self.sets.len() as u64) as usize;
        let set = &mut self.sets[index];
        let before = set.iter().position(|(line, _)| *line == number);
        let was_dirty = before.is_some_and(|at| set.remove(at).1);
        set.insert(0, (number, was_dirty || is_write));
        let left = if set.len() > self.ways { set.pop() } else { None };
        (before.is_some(), left.filter(|(_, is_dirty)| *is_dirty).map(|(line, _)| line * self.line))
    }

    fn holds(&self, address: u64) -> bool {
        self.sets.iter().flatten().any(|(line, _)| *line == address / self.line)
    }

    fn mark_dirty(&mut self, address: u64) {
        let found = self.sets.iter_mut().flatten().find(|(line, _)| *line == address / self.line);
        found.into_iter().for_each(|(_, is_dirty)| *is_dirty = true);
    }
}

/// Tree-PLRU by its definition: halves, and which one was used longer ago.
enum Tree {
    Way(Option<u64>),
    Halves { is_upper_older: bool, lower: Box<Tree>, upper: Box<Tree> },
}

impl Tree {
    fn new(ways: usize) -> Tree {
        match ways {
            1 => Tree::Way(None),
            _ => {
                let half = || Box::new(Tree::new(ways / 2));
                Tree::Halves { is_upper_older: false, lower: half(), upper: half() }
            }
        }
    }

    /// Uses the line if it is here.
    fn find(&mut self, number: u64) -> bool {
        match self {
            Tree::Way(line) => *line == Some(number),
            Tree::Halves { is_upper_older, lower, upper } => {
                let is_lower = lower.find(number);
                let is_here = is_lower || upper.find(number);
                if is_here {
                    *is_upper_older = is_lower;
                }
                is_here
            }
        }
    }

    /// Puts the line into the first empty way.
    fn fill(&mut self, number: u64) -> bool {
        match self {
            Tree::Way(line) if line.is_none() => {
                *line = Some(number);
                true
            }
            Tree::Way(_) => false,
            Tree::Halves { is_upper_older, lower, upper } => {
                let is_lower = lower.fill(number);
                let is_filled = is_lower || upper.fill(number);
                if is_filled {
                    *is_upper_older = is_lower;
                }
                is_filled
            }
        }
    }

    fn replace(&mut self, number: u64) {
        match self {
            Tree::Way(line) => *line = Some(number),
            Tree::Halves { is_upper_older, lower, upper } => {
                if *is_upper_older {
                    upper.replace(number)
                } else {
                    lower.replace(number)
                }
                *is_upper_older = !*is_upper_older;
            }
        }
    }
}

fn geometries(replacement: Replacement) -> impl Strategy<Value = Geometry> {
    let ways = match replacement {
        Replacement::Lru => prop_oneof![1..=9_u32, Just(16)].boxed(),
        Replacement::TreePlru => (0..=4_u32).prop_map(|shift| 1 << shift).boxed(),
    };
    (1..=9_u64, ways, 4..=7_u32).prop_map(move |(sets, ways, line_shift)| {
        let line = 1 << line_shift;
        Geometry::new(sets * u64::from(ways) * u64::from(line), ways, line, replacement).unwrap()
    })
}

fn accesses() -> impl Strategy<Value = Vec<(u64, bool)>> {
    prop::collection::vec((0..6000_u64, any::<bool>()), 0..400)
}

proptest! {
    #[test]
    fn lru_behaves_like_a_list_per_set(geometry in geometries(Replacement::Lru), accesses in accesses()) {
        let (mut model, mut lists) = (Level::new(geometry), Lists::new(geometry));
        for (address, is_write) in accesses {
            let is_latest = model.is_latest(address, is_write);
            let outcome = model.access(address, is_write);
            prop_assert!(outcome.is_hit || !is_latest);
            prop_assert_eq!((outcome.is_hit, outcome.written_back), lists.access(address, is_write));
        }
    }

    #[test]
    fn tree_plru_behaves_like_a_tree_of_halves(geometry in geometries(Replacement::TreePlru), accesses in accesses()) {
        let mut model = Level::new(geometry);
        let mut trees: Vec<Tree> = (0..geometry.sets()).map(|_| Tree::new(geometry.ways() as usize)).collect();
        for (address, is_write) in accesses {
            let number = address / u64::from(geometry.line_bytes());
            let tree = &mut trees[(number % geometry.sets()) as usize];
            let is_hit = tree.find(number);
            if !is_hit && !tree.fill(number) {
                tree.replace(number);
            }
            prop_assert_eq!(model.access(address, is_write).is_hit, is_hit);
        }
    }

    #[test]
    fn distances_give_the_misses_of_every_fully_associative_cache(lines in prop::collection::vec(0..60_u64, 1..400)) {
        let mut distances = StackDistances::new(0);
        lines.iter().for_each(|line| distances.access(*line));
        for fits in 1..=64_u64 {
            let geometry = Geometry::new(fits * 64, fits as u32, 64, Replacement::Lru).unwrap();
            let mut cache = Level::new(geometry);
            let misses = lines.iter().filter(|line| !cache.access(**line * 64, false).is_hit).count();
            let curve = distances.curve(&[fits * 64], 64).unwrap();
            prop_assert_eq!((curve.points[0].1 * curve.accesses as f64).round() as usize, misses);
        }
    }

    #[test]
    fn several_geometries_in_one_pass_count_like_separate_passes(
        sizes in prop::collection::vec(1..=8_u64, 1..=4),
        accesses in accesses(),
        has_prefetch in any::<bool>(),
    ) {
        let small = Geometry::new(256, 2, 64, Replacement::Lru).unwrap();
        let l2 = |size: u64| Geometry::new(size * 256, 4, 64, Replacement::Lru).unwrap();
        let setup = |sizes: &[u64]| Setup {
            l1i: small,
            l1d: small,
            l2: sizes.iter().map(|size| l2(*size)).collect(),
            l3: None,
            itlb: None,
            dtlb: None,
            next_line_prefetch: has_prefetch,
            curve_sample_shift: None,
        };
        let run = |setup: &Setup| {
            let (mut caches, mut counts) = (Hierarchy::new(setup), Counts::default());
            for (address, is_write) in &accesses {
                caches.data(*address, *is_write, &mut counts);
                caches.fetch((address / 3) >> caches.l1_line_shifts().0, &mut counts);
            }
            counts
        };
        let together = run(&setup(&sizes));
        for (index, size) in sizes.iter().enumerate() {
            let alone = run(&setup(&[*size]));
            prop_assert_eq!(together.l2[index], alone.l2[0]);
            prop_assert_eq!((together.l1d_misses, together.l1i_misses), (alone.l1d_misses, alone.l1i_misses));
        }
    }

    #[test]
    fn an_l2_takes_every_line_from_the_l3(accesses in accesses(), has_prefetch in any::<bool>()) {
        let geometry = |size| Geometry::new(size, 2, 64, Replacement::Lru).unwrap();
        let setup = Setup {
            l1i: geometry(128),
            l1d: geometry(128),
            l2: vec![geometry(512), geometry(256)],
            l3: Some(geometry(1024)),
            itlb: None,
            dtlb: None,
            next_line_prefetch: has_prefetch,
            curve_sample_shift: None,
        };
        let (mut caches, mut counts) = (Hierarchy::new(&setup), Counts::default());
        let [mut l1, mut l2, mut l3] = [128, 512, 1024].map(|size| Lists::new(geometry(size)));
        let (mut misses, mut prefetches, mut write_backs) = (0, 0, 0);
        for (address, is_write) in accesses {
            caches.data(address, is_write, &mut counts);
            let (is_hit, left) = l1.access(address, is_write);
            left.into_iter().for_each(|line| l2.mark_dirty(line));
            if is_hit || l2.holds(address) {
                if !is_hit {
                    l2.access(address, false);
                }
                continue;
            }
            let next = address + 64;
            for (wanted, count) in [(address, &mut misses), (next, &mut prefetches)] {
                if wanted == next && (!has_prefetch || l2.holds(next)) {
                    continue;
                }
                let (_, left) = l2.access(wanted, false);
                left.into_iter().for_each(|line| l3.mark_dirty(line));
                let (is_hit, left) = l3.access(wanted, false);
                *count += u64::from(!is_hit);
                write_backs += u64::from(left.is_some());
            }
        }
        prop_assert_eq!((counts.l3.data_misses, counts.l3.prefetches), (misses, prefetches));
        prop_assert_eq!(counts.l3.write_backs, write_backs);
    }

    #[test]
    fn no_setup_text_panics(text in "\\PC{0,80}") {
        let _ = Setup::from_text(&text);
    }
}

#[test]
fn a_setup_is_read_back_unchanged() {
    let geometry = |size, ways| Geometry::new(size, ways, 64, Replacement::Lru).unwrap();
    let setup = Setup {
        l1i: geometry(32 << 10, 8),
        l1d: geometry(48 << 10, 12),
        l2: vec![geometry(256 << 10, 16), geometry(2 << 20, 16)],
        l3: Some(geometry(32 << 20, 16)),
        itlb: Some(Geometry::new(64 << 12, 8, 4096, Replacement::Lru).unwrap()),
        dtlb: None,
        next_line_prefetch: true,
        curve_sample_shift: Some(3),
    };
    assert_eq!(Setup::from_text(&setup.to_text()), Ok(setup));
    assert!(Setup::from_text("l1i 65536/2/64/lru\n").unwrap_err().contains("missing"));
    assert!(Setup::from_text("l1i 65536/2/64/lru\nl1d 65536/2/64/lru\n").unwrap_err().contains("0 L2"));
    assert!(Setup::from_text("l4 65536/2/64/lru\n").unwrap_err().contains("not part"));
}
