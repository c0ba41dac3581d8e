//! Generated requests and responses for the comparison with another reader of RFC 9111.
//!
//! Each field has two spellings: the one on the wire, which the rules read, and a plain one with the same meaning, which the
//! other reader gets. So what it does not read (upper case, quoted commas, old dates, the age by `Date`) is compared
//! all the same, and the table of spellings says what each one means.

use super::{RECEIVED, seconds};
use proptest::prelude::*;
use std::time::UNIX_EPOCH;

/// Spelling on the wire, and what it means.
type Spelling = (&'static str, &'static str);

/// Directives of responses. Without a plain spelling, they mean nothing.
const RESPONSE_DIRECTIVES: &[Spelling] = &[
    ("public", "public"),
    ("Public", "public"),
    ("private", "private"),
    ("PRIVATE=\"x, y\"", "private"),
    ("private =\"x\"", "private"),
    ("no-store", "no-store"),
    ("No-Store", "no-store"),
    ("no-cache", "no-cache"),
    ("no-cache=\"set-cookie, max-age=9\"", "no-cache"),
    ("must-revalidate", "must-revalidate"),
    ("MUST-revalidate", "must-revalidate"),
    // Of stale responses alone (RFC 9111 section 5.2.2.8). The other reader takes it for a lifetime of zero.
    ("proxy-revalidate", ""),
    ("must-understand", "must-understand"),
    ("immutable", "immutable"),
    ("stale-while-revalidate=50", "stale-while-revalidate=50"),
    ("stale-if-error=50", "stale-if-error=50"),
    ("max-age=0", "max-age=0"),
    ("max-age=60", "max-age=60"),
    ("Max-Age=\"90\"", "max-age=90"),
    ("max-age=3600", "max-age=3600"),
    ("max-age=007", "max-age=7"),
    // RFC 9111 section 1.2.2.
    ("max-age=99999999999999999999", "max-age=2147483648"),
    // Invalid lifetimes are none (section 4.2.1).
    ("max-age", "max-age=invalid"),
    ("max-age=", "max-age=invalid"),
    ("max-age=-1", "max-age=invalid"),
    ("max-age=+60", "max-age=invalid"),
    ("max-age = 60", "max-age=invalid"),
    ("max-age=1.5", "max-age=invalid"),
    ("s-maxage=0", "s-maxage=0"),
    ("s-maxage=40", "s-maxage=40"),
    ("S-MaxAge=\"80\"", "s-maxage=80"),
    ("s-maxage", "s-maxage=invalid"),
    ("x=\"max-age=7, no-store, private\"", ""),
    ("x=\"\\\", no-store\"", ""),
    ("no-storex", ""),
    ("", ""),
];

/// Members of `CDN-Cache-Control`, which replaces `Cache-Control` and `Expires` (RFC 9213 section 2.2).
const TARGETED: &[Spelling] = &[
    ("max-age=60", "max-age=60"),
    ("s-maxage=\"40\"", "s-maxage=invalid"),
    ("private", "private"),
    ("public;x=1", "public"),
    ("no-store=?0", ""),
    ("no-cache=?1", "no-cache"),
    ("must-revalidate=1", "must-revalidate"),
    ("x=(max-age private)", ""),
];

/// Directives of requests.
const REQUEST_DIRECTIVES: &[Spelling] = &[
    ("no-cache", "no-cache"),
    ("No-Cache", "no-cache"),
    ("no-store", "no-store"),
    ("only-if-cached", "only-if-cached"),
    ("max-age=0", "max-age=0"),
    ("max-age=30", "max-age=30"),
    ("MAX-AGE=\"70\"", "max-age=70"),
    ("min-fresh=20", "min-fresh=20"),
    ("Min-Fresh=0", "min-fresh=0"),
    ("max-stale", "max-stale"),
    ("MAX-STALE=10", "max-stale=10"),
    ("max-stale=40", "max-stale=40"),
    // Invalid numbers ask for nothing.
    ("max-age", ""),
    ("max-age=x", ""),
    ("min-fresh=-1", ""),
    ("max-stale=x", ""),
    ("x=\"no-cache, max-age=0\"", ""),
    ("", ""),
];

/// Lines of fields that may select a response, and their value.
type Lines = (&'static [&'static str], Option<&'static str>);

const ACCEPT_LANGUAGE: &[Lines] = &[
    (&[], None),
    (&["de, en;q=0.5"], Some("de,en;q=0.5")),
    (&["DE,EN; q=0.5"], Some("de,en;q=0.5")),
    (&["de", "en;q=0.5"], Some("de,en;q=0.5")),
    (&["de,, en;q=0.5,"], Some("de,en;q=0.5")),
    (&["en, de;q=0.5"], Some("en,de;q=0.5")),
];

/// By the codings that the gateway asks for (three cases, of which an absent field is one).
const ACCEPT_ENCODING: &[Lines] = &[
    (&[], Some("identity")),
    (&["deflate"], Some("identity")),
    (&["gzip"], Some("gzip")),
    (&["GZIP;q=0.5", "deflate"], Some("gzip")),
    (&["gzip, deflate, br, zstd"], Some("br, gzip")),
    (&["br", "gzip"], Some("br, gzip")),
];

const OTHER: &[Lines] = &[
    (&[], None),
    (&[""], Some("")),
    (&["1, 2"], Some("1,2")),
    (&["1", "2"], Some("1,2")),
    (&["1,,2"], Some("1,,2")),
    (&["\"1, 2\""], Some("\"1, 2\"")),
    (&["A"], Some("A")),
    (&["a"], Some("a")),
];

/// Names in `Vary`.
const VARY: &[&str] =
    &["Accept-Language", "accept-language", "Accept-Encoding", "X-Other", "x-other", "*", "x other", ""];

/// Fields of a message: as sent, and in plain spelling.
#[derive(Clone, Debug, Default)]
pub(super) struct Head {
    pub(super) wire: Vec<(&'static str, String)>,
    pub(super) plain: Vec<(&'static str, String)>,
}

impl Head {
    fn add(&mut self, name: &'static str, value: impl Into<String>) {
        let value = value.into();
        self.wire.push((name, value.clone()));
        self.plain.push((name, value));
    }

    fn add_lines(&mut self, name: &'static str, (wire, plain): Lines) {
        self.wire.extend(wire.iter().map(|line| (name, (*line).to_owned())));
        self.plain.extend(plain.map(|plain| (name, plain.to_owned())));
    }

    /// Adds directives, on one line or on a line each. Of those with one name, the first counts.
    fn add_directives(&mut self, directives: &[Spelling], is_split: bool) {
        let wire: Vec<&str> = directives.iter().map(|(wire, _)| *wire).collect();
        match is_split {
            _ if wire.is_empty() => return,
            true => self.wire.extend(wire.iter().map(|line| ("cache-control", (*line).to_owned()))),
            false => self.wire.push(("cache-control", wire.join(" , "))),
        }
        self.add_meaning(directives);
    }

    fn add_meaning(&mut self, directives: &[Spelling]) {
        let mut plain: Vec<&str> = Vec::new();
        for (_, meaning) in directives.iter().filter(|(_, meaning)| !meaning.is_empty()) {
            if !plain.iter().any(|earlier| name_of(earlier) == name_of(meaning)) {
                plain.push(meaning);
            }
        }
        self.plain.push(("cache-control", plain.join(", ")));
    }

    /// Returns true if the plain directives include the one named `name`.
    pub(super) fn has_directive(&self, name: &str) -> bool {
        let lines = self.plain.iter().filter(|(field, _)| *field == "cache-control");
        lines.flat_map(|(_, line)| line.split(", ")).any(|directive| name_of(directive) == name)
    }

    /// Returns true if `Cache-Control` on the wire includes the text.
    pub(super) fn mentions(&self, directive: &str) -> bool {
        self.wire.iter().any(|(field, line)| *field == "cache-control" && line.contains(directive))
    }

    /// Returns true if there is a line named `name` on the wire.
    pub(super) fn has(&self, name: &str) -> bool {
        self.wire.iter().any(|(field, _)| *field == name)
    }

    /// Returns the plain value of a field.
    pub(super) fn plain_value(&self, name: &str) -> Option<&str> {
        self.plain.iter().find(|(field, _)| *field == name).map(|(_, value)| value.as_str())
    }

    /// Returns the fields as sent.
    pub(super) fn fields(&self) -> Vec<(&str, &str)> {
        self.wire.iter().map(|(name, value)| (*name, value.as_str())).collect()
    }
}

fn name_of(directive: &str) -> &str {
    directive.split('=').next().unwrap_or_default()
}

/// A request whose response may be stored, and a later request.
#[derive(Clone, Debug)]
pub(super) struct Exchange {
    pub(super) method: &'static str,
    pub(super) request: Head,
    pub(super) status: u16,
    pub(super) response: Head,
    /// Seconds from the request to the response.
    pub(super) delay: u64,
    /// Refusals and errors are replaced by stale copies.
    pub(super) is_stale_useful: bool,
    pub(super) later_method: &'static str,
    pub(super) later: Head,
    /// Seconds from the response to the later request.
    pub(super) pause: u64,
}

/// A number of seconds before or after the response was received, in one of the three forms of a date, or no date.
#[derive(Clone, Copy, Debug)]
enum Date {
    Imf(i64),
    Rfc850(i64),
    Asctime(i64),
    Invalid(&'static str),
}

impl Date {
    fn offset(self) -> Option<i64> {
        match self {
            Self::Imf(offset) | Self::Rfc850(offset) | Self::Asctime(offset) => Some(offset),
            Self::Invalid(_) => None,
        }
    }

    fn text(self) -> String {
        let imf = self.offset().map(imf);
        let parts: Vec<&str> =
            imf.as_deref().unwrap_or_default().split([' ', ',']).filter(|part| !part.is_empty()).collect();
        match (self, &parts[..]) {
            // Offsets of two hours at most are on the day of RECEIVED, a Tuesday.
            (Self::Rfc850(_), [_, day, month, year, time, _]) => {
                format!("Tuesday, {day}-{month}-{} {time} GMT", &year[2..])
            }
            (Self::Asctime(_), [weekday, day, month, year, time, _]) => {
                format!("{weekday} {month} {day} {time} {year}")
            }
            (Self::Invalid(text), _) => text.to_owned(),
            _ => imf.unwrap_or_default(),
        }
    }
}

fn imf(offset: i64) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + seconds(RECEIVED.seconds().saturating_add_signed(offset)))
}

fn date(offsets: std::ops::Range<i64>) -> impl Strategy<Value = Option<Date>> {
    let form = prop::sample::select(&[Date::Imf, Date::Rfc850, Date::Asctime] as &[fn(i64) -> Date]);
    let valid = (form, offsets).prop_map(|(form, offset)| form(offset));
    let invalid = prop::sample::select(&["0", "-1", "yesterday", "Tue, 24 Foo 2026 12:00:00 GMT"][..]);
    prop::option::of(prop_oneof![5 => valid, 1 => invalid.prop_map(Date::Invalid)])
}

/// Field `Age` as sent, and the number that it is.
fn age() -> impl Strategy<Value = (Vec<String>, Option<u64>)> {
    const INVALID: &[&[&str]] = &[&["-1"], &["x"], &["1.5"], &["1, 2"], &["1", "2"], &["+1"]];
    let invalid = prop::sample::select(INVALID);
    prop_oneof![
        3 => Just((vec![], Some(0))),
        3 => (0..100_u64).prop_map(|age| (vec![age.to_string()], Some(age))),
        1 => invalid.prop_map(|lines| (lines.iter().map(|line| (*line).to_owned()).collect(), None)),
    ]
}

fn directives(all: &'static [Spelling], most: usize) -> impl Strategy<Value = (Vec<Spelling>, bool)> {
    (prop::collection::vec(prop::sample::select(all), 0..=most), any::<bool>())
}

fn selecting_fields() -> impl Strategy<Value = [Lines; 3]> {
    [ACCEPT_LANGUAGE, ACCEPT_ENCODING, OTHER].map(prop::sample::select)
}

fn request() -> impl Strategy<Value = Head> {
    let pragma = prop::option::weighted(0.1, prop::sample::select(&["no-cache", "No-Cache, x", "x"][..]));
    (selecting_fields(), directives(REQUEST_DIRECTIVES, 2), pragma).prop_map(
        |(lines, (directives, is_split), pragma)| {
            let mut head = Head::default();
            for (name, lines) in ["accept-language", "accept-encoding", "x-other"].into_iter().zip(lines) {
                head.add_lines(name, lines);
            }
            head.add_directives(&directives, is_split);
            if let Some(pragma) = pragma {
                // It has no meaning beside Cache-Control (RFC 9111 section 5.4).
                let is_read = !head.has("cache-control");
                head.wire.push(("pragma", pragma.to_owned()));
                head.plain.extend(is_read.then(|| ("pragma", pragma.to_ascii_lowercase())));
            }
            head
        },
    )
}

/// Returns the response, and what its fields say of its age: by `Date` and by `Age`.
fn response() -> impl Strategy<Value = (Head, Option<i64>, Option<u64>)> {
    let fields = (
        directives(RESPONSE_DIRECTIVES, 4),
        date(-100..100),
        prop_oneof![2 => Just(None), 1 => date(-200..4000)],
        age(),
        prop::collection::vec(prop::sample::select(VARY), 0..3),
        prop_oneof![9 => Just(vec![]), 1 => prop::sample::subsequence(TARGETED, 1..=3)],
    );
    let others = (
        prop::option::weighted(0.2, prop::sample::select(&["gzip", "identity", "br"][..])),
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.1),
        any::<bool>(),
        any::<bool>(),
    );
    (fields, others).prop_map(|(fields, (coding, sets_cookie, has_pragma, is_modified, has_etag))| {
        let ((directives, is_split), date, expires, (ages, age), vary, targeted) = fields;
        let mut head = Head::default();
        head.add_directives(&directives, is_split);
        if let Some(date) = date {
            head.wire.push(("date", date.text()));
            head.plain.extend(date.offset().map(|offset| ("date", imf(offset))));
        }
        if let Some(expires) = expires {
            head.wire.push(("expires", expires.text()));
            head.plain.push(("expires", expires.offset().map_or_else(|| "0".to_owned(), imf)));
        }
        // The plain one is added with the delay of the response.
        head.wire.extend(ages.into_iter().map(|age| ("age", age)));
        if !targeted.is_empty() {
            let wire: Vec<&str> = targeted.iter().map(|(wire, _)| *wire).collect();
            head.wire.push(("cdn-cache-control", wire.join(", ")));
            head.plain.retain(|(name, _)| !matches!(*name, "cache-control" | "expires"));
            head.add_meaning(&targeted);
        }
        if has_pragma {
            // It has no meaning in a response (RFC 9111 section 5.4).
            head.wire.push(("pragma", "no-cache".to_owned()));
        }
        if !vary.is_empty() {
            head.add("vary", vary.join(", "));
        }
        if let Some(coding) = coding {
            head.add("content-encoding", coding);
        }
        for (is_sent, name, value) in [
            (sets_cookie, "set-cookie", "a=1"),
            (is_modified, "last-modified", "Mon, 23 Nov 2026 12:00:00 GMT"),
            (has_etag, "etag", "\"a\""),
        ] {
            if is_sent {
                head.add(name, value);
            }
        }
        (head, date.and_then(Date::offset), age)
    })
}

/// Returns exchanges of all kinds.
pub(super) fn exchange() -> impl Strategy<Value = Exchange> {
    let credentials = (prop::bool::weighted(0.15), prop::bool::weighted(0.1));
    let first =
        (prop_oneof![8 => Just("GET"), 1 => Just("HEAD"), 1 => Just("POST"), 1 => Just("PUT")], request(), credentials);
    let statuses = &[203, 204, 206, 299, 301, 302, 304, 307, 404, 410, 429, 500, 503][..];
    let status = prop_oneof![2 => Just(200), 1 => prop::sample::select(statuses)];
    let later = (prop_oneof![6 => Just("GET"), 1 => Just("HEAD"), 1 => Just("POST")], request(), any::<bool>());
    // Some ages are those at which lifetimes end, and what `max-stale` adds to them.
    let ends = prop::sample::select(&[0_u64, 10, 39, 40, 41, 50, 59, 60, 61, 70, 80, 90, 100, 130][..]);
    let pause = prop_oneof![
        (0..150_u64).prop_map(|pause| (pause, false)),
        (0..5000_u64).prop_map(|pause| (pause, false)),
        ends.prop_map(|age| (age, true)),
    ];
    let delay = prop_oneof![Just(0), 0..4_u64];
    (first, status, response(), delay, any::<bool>(), later, pause).prop_map(
        |(first, status, (mut response, date, age), delay, is_stale_useful, later, (pause, is_age))| {
            let (method, mut request, (has_authorization, has_cookies)) = first;
            // The later request has the selecting fields of the first one, or its own.
            let (later_method, own, is_like_first) = later;
            let is_selecting = |name: &str| matches!(name, "accept-language" | "accept-encoding" | "x-other");
            let mut later = own;
            if is_like_first {
                for (target, source) in [(&mut later.wire, &request.wire), (&mut later.plain, &request.plain)] {
                    target.retain(|(name, _)| !is_selecting(name));
                    target.extend(source.iter().filter(|(name, _)| is_selecting(name)).cloned());
                }
            }
            if has_authorization {
                request.add("authorization", "Basic YTpi");
            }
            if has_cookies {
                request.add("cookie", "a=1");
            }
            // RFC 9111 section 4.2.3. An age that cannot be read exceeds every lifetime.
            let apparent = date.map_or(0, |offset| u64::try_from(-offset).unwrap_or(0));
            let age = age.map_or(1 << 40, |age| apparent.max(age + delay));
            response.plain.push(("age", age.to_string()));
            let pause = if is_age { pause.saturating_sub(age) } else { pause };
            Exchange { method, request, status, response, delay, is_stale_useful, later_method, later, pause }
        },
    )
}
