//! URLs of `tidegate cache warm`: given one by one, in lists, or in sitemaps.

use super::CommandError;
use crate::gateway::{is_page_url, page_host};
use flate2::bufread::MultiGzDecoder;
use quick_xml::encoding::{DetectedEncoding, decode, detect_encoding};
use quick_xml::escape::unescape;
use quick_xml::events::{BytesDecl, Event};
use quick_xml::name::ResolveResult;
use quick_xml::{NsReader, Reader};
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use tidegate_replay::terminal::{ellipsize, printable};

/// Largest list or sitemap, in bytes. The protocol of sitemaps allows 50 MB.
const MAX_BYTES: u64 = 64 << 20;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// Width of a text in an error.
const MAX_FOUND: usize = 60;

/// Bytes within which an XML declaration ends.
const MAX_DECLARATION: usize = 256;

/// Namespaces of sitemaps: that of the protocol 0.9, also as it is often misspelled, and of its first version. Others are
/// those of extensions, such as images.
const SITEMAP_NAMESPACES: [&str; 3] = [
    "http://www.sitemaps.org/schemas/sitemap/0.9",
    "https://www.sitemaps.org/schemas/sitemap/0.9",
    "http://www.google.com/schemas/sitemap/0.84",
];

/// URLs to fetch, in order.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WarmUrls(pub(super) Vec<WarmUrl>);

/// A URL to fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WarmUrl {
    pub(super) url: String,
    /// Host of the first page of the sitemap that has the URL; `None` for one that was given by itself or in a list.
    pub(super) site: Option<String>,
}

/// Element of a sitemap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Element {
    UrlSet,
    Url,
    Location,
    /// Of an extension, or one that is not read.
    Other,
}

impl WarmUrls {
    /// Reads URLs and files. Fails if a file cannot be read or is an index of sitemaps.
    pub(super) fn read(what: &[String]) -> Result<Self, CommandError> {
        let mut urls = Vec::new();
        for item in what {
            if item.starts_with("http://") || item.starts_with("https://") {
                if item.ends_with(".xml") || item.ends_with(".xml.gz") {
                    return Err(CommandError::Usage(format!(
                        "{item}: a sitemap is read from a file; use curl -s --compressed {item} | tidegate cache warm --class CLASS -"
                    )));
                }
                urls.push(WarmUrl { url: item.clone(), site: None });
                continue;
            }
            let text = read_text(item).map_err(CommandError::Usage)?;
            urls.extend(of_text(&text).map_err(|error| CommandError::Usage(format!("{item}{error}")))?);
        }
        Ok(Self(urls))
    }
}

/// Reads a file, or standard input for `-`; gzip is recognized by its first bytes.
fn read_text(item: &str) -> Result<String, String> {
    let failed =
        |error: io::Error| format!("{item}: {error}; give a URL with http:// or https://, or a file with URLs");
    let input: Box<dyn Read> = match item {
        "-" => Box::new(io::stdin().lock()),
        path => Box::new(File::open(path).map_err(failed)?),
    };
    let mut input = BufReader::new(input);
    let is_gzip = input.fill_buf().map_err(failed)?.starts_with(&GZIP_MAGIC);
    let input: Box<dyn Read> = if is_gzip { Box::new(MultiGzDecoder::new(input)) } else { Box::new(input) };
    let mut bytes = Vec::new();
    input.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    match bytes.len() as u64 > MAX_BYTES {
        true => Err(format!("{item}: larger than 64 MiB; give parts of it, one after the other")),
        false => decoded(bytes).map_err(|error| format!("{item}: {error}; convert it to UTF-8")),
    }
}

/// Decodes a file by its byte order mark, else by the encoding that its XML declaration names, else from UTF-8 (XML 1.0
/// appendix F).
fn decoded(bytes: Vec<u8>) -> Result<String, String> {
    let detected = detect_encoding(&bytes);
    let start = detected.as_ref().map_or(0, DetectedEncoding::bom_len);
    let encoding = match detected {
        Some(DetectedEncoding::AsciiCompatible) => match declaration(&bytes) {
            Some(declaration) => match (declaration.encoder(), declaration.encoding()) {
                // A declaration that is read as ASCII is not in UTF-16, whatever it says.
                (Some(encoding), _) => Some(encoding).filter(|encoding| encoding.is_ascii_compatible()),
                (None, Some(Ok(name))) => return Err(format!("unknown encoding {:?}", printable(&name))),
                (None, _) => None,
            },
            None => None,
        },
        detected => detected.map(|detected| detected.encoding()),
    };
    match encoding {
        Some(encoding) => {
            decode(&bytes[start..], encoding).map(Cow::into_owned).map_err(|_| format!("not valid {}", encoding.name()))
        }
        None => String::from_utf8(bytes).map_err(|_| "not valid UTF-8".to_owned()),
    }
}

/// Returns the XML declaration at the start.
fn declaration(bytes: &[u8]) -> Option<BytesDecl<'_>> {
    let end = bytes.windows(2).take(MAX_DECLARATION).position(|pair| pair == b"?>")? + 2;
    match Reader::from_str(std::str::from_utf8(&bytes[..end]).ok()?).read_event() {
        Ok(Event::Decl(declaration)) => Some(declaration),
        _ => None,
    }
}

/// Returns the URLs in a sitemap, or those of a list with one a line; comments begin with `#`. An error begins with its
/// place.
fn of_text(text: &str) -> Result<Vec<WarmUrl>, String> {
    let text = text.trim_start_matches('\u{feff}');
    if text.trim_start().starts_with('<') {
        let urls = of_sitemap(text).map_err(|error| format!(": {error}"))?;
        if let Some(index) = urls.iter().position(|url| !is_page_url(url)) {
            return Err(format!(": <loc> {}: {}", index + 1, no_url(&urls[index])));
        }
        let site = urls.first().and_then(|url| page_host(url));
        return Ok(urls.into_iter().map(|url| WarmUrl { url, site: site.clone() }).collect());
    }
    let lines = text.lines().map(str::trim).enumerate();
    let mut urls = Vec::new();
    for (index, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        if !is_page_url(line) {
            return Err(format!(":{}: {}", index + 1, no_url(line)));
        }
        urls.push(WarmUrl { url: line.to_owned(), site: None });
    }
    Ok(urls)
}

fn no_url(found: &str) -> String {
    let found = ellipsize(&printable(found), MAX_FOUND);
    format!("found {found:?}, needs a URL with scheme and host; write it like https://example.com/item/42")
}

/// Returns the locations of the pages in a sitemap (sitemaps.org protocol 0.9), without those of extensions.
fn of_sitemap(text: &str) -> Result<Vec<String>, String> {
    let mut reader = NsReader::from_str(text);
    let (mut urls, mut path, mut location) = (Vec::new(), Vec::new(), String::new());
    loop {
        let position = reader.buffer_position();
        let (namespace, event) = reader
            .read_resolved_event()
            .map_err(|error| format!("byte {position}: {error}; give a sitemap or a list"))?;
        let is_in_location = path.last() == Some(&Element::Location);
        match event {
            Event::Start(tag) => {
                let element = Element::of(path.last().copied(), &namespace, tag.local_name().as_ref())?;
                path.push(element);
            }
            Event::Text(part) if is_in_location => location.push_str(&part),
            Event::CData(part) if is_in_location => location.push_str(&part),
            Event::GeneralRef(name) => {
                let reference = format!("&{};", &*name);
                let character = unescape(&reference).map_err(|error| format!("byte {position}: {error}"))?;
                if is_in_location {
                    location.push_str(&character);
                }
            }
            Event::End(_) => {
                path.pop();
                if is_in_location {
                    urls.push(std::mem::take(&mut location).trim().to_owned());
                }
            }
            Event::Eof => return Ok(urls),
            _ => {}
        }
    }
}

impl Element {
    /// Returns the element with a name in a namespace, and within `parent`. Fails for the first one of a file that is not
    /// that of a sitemap.
    fn of(parent: Option<Self>, namespace: &ResolveResult<'_>, name: &str) -> Result<Self, String> {
        let is_of_sitemap = match namespace {
            ResolveResult::Unbound => true,
            ResolveResult::Bound(namespace) => {
                SITEMAP_NAMESPACES.contains(&namespace.into_inner().trim_end_matches('/'))
            }
            ResolveResult::Unknown(_) => false,
        };
        match (parent, name) {
            (None, "urlset") if is_of_sitemap => Ok(Self::UrlSet),
            (None, "sitemapindex") if is_of_sitemap => {
                Err("an index of sitemaps; give the sitemaps that it lists".to_owned())
            }
            (None, _) => {
                let found = ellipsize(&printable(name), MAX_FOUND);
                Err(format!("found <{found}>, needs <urlset> of a sitemap; give a sitemap or a list"))
            }
            (Some(Self::UrlSet), "url") if is_of_sitemap => Ok(Self::Url),
            (Some(Self::Url), "loc") if is_of_sitemap => Ok(Self::Location),
            _ => Ok(Self::Other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;
    use std::io::Write;

    fn urls_of(text: &str) -> Vec<String> {
        of_text(text).expect("a sitemap or a list").into_iter().map(|url| url.url).collect()
    }

    #[test]
    fn sitemaps_and_lists_give_their_urls() {
        let sitemap = "\u{feff}<?xml version=\"1.0\"?>\n<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">\
            <url><loc> https://example.com/?a=1&amp;b=2 </loc><lastmod>2026-01-01</lastmod></url>\
            <url><loc><![CDATA[https://example.com/b]]></loc></url></urlset>";
        assert_eq!(urls_of(sitemap), ["https://example.com/?a=1&b=2", "https://example.com/b"]);
        assert_eq!(urls_of("# pages\nhttps://a/1\n\n https://a/2 \n"), ["https://a/1", "https://a/2"]);
        let index = of_text("<sitemapindex><sitemap><loc>https://a/s.xml</loc></sitemap></sitemapindex>");
        assert_eq!(index.expect_err("an index"), ": an index of sitemaps; give the sitemaps that it lists");
        assert!(of_text("<urlset><loc>https://a/</url>").expect_err("an open tag").contains("byte"));
    }

    #[test]
    fn pages_are_read_and_nothing_else_that_has_a_location() {
        const NEWEST: &str = "http://www.sitemaps.org/schemas/sitemap/0.9";
        let page = "<url><loc>https://a/1</loc></url>";
        for namespace in SITEMAP_NAMESPACES.iter().copied().chain(["http://www.sitemaps.org/schemas/sitemap/0.9/"]) {
            assert_eq!(
                urls_of(&format!("<urlset xmlns='{namespace}'>{page}</urlset>")),
                ["https://a/1"],
                "{namespace}"
            );
        }
        let prefixed = "<s:url><s:loc>https://a/1</s:loc></s:url>";
        assert_eq!(urls_of(&format!("<s:urlset xmlns:s='{NEWEST}'>{prefixed}</s:urlset>")), ["https://a/1"]);
        for other in [
            "<image:image><image:loc>https://cdn/1.jpg</image:loc></image:image>",
            "<image:loc>https://cdn/1.jpg</image:loc>",
            "<loc xmlns='http://www.google.com/schemas/sitemap-image/1.1'>https://cdn/1.jpg</loc>",
            "<undeclared:loc>https://cdn/1.jpg</undeclared:loc>",
            "<video><loc>https://cdn/1.mp4</loc></video>",
            "<video:content_loc xmlns:video='http://www.google.com/schemas/sitemap-video/1.1'>https://cdn/1</video:content_loc>",
            "<!-- <loc>https://cdn/1</loc> -->",
        ] {
            let text = format!(
                "<urlset xmlns='{NEWEST}' xmlns:image='http://www.google.com/schemas/sitemap-image/1.1'>\
                 <url>{other}<loc>https://a/1</loc>{other}</url>{other}</urlset>"
            );
            assert_eq!(urls_of(&text), ["https://a/1"], "{other}");
        }
        for (text, found) in [
            ("<rss><channel><loc>https://a/1</loc></channel></rss>", "found <rss>"),
            ("<!DOCTYPE html><html><body>not found</body></html>", "found <html>"),
            ("<urlset xmlns='http://www.google.com/schemas/sitemap-image/1.1'><url/></urlset>", "found <urlset>"),
        ] {
            assert!(of_text(text).expect_err("no sitemap").contains(found), "{text}");
        }
    }

    #[test]
    fn site_of_a_sitemap_is_that_of_its_first_page() {
        let text = "<urlset><url><loc>https://a:8443/1</loc></url><url><loc>https://b/2</loc></url></urlset>";
        let sites: Vec<_> = of_text(text).expect("a sitemap").into_iter().map(|url| url.site).collect();
        assert_eq!(sites, [Some("a".to_owned()), Some("a".to_owned())]);
        assert!(of_text("https://a/1").expect("a list").iter().all(|url| url.site.is_none()));
    }

    #[test]
    fn files_are_decoded_by_mark_or_declaration() {
        let utf16 = |text: &str, bytes: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(bytes).collect::<Vec<u8>>();
        let sitemap = |encoding: &str| format!("<?xml version='1.0' encoding='{encoding}'?><urlset>größe</urlset>");
        let latin1 = |text: &str| text.chars().map(|letter| letter as u8).collect::<Vec<u8>>();
        for bytes in [
            utf16(&format!("\u{feff}{}", sitemap("UTF-16")), u16::to_le_bytes),
            utf16(&format!("\u{feff}{}", sitemap("utf-16")), u16::to_be_bytes),
            utf16(&sitemap("UTF-16LE"), u16::to_le_bytes),
            utf16(&sitemap("UTF-16BE"), u16::to_be_bytes),
            latin1(&sitemap("ISO-8859-1")),
            latin1(&sitemap("windows-1252")),
            sitemap("UTF-8").into_bytes(),
            sitemap("UTF-16").into_bytes(),
            format!("\u{feff}{}", sitemap("ISO-8859-1")).into_bytes(),
            "<urlset>größe</urlset>".into(),
            utf16("\u{feff}https://a/größe", u16::to_le_bytes),
        ] {
            assert!(decoded(bytes.clone()).is_ok_and(|text| text.contains("größe")), "{bytes:?}");
        }
        for (bytes, error) in [
            (latin1("<urlset>größe</urlset>"), "not valid UTF-8"),
            (sitemap("klingon").into_bytes(), "unknown encoding \"klingon\""),
            (vec![0xff, 0xfe, 0x00, 0xdc], "not valid UTF-16LE"),
        ] {
            assert_eq!(decoded(bytes).expect_err("not decodable"), error);
        }
    }

    #[test]
    fn line_without_a_url_is_named() {
        let error = |text: &str| of_text(text).expect_err("no URL");
        let hint = "needs a URL with scheme and host; write it like https://example.com/item/42";
        assert_eq!(error("# pages\nhttps://a/1\n\nitem/42\n"), format!(":4: found \"item/42\", {hint}"));
        assert_eq!(error("https:///a"), format!(":1: found \"https:///a\", {hint}"));
        assert_eq!(
            error("<urlset><url><loc>https://a/1</loc></url><url><loc>/2</loc></url></urlset>"),
            format!(": <loc> 2: found \"/2\", {hint}")
        );
    }

    #[test]
    fn gzip_is_read_like_plain_text_and_a_large_file_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &[u8]| {
            let path = dir.path().join(name);
            let mut encoder = GzEncoder::new(File::create(&path).expect("a file"), Compression::fast());
            encoder.write_all(text).and_then(|()| encoder.finish()).expect("writable");
            path.display().to_string()
        };
        let sitemap = write("sitemap.xml.gz", b"<urlset><url><loc>https://a/1</loc></url></urlset>");
        let page = WarmUrl { url: "https://a/1".to_owned(), site: Some("a".to_owned()) };
        assert_eq!(WarmUrls::read(&[sitemap]).ok(), Some(WarmUrls(vec![page])));
        let large = write("large.gz", &vec![b'\n'; MAX_BYTES as usize + 1]);
        assert!(
            read_text(&large)
                .is_err_and(|error| error.ends_with("larger than 64 MiB; give parts of it, one after the other"))
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "(<|loc|urlset|&amp;|>|/|http|.){0,40}") {
            let _ = of_text(&text);
        }

        #[test]
        fn any_bytes_are_decoded_without_panic(bytes: Vec<u8>, start in 0usize..4) {
            let starts = [&b""[..], b"<?xml version='1.0' encoding='", b"\xff\xfe", b"<\0?\0"];
            let _ = decoded([starts[start], &bytes].concat());
        }
    }
}
