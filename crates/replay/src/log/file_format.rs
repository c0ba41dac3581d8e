//! Format of a file: detected from its first lines, or named on the command line.

use super::formats::collector::{Collector, Stripped};
use super::formats::field::Meaning;
use super::formats::{ForeignFormat, NamedFormat};
use super::layout::{Layout, SAMPLE_LINES};
use super::options::{FormatArgument, LogFieldName, LogFormat, LogOptions};
use super::source::{LogReadError, LogSource, NumberedLine};
use super::{LineError, LogField, LogLine, format, normalized};
use std::borrow::Cow;
use tidegate_policy::Timestamp;

/// Reads the lines of a file.
#[derive(Clone, Debug)]
pub(super) struct FileFormat {
    collector: Collector,
    /// Start of a long line of the standard output and of the standard error output, as far as it is read.
    parts: [LongLine; 2],
    lines: LineFormat,
    name: String,
    /// Names of the command line that no line has.
    unused_fields: Vec<String>,
}

/// Format of the lines behind the prefix of a collector.
#[derive(Clone, Debug)]
enum LineFormat {
    /// Lines of the gateway, combined and common ones, which are read without their file.
    Common(Layout),
    Foreign(Box<ForeignFormat>),
}

/// Parts of a line that a collector has split.
#[derive(Clone, Debug, Default)]
struct LongLine {
    text: Vec<u8>,
    is_open: bool,
}

impl FileFormat {
    /// Detects the format by the first lines.
    pub(super) fn detect<'a>(lines: impl Iterator<Item = &'a [u8]>, options: &LogOptions) -> Self {
        let lines: Vec<&[u8]> = lines.take(SAMPLE_LINES).filter(|line| !line.trim_ascii().is_empty()).collect();
        let mut best: Option<(usize, Self)> = None;
        for collector in Collector::ALL {
            let stripped: Vec<Stripped<'_>> = lines.iter().filter_map(|line| collector.strip(line)).collect();
            if collector != Collector::None && (stripped.is_empty() || stripped.len() * 10 < lines.len() * 9) {
                continue;
            }
            let texts: Vec<&[u8]> = stripped.iter().map(|line| &*line.text).collect();
            let (read_lines, name, line_format) = detect_lines(&texts, options);
            let is_unused = |field: &&LogFieldName| match &line_format {
                LineFormat::Common(_) => true,
                LineFormat::Foreign(foreign) => !foreign.uses(&field.name, field.meaning),
            };
            let unused_fields = options.fields.iter().filter(is_unused).map(|field| field.name.clone()).collect();
            let format = Self { collector, parts: Default::default(), lines: line_format, name, unused_fields };
            // All lines are read: a longer search would find nothing better.
            if read_lines == lines.len() && read_lines > 0 {
                return format;
            }
            if best.as_ref().is_none_or(|(most, _)| read_lines > *most) {
                best = Some((read_lines, format));
            }
        }
        best.map(|(_, format)| format).unwrap_or_else(|| Self {
            collector: Collector::None,
            parts: Default::default(),
            lines: LineFormat::Common(Layout::default()),
            name: String::new(),
            unused_fields: Vec::new(),
        })
    }

    /// Writes a line in a form that [`LogLine::read`] reads, and returns its time; `None` if it has none of a request: an
    /// empty line, a directive, or a part of a line.
    #[inline]
    pub(super) fn write_line(&mut self, line: &[u8], out: &mut Vec<u8>) -> Result<Option<Timestamp>, LineError> {
        match (self.collector, &mut self.lines) {
            (Collector::None, LineFormat::Common(layout)) => write_common(layout, line, out),
            _ => self.write_collected(line, out),
        }
    }

    fn write_collected(&mut self, line: &[u8], out: &mut Vec<u8>) -> Result<Option<Timestamp>, LineError> {
        if line.is_empty() {
            return Ok(None);
        }
        let Stripped { text, is_part, is_stderr } = self.collector.strip(line).ok_or(LineError::OtherFormat)?;
        let long_line = &mut self.parts[usize::from(is_stderr)];
        let text = match long_line.is_open || is_part {
            true => {
                long_line.is_open = true;
                if long_line.text.len() <= MAX_LONG_LINE_BYTES {
                    long_line.text.extend_from_slice(&text);
                }
                if is_part {
                    return Ok(None);
                }
                long_line.is_open = false;
                let text = std::mem::take(&mut long_line.text);
                if text.len() > MAX_LONG_LINE_BYTES {
                    return Err(LineError::TooLong);
                }
                Cow::Owned(text)
            }
            false => text,
        };
        match &mut self.lines {
            LineFormat::Common(layout) => write_common(layout, &text, out),
            LineFormat::Foreign(foreign) => write_foreign(foreign, &text, out),
        }
    }

    /// Returns the format and its columns, for a report; empty if no line shows it.
    pub(super) fn describe(&self) -> String {
        let described = match &self.lines {
            LineFormat::Common(_) => self.name.clone(),
            LineFormat::Foreign(foreign) => foreign.describe(),
        };
        match self.collector.name().filter(|_| !described.is_empty()) {
            Some(collector) => format!("{described} ({collector})"),
            None => described,
        }
    }

    /// Returns the column in which the clients were found, for a report.
    pub(super) fn describe_client(&self) -> String {
        match &self.lines {
            LineFormat::Common(layout) => layout.describe(),
            LineFormat::Foreign(foreign) => foreign.describe_client(),
        }
    }

    /// Returns what is doubtful about the lines.
    pub(super) fn warnings(&self) -> Vec<String> {
        let mut warnings = match &self.lines {
            LineFormat::Common(layout) => layout.warning().map(str::to_owned).into_iter().collect(),
            LineFormat::Foreign(foreign) => foreign.warnings().to_vec(),
        };
        let unused = |name| format!("--field {name} has no effect: no line has it");
        warnings.extend(self.unused_fields.iter().map(unused));
        warnings
    }
}

fn write_common(layout: &Layout, line: &[u8], out: &mut Vec<u8>) -> Result<Option<Timestamp>, LineError> {
    match format::read_time(line) {
        Some(at) => layout.write_line(line, out).map(|()| Some(at)),
        None => LogLine::read(line).map(|_| None),
    }
}

fn write_foreign(foreign: &mut ForeignFormat, line: &[u8], out: &mut Vec<u8>) -> Result<Option<Timestamp>, LineError> {
    // nginx writes bytes that are no UTF-8 into its JSON as they are.
    let lossy = match foreign.is_json() && std::str::from_utf8(line).is_err() {
        true => Cow::Owned(String::from_utf8_lossy(line).into_owned().into_bytes()),
        false => Cow::Borrowed(line),
    };
    let Some((line, utc_offset)) = foreign.read(&lossy)? else { return Ok(None) };
    normalized::write(&line, utc_offset, out)?;
    Ok(Some(line.at))
}

/// Returns the number of lines that are read, the name of their format if it is a common one, and the format.
fn detect_lines(lines: &[&[u8]], options: &LogOptions) -> (usize, String, LineFormat) {
    let fields: Vec<(String, Meaning)> =
        options.fields.iter().map(|field| (field.name.clone(), field.meaning)).collect();
    let common = |lines: &[&[u8]]| {
        let read: Vec<LogLine<'_>> = lines.iter().filter_map(|line| LogLine::read(line).ok().flatten()).collect();
        let layout = Layout::detect(lines.iter().copied());
        (read.len(), common_name(&read), LineFormat::Common(layout))
    };
    let of_foreign =
        |foreign: ForeignFormat| (foreign.read_lines, String::new(), LineFormat::Foreign(Box::new(foreign)));
    let named = |format| ForeignFormat::named(format, &fields, lines);
    match options.format.as_ref().map(|LogFormat(argument)| argument.clone()) {
        Some(FormatArgument::Named(NamedFormat::Common)) => common(lines),
        Some(FormatArgument::Named(format)) => named(format).map_or_else(|| common(lines), of_foreign),
        Some(FormatArgument::Template(template)) => {
            of_foreign(ForeignFormat::of_template("format of --format", template, &fields, lines))
        }
        Some(FormatArgument::Json(names)) => {
            of_foreign(ForeignFormat::of_json("JSON of --format", names, &fields, lines))
        }
        Some(FormatArgument::Columns(columns)) => of_foreign(ForeignFormat::of_w3c(columns, &fields, lines)),
        None => {
            let common = common(lines);
            if common.0 * 2 > lines.len() {
                return common;
            }
            // Names of a known program are certain, and guessed ones are not.
            let mut has_dialect = false;
            let foreign = NamedFormat::FOREIGN.into_iter().filter_map(|format| {
                let foreign = named(format).filter(|_| !(has_dialect && format == NamedFormat::Json));
                has_dialect |=
                    matches!(format, NamedFormat::Dialect(_)) && foreign.as_ref().is_some_and(|it| it.read_lines > 0);
                foreign
            });
            let best = foreign.reduce(|best, other| if other.read_lines > best.read_lines { other } else { best });
            match best {
                Some(best) if best.read_lines > common.0 => of_foreign(best),
                _ => common,
            }
        }
    }
}

/// Returns the name of the common format of lines.
fn common_name(lines: &[LogLine<'_>]) -> String {
    let natives = lines.iter().filter(|line| line.native.is_some()).count();
    let has_agents = lines.iter().any(|line| !line.missing.contains(LogField::UserAgent));
    match (lines.len(), natives) {
        (0, _) => "",
        (_, 0) if has_agents => "combined",
        (_, 0) => "common",
        // Requests that the gateway rejected have no decision.
        _ if lines.iter().all(|line| line.native.is_some() || line.request.is_none()) => "Tidegate",
        _ => "Tidegate and combined",
    }
    .to_owned()
}

/// Length of a line whose parts are joined, at most that of a whole one.
const MAX_LONG_LINE_BYTES: usize = 64 * 1024;

/// Calls `use_line` with a line of a source by its number. Returns the number of lines if the source has fewer.
pub fn with_line<T>(
    mut source: LogSource,
    number: u64,
    use_line: impl FnOnce(Result<Option<LogLine<'_>>, LineError>) -> T,
) -> Result<Result<T, u64>, LogReadError> {
    let options = source.options.clone();
    let mut format = FileFormat::detect(source.first_lines()?, &options);
    let (mut last, mut written) = (0, Vec::new());
    while let Some(NumberedLine { number: read, text }) = source.next_line()? {
        written.clear();
        // Earlier lines may name the columns of this one.
        let time = text.and_then(|text| format.write_line(text, &mut written));
        if read == number {
            return Ok(Ok(use_line(time.and_then(|time| match time {
                Some(_) => LogLine::read(&written),
                None => Ok(None),
            }))));
        }
        last = read;
    }
    Ok(Err(last))
}
