//! Browser named by a user agent, and the features that follow from it.
//!
//! Only plain user agents of the large browsers imply features. With a further product (an app, a reader, a derived
//! browser), the headers are not predictable.
//!
//! First versions that send a header: `Sec-Fetch-*` Chromium 76, Firefox 90, Safari 16.4; `Sec-CH-UA` Chromium 89, in
//! Android's WebView much later. All are sent only over TLS. Chromium enabled them gradually, so they are expected only
//! of later versions. `zstd` in `Accept-Encoding`: Chromium 123, Firefox 126, over TLS alone (MDN's compatibility data 8.1.9 of
//! 2026-11-12; Safari from 26.3 on new systems). `Upgrade-Insecure-Requests` was sent by all three engines before: Blink and Gecko send it in each request of a
//! page that is shown, WebKit without TLS alone (`FrameLoader::addHTTPUpgradeInsecureRequestsIfNeeded`).

use tidegate_policy::bot_detection::{BrowserTraits, ClientHints, HintsBrand, UpgradeRequests};

/// Returns the features that the browser named by this user agent always has.
pub(super) fn browser_traits(user_agent: &[u8]) -> BrowserTraits {
    let Ok(agent) = std::str::from_utf8(user_agent) else { return BrowserTraits::default() };
    if ["MSIE ", "Trident/"].iter().any(|old| agent.contains(old)) {
        return BrowserTraits { is_graphical: true, ..BrowserTraits::default() };
    }
    let Some(rest) = agent.strip_prefix("Mozilla/5.0 (") else { return BrowserTraits::default() };
    let products = ProductList::parse_browser(rest);
    if TEXT_BROWSERS.iter().any(|text| agent.contains(text))
        || !ENGINES.iter().any(|engine| products.version(engine).is_some())
    {
        return BrowserTraits::default();
    }
    let graphical_only = BrowserTraits { is_graphical: true, ..BrowserTraits::default() };
    let is_apple = rest.starts_with("iP") || rest.starts_with("Macintosh");
    let is_webkit = is_apple && products.version("AppleWebKit").is_some() && products.version("Chrome").is_none();
    let webkit_upgrade = if is_webkit { UpgradeRequests::WithoutTls } else { UpgradeRequests::Unknown };
    let with_language = BrowserTraits { sends_language: true, ..graphical_only };
    match (products.version("Chrome"), products.version("Firefox"), products.version("Version")) {
        (Some(chrome), None, None)
            if products.contains_only(&["AppleWebKit", "Chrome", "Mobile", "Safari", "Edg", "OPR"]) =>
        {
            let hints = if chrome.0 >= 100 && products.version("OPR").is_none() {
                let is_edge = products.version("Edg").is_some();
                ClientHints::Always(if is_edge { HintsBrand::Edge } else { HintsBrand::Chrome })
            } else {
                ClientHints::Unknown
            };
            BrowserTraits {
                sends_fetch: chrome.0 >= 80,
                hints,
                upgrade: UpgradeRequests::Always,
                sends_zstd: chrome.0 >= 124,
                chromium_major: u16::try_from(chrome.0).unwrap_or(0),
                ..with_language
            }
        }
        (None, Some(firefox), None) if products.contains_only(&["Gecko", "Firefox"]) => BrowserTraits {
            sends_fetch: firefox.0 >= 90,
            hints: ClientHints::Never,
            upgrade: UpgradeRequests::Always,
            sends_zstd: firefox.0 >= 127,
            ..with_language
        },
        (None, None, Some(safari)) if products.contains_only(&["AppleWebKit", "Version", "Mobile", "Safari"]) => {
            // Old Android phones sent the same products.
            BrowserTraits {
                sends_fetch: is_apple && safari >= (16, 4),
                hints: if is_apple { ClientHints::Never } else { ClientHints::Unknown },
                upgrade: webkit_upgrade,
                ..with_language
            }
        }
        // Apps of Apple's systems show pages with WebKit.
        (None, ..) => BrowserTraits { upgrade: webkit_upgrade, ..graphical_only },
        _ => graphical_only,
    }
}

/// Products of a user agent after its first comment, each with its version, without comments.
struct ProductList<'a>(Vec<(&'a str, &'a str)>);

impl<'a> ProductList<'a> {
    fn parse_browser(after_bracket: &'a str) -> Self {
        let mut depth = 1_i32;
        let outside = after_bracket.split([' ', ';']).filter(move |word| {
            let before = depth;
            depth += word.bytes().map(|byte| i32::from(byte == b'(') - i32::from(byte == b')')).sum::<i32>();
            before == 0 && depth == 0
        });
        let products = outside.filter(|word| !word.is_empty());
        Self(products.map(|word| word.split_once('/').unwrap_or((word, ""))).take(MAX_PRODUCTS).collect())
    }

    /// Returns the major and minor version of this product.
    fn version(&self, product: &str) -> Option<(u32, u32)> {
        let (_, version) = self.0.iter().find(|(name, _)| *name == product)?;
        let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
        Some((numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)))
    }

    fn contains_only(&self, allowed: &[&str]) -> bool {
        self.0.iter().all(|(name, _)| allowed.contains(name))
    }
}

/// Engines that display pages with all their assets.
const ENGINES: [&str; 3] = ["AppleWebKit", "Gecko", "Goanna"];

/// Browsers without assets: text browsers, screen readers and proxies for them.
const TEXT_BROWSERS: [&str; 9] =
    ["Lynx", "w3m", "Links", "ELinks", "edbrowse", "retawq", "eww", "Opera Mini", "Kindle"];

/// Maximum number of products of a plain user agent.
const MAX_PRODUCTS: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_browser(agent: &str) -> BrowserTraits {
        browser_traits(agent.as_bytes())
    }

    const WEBKIT: &str = "AppleWebKit/537.36 (KHTML, like Gecko)";

    /// Header fields of a page request by engine, version and scheme. Sources:
    /// `Upgrade-Insecure-Requests`: Chromium `content/browser/renderer_host/navigation_request.cc`, Gecko `nsDocShell.cpp`, WebKit
    /// `FrameLoader::addHTTPUpgradeInsecureRequestsIfNeeded`, which returns early for https. `Sec-Fetch-*`: Fetch Metadata section
    /// 2, for potentially trustworthy URLs alone; MDN's compatibility data for versions. `Sec-CH-UA`: User-Agent Client Hints
    /// section 3; Chromium alone. `zstd`: MDN's compatibility data of `Content-Encoding`, one version later.
    #[test]
    fn table_of_engines_schemes_and_fields() {
        use ClientHints::{Always, Never, Unknown};
        use UpgradeRequests as Upgrade;
        const WINDOWS: &str = "Mozilla/5.0 (Windows NT 10.0; Win64; x64";
        const MAC: &str = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7)";
        const IPHONE: &str = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_7 like Mac OS X)";
        const APPLE: &str = "AppleWebKit/605.1.15 (KHTML, like Gecko)";
        let chrome = |version: u32| format!("{WINDOWS}) {WEBKIT} Chrome/{version}.0.0.0 Safari/537.36");
        let firefox = |version: u32| format!("{WINDOWS}; rv:{version}.0) Gecko/20100101 Firefox/{version}.0");
        let safari = |version: &str| format!("{MAC} {APPLE} Version/{version} Safari/605.1.15");
        // User agent; fetch metadata and client hints over TLS, the field to upgrade, zstd over TLS, and the version of Chromium.
        let (google, edge) = (Always(HintsBrand::Chrome), Always(HintsBrand::Edge));
        let iphone = format!("{IPHONE} {APPLE} Version/26.0 Mobile/15E148 Safari/604.1");
        let table = [
            (chrome(142), true, google, Upgrade::Always, true, 142),
            (chrome(142) + " Edg/142.0.0.0", true, edge, Upgrade::Always, true, 142),
            (chrome(142) + " OPR/124.0.0.0", true, Unknown, Upgrade::Always, true, 142),
            (chrome(124), true, google, Upgrade::Always, true, 124),
            (chrome(123), true, google, Upgrade::Always, false, 123),
            (chrome(96), true, Unknown, Upgrade::Always, false, 96),
            (chrome(70), false, Unknown, Upgrade::Always, false, 70),
            (firefox(144), true, Never, Upgrade::Always, true, 0),
            (firefox(126), true, Never, Upgrade::Always, false, 0),
            (firefox(78), false, Never, Upgrade::Always, false, 0),
            (safari("18.6"), true, Never, Upgrade::WithoutTls, false, 0),
            (safari("16.3"), false, Never, Upgrade::WithoutTls, false, 0),
            (iphone, true, Never, Upgrade::WithoutTls, false, 0),
        ];
        for (agent, sends_fetch, hints, upgrade, sends_zstd, chromium_major) in table {
            let expected = BrowserTraits {
                is_graphical: true,
                sends_language: true,
                sends_fetch,
                hints,
                upgrade,
                sends_zstd,
                chromium_major,
            };
            assert_eq!(parse_browser(&agent), expected, "{agent}");
        }
        // Apps on Apple's systems show pages with WebKit, whatever they are called.
        for agent in [
            format!("{IPHONE} {APPLE} CriOS/142.0.7444.77 Mobile/15E148 Safari/604.1"),
            format!("{IPHONE} {APPLE} Mobile/15E148 Safari Line/15.18.0"),
            format!("{IPHONE} {APPLE} Mobile/15E148"),
        ] {
            let expected =
                BrowserTraits { is_graphical: true, upgrade: Upgrade::WithoutTls, ..BrowserTraits::default() };
            assert_eq!(parse_browser(&agent), expected, "{agent}");
        }
    }

    #[test]
    fn rare_browsers_have_no_expected_headers() {
        let graphical_only = BrowserTraits { is_graphical: true, ..BrowserTraits::default() };
        for agent in [
            "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Goanna/6.7 Firefox/128.0 PaleMoon/33.3.1",
            "Mozilla/5.0 (compatible; MSIE 10.0; Windows NT 6.2; Trident/6.0)",
            "Mozilla/5.0 (Linux; Android 14; SO-51D; wv) AppleWebKit/537.36 (KHTML, like Gecko) Version/4.0 Chrome/124.0.6367.179 Mobile Safari/537.36 App/3",
            "Mozilla/5.0 (Linux; Android 14; SM-S918B) AppleWebKit/537.36 (KHTML, like Gecko) SamsungBrowser/28.0 Chrome/130.0.0.0 Mobile Safari/537.36",
        ] {
            assert_eq!(parse_browser(agent), graphical_only, "{agent}");
        }
    }

    #[test]
    fn text_and_unknown_browsers_have_default_traits() {
        for agent in [
            "Lynx/2.9.2 libwww-FM/2.14 SSL-MM/1.4.1",
            "w3m/0.5.3+git20230121",
            "Mozilla/5.0 (compatible; Konqueror/4.14; Linux) KHTML/4.14.2 (like Gecko)",
            "Mozilla/5.0 (X11; U; Linux armv7l like Android; en-us) AppleWebKit/531.2+ (KHTML, like Gecko) Version/5.0 Safari/533.2+ Kindle/3.0+",
            "Mozilla/5.0 (",
            "",
        ] {
            assert_eq!(parse_browser(agent), BrowserTraits::default(), "{agent}");
        }
    }
}
