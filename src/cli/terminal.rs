//! Text for a terminal: tables that fit its width, and colours if it is a terminal.

use std::io::{IsTerminal as _, stdout};

use domain::visible::visible;

/// The narrowest that a column is made. A narrower terminal cuts lines.
const MIN_CELL: usize = 12;

/// Where text is printed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Terminal {
    /// How many characters a line has. `None` if nothing limits it, as in a file.
    width: Option<usize>,
    has_colours: bool,
}

/// The colour of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colour {
    Red,
    Yellow,
    Green,
    Bold,
}

impl Terminal {
    /// Standard output. It has colours if it is a terminal, and `NO_COLOR` is not set (<https://no-color.org>).
    pub(crate) fn of_stdout() -> Self {
        if !stdout().is_terminal() {
            return Self::default();
        }
        let size = rustix::termios::tcgetwinsize(stdout()).ok();
        let width = size.map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0);
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let has_colours = !is_dumb && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { width, has_colours }
    }

    /// Whether lines have a limit.
    pub(crate) const fn is_limited(self) -> bool {
        self.width.is_some()
    }

    /// `text` in `colour`, if there are colours.
    pub(crate) fn paint(self, colour: Colour, text: &str) -> String {
        if !self.has_colours {
            return text.to_owned();
        }
        let code = match colour {
            Colour::Red => 31,
            Colour::Yellow => 33,
            Colour::Green => 32,
            Colour::Bold => 1,
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }

    /// The lines of a table. The column `elastic` is cut first if the table is wider than the terminal. The first cell of a row gets the
    /// row's colour.
    pub(crate) fn table(self, head: &[&str], rows: &[Row], elastic: usize) -> Vec<String> {
        let width_of = |column: usize| {
            let cells = rows.iter().filter_map(|row| Some(row.cells.get(column)?.chars().count()));
            cells.chain(head.get(column).map(|name| name.chars().count())).max().unwrap_or_default()
        };
        let mut widths: Vec<usize> = (0..head.len()).map(width_of).collect();
        let gaps = 2 * head.len().saturating_sub(1);
        if let Some(most) = self.width {
            let excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(most);
            if let Some(width) = widths.get_mut(elastic) {
                *width = width.saturating_sub(excess).max(MIN_CELL.min(*width));
            }
        }
        let line = |cells: &[String], colour: Option<Colour>| {
            let mut line = String::new();
            let mut left = self.width.unwrap_or(usize::MAX);
            let last = cells.len().saturating_sub(1);
            for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
                let cell = cut(cell, (*width).min(left));
                let count = cell.chars().count();
                let padding = if column == last { 0 } else { (width + 2).min(left).saturating_sub(count) };
                left = left.saturating_sub(count + padding);
                line += &match colour.filter(|_| column == 0) {
                    Some(colour) => self.paint(colour, &cell),
                    None => cell,
                };
                line += &" ".repeat(padding);
            }
            line.trim_end().to_owned()
        };
        let head: Vec<String> = head.iter().map(|name| (*name).to_owned()).collect();
        let rows = rows.iter().map(|row| line(&row.cells, row.colour));
        std::iter::once(line(&head, None)).chain(rows).collect()
    }
}

/// Prints a line to standard error, without characters that could do harm on a terminal.
pub(crate) fn note(line: &str) {
    eprintln!("{}", visible(line));
}

/// A row of a table.
#[derive(Debug, Clone, Default)]
pub(crate) struct Row {
    pub(crate) cells: Vec<String>,
    pub(crate) colour: Option<Colour>,
}

/// The first `max` characters of `text`; the last one shows whether something is missing.
fn cut(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(max.saturating_sub(1)).collect();
    if max > 0 {
        cut.push('…');
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Row> {
        let row = |cells: [&str; 3], colour| Row { cells: cells.map(str::to_owned).into(), colour };
        vec![
            row(
                ["held", "previews", "an empty list after one of 40; Argo CD would delete what was made of a, b"],
                Some(Colour::Red),
            ),
            row(["failing", "t", "timeout"], None),
        ]
    }

    #[test]
    fn a_table_fits_its_terminal() {
        for width in [1, 5, 20, 40, 60, 79, 80, 200] {
            let terminal = Terminal { width: Some(width), has_colours: false };
            let lines = terminal.table(&["WHAT", "ROUTE", "MESSAGE"], &rows(), 2);
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{width}: {lines:#?}");
        }
        let lines = Terminal { width: Some(40), has_colours: false }.table(&["WHAT", "ROUTE", "MESSAGE"], &rows(), 2);
        assert_eq!(lines[1], "held     previews  an empty list after …");
        assert_eq!(lines[2], "failing  t         timeout");
    }

    #[test]
    fn a_file_gets_all_of_it_without_colours() {
        let lines = Terminal::default().table(&["WHAT", "ROUTE", "MESSAGE"], &rows(), 2);
        assert!(lines[1].ends_with("a, b") && !lines[1].contains('\u{1b}'), "{lines:?}");
    }

    #[test]
    fn colours_do_not_move_columns() {
        let colourful =
            Terminal { width: Some(60), has_colours: true }.table(&["WHAT", "ROUTE", "MESSAGE"], &rows(), 2);
        let plain = Terminal { width: Some(60), has_colours: false }.table(&["WHAT", "ROUTE", "MESSAGE"], &rows(), 2);
        assert_eq!(colourful[1].replace("\u{1b}[31m", "").replace("\u{1b}[0m", ""), plain[1]);
        assert!(colourful[1].starts_with("\u{1b}[31mheld\u{1b}[0m     previews"));
    }
}
