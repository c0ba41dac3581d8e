//! Reference to a line of a log: `FILE:LINE`, with the other files of the log.

use std::path::{Path, PathBuf};
use tidegate_replay::ReplayRequest;
use tidegate_replay::log::{LineError, LinePosition, LogFiles, LogLine, LogOptions, with_line};

/// A line of a log that may consist of several files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogLineRef {
    pub(super) files: Vec<PathBuf>,
    pub(super) position: LinePosition,
}

impl LogLineRef {
    /// Parses the values of `--log`, exactly one of which must have a line number.
    pub(super) fn parse_refs(arguments: &[String]) -> Result<Self, String> {
        let (mut files, mut position) = (Vec::new(), None);
        for text in arguments {
            let numbered = text.rsplit_once(':').filter(|(file, _)| !file.is_empty());
            let numbered = numbered.and_then(|(file, number)| Some((file, number.parse().ok().filter(|at| *at > 0)?)));
            match numbered {
                Some((file, number)) if position.is_none() => {
                    position = Some(LinePosition { file: files.len(), number });
                    files.push(file.into());
                }
                Some(_) => {
                    return Err(format!("{text:?} is a second line; write the other files without a line number"));
                }
                None => files.push(text.into()),
            }
        }
        match position {
            _ if files.iter().any(|file: &PathBuf| file == Path::new("-")) => {
                Err("standard input cannot be read twice; write a file".to_owned())
            }
            Some(position) => Ok(Self { files, position }),
            None => {
                let joined = arguments.join(", ");
                Err(format!("{joined:?} contains no line number; write FILE:LINE, such as access.log:42"))
            }
        }
    }

    /// Returns the reference as `FILE:LINE`.
    pub(super) fn name(&self) -> String {
        format!("{}:{}", self.file().display(), self.position.number)
    }

    fn file(&self) -> &PathBuf {
        &self.files[self.position.file]
    }

    /// Checks, before the replay, that the line exists and contains a request.
    pub(super) fn check(&self, options: &LogOptions) -> Result<(), String> {
        let files =
            LogFiles::open_with(std::slice::from_ref(self.file()), options).map_err(|error| error.to_string())?;
        let source = files.sources.into_iter().next().expect("one file has one source");
        let problem = |line: Result<Option<LogLine<'_>>, LineError>| match line {
            Ok(Some(line)) if ReplayRequest::from_line(&line).is_some() => None,
            Ok(Some(_)) => Some("it contains no request that the gateway forwards"),
            Ok(None) => Some("it is empty"),
            Err(error) => Some(error.message()),
        };
        match with_line(source, self.position.number, problem).map_err(|error| error.to_string())? {
            Ok(None) => Ok(()),
            Ok(Some(problem)) => {
                Err(format!("{}: cannot be explained: {problem}; write a line of an access log", self.name()))
            }
            Err(last) => {
                let (file, number) = (self.file().display(), self.position.number);
                Err(format!("{file}: line {number} does not exist; the last is {last}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_refs(texts: &[&str]) -> Result<LogLineRef, String> {
        LogLineRef::parse_refs(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn line_reference_is_one_file_with_line_number() {
        let expected = |files: &[&str], file, number| {
            Ok(LogLineRef { files: files.iter().map(PathBuf::from).collect(), position: LinePosition { file, number } })
        };
        assert_eq!(parse_refs(&["access.log:42"]), expected(&["access.log"], 0, 42));
        assert_eq!(parse_refs(&["a:b:1"]), expected(&["a:b"], 0, 1));
        assert_eq!(
            parse_refs(&["access.log.1.gz", "access.log:7"]),
            expected(&["access.log.1.gz", "access.log"], 1, 7)
        );
        for text in ["", "access.log", "access.log:", "access.log:0", "access.log:-1", ":3", "-:3"] {
            assert!(parse_refs(&[text]).is_err(), "{text}");
        }
        assert!(parse_refs(&["a:1", "b:2"]).is_err_and(|error| error.contains("\"b:2\" is a second line")));
    }

    #[test]
    fn missing_and_unusable_log_lines_are_errors() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let path = dir.path().join("access.log");
        let valid = "192.0.2.1 - - [21/Nov/2026:12:00:00 +0000] \"GET /a HTTP/1.1\" 200 5";
        let text = format!("{valid}\nnonsense\n\n{}\n", valid.replace("GET", "CONNECT"));
        std::fs::write(&path, text).expect("writable");
        let check = |number: u64| {
            LogLineRef { files: vec![path.clone()], position: LinePosition { file: 0, number } }
                .check(&LogOptions::default())
        };
        assert_eq!(check(1), Ok(()));
        for (number, expected) in [
            (2, "in no known format"),
            (3, "it is empty"),
            (4, "it contains no request"),
            (5, "line 5 does not exist; the last is 4"),
        ] {
            assert!(check(number).expect_err("no line").contains(expected), "{:?}", check(number));
        }
    }
}
