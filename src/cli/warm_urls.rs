//! URLs of `tidegate cache warm`: given one by one, in lists, or in sitemaps.

use super::CommandError;
use crate::gateway::is_page_url;
use flate2::bufread::MultiGzDecoder;
use quick_xml::Reader;
use quick_xml::escape::unescape;
use quick_xml::events::Event;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use tidegate_replay::terminal::{ellipsize, printable};

/// Largest list or sitemap, in bytes. The protocol of sitemaps allows 50 MB.
const MAX_BYTES: u64 = 64 << 20;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// Width of a text in an error.
const MAX_FOUND: usize = 60;

/// URLs to fetch, in order.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WarmUrls(pub(super) Vec<String>);

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
                urls.push(item.clone());
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
    let mut text = String::new();
    input.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(failed)?;
    match text.len() as u64 > MAX_BYTES {
        true => Err(format!("{item}: larger than 64 MiB; give parts of it, one after the other")),
        false => Ok(text),
    }
}

/// Returns the URLs in a sitemap, or those of a list with one a line; comments begin with `#`. An error begins with its
/// place.
fn of_text(text: &str) -> Result<Vec<String>, String> {
    let text = text.trim_start_matches('\u{feff}');
    if text.trim_start().starts_with('<') {
        let urls = of_sitemap(text).map_err(|error| format!(": {error}"))?;
        let invalid = urls.iter().position(|url| !is_page_url(url));
        return match invalid {
            Some(index) => Err(format!(": <loc> {}: {}", index + 1, no_url(&urls[index]))),
            None => Ok(urls),
        };
    }
    let lines = text.lines().map(str::trim).enumerate();
    let mut urls = Vec::new();
    for (index, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        if !is_page_url(line) {
            return Err(format!(":{}: {}", index + 1, no_url(line)));
        }
        urls.push(line.to_owned());
    }
    Ok(urls)
}

fn no_url(found: &str) -> String {
    let found = ellipsize(&printable(found), MAX_FOUND);
    format!("found {found:?}, needs a URL with scheme and host; write it like https://example.com/item/42")
}

/// Returns the locations in a sitemap (sitemaps.org protocol 0.9).
fn of_sitemap(text: &str) -> Result<Vec<String>, String> {
    let mut reader = Reader::from_str(text);
    let (mut urls, mut location) = (Vec::new(), None::<String>);
    loop {
        let position = reader.buffer_position();
        let event =
            reader.read_event().map_err(|error| format!("byte {position}: {error}; give a sitemap or a list"))?;
        match event {
            Event::Start(tag) if tag.local_name().as_ref() == "sitemapindex" => {
                return Err("an index of sitemaps; give the sitemaps that it lists".to_owned());
            }
            Event::Start(tag) if tag.local_name().as_ref() == "loc" => location = Some(String::new()),
            Event::Text(part) => location.iter_mut().for_each(|location| location.push_str(&part)),
            Event::CData(part) => location.iter_mut().for_each(|location| location.push_str(&part)),
            Event::GeneralRef(name) => {
                let reference = format!("&{};", &*name);
                let character = unescape(&reference).map_err(|error| format!("byte {position}: {error}"))?;
                location.iter_mut().for_each(|location| location.push_str(&character));
            }
            Event::End(tag) if tag.local_name().as_ref() == "loc" => {
                urls.extend(location.take().map(|location| location.trim().to_owned()));
            }
            Event::Eof => return Ok(urls),
            _ => {}
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

    #[test]
    fn sitemaps_and_lists_give_their_urls() {
        let sitemap = "\u{feff}<?xml version=\"1.0\"?>\n<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">\
            <url><loc> https://example.com/?a=1&amp;b=2 </loc><lastmod>2026-01-01</lastmod></url>\
            <url><loc><![CDATA[https://example.com/b]]></loc></url></urlset>";
        assert_eq!(of_text(sitemap).expect("a sitemap"), ["https://example.com/?a=1&b=2", "https://example.com/b"]);
        assert_eq!(of_text("# pages\nhttps://a/1\n\n https://a/2 \n").expect("a list"), ["https://a/1", "https://a/2"]);
        let index = of_text("<sitemapindex><sitemap><loc>https://a/s.xml</loc></sitemap></sitemapindex>");
        assert_eq!(index.expect_err("an index"), ": an index of sitemaps; give the sitemaps that it lists");
        assert!(of_text("<urlset><loc>https://a/</url>").expect_err("an open tag").contains("byte"));
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
        assert_eq!(WarmUrls::read(&[sitemap]).ok(), Some(WarmUrls(vec!["https://a/1".to_owned()])));
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
    }
}
