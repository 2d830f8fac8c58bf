//! The kernel's functions that were seen, and their accounts.

use crate::attribution::Role;
use crate::exchange::{Account, EXTRA_ROWS, Order};
use std::collections::HashMap;

/// The place of code whose function is not known.
pub const UNKNOWN: u32 = 0;

/// A function, in the order in which they were seen.
#[derive(Clone, Copy)]
struct Function {
    role: Role,
    /// In the order's symbols, plus 1.
    number: u32,
    /// The row and the account that were charged last.
    row: u8,
    account: u32,
}

/// No row has this number.
const NO_ROW: u8 = u8::MAX;
const NO_ACCOUNT: u32 = u32::MAX;

pub struct Functions {
    functions: Vec<Function>,
    places: HashMap<u32, u32>,
    /// Accounts by function and row.
    accounts: Vec<u32>,
    rows: usize,
}

impl Functions {
    pub fn new(order: &Order) -> Functions {
        let rows = usize::from(order.unattributed()) + usize::from(EXTRA_ROWS);
        let mut functions = Functions { functions: Vec::new(), places: HashMap::new(), accounts: Vec::new(), rows };
        functions.place(0, Role::Helps);
        functions
    }

    /// The place of the function with this number.
    pub fn place(&mut self, number: u32, role: Role) -> u32 {
        *self.places.entry(number).or_insert_with(|| {
            self.functions.push(Function { role, number, row: NO_ROW, account: NO_ACCOUNT });
            self.accounts.resize(self.accounts.len() + self.rows, NO_ACCOUNT);
            self.functions.len() as u32 - 1
        })
    }

    #[inline(always)]
    pub fn role(&self, place: u32) -> Role {
        self.functions[place as usize].role
    }

    /// The function's number.
    pub fn number(&self, place: u32) -> u32 {
        self.functions[place as usize].number
    }

    /// Where in `accounts` the function's account on behalf of a row is; made if there is none.
    #[inline(always)]
    pub fn account(&mut self, accounts: &mut Vec<Account>, place: u32, row: u8) -> usize {
        let function = self.functions[place as usize];
        if function.row == row { function.account as usize } else { self.find(accounts, place, row) }
    }

    #[inline(never)]
    fn find(&mut self, accounts: &mut Vec<Account>, place: u32, row: u8) -> usize {
        let function = &mut self.functions[place as usize];
        let account = &mut self.accounts[place as usize * self.rows + usize::from(row)];
        if *account == NO_ACCOUNT {
            accounts.push(Account { function: function.number, row, ..Account::default() });
            *account = accounts.len() as u32 - 1;
        }
        (function.row, function.account) = (row, *account);
        *account as usize
    }
}
