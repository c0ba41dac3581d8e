//! URLs of `tidegate cache warm`: given one by one, in lists, or in sitemaps.

use super::CommandError;
use quick_xml::Reader;
use quick_xml::escape::unescape;
use quick_xml::events::Event;
use std::fs::File;
use std::io::{self, Read};

/// Largest list or sitemap, in bytes. The protocol of sitemaps allows 50 MB.
const MAX_BYTES: u64 = 64 << 20;

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
            let mut text = String::new();
            let read = match item.as_str() {
                "-" => io::stdin().lock().take(MAX_BYTES).read_to_string(&mut text),
                path => File::open(path).and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text)),
            };
            read.map_err(|error| {
                CommandError::Usage(format!(
                    "{item}: {error}; give a URL with http:// or https://, or a file with URLs"
                ))
            })?;
            urls.extend(of_text(&text).map_err(|error| CommandError::Usage(format!("{item}: {error}")))?);
        }
        Ok(Self(urls))
    }
}

/// Returns the URLs in a sitemap, or those of a list with one a line; comments begin with `#`.
fn of_text(text: &str) -> Result<Vec<String>, String> {
    if text.trim_start_matches('\u{feff}').trim_start().starts_with('<') {
        return of_sitemap(text);
    }
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(lines.map(str::to_owned).collect())
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
    use proptest::prelude::*;

    #[test]
    fn sitemaps_and_lists_give_their_urls() {
        let sitemap = "\u{feff}<?xml version=\"1.0\"?>\n<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">\
            <url><loc> https://example.com/?a=1&amp;b=2 </loc><lastmod>2026-01-01</lastmod></url>\
            <url><loc><![CDATA[https://example.com/b]]></loc></url></urlset>";
        assert_eq!(of_text(sitemap).expect("a sitemap"), ["https://example.com/?a=1&b=2", "https://example.com/b"]);
        assert_eq!(of_text("# pages\nhttps://a/1\n\n https://a/2 \n").expect("a list"), ["https://a/1", "https://a/2"]);
        let index = of_text("<sitemapindex><sitemap><loc>https://a/s.xml</loc></sitemap></sitemapindex>");
        assert_eq!(index.expect_err("an index"), "an index of sitemaps; give the sitemaps that it lists");
        assert!(of_text("<urlset><loc>https://a/</url>").expect_err("an open tag").contains("byte"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in "(<|loc|urlset|&amp;|>|/|http|.){0,40}") {
            let _ = of_text(&text);
        }
    }
}
