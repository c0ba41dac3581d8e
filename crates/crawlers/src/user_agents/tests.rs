use super::*;

const IPHONE: &str = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko)";
const CHROME: &str =
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0";

#[test]
fn built_in_bot_list_parses() {
    let listed = bot_list::parse(include_str!("../../data/bots.tsv")).unwrap_or_else(|error| panic!("{error}"));
    assert!(listed.len() > 1000);
}

#[test]
fn bot_list_error_names_the_line() {
    let error_text = |text| bot_list::parse(text).expect_err("the list is invalid").to_string();
    assert_eq!(error_text("# bots\nGooglebot"), "line 2 of the bot list: expected a name, a tab and a token");
    assert_eq!(error_text("B\tb"), "line 1 of the bot list: token `b` is too short");
    assert!(error_text("Bot\tbot\t(").starts_with("line 1 of the bot list: `(`"));
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
