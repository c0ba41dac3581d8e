//! The live page of the admin listener in a real browser: its figures against the API, phone to wide screen, light and
//! dark, login, hostile texts, and axe-core.
//!
//! `TIDEGATE_PICTURES=FOLDER cargo test --test integration live_page::` writes screenshots to that directory.

use crate::support::browser::{Browser, OpenedPage, Screen};
use crate::support::crawlers::InstalledClients;
use crate::support::gateway::TestGateway;
use crate::support::origin::Origin;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const DESKTOP: Screen = Screen { width: 1280, scheme: "light" };

#[test]
fn page_shows_what_the_api_says_on_every_screen() {
    let fixture = PageFixture::start("");
    let mut browser = Browser::start();
    let axe = std::fs::read_to_string(InstalledClients::locate().package("axe-core/axe.min.js")).expect("installed");
    for width in [360, 1280, 2560] {
        for scheme in ["light", "dark"] {
            let screen = format!("{width}, {scheme}");
            fixture.open(&mut browser, Screen { width, scheme });
            browser.wait_until("document.querySelector('#decisions table') !== null");
            let shown = page_text(&mut browser);
            for text in expected_texts(&fixture.gateway.state()) {
                assert!(shown.contains(&text), "{screen}: {text:?} is missing in\n{shown}");
            }
            let scroll_width = browser.evaluate("document.documentElement.scrollWidth");
            assert!(scroll_width.as_u64() <= Some(width.into()), "{screen}: page width is {scroll_width}");
            save_picture(&format!("live-{width}-{scheme}.png"), &browser.screenshot());
            browser.evaluate(&axe);
            let found = browser.evaluate(
                "axe.run().then(({ violations }) => violations.filter(({ impact }) => ['serious', 'critical'].includes(impact)) \
                 .map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(' ')}`))",
            );
            assert_eq!(found, json!([]), "{screen}");
            fixture.assert_quiet(&browser.activity(), &screen);
        }
    }
}

#[test]
fn page_follows_the_gateway_and_explains_decisions() {
    let fixture = PageFixture::start("");
    let mut browser = Browser::start();
    fixture.open(&mut browser, DESKTOP);
    let state = fixture.gateway.state();
    assert_eq!(state["quotas"][0]["used"], 7);
    for _ in 0..5 {
        assert_eq!(fixture.gateway.connect().get("/page/new", "").status, 200);
    }
    browser.wait_until("document.querySelector('#quotas').innerText.includes('12 of 100 units used')");

    let filter = |browser: &mut Browser, name: &str, value: &str| {
        browser.evaluate(&format!(
            "(() => {{ const field = document.querySelector('#filter').elements.{name}; field.value = '{value}'; \
             field.dispatchEvent(new Event('input', {{ bubbles: true }})); }})()"
        ));
    };
    let rows = "[...document.querySelectorAll('#decisions tbody tr')].map((row) => row.innerText)";
    filter(&mut browser, "reason", "tier");
    browser.wait_until(&format!("{rows}.length === 2 && {rows}.every((row) => row.includes('GPTBot'))"));
    filter(&mut browser, "client", "203.0.113.");
    browser.wait_until("document.querySelector('#decisions').innerText === 'No stored decision matches.'");
    filter(&mut browser, "client", "");
    browser.wait_until(&format!("{rows}.length === 2"));

    browser.evaluate("document.querySelector('#decisions [data-explain]').click()");
    browser.wait_until("document.querySelector('#explanation').open");
    let explanation = browser.evaluate("document.querySelector('#explanation').innerText");
    let explanation = explanation.as_str().expect("a text");
    for text in ["GET example.com/page/1 of 127.0.0.1", "GPTBot/1.0", "refused (tier), status 429", "tier: refused"] {
        assert!(explanation.contains(text), "{text:?} is missing in\n{explanation}");
    }
    save_picture("live-explanation.png", &browser.screenshot());
    browser.evaluate("document.querySelector('#explanation button').click()");

    browser.evaluate("document.querySelector('input[value=day]').click()");
    assert_eq!(browser.evaluate("document.querySelectorAll('#quotas .plot path').length"), 2);

    fixture.gateway.write(fixture.origin.address(), &RULES.replace("limit: 100", "limt: 100"));
    assert_eq!(fixture.gateway.admin_request("POST", "/api/v1/reload", "").0, 422);
    browser.wait_until("document.querySelector('#problems').innerText.includes('Reload failed')");
    assert!(page_text(&mut browser).contains("unknown key \"limt\""));
    fixture.assert_quiet(&browser.activity(), "after the changes");
}

#[test]
fn page_shows_what_the_cache_answered_and_saved() {
    let fixture = PageFixture::start("");
    let mut browser = Browser::start();
    fixture.open(&mut browser, DESKTOP);
    assert_eq!(browser.evaluate("document.querySelector('#cache-section').hidden"), true);

    let origin =
        Origin::with_script(|_, connection| connection.reply("200 OK", "Cache-Control: max-age=60\r\n", b"page"));
    let gateway = TestGateway::with_rules(origin.address(), &format!("cache: {{ disk: off }}\n{RULES}"));
    (0..4).for_each(|_| drop(gateway.connect().get("/page/1", "")));
    browser.open_url(&format!("http://{}/", gateway.admin_address()), DESKTOP);
    let shown = "document.querySelector('#cache').innerText";
    browser.wait_until(&format!("{shown}.includes('3 units of api saved since the start')"));
    browser.wait_until(&format!(
        "{shown}.includes('75 % of 4 requests on cached routes answered by stored responses since the start')"
    ));
    // A new window begins: what was saved before it does not count.
    gateway.clock.advance(Duration::from_secs(8 * 86_400));
    browser.wait_until(&format!("{shown}.includes('0 units of api saved')"));
    assert_eq!(browser.activity().messages, [""; 0]);
}

#[test]
fn texts_of_clients_are_shown_as_texts() {
    let fixture = PageFixture::start("");
    let markup = "<img/src=x/onerror=document.title='taken'>";
    for _ in 0..20 {
        fixture.gateway.connect().get("/page/&lt;i&gt;", &format!("User-Agent: {markup}<script>bot/1.0\r\n"));
    }
    let mut browser = Browser::start();
    fixture.open(&mut browser, DESKTOP);
    browser.wait_until("document.querySelector('#decisions table') !== null");
    assert!(page_text(&mut browser).contains(markup), "the user agent is shown");
    assert_eq!(browser.evaluate("document.querySelectorAll('#live img, #live script').length"), 0);
    assert_eq!(browser.evaluate("document.title"), "Tidegate");
    fixture.assert_quiet(&browser.activity(), "hostile texts");
}

#[test]
fn token_opens_a_session_that_scripts_cannot_read() {
    let fixture = PageFixture::start(TOKENS);
    let mut browser = Browser::start();
    browser.open_url(&fixture.url(), Screen { width: 360, scheme: "light" });
    browser.wait_until("!document.querySelector('#login').hidden");
    save_picture("live-login.png", &browser.screenshot());
    assert_eq!(browser.evaluate("document.querySelector('#live').hidden"), true);

    let log_in = |browser: &mut Browser, token: &str| {
        browser.evaluate(&format!(
            "(() => {{ document.querySelector('#token').value = '{token}'; document.querySelector('#login').requestSubmit(); }})()"
        ));
    };
    log_in(&mut browser, "open-sesame-open-sesamf");
    browser.wait_until("document.querySelector('#login-error').textContent.startsWith('token: wrong')");
    log_in(&mut browser, "readers-of-the-admin-page");
    browser.wait_until("document.querySelector('#quotas table, #quotas .card') !== null");
    assert_eq!(browser.evaluate("document.querySelector('#control').hidden"), true, "a reader changes nothing");
    let forbidden = "fetch('/api/v1/reload', { method: 'POST' }).then((response) => response.status)";
    assert_eq!(browser.evaluate(forbidden), 403);

    browser.evaluate("document.querySelector('#logout').click()");
    browser.wait_until("document.querySelector('#login') && !document.querySelector('#login').hidden");
    assert_eq!(browser.evaluate("fetch('/api/v1/state').then((response) => response.status)"), 401);
    log_in(&mut browser, "open-sesame-open-sesame");
    browser.wait_until("!document.querySelector('#live').hidden && !document.querySelector('#control').hidden");
    assert_eq!(browser.evaluate("document.cookie"), "", "no script reads the session");

    browser.evaluate(
        "(() => { const form = document.querySelector('#set-used'); form.elements.used.value = '55.5'; form.requestSubmit(); })()",
    );
    browser.wait_until("document.querySelector('#control-result').textContent === 'api: 55.5 used, 7 before'");
    browser.wait_until("document.querySelector('#config').innerText.includes('55.5')");
    browser.evaluate(
        "(() => { const form = document.querySelector('#set-switch'); form.elements.target.value = '203.0.113.9'; form.elements.why.value = 'scrapes'; form.requestSubmit(); })()",
    );
    browser.wait_until("document.querySelector('#switches').innerText.includes('203.0.113.9/32')");
    browser.wait_until("document.querySelector('#problems').innerText.includes('block 203.0.113.9/32 until ')");
    save_picture("live-switches.png", &browser.screenshot());
    browser.evaluate("document.querySelector('[data-end]').click()");
    browser.wait_until("document.querySelector('#switches').innerText === 'No switch is in effect.'");
    let submit = |browser: &mut Browser, minutes: &str| {
        browser.evaluate(&format!(
            "(() => {{ const form = document.querySelector('#set-switch'); form.elements.effect.value = 'maintenance'; form.elements.minutes.value = '{minutes}'; form.elements.why.value = 'repair'; form.dispatchEvent(new Event('submit', {{ cancelable: true }})); }})()",
        ));
    };
    submit(&mut browser, "abc");
    browser.wait_until("document.querySelector('#control-result').textContent === 'Give the duration in minutes.'");
    let on = r#"{"target": "maintenance", "effect": "maintenance", "except": ["192.0.2.0/24"]}"#;
    let (status, _) = fixture.gateway.admin_request("POST", "/api/v1/switches", on);
    assert_eq!(status, 200);
    browser.wait_until("document.querySelector('#problems').innerText.includes('except 192.0.2.0/24')");
    submit(&mut browser, "30");
    browser.wait_until("/^maintenance until .*, except 192.0.2.0.24: repair$/.test(document.querySelector('#control-result').textContent)");
    browser.evaluate("document.querySelector('#reload').click()");
    browser.wait_until("document.querySelector('#control-result').textContent.startsWith('Reloaded: ')");
    save_picture("live-control.png", &browser.screenshot());
}

/// A gateway that has served people and refused bots.
struct PageFixture {
    gateway: TestGateway,
    origin: Origin,
}

impl PageFixture {
    /// Starts the gateway with an `admin` section.
    fn start(admin: &str) -> Self {
        let origin = Origin::plain();
        let gateway = TestGateway::with_rules(origin.address(), &format!("{RULES}{admin}"));
        for page in 0..7 {
            assert_eq!(gateway.connect().get(&format!("/page/{page}"), "").status, 200);
        }
        for _ in 0..2 {
            assert_eq!(gateway.connect().get("/page/1", "User-Agent: GPTBot/1.0\r\n").status, 429);
        }
        assert_eq!(gateway.connect().get("/style.css", "User-Agent: GPTBot/1.0\r\n").status, 200);
        Self { gateway, origin }
    }

    fn url(&self) -> String {
        format!("http://{}/", self.gateway.admin_address())
    }

    /// Opens the page and waits for its first figures.
    fn open(&self, browser: &mut Browser, screen: Screen) {
        browser.open_url(&self.url(), screen);
        browser.wait_until("document.querySelector('#quotas .card') !== null");
    }

    /// Asserts that nothing was logged, and that all requests went to the admin listener.
    fn assert_quiet(&self, activity: &OpenedPage, screen: &str) {
        assert_eq!(activity.messages, [""; 0], "{screen}");
        let url = self.url();
        assert!(activity.requests.iter().all(|request| request.starts_with(&url)), "{screen}: {:?}", activity.requests);
    }
}

fn page_text(browser: &mut Browser) -> String {
    browser.evaluate("document.querySelector('main').innerText").as_str().expect("a text").to_owned()
}

/// Returns texts that the page shows of a state.
fn expected_texts(state: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let quota = &state["quotas"][0];
    let mut texts = vec![
        text(&quota["name"]),
        format!("{} of {} units used, 0 reserved, {} remain", quota["used"], quota["limit"], quota["remaining"]),
        text(&state["origin"]["authority"]),
        text(&state["listen"][0]),
        "2 by tier".into(),
        "user_agent_match:GPTBot".into(),
        "gptbot".into(),
    ];
    texts.extend(state["classes"].as_array().expect("a list").iter().map(text));
    for kind in ["clients", "networks", "paths", "user_agents"] {
        let spenders = state["spenders"][kind].as_array().expect("a list").iter();
        texts.extend(spenders.map(|spender| text(&spender["name"])).filter(|name| !name.is_empty()));
    }
    texts.extend(state["scopes"].as_array().expect("a list").iter().map(|scope| text(&scope["name"])));
    texts
}

fn save_picture(name: &str, base64: &str) {
    if let Some(dir) = std::env::var_os("TIDEGATE_PICTURES") {
        let bytes = STANDARD.decode(base64).expect("a picture is base64");
        std::fs::write(Path::new(&dir).join(name), bytes).expect("the directory of pictures exists");
    }
}

const RULES: &str = "
quotas: { api: { limit: 100, window: { fixed: 7d }, tiers: { robot: [ { above: 0%, shed: 100% } ] } } }
classes: [ { name: robot, when: { kind: declared_bot } }, { name: person } ]
routes: [ { match: /page/*, cost: { api: 1 } } ]
scopes: { search: { concurrency: 4 } }
";

const TOKENS: &str =
    "admin: { listen: '127.0.0.1:0', token: open-sesame-open-sesame, read_token: readers-of-the-admin-page }\n";
