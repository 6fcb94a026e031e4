//! The tables of the documentation: each row is one line, with a cell for each column.

use super::page::Page;

/// The number of cells in a row. A `\|` within a cell ends none.
fn cells(row: &str) -> usize {
    row.matches('|').count() - row.matches("\\|").count() - 1
}

#[test]
fn each_row_of_a_table_has_a_cell_for_each_column() {
    let mut broken = Vec::new();
    let mut tables = 0;
    for page in Page::all() {
        let mut columns = None;
        for (number, line) in page.prose() {
            let row = line.trim();
            if !row.starts_with('|') {
                columns = None;
                continue;
            }
            tables += usize::from(columns.is_none());
            let wanted = *columns.get_or_insert_with(|| cells(row));
            if cells(row) != wanted || !row.ends_with('|') {
                broken.push(format!("{}:{number}: {row}", page.path));
            }
        }
    }
    assert!(tables > 100, "only {tables} tables were found");
    assert!(broken.is_empty(), "rows that no table has:\n{}", broken.join("\n"));
}
