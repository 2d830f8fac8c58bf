//! What the plugin is told.

use crate::attribution::Role;
use crate::cache::Setup;
use std::fmt::Write;

/// A function of the guest's kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol {
    /// Address of its first instruction.
    pub address: u64,
    /// Whose work it is.
    pub role: Role,
}

/// What to count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// The caches; without them instructions alone are counted.
    pub caches: Option<Setup>,
    /// The virtual CPU that is counted; what others store takes lines out of its caches.
    pub cpu: u32,
    /// Rows of the layer table. Row `rows` is unattributed, `rows + 1` is user code.
    pub rows: u8,
    /// The kernel's functions by rising address.
    pub symbols: Vec<Symbol>,
}

impl Order {
    /// The row of helpers without a caller.
    pub fn unattributed(&self) -> u8 {
        self.rows
    }

    /// The row of user code.
    pub fn user(&self) -> u8 {
        self.rows + 1
    }

    /// As lines: `cpu N`, `rows N`, the caches, `symbols`, and then a symbol a line.
    pub fn to_text(&self) -> String {
        let mut text = format!("cpu {}\nrows {}\n", self.cpu, self.rows);
        if let Some(caches) = &self.caches {
            text.push_str(&caches.to_text());
        }
        text.push_str("symbols\n");
        for symbol in &self.symbols {
            let _ = match symbol.role {
                Role::Names(row) => writeln!(text, "{:x} {row}", symbol.address),
                Role::Helps => writeln!(text, "{:x} -", symbol.address),
            };
        }
        text
    }

    /// Reads what [`Order::to_text`] wrote.
    pub fn from_text(text: &str) -> Result<Order, String> {
        let (head, symbols) = text.split_once("symbols\n").ok_or("the order has no symbols")?;
        let (mut cpu, mut rows, mut caches) = (None, None, String::new());
        for line in head.lines() {
            match line.split_once(' ') {
                Some(("cpu", number)) => cpu = number.parse().ok(),
                Some(("rows", number)) => rows = number.parse().ok(),
                _ => caches.extend([line, "\n"]),
            }
        }
        let parse = |line: &str| -> Option<Symbol> {
            let (address, role) = line.split_once(' ')?;
            let role = if role == "-" { Role::Helps } else { Role::Names(role.parse().ok()?) };
            Some(Symbol { address: u64::from_str_radix(address, 16).ok()?, role })
        };
        let symbols: Option<Vec<Symbol>> = symbols.lines().map(parse).collect();
        let rows: u8 = rows.ok_or("the order has no rows")?;
        if rows > u8::MAX - super::EXTRA_ROWS {
            return Err(format!("{rows} rows are too many"));
        }
        Ok(Order {
            caches: if caches.is_empty() { None } else { Some(Setup::from_text(&caches)?) },
            cpu: cpu.ok_or("the order has no CPU")?,
            rows,
            symbols: symbols.ok_or("a symbol of the order is no symbol")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_survives_being_written() {
        let geometry = |size| format!("{size}/8/64/lru").parse().unwrap();
        let caches = Setup {
            l1i: geometry(32768),
            l1d: geometry(32768),
            l2: vec![geometry(262_144)],
            l3: None,
            itlb: None,
            dtlb: None,
            next_line_prefetch: false,
            curve_sample_shift: None,
        };
        let symbols = vec![
            Symbol { address: 0xffff_ffff_8100_0000, role: Role::Names(3) },
            Symbol { address: 0xffff_ffff_8100_0040, role: Role::Helps },
        ];
        for caches in [Some(caches), None] {
            let order = Order { caches, cpu: 1, rows: 14, symbols: symbols.clone() };
            assert_eq!(Order::from_text(&order.to_text()), Ok(order));
        }
        assert!(Order::from_text("cpu 1\nrows 2\nsymbols\nx -\n").is_err());
        assert!(Order::from_text("cpu 1\nrows 255\nsymbols\n").is_err());
        assert!(Order::from_text("").is_err());
    }
}
