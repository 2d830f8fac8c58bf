//! Aligned columns.

use super::{escaped, wrap};
use serde::Serialize;

/// A table for a terminal, for Markdown and for the page. In text, the first `left` columns are aligned left and the
/// others right; only the page has title, units and note.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Table {
    /// May be empty.
    pub title: &'static str,
    pub headings: Vec<String>,
    /// Units of the columns; empty if the cells have them.
    pub units: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
    /// A note below the table.
    pub note: String,
    #[serde(skip)]
    pub left: usize,
}

impl Table {
    pub fn new(headings: impl IntoIterator<Item = impl Into<String>>, left: usize) -> Self {
        Table { headings: headings.into_iter().map(Into::into).collect(), left, ..Table::default() }
    }

    /// A table of the page; `columns` have a heading and a unit each.
    pub fn titled<'a>(
        title: &'static str,
        columns: impl IntoIterator<Item = (&'a str, &'static str)>,
        rows: Vec<Vec<String>>,
        note: impl Into<String>,
    ) -> Table {
        let (headings, mut units): (Vec<&str>, Vec<&str>) = columns.into_iter().unzip();
        if units.iter().all(|unit| unit.is_empty()) {
            units.clear();
        }
        Table { title, units, rows, note: note.into(), ..Table::new(headings, 0) }
    }

    pub fn aligned(self, left: usize) -> Table {
        Table { left, ..self }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    }

    /// The columns with content.
    fn filled_columns(&self) -> Vec<usize> {
        (0..self.headings.len()).filter(|column| *column < self.left || self.width(*column) > 0).collect()
    }

    /// A Markdown table and an empty line; empty without rows.
    pub fn markdown(&self) -> String {
        if self.is_empty() {
            return String::new();
        }
        let shown = self.filled_columns();
        let line = |cells: &mut dyn Iterator<Item = String>| format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "));
        let cell = |row: &[String], column: usize| row.get(column).map_or(String::new(), |cell| escaped(cell));
        let cells = |row: &[String]| line(&mut shown.iter().map(|column| cell(row, *column)));
        let sides = shown.iter().map(|column| if *column < self.left { ":--" } else { "--:" }.to_string());
        let marks = line(&mut sides.into_iter());
        cells(&self.headings) + &marks + &self.rows.iter().map(|row| cells(row)).collect::<String>() + "\n"
    }

    /// Lines indented by two spaces, columns two spaces apart; columns without content are left out.
    pub fn lines(&self) -> String {
        let shown = self.filled_columns();
        let mut out = String::new();
        for row in std::iter::once(&self.headings).chain(&self.rows) {
            let mut line = String::from(" ");
            for column in &shown {
                let cell = row.get(*column).map_or("", String::as_str);
                let width = self.width(*column).max(self.headings[*column].chars().count());
                let pad = " ".repeat(width - cell.chars().count());
                line.push(' ');
                if *column < self.left {
                    line.push_str(&format!("{cell}{pad}"));
                } else {
                    line.push_str(&format!("{pad}{cell}"));
                }
                line.push(' ');
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

/// A table with title and note.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct Titled {
    /// Title of the table.
    pub title: String,
    /// How the numbers were computed.
    pub note: String,
    /// Name and unit of each column after the first.
    pub columns: Vec<(String, String)>,
    /// Label and cells.
    pub rows: Vec<(String, Vec<String>)>,
}

impl Titled {
    /// Columns from constant names and units.
    pub fn columns(columns: &[(&str, &str)]) -> Vec<(String, String)> {
        columns.iter().map(|(name, unit)| (name.to_string(), unit.to_string())).collect()
    }

    /// The table for a terminal.
    pub fn text(&self, has_units: bool) -> String {
        let header = std::iter::once("").chain(self.columns.iter().map(|(name, _)| name.as_str()));
        let mut lines = Table::new(header, 1);
        let units = (String::new(), self.columns.iter().map(|(_, unit)| unit.clone()).collect());
        for (label, cells) in has_units.then_some(&units).into_iter().chain(&self.rows) {
            lines.row(std::iter::once(label).chain(cells).cloned().collect());
        }
        format!("{}\n{}{}", self.title, lines.lines(), wrap(&self.note, "  ", "  "))
    }
}
