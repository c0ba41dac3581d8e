//! Unified diff of two texts, as written by `diff -u` and read by `patch`.

use std::fmt::Write;

/// A line of both texts, of the old text alone, or of the new text alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DiffLine<'a> {
    Unchanged(&'a str),
    Old(&'a str),
    New(&'a str),
}

/// Returns the differences between `old` and `new` as versions of the file `name`; empty if there are none.
pub(super) fn unified_diff(name: &str, old: &str, new: &str) -> String {
    let lines = align(&lines(old), &lines(new));
    let changed: Vec<usize> =
        (0..lines.len()).filter(|index| !matches!(lines[*index], DiffLine::Unchanged(_))).collect();
    let mut text = String::new();
    let mut rest = &changed[..];
    while let Some(&first) = rest.first() {
        if text.is_empty() {
            let _ = writeln!(text, "--- {name}\n+++ {name}");
        }
        let hunk_len = 1 + rest.windows(2).take_while(|pair| pair[1] - pair[0] <= 2 * CONTEXT_LINES).count();
        let last = rest[hunk_len - 1];
        text += &hunk(&lines, first.saturating_sub(CONTEXT_LINES), (last + CONTEXT_LINES + 1).min(lines.len()));
        rest = &rest[hunk_len..];
    }
    text
}

/// Returns `new` with `map_line` applied to each line that is not in `old`.
pub(super) fn map_changed_lines(old: &str, new: &str, map_line: impl Fn(&str) -> String) -> String {
    let map = |line: DiffLine<'_>| match line {
        DiffLine::Unchanged(both) => both.to_owned(),
        DiffLine::New(new) => map_line(new),
        DiffLine::Old(_) => String::new(),
    };
    align(&lines(old), &lines(new)).into_iter().map(map).collect()
}

fn hunk(lines: &[DiffLine<'_>], start: usize, end: usize) -> String {
    let old = |lines: &[DiffLine<'_>]| lines.iter().filter(|line| !matches!(line, DiffLine::New(_))).count();
    let new = |lines: &[DiffLine<'_>]| lines.iter().filter(|line| !matches!(line, DiffLine::Old(_))).count();
    let (before, within) = (&lines[..start], &lines[start..end]);
    let mut text = String::new();
    let first_lines = (old(before) + 1, new(before) + 1);
    let _ = writeln!(text, "@@ -{},{} +{},{} @@", first_lines.0, old(within), first_lines.1, new(within));
    for line in within {
        let (marker, line) = match line {
            DiffLine::Unchanged(line) => (' ', line),
            DiffLine::Old(line) => ('-', line),
            DiffLine::New(line) => ('+', line),
        };
        let _ = write!(text, "{marker}{line}");
        if !line.ends_with('\n') {
            text += "\n\\ No newline at end of file\n";
        }
    }
    text
}

fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

/// Aligns both texts by their longest common subsequence of lines.
fn align<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<DiffLine<'a>> {
    let same = |pair: &(&&str, &&str)| pair.0 == pair.1;
    let head = old.iter().zip(new).take_while(same).count();
    let (old_rest, new_rest) = (&old[head..], &new[head..]);
    let tail = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(same).count();
    let (old_middle, new_middle) = (&old_rest[..old_rest.len() - tail], &new_rest[..new_rest.len() - tail]);
    let mut lines: Vec<DiffLine<'a>> = old[..head].iter().map(|line| DiffLine::Unchanged(line)).collect();
    lines.extend(align_middle(old_middle, new_middle));
    lines.extend(old[old.len() - tail..].iter().map(|line| DiffLine::Unchanged(line)));
    lines
}

fn align_middle<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<DiffLine<'a>> {
    // common[i][j]: number of common lines of old[i..] and new[j..].
    let mut common = vec![vec![0_u32; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i][j] = match old[i] == new[j] {
                true => common[i + 1][j + 1] + 1,
                false => common[i + 1][j].max(common[i][j + 1]),
            };
        }
    }
    let (mut i, mut j, mut lines) = (0, 0, Vec::new());
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            lines.push(DiffLine::Unchanged(old[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == new.len() || (i < old.len() && common[i + 1][j] >= common[i][j + 1]) {
            lines.push(DiffLine::Old(old[i]));
            i += 1;
        } else {
            lines.push(DiffLine::New(new[j]));
            j += 1;
        }
    }
    lines
}

/// Number of unchanged lines shown around a change.
const CONTEXT_LINES: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn diff_shows_context_lines() {
        let old = "a\nb\nc\nd\ne\nf\n";
        let new = "a\nb\nc\nd\nE\nf\n";
        assert_eq!(
            unified_diff("x.yaml", old, new),
            "--- x.yaml\n+++ x.yaml\n@@ -2,5 +2,5 @@\n b\n c\n d\n-e\n+E\n f\n"
        );
        assert_eq!(unified_diff("x.yaml", old, old), "");
    }

    #[test]
    fn distant_changes_are_separate_hunks_with_eof_note() {
        let old: String = (0..20).map(|line| format!("{line}\n")).collect::<String>() + "last";
        let new = old.replace("2\n", "two\n").replace("last", "end");
        let diff = unified_diff("x", &old, &new);
        assert_eq!(diff.matches("@@ -").count(), 3, "lines 2, 12 and the last: {diff}");
        assert!(diff.ends_with("-last\n\\ No newline at end of file\n+end\n\\ No newline at end of file\n"), "{diff}");
    }

    proptest! {
        #[test]
        fn both_texts_are_recoverable_from_the_diff(old in "[ab\n]{0,30}", new in "[ab\n]{0,30}") {
            let all = align(&lines(&old), &lines(&new));
            let side = |skip: fn(&DiffLine<'_>) -> bool| -> String {
                let kept = all.iter().filter(|line| !skip(line));
                kept.map(|(DiffLine::Unchanged(line) | DiffLine::Old(line) | DiffLine::New(line))| *line).collect()
            };
            prop_assert_eq!(side(|line| matches!(line, DiffLine::New(_))), &*old);
            prop_assert_eq!(side(|line| matches!(line, DiffLine::Old(_))), &*new);
        }
    }
}
