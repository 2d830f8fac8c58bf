//! Folded stacks: `outermost;...;innermost COUNT`, a line a stack, as flame graph viewers read them. The root is the
//! server's program, or where its packets were handled outside it; kernel functions end in `_[k]`.

use super::attribute::{Owner, Ran, Stack};
use super::result::Profile;
use std::collections::BTreeMap;
use std::io::{self, BufRead, Read};

/// A folded file with more lines, or a longer line, is none of ours.
const MAX_LINES: usize = 1_000_000;
const MAX_LINE_BYTES: u64 = 64 << 10;

/// Marks a kernel function.
pub const KERNEL_MARK: &str = "_[k]";

/// Stacks, outermost first, with their counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Folded(pub BTreeMap<Vec<String>, u64>);

impl Folded {
    /// Folds the server's work of a profile.
    pub fn of(profile: &Profile) -> Folded {
        let mut folded = Folded::default();
        for stack in profile.stacks.iter().filter(|stack| stack.event == 0 && stack.owner == Owner::Server) {
            *folded.0.entry(path(stack, &profile.command)).or_default() += stack.count();
        }
        folded
    }

    /// All samples.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// The text of the file.
    pub fn to_text(&self) -> String {
        self.0.iter().map(|(frames, count)| format!("{} {count}\n", frames.join(";"))).collect()
    }

    /// Reads the text of a file; comments (`#`) and empty lines are passed over.
    pub fn parse(mut text: impl BufRead) -> Result<Folded, FoldedError> {
        let mut folded = Folded::default();
        let mut line = Vec::new();
        for number in 1.. {
            line.clear();
            let read = Read::take(&mut text, MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
            if read == 0 {
                break;
            }
            let wrong = || FoldedError::Line { number };
            if number > MAX_LINES || read as u64 == MAX_LINE_BYTES {
                return Err(wrong());
            }
            let text = std::str::from_utf8(&line).map_err(|_| wrong())?.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let (frames, count) = text.rsplit_once(' ').ok_or_else(wrong)?;
            let count: u64 = count.parse().map_err(|_| wrong())?;
            let frames = frames.split(';').map(|frame| frame.trim().to_string()).collect();
            let sum = folded.0.entry(frames).or_default();
            *sum = sum.saturating_add(count);
        }
        if folded.0.is_empty() { Err(FoldedError::Empty) } else { Ok(folded) }
    }
}

/// Why a file is no folded stacks.
#[derive(Debug, thiserror::Error)]
pub enum FoldedError {
    /// A line that is not `frame;frame COUNT`.
    #[error("line {number} is not 'function;function COUNT'")]
    Line {
        /// Line, from 1.
        number: usize,
    },
    /// No stack at all.
    #[error("it holds no stacks")]
    Empty,
    /// The file could not be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

fn path(stack: &Stack, command: &str) -> Vec<String> {
    let root = match stack.ran {
        Ran::Server if command.is_empty() => "server".to_string(),
        Ran::Server => command.replace([';', '\n', '\r'], "?"),
        Ran::Others => "[packets in other processes]".into(),
        Ran::Idle => "[packets on idle CPUs]".into(),
    };
    let frames =
        stack.frames.iter().rev().map(|frame| {
            if frame.is_kernel { format!("{}{KERNEL_MARK}", frame.function) } else { frame.function.clone() }
        });
    let unknown = stack.frames.is_empty().then(|| "[no stack]".to_string());
    [root].into_iter().chain(frames).chain(unknown).collect()
}

/// How a function's share of its own samples changed.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Change {
    /// The function, with the kernel's mark.
    pub function: String,
    /// Its share before.
    pub before_ratio: f64,
    /// Its share after.
    pub after_ratio: f64,
    /// Half width of the 95 % interval of the difference, from the numbers of samples.
    pub plus_minus_ratio: f64,
}

impl Change {
    /// Whether the difference is more than the samples' own scatter.
    pub fn is_clear(&self) -> bool {
        (self.after_ratio - self.before_ratio).abs() > self.plus_minus_ratio
    }
}

/// What grew and what shrank, by innermost function: clear changes first, the largest before. Shares are of each file's own
/// samples.
pub fn changes(before: &Folded, after: &Folded) -> Vec<Change> {
    let leaves = |folded: &Folded| {
        let total = folded.total().max(1) as f64;
        let mut shares: BTreeMap<String, f64> = BTreeMap::new();
        for (frames, count) in &folded.0 {
            if let Some(leaf) = frames.last() {
                *shares.entry(leaf.clone()).or_default() += *count as f64 / total;
            }
        }
        shares
    };
    let totals = [before.total().max(1) as f64, after.total().max(1) as f64];
    // Two samples more than were seen (Agresti and Caffo 2000): a function that one side never met is not certain either.
    let variance = |share: f64, total: f64| {
        let share = (share * total + 1.0) / (total + 2.0);
        share * (1.0 - share) / (total + 2.0)
    };
    let (before, after) = (leaves(before), leaves(after));
    let mut changes: Vec<Change> = before
        .keys()
        .chain(after.keys().filter(|function| !before.contains_key(*function)))
        .map(|function| {
            let before_ratio = before.get(function).copied().unwrap_or(0.0);
            let after_ratio = after.get(function).copied().unwrap_or(0.0);
            let error = (variance(before_ratio, totals[0]) + variance(after_ratio, totals[1])).sqrt();
            Change { function: function.clone(), before_ratio, after_ratio, plus_minus_ratio: 1.96 * error }
        })
        .collect();
    changes.sort_by(|a, b| {
        let size = |change: &Change| (change.after_ratio - change.before_ratio).abs();
        b.is_clear()
            .cmp(&a.is_clear())
            .then_with(|| size(b).total_cmp(&size(a)))
            .then_with(|| a.function.cmp(&b.function))
    });
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn folded(text: &str) -> Folded {
        Folded::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn folded_stacks_survive_a_round_trip() {
        let text = "nginx;main;do_syscall_64_[k] 3\nnginx;main;a b c 4\n";
        assert_eq!(folded(&folded(text).to_text()), folded(text));
    }

    #[test]
    fn what_grew_comes_first() {
        let before = folded("s;a 90\ns;b 10\n");
        let after = folded("s;a 100\ns;b 60\ns;c 40\n");
        let changes = changes(&before, &after);
        assert_eq!(changes[0].function, "a");
        assert!((changes[0].after_ratio - 0.5).abs() < 1e-12);
        assert_eq!(changes[2].function, "b");
        assert_eq!(changes[1].before_ratio, 0.0);
    }

    #[test]
    fn a_few_samples_are_no_clear_change() {
        let is_clear = |before: &str, after: &str| changes(&folded(before), &folded(after))[0].is_clear();
        assert!(!is_clear("s;a 5\ns;b 5\n", "s;a 7\ns;b 3\n"));
        assert!(is_clear("s;a 5000\ns;b 5000\n", "s;a 7000\ns;b 3000\n"));
    }

    #[test]
    fn a_wrong_line_is_named() {
        let sentence = Folded::parse("a;b 1\na;b\n".as_bytes()).unwrap_err().to_string();
        assert!(sentence.contains("line 2"), "{sentence}");
        assert!(matches!(Folded::parse("".as_bytes()), Err(FoldedError::Empty)));
    }

    proptest! {
        #[test]
        fn no_text_panics_the_reader(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Folded::parse(text.as_slice());
        }
    }
}
