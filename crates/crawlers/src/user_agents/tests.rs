use super::*;

const IPHONE: &str = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko)";
const ANDROID: &str =
    "Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Mobile Safari/537.36";
const WEBVIEW: &str = "Mozilla/5.0 (Linux; Android 15; Pixel 9 Build/BP1A.250505.005; wv) AppleWebKit/537.36 (KHTML, like Gecko) Version/4.0 Chrome/142.0.7444.102 Mobile Safari/537.36";
const ELECTRON: &str = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.7444.59 Electron/39.1.1 Safari/537.36";
const BOT_LIST: &str = include_str!("../../data/bots.tsv");

/// Apps by the number of people who open pages in them, with what they add to the agent of the system's browser.
#[rustfmt::skip]
const APPS: &[(&str, &str)] = &[
    ("Facebook", "[FBAN/FBIOS;FBAV/535.0.0.45.88;FBBV/811;FBDV/iPhone16,1;FBMD/iPhone;FBSN/iOS;FBLC/en_US;FBOP/5]"),
    ("Facebook, Android", "[FB_IAB/FB4A;FBAV/535.0.0.49.71;]"),
    ("Facebook since autumn 2025", "MetaIAB Facebook"),
    ("Messenger", "[FBAN/MessengerForiOS;FBAV/530.0.0.33.107;FBDV/iPhone15,2]"),
    ("Instagram", "Instagram 406.0.0.58.159 Android (35/15; 480dpi; 1080x2400; OPPO; CPH2557; OP573DL1; mt6833; en_MY)"),
    ("Instagram since autumn 2025", "MetaIAB Instagram"),
    ("Threads", "Barcelona 405.0.0.28.118 (iPhone16,1; iOS 18_6_2; en_US; en; scale=3.00; 1179x2556)"),
    ("Threads since autumn 2025", "MetaIAB Threads"),
    ("WhatsApp", "WhatsApp/2.25.30.73"),
    ("YouTube", "com.google.android.youtube/20.45.36"),
    ("Google", "GSA/395.0.826940424"),
    ("TikTok", "musical_ly_42.5.0 JsSdk/2.0 NetType/WIFI Channel/App Store ByteLocale/en Region/US BytedanceWebview/d8a21c6"),
    ("TikTok, Android", "trill_420503 BytedanceWebview/d8a21c6 ByteLocale/en"),
    ("WeChat", "MicroMessenger/8.0.63(0x18003f2f) NetType/WIFI Language/zh_CN"),
    ("QQ", "QQ/9.2.20.614 V1_IPH_SQ_9.2.20_1_APP_A Pixel/1179 MiniAppEnable SimpleUISwitch/0 QQTheme/1000"),
    ("Weibo", "Weibo (iPhone16,1__weibo__15.11.0__iphone__os18.6.2)"),
    ("Alipay", "NebulaSDK/1.8.100112 Nebula AlipayDefined(nt:WIFI,ws:393|788|3.0) AliApp(AP/10.7.96) AlipayClient/10.7.96"),
    ("Baidu", "baiduboxapp/15.40.0.10 (Baidu; P1 15)"),
    ("Snapchat", "Snapchat/13.66.1.42 (iPhone16,1; iOS 18.6.2; gzip)"),
    ("Telegram", "Telegram-Android/12.1.1 (Google Pixel 9; Android 15; SDK 35; HIGH)"),
    ("X", "Twitter for iPhone/11.38"),
    ("X, Android", "TwitterAndroid"),
    ("Pinterest", "[Pinterest/iOS]"),
    ("Pinterest, Android", "[Pinterest/Android]"),
    ("Reddit", "Reddit/Version 2025.45.0/Build 617/iOS Version 18.6.2"),
    ("LinkedIn", "[LinkedInApp]/9.31.9345"),
    ("LINE", "Safari Line/15.18.0"),
    ("KakaoTalk", "KAKAOTALK/25.10.0 (INAPP)"),
    ("Naver", "NAVER(inapp; search; 2100; 12.16.32; 15PRO)"),
    ("Daum", "DaumApps/8.1.0 DaumDevice/mobile"),
    ("Viber", "Viber/26.3.0"),
    ("Discord", "Discord/300.0"),
    ("Slack", "Slack/25.11.20"),
    ("Microsoft Teams", "TeamsMobile-iOS/7.19.0"),
    ("Outlook", "Outlook-iOS/735.2546.0"),
    ("Zoom", "Zoom/6.6.5"),
    ("ChatGPT", "ChatGPT/1.2025.309"),
    ("Claude", "Claude/1.251110.0"),
    ("Perplexity", "Perplexity/251106"),
    ("Gemini", "Gemini/1.2025.4470"),
    ("Copilot", "Copilot/30.0.431106001"),
    ("DuckDuckGo", "Version/18.6 Safari/604.1 Ddg/18.6"),
    ("DuckDuckGo, Android", "DuckDuckGo/5"),
    ("Edge", "EdgiOS/142.0.3595.66"),
    ("Ecosia", "(Ecosia ios@11.7.0.2510)"),
    ("Yahoo", "YahooMobile/1.0 (mail; 7.64.1)"),
    ("Flipboard", "Flipboard/4.3.9"),
    ("Tumblr", "Tumblr/38.9"),
    ("Quora", "Quora 8.4.63"),
    ("Bluesky", "Bluesky/1.110.0"),
    ("Amazon", "AmazonWebView/Amazon Shopping/25.22.0/iOS/18.6.2/iPhone"),
    ("PayPal", "PayPal/8.90.0"),
    ("Shopee", "ShopeeMY/3.59.20 language=en app_type=1"),
    ("Mercado Libre", "MercadoLibre/10.436.0"),
    ("Notion", "Notion/1.8.0"),
    ("Nextcloud", "Nextcloud-iOS/7.2.1"),
    ("Spotify", "Spotify/9.0.98"),
    ("Overcast", "Overcast/3.0"),
    ("Instapaper", "Instapaper/9.4"),
    ("Disqus", "Disqus/1.0"),
];
const CHROME: &str =
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0";

#[test]
fn built_in_bot_list_parses() {
    let listed = bot_list::parse(include_str!("../../data/bots.tsv")).unwrap_or_else(|error| panic!("{error}"));
    assert!(listed.len() > 1000);
    let patterns: Vec<_> = listed.iter().filter_map(|bot| bot.token.confirm()).collect();
    assert!(patterns.len() > 50);
    for pattern in patterns {
        pattern.compile().unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn bot_list_error_names_the_line() {
    let error_text = |text| bot_list::parse(text).expect_err("the list is invalid").to_string();
    assert_eq!(error_text("# bots\nGooglebot"), "line 2 of the bot list: expected a name, a tab and a token");
    assert_eq!(error_text("B\tb"), "line 1 of the bot list: token `b` is too short");
    assert_eq!(error_text("Bot\tbot\t\tall"), "line 1 of the bot list: mark `all`; expected `app-browsers`");
}

#[test]
fn listed_bot_is_reported_by_name() {
    let fixture = MatcherFixture::new();
    assert_eq!(fixture.name("Mozilla/5.0 (compatible; AhrefsBot/7.0; +http://ahrefs.com/robot/)"), "AhrefsBot");
    assert_eq!(fixture.name("curl/8.5.0"), "curl");
    assert_eq!(fixture.name(&format!("{CHROME} HeadlessChrome/142.0.0.0 Safari/537.36")), "HeadlessChrome");
    assert_eq!(fixture.name("SCRAPY/2.11 (+HTTPS://SCRAPY.ORG)"), "Scrapy");
}

#[test]
fn unlisted_bots_are_detected_by_heuristics() {
    let fixture = MatcherFixture::new();
    for agent in [
        "Mozilla/5.0 (compatible; NeverHeardOfBot/1.0)",
        "never-heard-of-crawler (contact us)",
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko; Unheard/1.0) Chrome/120.0",
        "Unheard Of 3 (+https://unheard.example/about)",
        "Unheard Of (ops@unheard.example)",
        "unheard-of/1.0",
        "Ruby",
        "Elixir/Mint",
        "Ktor client",
        "Perl 5 and more",
        "Mozilla/5.0 (compatible; Unheard/1.0; Linux)",
        "Google-Something-New (+internal)",
    ] {
        assert_eq!(fixture.claim(agent), Claim::Bot { bot: None, operator: None }, "{agent}");
    }
}

#[test]
fn rare_browsers_are_never_bots() {
    let fixture = MatcherFixture::new();
    for agent in include_str!("../../../../tests/data/people.txt").lines().filter(|line| !line.starts_with('#')) {
        assert_eq!(fixture.claim(agent), Claim::Browser, "{agent}");
    }
}

#[test]
fn programs_whose_names_begin_as_those_of_phones_are_bots() {
    let fixture = MatcherFixture::new();
    for name in ["Birdseye", "Blueseek", "Cherrypick", "Flyscan", "O2search", "Orangeseek", "Symphonysearch", "Zenith"]
    {
        let agent = format!("Mozilla/5.0 (compatible; {name}/1.0)");
        assert_eq!(fixture.claim(&agent), Claim::Bot { bot: None, operator: None }, "{agent}");
    }
}

#[test]
fn in_app_browsers_of_large_apps_are_people() {
    let fixture = MatcherFixture::new();
    for (app, name) in APPS {
        for agent in [format!("{IPHONE} Mobile/15E148 {name}"), format!("{WEBVIEW} {name}")] {
            assert_eq!(fixture.claim(&agent), Claim::Browser, "{app}: {agent}");
        }
    }
    for name in ["Slack/4.41.105", "discord/1.0.9175", "Notion/4.2.0", "Code/1.106.2", "Claude/0.14.4", "Teams/1.7.00"]
    {
        let agent = ELECTRON.replace("Chrome", &format!("{name} Chrome"));
        assert_eq!(fixture.claim(&agent), Claim::Browser, "{agent}");
    }
}

#[test]
fn crawlers_that_imitate_a_phone_are_bots() {
    let fixture = MatcherFixture::new();
    for evidence in [
        "(compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
        "(compatible; Google-InspectionTool/1.0;)",
        "(compatible; AdsBot-Google-Mobile; +http://www.google.com/mobile/adsbot.html)",
        "(compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)",
        "(compatible; YandexMobileBot/3.0; +http://yandex.com/bots)",
        "(compatible; PetalBot;+https://webmaster.petalsearch.com/site/petalbot)",
        "(compatible; Bytespider; spider-feedback@bytedance.com)",
        "(compatible; Mediapartners-Google/2.1; +http://www.google.com/bot.html)",
        "(Applebot/0.1; +http://www.apple.com/go/applebot)",
        "Chrome-Lighthouse",
        "HeadlessChrome/142.0.0.0",
        "PTST/281",
        "BrandVerity/1.0 (http://www.brandverity.com/why-is-brandverity-visiting-me)",
        "DareBoost",
        "unheard-crawler/1.0",
        "unheard (ops@unheard.example)",
    ] {
        for browser in [&format!("{IPHONE} Mobile/15E148 Safari/604.1"), ANDROID, WEBVIEW, ELECTRON] {
            let agent = format!("{browser} {evidence}");
            assert!(matches!(fixture.claim(&agent), Claim::Bot { .. }), "{agent}");
        }
    }
    assert_eq!(fixture.name(&format!("{ANDROID} BrandVerity/1.0 (http://b.example)")), "BrandVerity");
}

#[test]
fn unmarked_names_never_override_an_app_browser() {
    let fixture = MatcherFixture::new();
    const BOT_WORDS: &[&str] = &[
        "bot",
        "b0t",
        "crawl",
        "spider",
        "scrap",
        "fetch",
        "harvest",
        "indexer",
        "http",
        "@",
        "google-",
        "compatible",
    ];
    let listed = bot_list::parse(BOT_LIST).unwrap_or_else(|error| panic!("{error}"));
    let literal = |entry: &BotEntry| String::from_utf8_lossy(entry.token.literal()).into_owned();
    let marked = listed.iter().filter(|entry| entry.counts_in_app_browsers).map(literal);
    let evidence: Vec<String> =
        BOT_WORDS.iter().map(|word| (*word).to_owned()).chain(marked).map(|word| word.to_ascii_lowercase()).collect();
    let mut tried = 0;
    for token in listed.iter().map(literal) {
        if evidence.iter().any(|word| token.to_ascii_lowercase().contains(word)) {
            continue;
        }
        tried += 1;
        for browser in [&format!("{IPHONE} Mobile/15E148 Safari/604.1"), ANDROID, WEBVIEW, ELECTRON] {
            for agent in [format!("{browser} {token}"), format!("{browser} {}/7.1", token.trim_end_matches('/'))] {
                assert_eq!(fixture.claim(&agent), Claim::Browser, "{agent}");
            }
        }
    }
    assert!(tried > 1000, "only {tried} names are neither marked nor evidence");
}

#[test]
fn apps_that_scan_are_people() {
    let fixture = MatcherFixture::new();
    for name in [
        "CamScanner/6.72",
        "QRScanner/3.1.0",
        "BarcodeScanner",
        "PdfScanner/2",
        "PriceFinder/1.2",
        "com.example.scanner",
    ] {
        assert_eq!(fixture.claim(&format!("{WEBVIEW} {name}")), Claim::Browser, "{name}");
        assert_eq!(fixture.claim(&format!("{IPHONE} Mobile/15E148 {name}")), Claim::Browser, "{name}");
    }
    assert_eq!(fixture.claim(&format!("{WEBVIEW} (com.example.app)")), Claim::Browser);
    assert_eq!(fixture.claim(&format!("{CHROME} Safari/537.36 NetScanner/1.0")), UNLISTED_BOT);
}

#[test]
fn servers_of_players_are_programs_and_their_apps_people() {
    let fixture = MatcherFixture::new();
    for server in ["Podimo/1.0 (+https://podimo.com/)", "ExamplePod/2 (+http://cast.example)"] {
        assert_eq!(fixture.claim(server), UNLISTED_BOT, "{server}");
    }
    for app in [
        "Podimo/2.44.1 build 464/iOS 18.1",
        "Overcast/3.0 (+http://overcast.fm/; iOS podcast app)",
        "ExamplePod/2 (iPhone; +http://cast.example)",
        "Castro 2026 (+http://cast.example)",
    ] {
        assert_eq!(fixture.claim(app), Claim::Browser, "{app}");
    }
}

#[test]
fn exclusions_of_names_take_effect() {
    let lines = || include_str!("../../data/own-bots.tsv").lines().filter(|line| !line.starts_with('#'));
    let tokens = |sign: &'static str| lines().filter_map(move |line| line.strip_prefix(sign)?.split('\t').nth(1));
    let spelling = |token: &str| token.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_ascii_lowercase();
    let own: Vec<String> = tokens("+").chain(tokens("!")).map(spelling).collect();
    let listed = bot_list::parse(BOT_LIST).unwrap_or_else(|error| panic!("{error}"));
    for token in tokens("-") {
        let same = listed.iter().find(|entry| {
            let listed = spelling(&String::from_utf8_lossy(entry.token.literal()));
            listed == spelling(token) && !own.contains(&listed)
        });
        assert!(same.is_none(), "own-bots.tsv excludes `{token}`, but the list contains {same:?}");
    }
}

#[test]
fn no_user_agent_is_no_claim() {
    let fixture = MatcherFixture::new();
    for agent in ["", "-", " ", "\t \r"] {
        assert_eq!(fixture.claim(agent), Claim::NoUserAgent, "{agent:?}");
    }
}

#[test]
fn non_utf8_and_oversized_user_agents_are_classified() {
    let fixture = MatcherFixture::new();
    assert_eq!(fixture.agents.claim(b"\xff\xfe Googlebot/2.1\x00 \x80"), fixture.claim("Googlebot"));
    let padded = |spaces| format!("{CHROME}{}Googlebot/2.1", " ".repeat(spaces));
    assert_ne!(fixture.claim(&padded(500)), Claim::Browser);
    assert_eq!(fixture.claim(&padded(8000)), UNLISTED_BOT);
    assert_eq!(fixture.claim(&CHROME.repeat(20)), UNLISTED_BOT);
    // A name across the limit is truncated, not misread.
    for length in 0..40 {
        fixture.claim(&padded(MAX_USER_AGENT_BYTES - CHROME.len() - length));
    }
}

#[test]
fn operator_is_claimed_only_by_its_product_token() {
    let fixture = MatcherFixture::new();
    let claims = |agent: &str| fixture.operator(agent);
    assert_eq!(claims("Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"), Some(GOOGLE));
    assert_eq!(claims("googlebot"), Some(GOOGLE));
    assert_eq!(claims("Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.4)"), Some(OPENAI));
    assert_eq!(claims("Mozilla/5.0+(compatible;+Googlebot/2.1;++http://www.google.com/bot.html)"), Some(GOOGLE));
    // A comparison, a link, a part of another name, or another product's documentation.
    assert_eq!(claims("Feedly/1.0 (+http://www.feedly.com/fetcher.html; like FeedFetcher-Google)"), None);
    assert_eq!(claims("SomeBot/1.0 (+https://example.com/Googlebot)"), None);
    assert_eq!(claims("NotGooglebot/1.0"), None);
    for agent in ["Googlebot-Richsnippets/1.0", "NotGooglebot/1.0", "x_Googlebot/2.1", "Googlebot-Foo/1"] {
        assert_eq!(fixture.claim(agent), UNLISTED_BOT, "{agent}: an unverified claim has no bot name");
    }
    // Invisible characters do not hide the name.
    for agent in [&b"\xff\xfe\x80Googlebot/2.1"[..], "Googlebot\u{200b}/2.1".as_bytes(), b"Googlebot\x01/2.1"] {
        assert_eq!(fixture.agents.claim(agent), fixture.claim("Googlebot/2.1"), "{agent:?}");
    }
    assert_eq!(claims("SomeBot/1.0 (gptbot@example.com)"), None);
    assert_eq!(claims(&format!("{CHROME} Safari/537.36")), None);
}

#[test]
fn the_most_specific_product_names_the_bot() {
    let fixture = MatcherFixture::new();
    assert_eq!(fixture.name("Googlebot-Image/1.0"), "Googlebot-Image");
    assert_eq!(fixture.name("Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"), "Googlebot");
    assert_eq!(fixture.operator("Googlebot-Image/1.0"), Some(GOOGLE));
}

#[test]
fn cache_agrees_with_the_matcher_after_a_flood() {
    let fixture = MatcherFixture::new();
    let mut cache = ClaimCache::new(foldhash::fast::RandomState::default());
    let agents: Vec<String> =
        (0..20_000).map(|n| if n % 3 == 0 { format!("x{n}bot/1") } else { format!("{IPHONE} {n}") }).collect();
    for agent in agents.iter().chain(&agents[19_000..]) {
        assert_eq!(
            cache.claim(&fixture.agents, agent.as_bytes()),
            (fixture.claim(agent), UserAgentMatcher::browser_traits(agent.as_bytes()))
        );
    }
    assert_eq!(cache.claim(&fixture.agents, b"").0, Claim::NoUserAgent);
}

const UNLISTED_BOT: Claim = Claim::Bot { bot: None, operator: None };
const GOOGLE: OperatorId = OperatorId(0);
const OPENAI: OperatorId = OperatorId(1);

struct MatcherFixture {
    agents: UserAgentMatcher,
}

impl MatcherFixture {
    fn new() -> MatcherFixture {
        let tokens =
            [("Googlebot", GOOGLE), ("Googlebot-Image", GOOGLE), ("FeedFetcher-Google", GOOGLE), ("GPTBot", OPENAI)];
        MatcherFixture { agents: UserAgentMatcher::builtin(tokens) }
    }

    fn claim(&self, agent: &str) -> Claim {
        self.agents.claim(agent.as_bytes())
    }

    fn name(&self, agent: &str) -> &str {
        match self.claim(agent) {
            Claim::Bot { bot: Some(bot), .. } => self.agents.name(bot),
            other => panic!("{other:?} for {agent}"),
        }
    }

    fn operator(&self, agent: &str) -> Option<OperatorId> {
        match self.claim(agent) {
            Claim::Bot { operator, .. } => operator,
            _ => None,
        }
    }
}

/// What shape alone shows: a list that every name is missing from, so that memory has no part in it.
#[test]
fn most_bots_are_found_without_their_names() {
    let nameless = UserAgentMatcher::new(Vec::new(), []);
    let bots: Vec<&str> =
        include_str!("../../../../tests/data/bots.txt").lines().filter(|line| !line.starts_with('#')).collect();
    let found = bots.iter().filter(|agent| matches!(nameless.claim(agent.as_bytes()), Claim::Bot { .. })).count();
    assert!(found * 100 >= bots.len() * 94, "{found} of {}", bots.len());
    for agent in include_str!("../../../../tests/data/people.txt").lines().filter(|line| !line.starts_with('#')) {
        assert_eq!(nameless.claim(agent.as_bytes()), Claim::Browser, "{agent}");
    }
}

#[test]
fn agents_of_language_models_are_found_alone_and_behind_a_browser() {
    let fixture = MatcherFixture::new();
    for name in [
        "Amazonbot",
        "Awario",
        "ChatGPT-User",
        "Claude-Code",
        "Claude-SearchBot",
        "Claude-User",
        "ClaudeBot",
        "DuckAssistBot",
        "Gemini-Deep-Research",
        "Google-NotebookLM",
        "GoogleAgent-Mariner",
        "GPTBot",
        "Kimi-User",
        "MistralAI-User",
        "NovaAct",
        "OAI-SearchBot",
        "Perplexity-User",
        "PerplexityBot",
        "Shap-User",
        "meta-externalagent",
        "opencode",
    ] {
        for agent in [
            name.to_owned(),
            format!("{name}/1.0"),
            format!("Mozilla/5.0 (compatible; {name}/1.0)"),
            format!(
                "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; {name}/1.0; +https://operator.example/bot)"
            ),
            format!("{CHROME} Safari/537.36 {name}"),
            format!("{CHROME} Safari/537.36 {name}/1.0"),
            format!("{CHROME} Safari/537.36; compatible; {name}/1.0"),
        ] {
            assert!(matches!(fixture.claim(&agent), Claim::Bot { .. }), "{agent}");
        }
    }
    // People browse in editors.
    let editor = ELECTRON.replace("Chrome", "Cursor/0.40.3 Chrome");
    assert_eq!(fixture.claim(&editor), Claim::Browser);
}

#[test]
fn what_is_no_browser_and_no_device_is_a_program() {
    let fixture = MatcherFixture::new();
    for agent in [
        "vegeta",
        "Unheard",
        "uh/0.4.4",
        "unheard 2.4",
        "unheard/1.10.0 (Linux x86_64) libunheard/14.0.0",
        "unheard/3.5 (Fedora Linux 40; workstation)",
        "unheard/4.3 (Macintosh; Intel Mac OS X 14.6) curl/8.7.1",
        "unheard (darwin/arm64)",
        "unheard/1.4.0 win32-x64 node-v20.10.0",
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36 Stagehand",
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36 Unheard-Agent/0.1",
        "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36 Unheard-User/0.1",
        "Mozlila/5.0 (Linux; Android 7.0; SM-G892A Bulid/NRD90M; wv) AppleWebKit/537.36 (KHTML, like Gecko) Version/4.0 Chrome/60.0.3112.107 Moblie Safari/537.36",
        "content harvest of next week",
        "unheard of tool",
        "tutorial-of-week/1",
        "unheard/2.0 (build 7; production)",
        "Mozilla/5.0 (${jndi:ldap://a.example/x})",
        "<script>alert(1)</script>",
        "Mozilla/5.0 (Windows NT; Windows NT 10.0; en-US) WindowsPowerShell/5.1.14393.187",
        "Mozilla/5.0 (linux) AppleWebKit/537.36 (KHTML, like Gecko) jsdom/20.0.0",
        "Agent Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36",
    ] {
        assert!(matches!(fixture.claim(agent), Claim::Bot { .. }), "{agent}");
    }
    for agent in [
        "Nokia6100/1.0 (04.01) Profile/MIDP-1.0 Configuration/CLDC-1.0",
        "portalmmm/2.0 N210i(c20;TB)",
        "Dalvik/2.1.0 (Linux; U; Android 14; Pixel 8 Build/UD1A)",
        "AppleCoreMedia/1.0.0.21G93 (iPhone; U; CPU OS 17_6 like Mac OS X; en_us)",
        "VLC/3.0.20 LibVLC/3.0.20",
        "PocketPlayer/2.1 (https://player.example)",
        "Microsoft Office/16.0 (Windows NT 10.0; Microsoft Outlook 16.0.17726; Pro)",
        "LG-D722 Mozilla/5.0 (Linux; Android 5.0.2; LG-D722) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/34.0 Mobile Safari/537.36",
        "Mozilla/4.0 (compatible; MSIE 8.0; Windows NT 6.1; SIMBAR={8137D03B-631D-11E2-B49A-00188B007032})",
        "12345",
        "MI 9",
        "CPH2557",
        "FOMA",
        "Desktop",
        "Unheard/8.0 CFNetwork/1474 Darwin/23.0.0",
        "Unheard Podcasts/3.0 (+http://unheard.example/; iOS podcast app)",
        "Mozilla/5.0 (compatible; UnheardUniversity; Windows NT 10.0; Win64; x64; rv:140.0) Gecko/20100101 Firefox/140.0",
        "Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36 [id=3kbOt]",
    ] {
        assert_eq!(fixture.claim(agent), Claim::Browser, "{agent}");
    }
}
