//! A line of a log, as `FILE:LINE` names it, perhaps with other files of the same log.

use crate::replay::ReplayRequest;
use crate::replay::log::{LinePosition, LogFiles, LogLine};
use std::path::{Path, PathBuf};

/// A line of some files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogLineRef {
    pub(super) files: Vec<PathBuf>,
    pub(super) place: LinePosition,
}

impl LogLineRef {
    /// One of what is named has the number of a line.
    pub(super) fn named(written: &[String]) -> Result<Self, String> {
        let (mut files, mut place) = (Vec::new(), None);
        for text in written {
            let numbered = text.rsplit_once(':').filter(|(file, _)| !file.is_empty());
            let numbered = numbered.and_then(|(file, number)| Some((file, number.parse().ok().filter(|at| *at > 0)?)));
            match numbered {
                Some((file, number)) if place.is_none() => {
                    place = Some(LinePosition { file: files.len(), number });
                    files.push(file.into());
                }
                Some(_) => {
                    return Err(format!("{text:?} names a second line; of the other files give the names alone"));
                }
                None => files.push(text.into()),
            }
        }
        match place {
            _ if files.iter().any(|file: &PathBuf| file == Path::new("-")) => {
                Err("standard input cannot be read twice; name a file".to_owned())
            }
            Some(place) => Ok(Self { files, place }),
            None => {
                let named = written.join(", ");
                Err(format!("{named:?} names no line; write the file and the line's number, such as access.log:42"))
            }
        }
    }

    /// What the line is called.
    pub(super) fn name(&self) -> String {
        format!("{}:{}", self.file().display(), self.place.number)
    }

    fn file(&self) -> &PathBuf {
        &self.files[self.place.file]
    }

    /// Finds out whether there is a request in it, before anything is replayed for its sake.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut files = LogFiles::open(std::slice::from_ref(self.file())).map_err(|error| error.to_string())?;
        let mut last = 0;
        while let Some(source) = files.sources.first_mut()
            && let Some(line) = source.next_line().map_err(|error| error.to_string())?
        {
            last = line.number;
            if last < self.place.number {
                continue;
            }
            let no_request = "it tells of no request that a gate passes on";
            let why = match line.text.map(LogLine::read) {
                Ok(Ok(Some(line))) if ReplayRequest::of(&line).is_some() => return Ok(()),
                Ok(Ok(Some(_))) => no_request,
                Ok(Ok(None)) => "it is empty",
                Ok(Err(broken)) | Err(broken) => broken.message(),
            };
            return Err(format!("{}: cannot be explained: {why}; name a line of an access log", self.name()));
        }
        let file = self.file().display();
        Err(format!("{file}: there is no line {}; the last is {last}", self.place.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(written: &[&str]) -> Result<LogLineRef, String> {
        LogLineRef::named(&written.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_line_is_named_by_its_file_and_its_number_among_other_files() {
        let of = |files: &[&str], file, number| {
            Ok(LogLineRef { files: files.iter().map(PathBuf::from).collect(), place: LinePosition { file, number } })
        };
        assert_eq!(named(&["access.log:42"]), of(&["access.log"], 0, 42));
        assert_eq!(named(&["a:b:1"]), of(&["a:b"], 0, 1));
        assert_eq!(named(&["access.log.1.gz", "access.log:7"]), of(&["access.log.1.gz", "access.log"], 1, 7));
        for wrong in ["", "access.log", "access.log:", "access.log:0", "access.log:-1", ":3", "-:3"] {
            assert!(named(&[wrong]).is_err(), "{wrong}");
        }
        assert!(named(&["a:1", "b:2"]).is_err_and(|told| told.contains("\"b:2\" names a second line")));
    }

    #[test]
    fn a_line_that_is_not_there_or_is_none_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("access.log");
        let good = "192.0.2.1 - - [21/Nov/2026:12:00:00 +0000] \"GET /a HTTP/1.1\" 200 5";
        let text = format!("{good}\nnonsense\n\n{}\n", good.replace("GET", "CONNECT"));
        std::fs::write(&path, text).expect("it can be written");
        let check =
            |number: u64| LogLineRef { files: vec![path.clone()], place: LinePosition { file: 0, number } }.check();
        assert_eq!(check(1), Ok(()));
        for (number, told) in [
            (2, "in no known format"),
            (3, "it is empty"),
            (4, "it tells of no request"),
            (5, "there is no line 5; the last is 4"),
        ] {
            assert!(check(number).expect_err("no line").contains(told), "{:?}", check(number));
        }
    }
}
