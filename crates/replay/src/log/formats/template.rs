//! Lines by a format string: texts, and values between them.
//!
//! A value ends where the next text begins. That is certain for values that the server makes, and for values in quotes,
//! because servers escape quotes. A text of the client without quotes may look like the columns that follow it: those are read
//! from the right, up to the next quote, and two such texts without a quote in between are an error of the format string.

use super::field::{Encoding, Field, Meaning};
use super::record::{FieldSet, FieldValues};
use super::value::Value;
use crate::log::LineError;
use std::borrow::Cow;

/// A format string.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::log) struct Template {
    pieces: Vec<Piece>,
}

/// A text or a value of a format string.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::log) enum Piece {
    /// Text between values.
    Literal(Vec<u8>),
    /// Value between texts.
    Value(TemplateValue),
}

/// A value of a format string.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::log) struct TemplateValue {
    /// Name in the format string.
    pub(super) name: String,
    pub(super) meaning: Option<Meaning>,
    pub(super) form: Form,
    /// How a text of the client escapes quotes.
    escapes: Encoding,
    /// Meanings of captures, by their index.
    captures: Vec<(usize, Meaning)>,
}

impl TemplateValue {
    /// Creates a value.
    pub(super) fn new(name: &str, meaning: Option<Meaning>, form: Form, escapes: Encoding) -> Self {
        let meaning = meaning.map(|meaning| match form {
            Form::Text => meaning.encoded(escapes),
            _ => meaning,
        });
        Self { name: name.to_owned(), meaning, form, escapes, captures: Vec::new() }
    }
}

/// Form of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::log) enum Form {
    /// Address, perhaps with a port behind a text of a colon.
    Address,
    /// A word, or a phrase of the server, such as a time.
    Word,
    /// Values of several attempts, separated by `, ` or ` : ` (nginx).
    List,
    /// Text of the client.
    Text,
    /// Texts in braces behind a blank, separated by bars; nothing if there are none.
    Captures,
}

impl Template {
    /// Creates a template. Fails if values cannot be told apart.
    pub(super) fn new(pieces: Vec<Piece>) -> Result<Self, String> {
        let mut merged: Vec<Piece> = Vec::new();
        for piece in pieces {
            match (merged.last_mut(), piece) {
                (_, Piece::Literal(text)) if text.is_empty() => {}
                (Some(Piece::Literal(before)), Piece::Value(value)) if value.form == Form::Captures => {
                    // The blank in front of captures is theirs.
                    before.pop_if(|last| *last == b' ');
                    if before.is_empty() {
                        merged.pop();
                    }
                    merged.push(Piece::Value(value));
                }
                (Some(Piece::Literal(before)), Piece::Literal(text)) => before.extend(text),
                (Some(Piece::Value(before)), Piece::Value(value)) if value.form != Form::Captures => {
                    return Err(format!(
                        "{} directly follows {}; a log with both cannot be split, so separate them, as by a blank",
                        value.name, before.name
                    ));
                }
                (_, piece) => merged.push(piece),
            }
        }
        let template = Self { pieces: merged };
        template.check_fields()?;
        template.check_texts()?;
        Ok(template)
    }

    fn check_fields(&self) -> Result<(), String> {
        let fields = self.fields();
        let has_any = |any: &[Field]| any.iter().any(|field| fields.contains(*field));
        for (required, name) in [
            (&[Field::Client, Field::Forwarded][..], "the client, such as $remote_addr, %h or %ci"),
            (&[Field::Time], "the time, such as $time_local, %t or %tr"),
            (&[Field::Status], "the status, such as $status, %>s or %ST"),
            (&[Field::Request, Field::Uri, Field::Path], "the request, such as $request, %r or %{+Q}r"),
        ] {
            if !has_any(required) {
                return Err(format!("the format lacks {name}"));
            }
        }
        Ok(())
    }

    /// Checks that between two quotes is at most one text of the client.
    fn check_texts(&self) -> Result<(), String> {
        let mut before: Option<&TemplateValue> = None;
        for piece in &self.pieces {
            match (piece, before) {
                (Piece::Literal(text), _) if text.contains(&b'"') => before = None,
                (Piece::Value(value), Some(other)) if value.form == Form::Text => {
                    return Err(format!(
                        "{} and {} are texts of the client without quotes: where one ends is not known; put them in quotes in \
                         the server's format, and read logs written since",
                        other.name, value.name
                    ));
                }
                (Piece::Value(value), None) if value.form == Form::Text => before = Some(value),
                _ => {}
            }
        }
        Ok(())
    }

    /// Gives a capture of request headers a meaning, by its index. Returns false if the format has no captures.
    pub(in crate::log) fn set_capture(&mut self, index: usize, meaning: Meaning) -> bool {
        let captures = self.pieces.iter_mut().find_map(|piece| match piece {
            Piece::Value(value) if value.form == Form::Captures => Some(&mut value.captures),
            _ => None,
        });
        captures.map(|captures| captures.push((index, meaning))).is_some()
    }

    /// Returns the values that have a meaning.
    pub(in crate::log) fn names(&self) -> impl Iterator<Item = (&str, Meaning)> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Value(TemplateValue { name, meaning: Some(meaning), .. }) => Some((&**name, *meaning)),
            _ => None,
        })
    }

    /// Returns the meanings that the values have.
    pub(in crate::log) fn fields(&self) -> FieldSet {
        let mut fields = FieldSet::default();
        self.names().for_each(|(_, meaning)| fields.insert(meaning.field));
        let captures = self.pieces.iter().flat_map(|piece| match piece {
            Piece::Value(value) => &value.captures[..],
            Piece::Literal(_) => &[],
        });
        captures.for_each(|(_, meaning)| fields.insert(meaning.field));
        fields
    }

    /// Reads the values of a line.
    pub(in crate::log) fn read<'a>(&self, line: &'a [u8]) -> Result<FieldValues<'a>, LineError> {
        let mut values = FieldValues::default();
        let (mut pieces, mut rest) = (&self.pieces[..], line);
        while !pieces.is_empty() {
            // A segment ends with a literal that has a quote.
            let end = pieces.iter().position(|piece| matches!(piece, Piece::Literal(text) if text.contains(&b'"')));
            let (segment, quote) = match end {
                Some(end) => (&pieces[..end], Some(&pieces[end])),
                None => (pieces, None),
            };
            let (text, after) = match quote {
                Some(Piece::Literal(literal)) => split_at_quote(rest, literal, has_backslashes(segment))?,
                _ => (rest, &rest[rest.len()..]),
            };
            read_segment(segment, text, &mut values)?;
            (pieces, rest) = (&pieces[end.map_or(pieces.len(), |end| end + 1)..], after);
        }
        Ok(values)
    }
}

/// Returns true if a backslash escapes a quote in the values. A text of the client is alone between two quotes.
fn has_backslashes(segment: &[Piece]) -> bool {
    segment.iter().all(|piece| match piece {
        Piece::Value(TemplateValue { form: Form::Text | Form::Captures, escapes, .. }) => *escapes != Encoding::Hash,
        _ => true,
    })
}

/// Splits a text at the literal with the next quote.
fn split_at_quote<'a>(
    text: &'a [u8],
    literal: &[u8],
    has_backslashes: bool,
) -> Result<(&'a [u8], &'a [u8]), LineError> {
    let before_quote = memchr::memchr(b'"', literal).unwrap_or(0);
    let mut at = 0;
    let quote = loop {
        let unread = text.get(at..).unwrap_or_default();
        let found = match has_backslashes {
            true => memchr::memchr2(b'"', b'\\', unread),
            false => memchr::memchr(b'"', unread),
        };
        at += found.ok_or(LineError::Truncated)?;
        match text[at] {
            b'"' => break at,
            _ => at += 2,
        }
    };
    let start = quote.checked_sub(before_quote).ok_or(LineError::OtherFormat)?;
    let after = text[start..].strip_prefix(literal).ok_or(LineError::OtherFormat)?;
    Ok((&text[..start], after))
}

/// Reads values between two quotes: up to a text of the client from the left, and behind it from the right.
fn read_segment<'a>(pieces: &[Piece], text: &'a [u8], values: &mut FieldValues<'a>) -> Result<(), LineError> {
    let is_text = |piece: &Piece| matches!(piece, Piece::Value(TemplateValue { form: Form::Text, .. }));
    let at = pieces.iter().position(is_text).unwrap_or(pieces.len());
    let mut rest = text;
    for (index, piece) in pieces[..at].iter().enumerate() {
        let next = match pieces.get(index + 1) {
            Some(Piece::Literal(literal)) => Some(&**literal),
            Some(Piece::Value(_)) => Some(CAPTURES_START),
            None => None,
        };
        rest = read_piece(piece, next, rest, values)?;
    }
    let Some(Piece::Value(client_text)) = pieces.get(at) else {
        return if rest.is_empty() { Ok(()) } else { Err(LineError::OtherFormat) };
    };
    let mut behind = pieces[at + 1..].iter().rev().peekable();
    while let Some(piece) = behind.next() {
        match piece {
            Piece::Literal(literal) => rest = rest.strip_suffix(&**literal).ok_or(LineError::OtherFormat)?,
            Piece::Value(value) => {
                let Some(Piece::Literal(literal)) = behind.peek() else { return Err(LineError::OtherFormat) };
                let start = start_of_last(rest, literal, value).ok_or(LineError::OtherFormat)?;
                set_value(value, &rest[start..], values)?;
                rest = &rest[..start];
            }
        }
    }
    set_value(client_text, rest, values)
}

/// Reads a piece at the start of a text, and returns the rest.
fn read_piece<'a>(
    piece: &Piece,
    next: Option<&[u8]>,
    text: &'a [u8],
    values: &mut FieldValues<'a>,
) -> Result<&'a [u8], LineError> {
    let value = match piece {
        Piece::Literal(literal) => return text.strip_prefix(&**literal).ok_or(LineError::OtherFormat),
        Piece::Value(value) => value,
    };
    let end = match value.form {
        Form::Captures if text.starts_with(b" {") => memchr::memchr(b'}', text).ok_or(LineError::Truncated)? + 1,
        Form::Captures => 0,
        Form::Address if next.is_some_and(|next| next.starts_with(b":")) => {
            let word = memchr::memchr(b' ', text).unwrap_or(text.len());
            memchr::memrchr(b':', &text[..word]).ok_or(LineError::OtherFormat)?
        }
        _ => match next {
            Some(CAPTURES_START) => memchr::memchr(b' ', text).unwrap_or(text.len()),
            Some(literal) => end_of_first(text, literal, value).ok_or(LineError::OtherFormat)?,
            None => text.len(),
        },
    };
    set_value(value, &text[..end], values)?;
    Ok(&text[end..])
}

/// Returns the end of the value at the start of a text: the first literal, but not one within the value.
fn end_of_first(text: &[u8], literal: &[u8], value: &TemplateValue) -> Option<usize> {
    if value.meaning.is_some_and(|meaning| meaning.field == Field::Time) {
        // `[07/Jun/2024:00:00:09 +0000]`, or the same without brackets.
        let bracketed = text.starts_with(b"[").then(|| memchr::memchr(b']', text)).flatten();
        let end = bracketed.map(|end| end + 1).or_else(|| memchr::memmem::find(text, literal))?;
        return Some(if text.get(end..end + 6).is_some_and(is_zone) { end + 6 } else { end });
    }
    let is_within = |end: usize| {
        value.form == Form::List
            && (text[..end].ends_with(b",") || text[..end].ends_with(b" :") || text[end..].starts_with(b" : "))
    };
    memchr::memmem::find_iter(text, literal).find(|end| !is_within(*end))
}

/// Returns true for a zone behind a time, such as ` +0200`.
fn is_zone(text: &[u8]) -> bool {
    matches!(text, [b' ', b'+' | b'-', digits @ ..] if digits.len() == 4 && digits.iter().all(u8::is_ascii_digit))
}

/// Returns the start of the value at the end of a text: behind the last literal, but not one within the value.
fn start_of_last(text: &[u8], literal: &[u8], value: &TemplateValue) -> Option<usize> {
    let mut end = text.len();
    if value.meaning.is_some_and(|meaning| meaning.field == Field::Time) {
        end = match text.ends_with(b"]") {
            true => memchr::memrchr(b'[', text)?,
            false if is_zone(&text[end.saturating_sub(6)..]) => end - 6,
            false => end,
        };
    }
    loop {
        let at = memchr::memmem::rfind(&text[..end], literal)?;
        let is_within = value.form == Form::List
            && (text[..at].ends_with(b",") || text[..at].ends_with(b" :") || text[at..].starts_with(b" : "));
        if !is_within {
            return Some(at + literal.len());
        }
        end = at;
    }
}

fn set_value<'a>(value: &TemplateValue, text: &'a [u8], values: &mut FieldValues<'a>) -> Result<(), LineError> {
    if value.form == Form::Address && text.contains(&b' ') {
        return Err(LineError::InvalidClient);
    }
    if value.form == Form::Captures {
        let inner = text.strip_prefix(b" {").and_then(|inner| inner.strip_suffix(b"}")).unwrap_or_default();
        let captures: Vec<&[u8]> = inner.split(|byte| *byte == b'|').collect();
        for (index, meaning) in &value.captures {
            if let Some(text) = captures.get(*index) {
                values.set(*meaning, Value::Text(Cow::Borrowed(text)));
            }
        }
    } else if let Some(meaning) = value.meaning {
        values.set(meaning, Value::Text(Cow::Borrowed(text)));
    }
    Ok(())
}

/// Start of captures, which may be left out.
const CAPTURES_START: &[u8] = b" {";
