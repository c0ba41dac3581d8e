//! The documentation's YAML and the README's commands do what they say.
//!
//! A block of YAML that names an `origin` is a whole file: the program serves it. Any other block is a fragment: `check`
//! accepts it as it stands once an origin is added. Files and variables that the blocks refer to are here under their names.

use crate::support::client::Client;
use crate::support::origin::Origin;
use crate::support::program::Program;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

#[test]
fn every_yaml_block_is_accepted_by_check() {
    let folder = folder();
    let blocks: Vec<Block> = documents().iter().flat_map(|(name, text)| blocks(name, text, "yaml")).collect();
    assert!(blocks.len() > 15, "{} blocks", blocks.len());
    for Block { place, text } in blocks {
        fs::write(folder.path().join("block.yaml"), &text).expect("it can be written");
        let mut check = tidegate(folder.path(), &["check", "block.yaml"]);
        if !is_whole(&text) {
            check.env("TIDEGATE__ORIGIN__URL", "http://127.0.0.1:3000");
        }
        let Output { status, stderr, .. } = check.output().expect("the program was built");
        assert!(status.success(), "{place}\n{text}\n{}", String::from_utf8_lossy(&stderr));
    }
}

#[test]
fn every_whole_file_is_served() {
    let origin = Origin::plain();
    let whole = documents().into_iter().flat_map(|(name, text)| blocks(&name, &text, "yaml"));
    let whole: Vec<Block> = whole.filter(|block| is_whole(&block.text)).collect();
    assert!(!whole.is_empty(), "the README has one");
    for Block { place, text } in whole {
        let gateway = Gateway::serving(&text, &origin);
        assert_eq!(Client::connect(gateway.address).get("/", "").status, 200, "{place}");
    }
}

#[test]
fn the_commands_of_the_readme_work_with_its_yaml() {
    let [yaml] =
        blocks("README.md", README, "yaml").try_into().unwrap_or_else(|_| panic!("the README has one YAML block"));
    let commands = blocks("README.md", README, "sh").into_iter().find(|block| block.text.contains("tidegate status"));
    let commands = commands.expect("the README says how to look at a running gateway").text;
    for command in ["tidegate status", "/metrics", "tidegate quota set", "/api/v1/reload", "kill -HUP $PID"] {
        assert!(commands.contains(command), "no {command} in\n{commands}");
    }
    let origin = Origin::plain();
    let mut gateway = Gateway::serving(&yaml.text, &origin);
    assert_eq!(Client::connect(gateway.address).get("/item/1", FIREFOX).status, 200);
    let shown = gateway.run(&commands);
    for part in ["tidegate_quota_used{quota=\"api\"} ", "\"reloaded\":true"] {
        assert!(shown.contains(part), "no {part} in\n{shown}");
    }
    gateway.program.error_line("New settings are in force");
    gateway.program.error_line("New settings are in force");
    let log = gateway.folder.path().join("state/access.log");
    gateway.program.signal("TERM");
    assert_eq!(gateway.program.end().code, 0);
    assert!(fs::read_to_string(log).expect("the log is in state_dir").contains("\"path\":\"/item/1\""));
}

/// A gateway with a file of the documentation, on ports and in a folder of its own.
struct Gateway {
    program: Program,
    folder: TempDir,
    address: SocketAddr,
    admin: SocketAddr,
}

impl Gateway {
    fn serving(yaml: &str, origin: &Origin) -> Self {
        let folder = folder();
        let file = folder.path().join("tidegate.yaml").display().to_string();
        fs::write(&file, yaml).expect("it can be written");
        let state = folder.path().join("state").display().to_string();
        let url = format!("http://{}", origin.address());
        let environment = [
            ("TIDEGATE__LISTEN", "127.0.0.1:0"),
            ("TIDEGATE__ADMIN__LISTEN", "127.0.0.1:0"),
            ("TIDEGATE__STATE_DIR", &state),
            ("TIDEGATE__ORIGIN__URL", &url),
        ];
        let mut program = Program::start_with(&["serve", "--config", &file], &environment);
        let ready = program.line();
        let mut addresses = ready.split("http://").skip(1).map(|rest| {
            let address = rest.split([' ', ',']).next().unwrap_or_default();
            address.parse().unwrap_or_else(|_| panic!("no address in {ready:?}"))
        });
        let (address, _, admin) = (addresses.next(), addresses.next(), addresses.next());
        Self { program, folder, address: address.expect("it listens"), admin: admin.expect("it has an admin listener") }
    }

    /// Runs commands in a shell where the file is, on the ports of this gateway; panics where one fails.
    fn run(&self, commands: &str) -> String {
        let script = format!("set -e\n{}", commands.replace("9090", &self.admin.port().to_string()));
        let programs = Path::new(env!("CARGO_BIN_EXE_tidegate")).parent().expect("it is in a folder").display();
        let path = std::env::var("PATH").unwrap_or_default();
        let ran = Command::new("bash")
            .args(["-c", &script])
            .current_dir(self.folder.path())
            .env("PATH", format!("{programs}:{path}"))
            .env("PID", self.program.id().to_string())
            .env("TIDEGATE__ADMIN__LISTEN", self.admin.to_string())
            .output()
            .expect("bash and curl are installed by ./test");
        let shown = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(ran.status.success(), "{script}\n{shown}\n{}", String::from_utf8_lossy(&ran.stderr));
        shown
    }
}

/// A block of a document, and the line at which it begins.
struct Block {
    place: String,
    text: String,
}

/// The blocks of a language in a document.
fn blocks(name: &str, text: &str, language: &str) -> Vec<Block> {
    let (mut blocks, mut lines) = (Vec::new(), text.lines().enumerate());
    while let Some((number, line)) = lines.next() {
        if line == format!("```{language}") {
            let text = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```");
            let text = text.map(|line| format!("{line}\n")).collect();
            blocks.push(Block { place: format!("{name}:{}", number + 2), text });
        }
    }
    blocks
}

fn is_whole(yaml: &str) -> bool {
    yaml.lines().any(|line| line.starts_with("origin:"))
}

/// README.md and all of docs/, by name.
fn documents() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let files = fs::read_dir(folder).expect("there are docs").map(|entry| entry.expect("it can be read").path());
    let mut documents: Vec<(String, String)> = files
        .filter(|file| file.extension().is_some_and(|extension| extension == "md"))
        .map(|file| (file.display().to_string(), fs::read_to_string(&file).expect("it can be read")))
        .collect();
    documents.push(("README.md".into(), README.into()));
    documents.sort();
    documents
}

/// A folder with the address lists that the documentation names.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder of its own");
    for list in ["hosting.txt", "partners.txt"] {
        fs::write(folder.path().join(list), "192.0.2.0/24\n").expect("it can be written");
    }
    folder
}

/// The program in `folder`, with the variables that the documentation names.
fn tidegate(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(arguments).current_dir(folder);
    command.env("PARTNER_KEY", "0123456789abcdef").env("REDIS_PASSWORD", "sesame");
    command
}

const README: &str = include_str!("../../README.md");

const FIREFOX: &str = "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:144.0) Gecko/20100101 Firefox/144.0\r\n";
