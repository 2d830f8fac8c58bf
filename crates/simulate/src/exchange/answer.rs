//! What the plugin counted.

use crate::cache::{Counts, LevelCounts, MOST_L2};
use std::fmt::Write;

/// Counts of one function on behalf of one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Account {
    /// Index of the function in the order's symbols plus 1; 0 is user code.
    pub function: u32,
    /// The row that was charged.
    pub row: u8,
    /// Instructions; a repeated string instruction counts once.
    pub instructions: u64,
    /// Further elements of repeated string instructions.
    pub repeats: u64,
    /// Loads.
    pub reads: u64,
    /// Stores.
    pub writes: u64,
    /// What the caches made of them.
    pub caches: Counts,
}

/// All counts between two marks.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Answer {
    /// An account for each function and row that executed.
    pub accounts: Vec<Account>,
    /// Misses of a fully associative L2 by size in bytes, and the accesses they are a share of.
    pub curve: Option<(u64, Vec<(u64, f64)>)>,
}

/// The numbers of an account in the order in which they are written.
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
    /// As lines; the last is `end`, so that half an answer is known for one.
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
        if let Some((accesses, points)) = &self.curve {
            let _ = write!(text, "curve {accesses}");
            for (size, ratio) in points {
                let _ = write!(text, " {size}:{ratio}");
            }
            text.push('\n');
        }
        text.push_str("end\n");
        text
    }

    /// Reads what [`Answer::to_text`] wrote; `None` if it is not whole.
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
                "curve" => {
                    let accesses = words.next()?.parse().ok()?;
                    let point = |word: &str| {
                        let (size, ratio) = word.split_once(':')?;
                        Some((size.parse().ok()?, ratio.parse().ok()?))
                    };
                    answer.curve = Some((accesses, words.map(point).collect::<Option<_>>()?));
                }
                "end" => return Some(answer),
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_survives_being_written_and_half_of_it_is_none() {
        let mut account = Account { function: 7, row: 3, ..Account::default() };
        for (value, number) in numbers(&mut account).into_iter().enumerate() {
            *number = value as u64 * 1000 + 1;
        }
        let answer = Answer { accounts: vec![account, Account::default()], curve: Some((10, vec![(64, 0.5)])) };
        let text = answer.to_text();
        assert_eq!(Answer::from_text(&text), Some(answer));
        assert_eq!(Answer::from_text(&text[..text.len() - 4]), None);
        assert_eq!(Answer::from_text("account 1 2 3\nend\n"), None);
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,80}") {
            let _ = Answer::from_text(&text);
        }
    }
}
