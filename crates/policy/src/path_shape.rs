//! Shape of a path: what paths of one kind of page have in common. `/item/17`, `/Item/18/` and `/item/a-long-title-of-it`
//! all have the shape `/item/*`.
//!
//! A shape has at most [`MAX_DEPTH`] segments of at most [`MAX_NAME_BYTES`] bytes, so it needs no allocation. Spellings
//! that some origins take for one path have one shape: letter case, a slash at the end, parameters, formats.

use super::facts::RequestFacts;
use std::fmt;

/// Shape of a path, or of all paths below a directory: `/search`, `/item/*`, `/shop/**`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathShape {
    text: [u8; MAX_BYTES],
    length: u8,
}

/// Start of the shape of a path that origins read in several ways. Such a path may not be the one that it looks like, so its
/// costs say nothing about others.
pub(super) const AMBIGUOUS: &str = "~";

/// Most segments of a shape; `**` stands for deeper ones.
const MAX_DEPTH: usize = 4;
/// Longest name that can be that of a page in the navigation of a site. Longer ones are titles or ids.
const MAX_NAME_BYTES: usize = 20;
/// Most separators in such a name: `contact-us`, not `ten-ways-to-cook-rice`.
const MAX_SEPARATORS: usize = 1;
const ASSET: &[u8] = b".asset";
const MAX_BYTES: usize = AMBIGUOUS.len() + MAX_DEPTH * (1 + MAX_NAME_BYTES + ASSET.len()) + "/**".len();

/// Formats of files that belong to a page. Other formats, such as `/search.json`, are those of the page itself.
const ASSET_FORMATS: [&[u8]; 20] = [
    b"avif", b"css", b"gif", b"gz", b"ico", b"jpeg", b"jpg", b"js", b"map", b"mjs", b"mp3", b"mp4", b"pdf", b"png",
    b"svg", b"ttf", b"webm", b"webp", b"woff", b"woff2",
];

impl PathShape {
    /// Returns the shape of a normalized path.
    pub fn new(path: &str) -> Self {
        let mut shape = Self { text: [0; MAX_BYTES], length: 0 };
        shape.push_path(path);
        shape
    }

    /// Returns the shape of the path of a request.
    pub fn of(request: &RequestFacts<'_>) -> Self {
        if request.other_paths.is_empty() {
            return Self::new(request.path);
        }
        let mut shape = Self { text: [0; MAX_BYTES], length: 0 };
        shape.push(AMBIGUOUS.as_bytes());
        shape.push_path(request.path);
        shape
    }

    /// Returns the shape as a pattern, such as `/item/*`.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.text[..usize::from(self.length)]).unwrap_or_default()
    }

    fn push_path(&mut self, path: &str) {
        let path = path.strip_prefix('/').unwrap_or(path);
        let path = path.strip_suffix('/').unwrap_or(path);
        for (depth, segment) in path.split('/').enumerate() {
            if depth == MAX_DEPTH {
                return self.push(b"/**");
            }
            self.push(b"/");
            self.push_segment(segment.as_bytes());
        }
    }

    fn push_segment(&mut self, segment: &[u8]) {
        let segment = segment.split(|&byte| byte == b';').next().unwrap_or_default();
        let dot = segment.iter().position(|&byte| byte == b'.').filter(|&dot| dot > 0);
        let (name, formats) = segment.split_at(dot.unwrap_or(segment.len()));
        match is_name(name) {
            true => {
                let start = usize::from(self.length);
                self.push(name);
                self.text[start..usize::from(self.length)].make_ascii_lowercase();
            }
            false => self.push(b"*"),
        }
        let format = formats.rsplit(|&byte| byte == b'.').next().unwrap_or_default();
        if ASSET_FORMATS.iter().any(|asset| format.eq_ignore_ascii_case(asset)) {
            self.push(ASSET);
        }
    }

    fn push(&mut self, text: &[u8]) {
        let start = usize::from(self.length);
        let end = (start + text.len()).min(MAX_BYTES);
        self.text[start..end].copy_from_slice(&text[..end - start]);
        self.length = end as u8;
    }
}

impl fmt::Debug for PathShape {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// Returns true for the name of a page or a directory; false for a number, an id or a title.
fn is_name(segment: &[u8]) -> bool {
    let is_separator = |byte: &u8| !byte.is_ascii_alphabetic();
    let is_plain = |byte: &u8| byte.is_ascii_alphabetic() || matches!(byte, b'-' | b'_' | b'.' | b'~' | b'@');
    segment.len() <= MAX_NAME_BYTES
        && segment.iter().all(is_plain)
        && segment.iter().filter(|byte| is_separator(byte)).count() <= MAX_SEPARATORS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use proptest::prelude::*;

    #[test]
    fn paths_of_one_kind_of_page_have_one_shape() {
        for (shape, paths) in [
            ("/", &["/"][..]),
            ("/search", &["/search", "/Search", "/SEARCH/", "/search.json", "/search;v=2", "/search.a.b"]),
            ("/item/*", &["/item/17", "/item/a17f", "/Item/ten-ways-to-cook-rice", "/item/r%C3%B6sti", "/item/1.html"]),
            ("/item/*", &["/item/0e6b9f1c-7f3e-4b51-93a4-0d9c5ad2c6b7", "/item/averylongnameofsomething"]),
            ("/about/contact-us", &["/about/contact-us", "/about/contact-us.php"]),
            ("/app.asset", &["/app.css", "/app.min.JS"]),
            ("/*/*.asset", &["/2024/logo-2x-3.png"]),
            ("/a/b/c/d", &["/a/b/c/d"]),
            ("/a/b/c/d/**", &["/a/b/c/d/e", "/a/b/c/d/e/f/1"]),
        ] {
            for path in paths {
                assert_eq!(PathShape::new(path).as_str(), shape, "{path}");
            }
        }
    }

    #[test]
    fn path_with_several_readings_has_a_shape_of_its_own() {
        let others = ["/search".to_owned()];
        let request = RequestFacts { other_paths: &others, ..fixtures::request_facts("/search;a=1") };
        assert_eq!(PathShape::of(&request).as_str(), "~/search");
    }

    proptest! {
        /// Every path has a shape, of bounded length, which is one of its own.
        #[test]
        fn shape_is_bounded_for_any_path(path in "/[ -~]{0,300}") {
            let shape = PathShape::new(&path);
            prop_assert!(shape.as_str().starts_with('/') && shape.as_str().len() <= MAX_BYTES);
            prop_assert_eq!(PathShape::new(&path.to_ascii_uppercase()), shape);
        }
    }
}
