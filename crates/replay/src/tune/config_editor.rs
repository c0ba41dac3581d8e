//! Editor of a configuration file: replaces values in the text and keeps order, comments and spelling.

use super::candidate::Candidate;
use super::pacing::PacingChoice;
use super::space::SearchSpace;
use similar::{Change, ChangeTag, TextDiff};
use std::ops::Range;
use tidegate_config::{SettingPath, Settings, SourceLocation};
use tidegate_policy::tier::{Share, Tier};
use tidegate_policy::{ClassId, QuotaId, Units};

/// A configuration file that is edited.
pub struct ConfigEditor<'a> {
    text: &'a str,
    settings: &'a Settings,
}

/// Error when a value is not in the file, or not as a value of its own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}{location}: cannot be edited in place; write the value in the file, without an anchor or a variable")]
pub struct EditError {
    path: SettingPath,
    location: String,
}

/// Replacement of a range of the text.
struct Edit {
    old: Range<usize>,
    new: String,
}

impl<'a> ConfigEditor<'a> {
    /// Creates an editor of the `text` from which `settings` were loaded.
    pub fn new(text: &'a str, settings: &'a Settings) -> Self {
        Self { text, settings }
    }

    /// Returns the unchanged text.
    pub(super) fn text(&self) -> &'a str {
        self.text
    }

    /// Returns the text with the values of a candidate.
    pub(super) fn apply(&self, space: &SearchSpace, candidate: &Candidate) -> Result<String, EditError> {
        let mut edits = Vec::new();
        let tier_sets = candidate.tier_sets.iter().zip(&space.present().tier_sets).zip(space.classes());
        for ((tiers, present), class) in tier_sets.filter(|((tiers, present), _)| tiers != present) {
            let path = self.tiers_path(space.quota(), *class);
            edits.extend(self.tier_edits(&path, present, tiers, space.limit())?);
        }
        if candidate.pacing != space.present().pacing {
            edits.extend(self.pacing_edits(space, &candidate.pacing)?);
        }
        edits.sort_by_key(|edit| edit.old.start);
        let mut text = self.text.to_owned();
        for Edit { old, new } in edits.into_iter().rev() {
            text.replace_range(old, &self.match_line_endings(new));
        }
        Ok(text)
    }

    /// Like [`Self::apply`], but annotates each changed line, in place of a comment that may be wrong now.
    pub(super) fn apply_annotated(&self, space: &SearchSpace, candidate: &Candidate) -> Result<String, EditError> {
        let text = self.apply(space, candidate)?;
        let diff = TextDiff::from_lines(self.text, &text);
        let line = |change: Change<&str>| match change.tag() {
            ChangeTag::Equal => change.value().to_owned(),
            ChangeTag::Insert => annotated(change.value()),
            ChangeTag::Delete => String::new(),
        };
        Ok(diff.iter_all_changes().map(line).collect())
    }

    /// Returns the error for a candidate that the edited file does not reproduce.
    pub(super) fn edit_error(&self, space: &SearchSpace) -> EditError {
        self.edit_error_at(&self.tiers_path(space.quota(), space.classes()[0]))
    }

    /// Returns the path of the tiers of a class.
    fn tiers_path(&self, quota: QuotaId, class: ClassId) -> SettingPath {
        let rules = &self.settings.rules;
        self.settings.source_map.tiers_path(&rules[quota].name, &rules[class].name)
    }

    fn tier_edits(
        &self,
        path: &SettingPath,
        present: &[Tier],
        tiers: &[Tier],
        limit: Units,
    ) -> Result<Vec<Edit>, EditError> {
        let mut edits = Vec::new();
        for (index, (tier, present_tier)) in tiers.iter().zip(present).enumerate() {
            let path = path.index(index);
            if tier.threshold != present_tier.threshold {
                edits.push(self.replace_scalar(&path.above(), threshold_text(tier.threshold, limit))?);
            }
            if tier.shed_share != present_tier.shed_share {
                edits.push(self.replace_scalar(&path.shed(), tier.shed_share.to_string())?);
            }
        }
        if tiers.len() != present.len() {
            let last_kept = tiers.len().min(present.len()) - 1;
            let end_of = |index: usize| self.end_of_tier(path, index);
            let (is_block, indent) = self.layout(path)?;
            let new: String =
                tiers[last_kept + 1..].iter().map(|tier| new_tier_text(tier, limit, is_block, indent)).collect();
            edits.push(Edit { old: end_of(last_kept)?..end_of(present.len() - 1)?, new });
        }
        Ok(edits)
    }

    fn pacing_edits(&self, space: &SearchSpace, pace: &PacingChoice) -> Result<Vec<Edit>, EditError> {
        let rules = &self.settings.rules;
        let quota = self.settings.source_map.quota_path(&rules[space.quota()].name);
        let path = quota.pacing();
        let classes = || space.classes().iter().map(|class| &rules[*class].name).zip(&pace.weights);
        if self.has_key(&path.mode()) {
            let weights = classes().filter(|_| pace.mode.is_some());
            let weights = weights.map(|(class, weight)| (path.weights().entry(class), weight.to_string()));
            let existing_weights = weights.filter(|(path, _)| self.has_key(path));
            let mode = (path.mode(), pace.mode_name().to_owned());
            return std::iter::once(mode)
                .chain(existing_weights)
                .map(|(path, new)| self.replace_scalar(&path, new))
                .collect();
        }
        let weights: Vec<String> =
            classes().filter(|(_, weight)| **weight > 1).map(|(class, weight)| format!("{class}: {weight}")).collect();
        let new = match weights.is_empty() {
            true => pace.mode_name().to_owned(),
            false => format!("{{ mode: {}, weights: {{ {} }} }}", pace.mode_name(), weights.join(", ")),
        };
        match self.has_key(&path) {
            true => Ok(vec![self.replace_scalar(&path, new)?]),
            false => Ok(vec![self.insert_after(&quota.limit(), &format!("pacing: {new}"))?]),
        }
    }

    /// Inserts a key and its value after the scalar at `path`, on the same level.
    fn insert_after(&self, path: &SettingPath, new: &str) -> Result<Edit, EditError> {
        let start = self.offset(path)?;
        let end = self.end_of_scalar(start);
        let line = self.text[..start].rfind('\n').map_or(0, |end| end + 1);
        let key = self.text[line..start].trim_start();
        let indent = start - line - key.len();
        let (at, new) = match self.text[end..].trim_start().starts_with([',', '}']) {
            true => (end, format!(", {new}")),
            false => (self.end_of_line(end), format!("\n{}{new}", " ".repeat(indent))),
        };
        Ok(Edit { old: at..at, new })
    }

    fn replace_scalar(&self, path: &SettingPath, new: String) -> Result<Edit, EditError> {
        let start = self.offset(path)?;
        Ok(Edit { old: start..self.end_of_scalar(start), new })
    }

    /// Returns true and the indentation if tiers are a block list, false if they are in brackets.
    fn layout(&self, path: &SettingPath) -> Result<(bool, usize), EditError> {
        let first = self.offset(&path.index(0))?;
        let before = self.text[..first].trim_end();
        let line = before.rfind('\n').map_or(0, |end| end + 1);
        match before.ends_with('-') {
            true => Ok((true, before[line..].chars().count() - 1)),
            false if before.ends_with(['[', ',']) => Ok((false, 0)),
            false => Err(self.edit_error_at(path)),
        }
    }

    /// Returns the end of a tier: its bracket, or the end of its line in a block list.
    fn end_of_tier(&self, path: &SettingPath, index: usize) -> Result<usize, EditError> {
        let tier = path.index(index);
        let last = self.end_of_scalar(self.offset(&tier.above())?.max(self.offset(&tier.shed())?));
        match self.layout(path)?.0 {
            true => Ok(self.end_of_line(last)),
            false => {
                let rest = &self.text[last..];
                let bracket = rest.find('}').filter(|end| rest[..*end].trim().is_empty());
                bracket.map(|end| last + end + 1).ok_or_else(|| self.edit_error_at(path))
            }
        }
    }

    /// Returns the offset of a value in the text.
    fn offset(&self, path: &SettingPath) -> Result<usize, EditError> {
        let Some(SourceLocation::Position { line, column }) = self.settings.source_map.position(path) else {
            return Err(self.edit_error_at(path));
        };
        let (line, column) = (*line as usize - 1, *column as usize - 1);
        let line_start: usize = self.text.split_inclusive('\n').take(line).map(str::len).sum();
        let char_offset = self.text[line_start..].char_indices().nth(column);
        // An alias refers to a value that other keys share.
        let char_offset = char_offset.filter(|(_, c)| *c != '*');
        char_offset.map(|(char_offset, _)| line_start + char_offset).ok_or_else(|| self.edit_error_at(path))
    }

    fn end_of_line(&self, from: usize) -> usize {
        let line = self.text[from..].split('\n').next().unwrap_or_default();
        from + line.trim_end_matches('\r').len()
    }

    fn match_line_endings(&self, new: String) -> String {
        if self.text.contains("\r\n") { new.replace('\n', "\r\n") } else { new }
    }

    fn has_key(&self, path: &SettingPath) -> bool {
        self.settings.source_map.position(path).is_some()
    }

    /// Returns the end of the scalar that begins at `start`.
    fn end_of_scalar(&self, start: usize) -> usize {
        let rest = &self.text[start..];
        let quoted = rest.chars().next().filter(|c| matches!(c, '"' | '\''));
        let length = match quoted {
            Some(quote) => rest[1..].find(quote).map(|end| end + 2),
            None => rest.find(|c: char| c.is_whitespace() || matches!(c, ',' | '}' | ']')),
        };
        start + length.unwrap_or(rest.len())
    }

    fn edit_error_at(&self, path: &SettingPath) -> EditError {
        let location =
            self.settings.source_map.location(path).map_or(String::new(), |location| format!(" ({location})"));
        EditError { path: path.clone(), location }
    }
}

/// Replaces the comment of a line by the annotation.
fn annotated(line: &str) -> String {
    let (text, end) = line.split_at(line.trim_end_matches(['\n', '\r']).len());
    match comment_start(text) {
        Some(start) => format!("{}   {ANNOTATION}{end}", text[..start].trim_end()),
        None => line.to_owned(),
    }
}

/// Returns the start of the comment of a line, or its end without one; `None` if the line ends within quotes.
fn comment_start(line: &str) -> Option<usize> {
    let (mut quote, mut before) = (None, ' ');
    for (at, c) in line.char_indices() {
        match (quote, c) {
            (Some(open), _) if open == c && before != '\\' => quote = None,
            (None, '"' | '\'') if before.is_whitespace() || matches!(before, '[' | '{' | ',' | ':') => {
                quote = Some(c);
            }
            (None, '#') if before.is_whitespace() => return Some(at),
            _ => {}
        }
        before = c;
    }
    quote.is_none().then_some(line.len())
}

/// Returns the text of a tier that is added after the last one.
fn new_tier_text(tier: &Tier, limit: Units, is_block: bool, indent: usize) -> String {
    let tier = format!("{{ above: {}, shed: {} }}", threshold_text(tier.threshold, limit), tier.shed_share);
    match is_block {
        true => format!("\n{}- {tier}", " ".repeat(indent)),
        false => format!(", {tier}"),
    }
}

/// Formats a threshold as a share of the limit if that is exact to 0.01 %, else in units.
pub(super) fn threshold_text(units: Units, limit: Units) -> String {
    let ten_thousandths = u128::from(units.milli()) * 10_000 / u128::from(limit.milli().max(1));
    let share = Share::from_millionths(u32::try_from(ten_thousandths * 100).unwrap_or(u32::MAX));
    if share.of_units(limit) == units { share.to_string() } else { units.to_string() }
}

/// Annotation of changed lines.
const ANNOTATION: &str = "# by tidegate tune";

#[cfg(test)]
mod tests;
