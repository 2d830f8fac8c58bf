//! The kernel's functions, from the guest's own `/proc/kallsyms`, and their roles in the layer table.

use crate::attribution::{Role, Watched};
use crate::exchange::Symbol;
use record::layers::{self, Layer, LayerRule, Row};

/// A function of the kernel or of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelFunction {
    /// Address of its first instruction.
    pub address: u64,
    /// Its name. Of several names for one address, the one that the layer table lists.
    pub name: String,
    /// Its module, if it is in one.
    pub module: Option<String>,
}

/// All functions, and the rows of the layer table.
#[derive(Debug, Clone)]
pub struct Functions {
    /// Functions in ascending order of address.
    pub functions: Vec<KernelFunction>,
    /// The rows to which accounts refer by number.
    pub rows: Vec<Row>,
    rule: &'static LayerRule,
}

/// Maximum number of lines; no kernel has more.
const MOST: usize = 2_000_000;

impl Functions {
    /// Reads `kallsyms`: address, kind, name and perhaps a module in brackets on each line. Only functions count.
    pub fn parse(kallsyms: &str) -> Functions {
        let rule = LayerRule::built_in();
        let mut functions: Vec<KernelFunction> =
            kallsyms.lines().take(MOST).filter_map(parse_line).filter(|function| function.address >> 63 != 0).collect();
        let is_known = |function: &KernelFunction| {
            !matches!(rule.role(&function.name, function.module.as_deref()), layers::Role::Unknown)
        };
        // Of equal addresses the listed name comes first, and is kept.
        functions.sort_by(|a, b| (a.address, !is_known(a), &a.name).cmp(&(b.address, !is_known(b), &b.name)));
        functions.dedup_by_key(|function| function.address);
        Functions { functions, rows: rule.rows().into_iter().cloned().collect(), rule }
    }

    /// The functions in the plugin's form.
    pub fn symbols(&self) -> Vec<Symbol> {
        let role = |function: &KernelFunction| match self.rule.role(&function.name, function.module.as_deref()) {
            layers::Role::Names(row) => {
                let at = self.rows.iter().position(|known| known == row);
                at.map_or(Role::Helps, |at| Role::Names(at as u8))
            }
            layers::Role::Helper | layers::Role::Unknown => Role::Helps,
        };
        self.functions.iter().map(|function| Symbol { address: function.address, role: role(function) }).collect()
    }

    /// The functions that distinguish the two ends.
    pub fn watched(&self) -> Watched {
        let number = |name: &str| {
            let at = self.functions.iter().position(|function| function.name == name);
            at.map_or(0, |at| at as u32 + 1)
        };
        Watched { fork: number("copy_thread"), receive: number("veth_poll"), transmit: number("net_tx_action") }
    }

    /// The row of an account: a row of the table, unattributed (`None`), or user code.
    pub fn row(&self, number: u8) -> Option<Row> {
        let number = usize::from(number);
        match number.checked_sub(self.rows.len()) {
            None => self.rows.get(number).cloned(),
            Some(0) => None,
            Some(_) => Some(Row { layer: Layer::User, part: String::new() }),
        }
    }

    /// Name of an account's function by index plus 1, or 0 for user code.
    pub fn name(&self, number: u32) -> Option<&KernelFunction> {
        (number as usize).checked_sub(1).and_then(|index| self.functions.get(index))
    }

    /// Whether the layer table lists the function.
    pub fn is_classified(&self, function: &KernelFunction) -> bool {
        !matches!(self.rule.role(&function.name, function.module.as_deref()), layers::Role::Unknown)
    }
}

fn parse_line(line: &str) -> Option<KernelFunction> {
    let mut words = line.split_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let kind = words.next()?;
    let name = words.next()?.to_string();
    let module = words.next().map(|word| word.trim_matches(['[', ']']).to_string());
    matches!(kind, "t" | "T" | "w" | "W").then_some(KernelFunction { address, name, module })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_get_rows_and_data_gets_none() {
        let text = "ffffffff81000000 T _stext\nffffffff81000100 T tcp_ack\nffffffff81000100 t some_alias\n\
            ffffffff81000200 T memcpy\nffffffff81000300 D jiffies\nffffffffc0001000 t veth_xmit\t[veth]\n\
            0000000000001000 A cpu_number\nnot a line\n";
        let functions = Functions::parse(text);
        let names: Vec<&str> = functions.functions.iter().map(|function| function.name.as_str()).collect();
        assert_eq!(names, ["_stext", "tcp_ack", "memcpy", "veth_xmit"]);
        let symbols = functions.symbols();
        let layer = |index: usize| match symbols[index].role {
            Role::Names(row) => functions.row(row).map(|row| row.layer),
            Role::Helps => None,
        };
        assert_eq!((layer(1), layer(2), layer(3)), (Some(Layer::Tcp), None, Some(Layer::Driver)));
        let rows = functions.rows.len() as u8;
        assert_eq!(functions.row(rows), None);
        assert_eq!(functions.row(rows + 1).unwrap().layer, Layer::User);
        assert!(rows < 200);
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,200}") {
            Functions::parse(&text).symbols();
        }
    }
}
