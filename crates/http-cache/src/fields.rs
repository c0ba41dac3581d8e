//! Header fields of a message, as the rules of the cache read them.

use super::quoted;

/// Lines of header fields, by name.
pub trait FieldLines {
    /// Iterates over the values of all lines named `name`, which is in lower case.
    fn lines<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]>;

    /// Returns the value of the first line named `name`.
    fn first<'a>(&'a self, name: &'a str) -> Option<&'a [u8]> {
        self.lines(name).next()
    }

    /// Returns true if there is a line named `name`.
    fn has(&self, name: &str) -> bool {
        self.lines(name).next().is_some()
    }

    /// Iterates over the members of the list that all lines named `name` form, without those that are empty.
    fn members<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        members(self.lines(name))
    }
}

/// Iterates over the members of the list that these lines form, without those that are empty.
pub(super) fn members<'a>(lines: impl Iterator<Item = &'a [u8]>) -> impl Iterator<Item = &'a [u8]> {
    let members = lines.flat_map(|line| quoted::split(line, b','));
    members.map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
}

impl FieldLines for &[(&str, &str)] {
    fn lines<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.iter().filter(move |(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_bytes())
    }
}

impl<const N: usize> FieldLines for [(&str, &str); N] {
    fn lines<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.iter().filter(move |(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_bytes())
    }
}
