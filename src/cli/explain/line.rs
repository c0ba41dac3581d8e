//! A line of a log, as `FILE:LINE` names it.

use crate::replay::log::{Files, Line};
use std::path::PathBuf;
use std::str::FromStr;

/// A line of a file, by its number from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LineOf {
    file: PathBuf,
    number: u64,
}

impl FromStr for LineOf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} names no line; write the file and the line's number, such as access.log:42");
        let (file, number) = text.rsplit_once(':').filter(|(file, _)| !file.is_empty()).ok_or_else(wrong)?;
        let number = number.parse().ok().filter(|number| *number > 0).ok_or_else(wrong)?;
        Ok(Self { file: file.into(), number })
    }
}

impl LineOf {
    /// Reads the line and lets `look` see it.
    pub(super) fn read<T>(&self, look: impl FnOnce(&Line<'_>) -> Result<T, String>) -> Result<T, String> {
        let Self { file, number } = self;
        let mut files = Files::open(std::slice::from_ref(file)).map_err(|error| error.to_string())?;
        let mut last = 0;
        while let Some(source) = files.sources.first_mut()
            && let Some(line) = source.next_line().map_err(|error| error.to_string())?
        {
            last = line.number;
            if last < *number {
                continue;
            }
            let place = format!("{}:{number}", file.display());
            let broken = |why: &str| format!("{place}: cannot be read: {why}; name a line of an access log");
            let text = line.text.map_err(|why| broken(why.said()))?;
            return match Line::read(text) {
                Ok(Some(line)) => look(&line).map_err(|why| format!("{place}: {why}")),
                Ok(None) => Err(broken("it is empty")),
                Err(why) => Err(broken(why.said())),
            };
        }
        Err(format!("{}: there is no line {number}; the last is {last}", file.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_named_by_its_file_and_its_number() {
        let of = |file: &str, number| Ok(LineOf { file: file.into(), number });
        assert_eq!("access.log:42".parse(), of("access.log", 42));
        assert_eq!("a:b:1".parse(), of("a:b", 1));
        for wrong in ["", "access.log", "access.log:", "access.log:0", "access.log:-1", ":3"] {
            assert!(wrong.parse::<LineOf>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_line_that_is_not_there_or_is_none_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("access.log");
        let good = "192.0.2.1 - - [21/Nov/2026:12:00:00 +0000] \"GET /a HTTP/1.1\" 200 5";
        std::fs::write(&path, format!("{good}\nnonsense\n\n")).expect("it can be written");
        let read = |number: u64| LineOf { file: path.clone(), number }.read(|line| Ok(line.status));
        assert_eq!(read(1), Ok(200));
        for (number, told) in [(2, "in no known format"), (3, "it is empty"), (4, "there is no line 4; the last is 3")]
        {
            assert!(read(number).expect_err("no line").contains(told), "{:?}", read(number));
        }
    }
}
