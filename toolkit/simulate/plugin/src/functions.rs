//! The kernel functions that were seen, and their accounts.

use crate::cache::Counts;
use crate::exchange::{Account, EXTRA_ROWS, Order};
use std::collections::HashMap;

/// The place of code whose function is unknown.
pub const UNKNOWN: u32 = 0;

/// The data of a function that is read and written at each of its blocks and accesses, in half a line of this
/// machine's cache: counts for the row that was charged last, which are not in its account yet.
#[derive(Clone, Copy)]
#[repr(align(32))]
struct Function {
    instructions: u64,
    /// Loads and stores.
    accesses: [u64; 2],
    account: u32,
    row: u8,
}

/// A number that no row has.
const NO_ROW: u8 = u8::MAX;
const NO_ACCOUNT: u32 = u32::MAX;

/// Functions in the order in which they were seen.
pub struct Functions {
    functions: Vec<Function>,
    /// Their numbers: index in the order's symbols, plus 1.
    numbers: Vec<u32>,
    places: HashMap<u32, u32>,
    accounts: Vec<Account>,
    /// Accounts by function and row.
    by_row: Vec<u32>,
    rows: usize,
}

impl Functions {
    pub fn new(order: &Order) -> Functions {
        let rows = usize::from(order.unattributed()) + usize::from(EXTRA_ROWS);
        let mut functions = Functions {
            functions: Vec::new(),
            numbers: Vec::new(),
            places: HashMap::new(),
            // The account of functions that were not charged yet.
            accounts: vec![Account::default()],
            by_row: Vec::new(),
            rows,
        };
        functions.place(0);
        functions
    }

    /// The place of the function with this number.
    pub fn place(&mut self, number: u32) -> u32 {
        *self.places.entry(number).or_insert_with(|| {
            self.functions.push(Function { instructions: 0, accesses: [0; 2], account: 0, row: NO_ROW });
            self.numbers.push(number);
            self.by_row.resize(self.by_row.len() + self.rows, NO_ACCOUNT);
            self.functions.len() as u32 - 1
        })
    }

    /// The function's number.
    pub fn number(&self, place: u32) -> u32 {
        self.numbers[place as usize]
    }

    /// A function executes instructions for a row.
    #[inline(always)]
    pub fn charge(&mut self, place: u32, row: u8, instructions: u16) {
        if self.functions[place as usize].row != row {
            self.change_row(place, row);
        }
        self.functions[place as usize].instructions += u64::from(instructions);
    }

    /// It reads or writes. Counted without an unpredictable branch.
    #[inline(always)]
    pub fn count_access(&mut self, place: u32, is_store: bool) {
        self.functions[place as usize].accesses[usize::from(is_store)] += 1;
    }

    /// One more element of a repeated string instruction.
    pub fn count_repeat(&mut self, place: u32) {
        let account = self.functions[place as usize].account;
        self.accounts[account as usize].repeats += 1;
    }

    /// Its counts in the caches.
    #[inline(always)]
    pub fn caches(&mut self, place: u32) -> &mut Counts {
        let account = self.functions[place as usize].account;
        &mut self.accounts[account as usize].caches
    }

    #[inline(never)]
    fn change_row(&mut self, place: u32, row: u8) {
        self.settle(place);
        let account = &mut self.by_row[place as usize * self.rows + usize::from(row)];
        if *account == NO_ACCOUNT {
            self.accounts.push(Account { function: self.numbers[place as usize], row, ..Account::default() });
            *account = self.accounts.len() as u32 - 1;
        }
        let function = &mut self.functions[place as usize];
        (function.row, function.account) = (row, *account);
    }

    /// Moves the counts to its account.
    fn settle(&mut self, place: u32) {
        let function = &mut self.functions[place as usize];
        let account = &mut self.accounts[function.account as usize];
        account.instructions += std::mem::take(&mut function.instructions);
        let [reads, writes] = std::mem::take(&mut function.accesses);
        account.reads += reads;
        account.writes += writes;
    }

    /// Resets all counts to 0.
    pub fn restart(&mut self) {
        (0..self.functions.len() as u32).for_each(|place| self.settle(place));
        for account in &mut self.accounts {
            *account = Account { function: account.function, row: account.row, ..Account::default() };
        }
    }

    /// The accounts with counts.
    pub fn accounts(&mut self) -> Vec<Account> {
        (0..self.functions.len() as u32).for_each(|place| self.settle(place));
        self.accounts.iter().skip(1).filter(|account| account.instructions + account.repeats > 0).copied().collect()
    }
}
