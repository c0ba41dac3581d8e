//! Request fields that select a response (RFC 9110 section 12.5.5, RFC 9111 section 4.1).

use super::accepted_codings::AcceptedCodings;
use super::fields::FieldLines;
use super::quoted;

/// Most fields that may select a response; one with more is not stored.
pub const MAX_SELECTING_FIELDS: usize = 16;

/// Field that selects the content coding.
const ACCEPT_ENCODING: &str = "accept-encoding";

/// Names of the request fields that select a response, in lower case, sorted, without duplicates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SelectingFields(Vec<String>);

impl SelectingFields {
    /// Reads the fields that `Vary` nominates. A response with a content coding is also selected by `Accept-Encoding`;
    /// one without is not if it `is_for_all` clients. Returns `None` for `Vary: *`, for an invalid name, and for too many.
    pub fn read(response: &impl FieldLines, is_for_all: bool) -> Option<Self> {
        let mut names = Vec::new();
        for member in response.members("vary") {
            let name = std::str::from_utf8(member).ok()?.to_ascii_lowercase();
            if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'+-.^_`|~".contains(&byte)) {
                return None;
            }
            names.push(name);
        }
        let is_coded = response.members("content-encoding").any(|coding| !coding.eq_ignore_ascii_case(b"identity"));
        if is_coded {
            names.push(ACCEPT_ENCODING.to_owned());
        } else if is_for_all {
            names.retain(|name| name != ACCEPT_ENCODING);
        }
        names.sort_unstable();
        names.dedup();
        (names.len() <= MAX_SELECTING_FIELDS).then_some(Self(names))
    }

    /// Returns the fields named `names`, in lower case.
    pub fn from_names(names: impl IntoIterator<Item = String>) -> Self {
        let mut names: Vec<String> = names.into_iter().collect();
        names.sort_unstable();
        names.dedup();
        Self(names)
    }

    /// Returns the fields for which `is_kept` is true.
    pub fn filter(mut self, mut is_kept: impl FnMut(&str) -> bool) -> Self {
        self.0.retain(|name| is_kept(name));
        self
    }

    /// Returns true if no field selects the response.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over the names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Returns true if `name`, in lower case, is one of the fields.
    pub fn contains(&self, name: &str) -> bool {
        self.0.binary_search_by(|own| own.as_str().cmp(name)).is_ok()
    }

    /// Passes the value of each field in `request` to `take`, with its name; `None` if the field is absent. Equal values
    /// in different spelling are passed alike.
    pub fn values(&self, request: &impl FieldLines, mut take: impl FnMut(&str, Option<&[u8]>)) {
        for name in self.names() {
            match name {
                ACCEPT_ENCODING => take(name, Some(AcceptedCodings::read(request).text().as_bytes())),
                _ => take(name, normalized_value(request, name).as_deref()),
            }
        }
    }
}

/// Returns the value of a field: its lines joined, without white space around members of the list, and in lower case
/// where case has no meaning. `None` if the field is absent.
pub fn normalized_value(request: &impl FieldLines, name: &str) -> Option<Vec<u8>> {
    let mut lines = request.lines(name).peekable();
    lines.peek()?;
    let is_list = matches!(name, "accept-language" | "accept" | "accept-charset");
    let members = lines.flat_map(|line| quoted::split(line, b',')).map(<[u8]>::trim_ascii);
    // Of other fields it is not known whether they are lists.
    let members = members.filter(|member| !is_list || !member.is_empty());
    let mut value = members.collect::<Vec<_>>().join(&b","[..]);
    if is_list {
        value.retain(|byte| *byte != b' ');
        value.make_ascii_lowercase();
    }
    Some(value)
}
