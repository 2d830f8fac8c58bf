//! The counts of the plugin.

use crate::cache::{Counts, LevelCounts, MOST_L2};
use crate::objects::{ObjectCounts, Word};
use std::fmt::Write;

/// Counts of one function that works for one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Account {
    /// Index of the function in the order's symbols plus 1; 0 means user code.
    pub function: u32,
    /// The charged row.
    pub row: u8,
    /// Instructions; a repeated string instruction counts once.
    pub instructions: u64,
    /// Further elements of repeated string instructions.
    pub repeats: u64,
    /// Loads.
    pub reads: u64,
    /// Stores.
    pub writes: u64,
    /// Cache counts of these accesses.
    pub caches: Counts,
}

/// All counts between two marks.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Answer {
    /// An account for each function and row that executed.
    pub accounts: Vec<Account>,
    /// Instructions of the client's end, which are executed but not counted.
    pub client_instructions: u64,
    /// Misses of a fully associative L2 by size in bytes, and the number of accesses of which they are a share.
    pub curve: Option<(u64, Vec<(u64, f64)>)>,
    /// Counts by kind of memory, if ordered.
    pub objects: Vec<ObjectCounts>,
}

/// The numbers of an account in the order of writing.
fn numbers(account: &mut Account) -> Vec<&mut u64> {
    let Counts { l1i_misses, l1d_misses, l1d_write_backs, l2, l3, itlb_misses, dtlb_misses } = &mut account.caches;
    let mut all = vec![
        &mut account.instructions,
        &mut account.repeats,
        &mut account.reads,
        &mut account.writes,
        l1i_misses,
        l1d_misses,
        l1d_write_backs,
        itlb_misses,
        dtlb_misses,
    ];
    for level in l2.iter_mut().chain([l3]) {
        let LevelCounts { fetch_misses, data_misses, write_backs, prefetches, useful_prefetches } = level;
        all.extend([fetch_misses, data_misses, write_backs, prefetches, useful_prefetches]);
    }
    all
}

/// Numbers of an account.
const NUMBERS: usize = 9 + 5 * (MOST_L2 + 1);

impl Answer {
    /// The answer as lines. The last one is `end`, so that a partial answer is recognised.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for account in &self.accounts {
            let mut account = *account;
            let _ = write!(text, "account {} {}", account.function, account.row);
            for number in numbers(&mut account) {
                let _ = write!(text, " {number}");
            }
            text.push('\n');
        }
        let _ = writeln!(text, "client {}", self.client_instructions);
        if let Some((accesses, points)) = &self.curve {
            let _ = write!(text, "curve {accesses}");
            for (size, ratio) in points {
                let _ = write!(text, " {size}:{ratio}");
            }
            text.push('\n');
        }
        self.objects.iter().for_each(|object| object_lines(&mut text, object));
        text.push_str("end\n");
        text
    }

    /// Reads the text of [`Answer::to_text`]; `None` if it is incomplete.
    pub fn from_text(text: &str) -> Option<Answer> {
        let mut answer = Answer::default();
        let mut lines = text.lines();
        loop {
            let mut words = lines.next()?.split(' ');
            match words.next()? {
                "account" => {
                    let mut account = Account {
                        function: words.next()?.parse().ok()?,
                        row: words.next()?.parse().ok()?,
                        ..Account::default()
                    };
                    let mut left = NUMBERS;
                    for number in numbers(&mut account) {
                        *number = words.next()?.parse().ok()?;
                        left -= 1;
                    }
                    if left != 0 || words.next().is_some() {
                        return None;
                    }
                    answer.accounts.push(account);
                }
                "client" => answer.client_instructions = number_of(words.next())?,
                "curve" => {
                    let accesses = words.next()?.parse().ok()?;
                    let point = |word: &str| {
                        let (size, ratio) = word.split_once(':')?;
                        Some((size.parse().ok()?, ratio.parse().ok()?))
                    };
                    answer.curve = Some((accesses, words.map(point).collect::<Option<_>>()?));
                }
                "object" => answer.objects.push(object_of(words)?),
                "word" => {
                    let object = answer.objects.last_mut()?;
                    let word = object.words.get_mut(number_of(words.next())? as usize)?;
                    *word = Word {
                        reads: number_of(words.next())?,
                        writes: number_of(words.next())?,
                        misses: number_of(words.next())?,
                    };
                }
                "line" => {
                    let line = (number_of(words.next())?, number_of(words.next())?);
                    answer.objects.last_mut()?.lines.push(line);
                }
                "end" => return Some(answer),
                _ => return None,
            }
        }
    }
}

/// Maximum size of an object in words. It bounds the memory for a broken answer.
const MOST_WORDS: usize = 1 << 17;

/// Writes `object`, the numbers, the number of words and the name, then a line for each word and line that is not
/// zero.
fn object_lines(text: &mut String, object: &ObjectCounts) {
    let mut object = object.clone();
    text.push_str("object");
    for number in object_numbers(&mut object) {
        let _ = write!(text, " {number}");
    }
    let _ = writeln!(text, " {} {} {} {}", object.size, object.object_size, object.words.len(), object.name);
    for (index, word) in object.words.iter().enumerate().filter(|(_, word)| **word != Word::default()) {
        let _ = writeln!(text, "word {index} {} {} {}", word.reads, word.writes, word.misses);
    }
    for (line, count) in &object.lines {
        let _ = writeln!(text, "line {line} {count}");
    }
}

fn object_numbers(object: &mut ObjectCounts) -> Vec<&mut u64> {
    let ObjectCounts { reads, writes, l1d_misses, l2_misses, visits, distances, .. } = object;
    let mut all = vec![reads, writes, l1d_misses, visits];
    all.extend(l2_misses);
    all.extend(distances);
    all
}

fn number_of(word: Option<&str>) -> Option<u64> {
    word?.parse().ok()
}

fn object_of<'w>(mut words: impl Iterator<Item = &'w str>) -> Option<ObjectCounts> {
    let mut object = ObjectCounts::default();
    for number in object_numbers(&mut object) {
        *number = number_of(words.next())?;
    }
    object.size = words.next()?.parse().ok()?;
    object.object_size = words.next()?.parse().ok()?;
    let count: usize = words.next()?.parse().ok()?;
    object.words = vec![Word::default(); if count <= MOST_WORDS { count } else { return None }];
    object.name = words.collect::<Vec<_>>().join(" ");
    Some(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_back_and_half_of_it_is_refused() {
        let mut account = Account { function: 7, row: 3, ..Account::default() };
        for (value, number) in numbers(&mut account).into_iter().enumerate() {
            *number = value as u64 * 1000 + 1;
        }
        let mut object =
            ObjectCounts { name: "per-CPU variables".into(), size: 96, object_size: 88, ..Default::default() };
        for (value, number) in object_numbers(&mut object).into_iter().enumerate() {
            *number = value as u64 * 10 + 3;
        }
        object.words = vec![Word::default(); 24];
        object.words[5] = Word { reads: 1, writes: 2, misses: 3 };
        object.lines = vec![(64, 7)];
        let objects = vec![object, ObjectCounts { name: "TCP".into(), ..Default::default() }];
        let curve = Some((10, vec![(64, 0.5)]));
        let accounts = vec![account, Account::default()];
        let answer = Answer { accounts, client_instructions: 7, curve, objects };
        let text = answer.to_text();
        assert_eq!(Answer::from_text(&text), Some(answer));
        assert_eq!(Answer::from_text(&text[..text.len() - 4]), None);
        for broken in ["account 1 2 3\nend\n", "object 1\nend\n", "word 0 1 1 1\nend\n", "line 1 1\nend\n"] {
            assert_eq!(Answer::from_text(broken), None, "{broken}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,80}") {
            let _ = Answer::from_text(&text);
        }
    }
}
