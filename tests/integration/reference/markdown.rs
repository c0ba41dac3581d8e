//! Markdown output: wrapped paragraphs, tables and anchors.

/// Returns a table with a heading.
pub(super) fn table<const N: usize>(heading: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut table = line(&heading.map(str::to_owned)) + &format!("|{}\n", "---|".repeat(N));
    for row in rows {
        table += &line(&row.map(|cell| cell.replace('|', "\\|")));
    }
    table + "\n"
}

/// Returns a paragraph in lines of at most 120 columns. The first line starts with `first`, the others with `rest`.
pub(super) fn paragraph(first: &str, rest: &str, text: &str) -> String {
    let (mut lines, mut line, mut is_empty) = (String::new(), first.to_owned(), true);
    for word in words(text) {
        let fits = line.chars().count() + 1 + word.chars().count() <= WIDTH;
        if !is_empty && !fits && !starts_block(&word) {
            lines = lines + line.trim_end() + "\n";
            line = rest.to_owned();
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line += &word;
        is_empty = false;
    }
    lines + line.trim_end() + "\n"
}

/// Returns the words of a text. A code span is one word.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match words.last_mut().filter(|last| last.matches('`').count() % 2 == 1) {
            Some(open) => *open = format!("{open} {word}"),
            None => words.push(word.to_owned()),
        }
    }
    words
}

/// Returns the anchor of a heading.
pub(super) fn anchor(heading: &str) -> String {
    let is_kept = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ' ');
    heading.to_lowercase().chars().filter(is_kept).collect::<String>().replace(' ', "-")
}

/// Returns true if a line that starts with `word` would be a list item or a heading.
fn starts_block(word: &str) -> bool {
    let number = word.trim_end_matches(['.', ')']);
    matches!(word, "-" | "+" | "*")
        || word.starts_with('#')
        || (number.len() < word.len() && !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()))
}

/// Maximum width of a line of text.
const WIDTH: usize = 120;
