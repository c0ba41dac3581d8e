//! The YAML blocks of the documentation and the commands of the README work.
//!
//! A YAML block with an `origin`, or with `origins`, is a complete file: the program serves it. Any other block is a fragment: `check`
//! accepts it after an origin is added. Files and variables to which the blocks refer exist under their names.

use crate::support::client::Client;
use crate::support::origin::Origin;
use crate::support::program::Program;
use crate::support::tls::Certificates;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;
use tidegate_http_cache::ForwardReason;
use tidegate_http_cache::storage::Unstorable;
use tidegate_policy::Reason;

#[test]
fn every_yaml_block_is_accepted_by_check() {
    let dir = dir_with_files();
    let blocks: Vec<Block> = documents().iter().flat_map(|(name, text)| blocks(name, text, "yaml")).collect();
    assert!(blocks.len() > 15, "{} blocks", blocks.len());
    for Block { location, text } in blocks {
        fs::write(dir.path().join("block.yaml"), &text).expect("file is writable");
        let mut check = tidegate_command(dir.path(), &["check", "block.yaml"]);
        if !is_complete_config(&text) {
            check.env("TIDEGATE__ORIGIN__URL", "http://127.0.0.1:3000");
        }
        let Output { status, stderr, .. } = check.output().expect("program was built");
        assert!(status.success(), "{location}\n{text}\n{}", String::from_utf8_lossy(&stderr));
    }
}

#[test]
fn every_whole_file_is_served() {
    let origin = Origin::plain();
    let complete = documents().into_iter().flat_map(|(name, text)| blocks(&name, &text, "yaml"));
    // A file with several servers has its own, which are not those of the test.
    let is_served = |block: &Block| is_complete_config(&block.text) && !block.text.contains("urls:");
    let complete: Vec<Block> = complete.filter(is_served).collect();
    assert!(!complete.is_empty(), "README has a complete file");
    for Block { location, text } in complete {
        let gateway = DocsGateway::with_yaml(&text, &origin);
        let expected = if text.contains("refuse_with: 401") { 401 } else { 200 };
        assert_eq!(Client::connect(gateway.address).get("/", "").status, expected, "{location}");
    }
}

#[test]
fn readme_commands_work_with_readme_yaml() {
    let [yaml] =
        blocks("README.md", README, "yaml").try_into().unwrap_or_else(|_| panic!("the README has one YAML block"));
    let commands = blocks("README.md", README, "sh").into_iter().find(|block| block.text.contains("tidegate status"));
    let commands = commands.expect("README shows the status commands").text;
    for command in ["tidegate status", "/metrics", "tidegate quota set", "/api/v1/reload", "kill -HUP $PID"] {
        assert!(commands.contains(command), "no {command} in\n{commands}");
    }
    let origin = Origin::plain();
    let mut gateway = DocsGateway::with_yaml(&yaml.text, &origin);
    assert_eq!(Client::connect(gateway.address).get("/item/1", FIREFOX).status, 200);
    let output = gateway.run(&commands);
    for expected in ["tidegate_quota_used{quota=\"api\"} ", "\"reloaded\":true"] {
        assert!(output.contains(expected), "no {expected} in\n{output}");
    }
    gateway.program.wait_for_error("Configuration reloaded");
    gateway.program.wait_for_error("Configuration reloaded");
    let log = gateway.dir.path().join("state/access.log");
    gateway.program.signal("TERM");
    assert_eq!(gateway.program.wait_for_exit().code, 0);
    assert!(fs::read_to_string(log).expect("access log is in state_dir").contains("\"path\":\"/item/1\""));
}

#[test]
fn every_cache_status_is_explained() {
    let text = fs::read_to_string("docs/CACHE.md").expect("readable");
    // No response of the gateway has the reason `partial`: it stores no parts.
    let sent = ForwardReason::ALL.into_iter().filter(|reason| *reason != ForwardReason::Partial);
    let forwards = sent.map(|reason| format!("fwd={}", reason.text()));
    let details = Unstorable::ALL.iter().map(|reason| format!("`{}`", reason.name()));
    let missing: Vec<String> = forwards.chain(details).filter(|word| !text.contains(word.as_str())).collect();
    assert_eq!(missing, [""; 0]);
}

#[test]
fn every_reason_has_a_remedy() {
    let text = fs::read_to_string("docs/TROUBLESHOOTING.md").expect("readable");
    let missing = Reason::ALL.map(Reason::name).into_iter().filter(|name| !text.contains(&format!("\n| `{name}` | ")));
    assert_eq!(missing.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn paths_and_links_in_documents_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directories = ["benches/", "config/", "crates/", "deploy/", "docs/", "grafana/", "scripts/", "src/", "tests/"];
    let others = ["CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "crates/crawlers/data/README.md"];
    let others = others.map(|name| (name.to_owned(), fs::read_to_string(root.join(name)).expect("document exists")));
    let mut missing = Vec::new();
    for (name, text) in documents().into_iter().chain(others) {
        let dir = root.join(&name).parent().expect("a document is in a directory").to_owned();
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(['#', ')']).next());
        let links = links.filter(|link| !link.contains("://")).map(|link| dir.join(link));
        let words = text.split('`').filter_map(|code| code.split_whitespace().next());
        let paths =
            words.filter(|word| directories.iter().any(|dir| word.starts_with(dir))).map(|path| root.join(path));
        missing.extend(links.chain(paths).filter(|path| !path.exists()).map(|path| (name.clone(), path)));
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn links_to_headings_lead_to_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let reference =
        fs::read_dir(root.join("docs/reference")).expect("readable").map(|entry| entry.expect("readable").path());
    let others = ["CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"].map(|name| root.join(name));
    let read = |path: std::path::PathBuf| (path.display().to_string(), fs::read_to_string(&path).expect("readable"));
    let mut count = 0;
    let mut dead = Vec::new();
    for (name, text) in documents().into_iter().chain(reference.chain(others).map(read)) {
        let file = root.join(&name);
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for (path, heading) in links.filter(|link| !link.contains("://")).filter_map(|link| link.split_once('#')) {
            let target = if path.is_empty() { file.clone() } else { file.with_file_name(path) };
            count += 1;
            let is_there =
                fs::read_to_string(&target).is_ok_and(|text| headings(&text).any(|anchor| anchor == heading));
            if !is_there {
                dead.push(format!("{name}: {path}#{heading}"));
            }
        }
    }
    assert!(count > 50 && dead.is_empty(), "{dead:#?} of {count}");
}

#[test]
fn readme_opens_with_two_doors_a_small_picture_and_what_it_costs() {
    let opening = README.split("\n## ").next().expect("text");
    for part in
        ["**Crawlers eat my quota**", "**I sell or buy metered calls**", "**What it costs to run**", "docs/guides/"]
    {
        assert!(opening.contains(part), "{part} is missing in\n{opening}");
    }
    for command in ["cargo run --release -- demo", "./test"] {
        assert!(opening.contains(&format!("\n{command} ")), "{command} is missing in\n{opening}");
    }
    let pictures: Vec<&str> = README.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    let pictures: Vec<&str> = pictures.into_iter().filter(|link| link.ends_with(".webp")).collect();
    let [picture] = pictures[..] else { panic!("one picture, not {pictures:?}") };
    let size = fs::metadata(Path::new(env!("CARGO_MANIFEST_DIR")).join(picture)).expect("the picture exists").len();
    assert!(size <= 150_000, "{picture} has {size} bytes");
}

#[test]
fn people_are_called_people_and_their_kind_is_code() {
    let text_of = |name: &str| (name.to_owned(), fs::read_to_string(name).expect("readable"));
    let others = ["CHANGELOG.md", "SECURITY.md", "src/admin/page/index.html"].map(text_of);
    let mut found = Vec::new();
    for (name, text) in documents().into_iter().chain(others) {
        let blocks = text.split("\n```").enumerate().filter(|(index, _)| index % 2 == 0).map(|(_, prose)| prose);
        let prose = blocks.flat_map(|prose| prose.split('`').step_by(2)).collect::<Vec<_>>().join(" ").to_lowercase();
        let words = prose.split(|c: char| !c.is_alphanumeric());
        found.extend(
            words
                .filter(|word| FOREIGN_WORDS.contains(word))
                .map(|word| format!("{name}: {word}: see docs/GLOSSARY.md")),
        );
    }
    assert_eq!(found, [""; 0]);
}

/// Words for people that are not those of the glossary.
const FOREIGN_WORDS: [&str; 4] = ["human", "humans", "visitor", "visitors"];

/// Returns the anchors of the headings of a document, as GitHub makes them.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let parts = text.split("\n```").enumerate().filter(|(index, _)| index % 2 == 0);
    let lines = parts.flat_map(|(_, part)| part.lines()).filter(|line| line.starts_with('#'));
    lines.filter_map(|line| line.trim_start_matches('#').strip_prefix(' ')).map(|heading| {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).flat_map(char::to_lowercase).collect()
    })
}

/// A gateway with a file of the documentation, on its own ports and in its own directory.
struct DocsGateway {
    program: Program,
    dir: TempDir,
    address: SocketAddr,
    admin: SocketAddr,
}

impl DocsGateway {
    fn with_yaml(yaml: &str, origin: &Origin) -> Self {
        let dir = dir_with_files();
        let file = dir.path().join("tidegate.yaml").display().to_string();
        fs::write(&file, yaml).expect("file is writable");
        let state = dir.path().join("state").display().to_string();
        let url = format!("http://{}", origin.address());
        let environment = [
            ("TIDEGATE__LISTEN", "127.0.0.1:0"),
            ("TIDEGATE__ADMIN__LISTEN", "127.0.0.1:0"),
            ("TIDEGATE__STATE_DIR", &state),
            ("TIDEGATE__ORIGIN__URL", &url),
            ("PARTNER_KEY", "0123456789abcdef"),
        ];
        let mut program = Program::start_with_env(&["serve", "--config", &file], &environment);
        let ready = program.read_line();
        let mut addresses = ready.split("http://").skip(1).map(|rest| {
            let address = rest.split([' ', ',']).next().unwrap_or_default();
            address.parse().unwrap_or_else(|_| panic!("no listen address in {ready:?}"))
        });
        let (address, _, admin) = (addresses.next(), addresses.next(), addresses.next());
        Self {
            program,
            dir,
            address: address.expect("gateway listens"),
            admin: admin.expect("gateway has an admin listener"),
        }
    }

    /// Runs commands in a shell in the gateway's directory, on the ports of this gateway. Panics if one fails.
    fn run(&self, commands: &str) -> String {
        let script = format!("set -e\n{}", commands.replace("9090", &self.admin.port().to_string()));
        let programs = Path::new(env!("CARGO_BIN_EXE_tidegate")).parent().expect("program path has a parent").display();
        let path = std::env::var("PATH").unwrap_or_default();
        let output = Command::new("bash")
            .args(["-c", &script])
            .current_dir(self.dir.path())
            .env("PATH", format!("{programs}:{path}"))
            .env("PID", self.program.process_id().to_string())
            .env("TIDEGATE__ADMIN__LISTEN", self.admin.to_string())
            .output()
            .expect("bash and curl are installed by ./test");
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{script}\n{stdout}\n{}", String::from_utf8_lossy(&output.stderr));
        stdout
    }
}

/// A code block of a document, and the line at which it begins.
struct Block {
    location: String,
    text: String,
}

/// Returns the code blocks of a language in a document.
fn blocks(name: &str, text: &str, language: &str) -> Vec<Block> {
    let (mut blocks, mut lines) = (Vec::new(), text.lines().enumerate());
    while let Some((number, line)) = lines.next() {
        if line == format!("```{language}") {
            let text = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```");
            let text = text.map(|line| format!("{line}\n")).collect();
            blocks.push(Block { location: format!("{name}:{}", number + 2), text });
        }
    }
    blocks
}

fn is_complete_config(yaml: &str) -> bool {
    yaml.lines().any(|line| line.starts_with("origin:") || line.starts_with("origins:"))
}

/// Returns README.md and all files of docs/ and docs/guides/, by name.
fn documents() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = ["docs", "docs/guides"].into_iter().flat_map(|dir| fs::read_dir(root.join(dir)).expect("docs exists"));
    let files = files.map(|entry| entry.expect("file is readable").path());
    let mut documents: Vec<(String, String)> = files
        .filter(|file| file.extension().is_some_and(|extension| extension == "md"))
        .map(|file| (file.display().to_string(), fs::read_to_string(&file).expect("file is readable")))
        .collect();
    documents.push(("README.md".into(), README.into()));
    documents.sort();
    documents
}

/// Creates a directory with the files that the documentation names.
fn dir_with_files() -> TempDir {
    let dir = tempfile::tempdir().expect("temporary directory");
    for list in ["hosting.txt", "partners.txt"] {
        fs::write(dir.path().join(list), "192.0.2.0/24\n").expect("file is writable");
    }
    fs::write(dir.path().join("keys.yaml"), "api_keys: []\n").expect("file is writable");
    fs::create_dir(dir.path().join("pages")).expect("directory is writable");
    let [page] = blocks("", include_str!("../../docs/RESPONSES.md"), "html").try_into().ok().expect("one page");
    for name in ["busy.html", "unavailable.html"] {
        fs::write(dir.path().join("pages").join(name), &page.text).expect("file is writable");
    }
    let certificates = Certificates::new();
    fs::create_dir(dir.path().join("tls")).expect("directory is writable");
    for name in ["site", "shop", "wildcard"] {
        certificates.issue(name, &["example.com"]);
        for file in [format!("{name}.pem"), format!("{name}.key")] {
            fs::copy(certificates.path(&file), dir.path().join("tls").join(file)).expect("directory is writable");
        }
    }
    for authority in ["partners", "internal", "origin-ca"] {
        let copy = dir.path().join(format!("tls/{authority}.pem"));
        fs::copy(certificates.path("ca.pem"), copy).expect("directory is writable");
    }
    let program = dir.path().join("dns-record");
    fs::write(&program, "#!/bin/sh\n").expect("file is writable");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("own file");
    dir
}

/// Returns a command that runs the program in `dir`, with the variables that the documentation names.
fn tidegate_command(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(arguments).current_dir(dir);
    command.env("PARTNER_KEY", "0123456789abcdef").env("REDIS_PASSWORD", "sesame");
    command
}

const README: &str = include_str!("../../README.md");

const FIREFOX: &str = "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:144.0) Gecko/20100101 Firefox/144.0\r\n";
