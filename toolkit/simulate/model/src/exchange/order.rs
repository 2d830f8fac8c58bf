//! Input of the plugin.

use crate::attribution::{Role, Watched};
use crate::cache::Setup;
use crate::objects::{KernelMap, Packing};
use std::fmt::Write;

/// A function of the guest's kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol {
    /// Address of its first instruction.
    pub address: u64,
    /// Its role in the layer table.
    pub role: Role,
}

/// Data for finding objects, and layouts to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Objects {
    /// Addresses and offsets in the kernel that lead from an address to an object.
    pub map: KernelMap,
    /// Other layouts.
    pub packings: Vec<Packing>,
}

/// The order to the plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// The caches. Without them only instructions are counted.
    pub caches: Option<Setup>,
    /// Also counts accesses and misses by kernel object, which needs caches.
    pub objects: Option<Objects>,
    /// Functions that distinguish the two ends.
    pub watched: Watched,
    /// Rows of the layer table. Row `rows` is unattributed, `rows + 1` is user code.
    pub rows: u8,
    /// The kernel's functions in ascending order of address.
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

    /// The order as lines: `watched N N N`, `rows N`, the caches, `symbols`, and then one symbol per line.
    pub fn to_text(&self) -> String {
        let Watched { fork, receive, transmit } = self.watched;
        let mut text = format!("watched {fork} {receive} {transmit}\nrows {}\n", self.rows);
        if let Some(caches) = &self.caches {
            text.push_str(&caches.to_text());
        }
        if let Some(objects) = &self.objects {
            let _ = writeln!(text, "objects {}", objects.map.to_text());
            for packing in &objects.packings {
                let places: Vec<String> = packing.places.iter().map(u16::to_string).collect();
                let _ = writeln!(text, "packing {} {}", places.join(","), packing.cache);
            }
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

    /// Reads the text of [`Order::to_text`].
    pub fn from_text(text: &str) -> Result<Order, String> {
        let (head, symbols) = text.split_once("symbols\n").ok_or("the order has no symbols")?;
        let (mut watched, mut rows, mut caches) = (None, None, String::new());
        let (mut map, mut packings) = (None, Vec::new());
        for line in head.lines() {
            match line.split_once(' ') {
                Some(("watched", numbers)) => {
                    let numbers: Vec<u32> = numbers.split(' ').filter_map(|word| word.parse().ok()).collect();
                    if let [fork, receive, transmit] = numbers[..] {
                        watched = Some(Watched { fork, receive, transmit });
                    }
                }
                Some(("rows", number)) => rows = number.parse().ok(),
                Some(("objects", numbers)) => {
                    map = Some(KernelMap::from_text(numbers).ok_or("the order's map of the kernel cannot be read")?);
                }
                Some(("packing", layout)) => {
                    packings.push(packing(layout).ok_or("a layout of the order cannot be read")?)
                }
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
            objects: map.map(|map| Objects { map, packings }),
            watched: watched.ok_or("the order does not name the functions to watch")?,
            rows,
            symbols: symbols.ok_or("a symbol of the order cannot be read")?,
        })
    }
}

fn packing(layout: &str) -> Option<Packing> {
    let (places, cache) = layout.split_once(' ')?;
    let places: Vec<u16> = places.split(',').map(|place| place.parse().ok()).collect::<Option<_>>()?;
    // Each place is used once, so that no two words share one.
    let mut taken = vec![false; places.len()];
    for place in &places {
        let is_taken = taken.get_mut(usize::from(*place))?;
        if std::mem::replace(is_taken, true) {
            return None;
        }
    }
    Some(Packing { cache: cache.into(), places })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_back_unchanged() {
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
        let packing = Packing { cache: "TCP".into(), places: vec![2, 0, 1] };
        let objects = Objects { map: KernelMap { page_bytes: 64, ..KernelMap::default() }, packings: vec![packing] };
        for (caches, objects) in [(Some(caches), Some(objects)), (None, None)] {
            let order = Order {
                caches,
                objects,
                watched: Watched { fork: 1, receive: 2, transmit: 0 },
                rows: 14,
                symbols: symbols.clone(),
            };
            assert_eq!(Order::from_text(&order.to_text()), Ok(order));
        }
        assert!(Order::from_text("watched 0 0 0\nrows 2\nsymbols\nx -\n").is_err());
        assert!(Order::from_text("watched 0 0 0\nrows 255\nsymbols\n").is_err());
        assert!(Order::from_text("").is_err());
        for layout in ["0,0 TCP", "0,2 TCP", "x TCP", "0,1"] {
            let order = format!("watched 0 0 0\nrows 2\npacking {layout}\nsymbols\n");
            assert!(Order::from_text(&order).is_err(), "{layout}");
        }
        assert!(Order::from_text("watched 0 0 0\nrows 2\nobjects 1 2\nsymbols\n").is_err());
    }
}
