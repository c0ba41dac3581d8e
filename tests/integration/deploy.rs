//! The files of `deploy` are valid, run the program with few rights, and contain configurations that it accepts.

use crate::support::crawlers::InstalledClients;
use crate::support::program::run_with_env;
use serde_json::{Map, Value};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[test]
fn systemd_units_are_valid() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let units = ["tidegate.service", "tidegate.socket"].map(|name| {
        let text = read(name).replace("/usr/local/bin/tidegate", env!("CARGO_BIN_EXE_tidegate"));
        // The page is not installed on this machine.
        let text = text.replace("Documentation=man:tidegate(1)\n", "");
        let file = dir.path().join(name);
        fs::write(&file, text).expect("directory is writable");
        file
    });
    assert_silent(Command::new("systemd-analyze").arg("verify").args(units));
}

/// Of 10, the least is best. `docs/OPERATIONS.md` states the figure.
#[test]
fn systemd_unit_has_the_stated_exposure() {
    let mut command = Command::new("systemd-analyze");
    command.args(["security", "--offline=true", "--threshold=12"]).arg(deploy("tidegate.service"));
    let output = command.output().expect("systemd is installed by ./test");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn image_is_built_by_the_rules_and_runs_without_rights() {
    assert_silent(InstalledClients::locate().linter("hadolint").arg(deploy("Containerfile")));
    let text = read("Containerfile");
    let (build, image) = text.rsplit_once("\nFROM ").expect("two stages");
    assert!(build.contains("--release"), "the distributed binary");
    let lines: Vec<&str> = image.lines().collect();
    assert!(lines[0].starts_with("gcr.io/distroless/cc-debian"), "{}", lines[0]);
    assert!(lines.contains(&"USER 65532:65532"), "{image}");
    assert!(!image.contains("\nRUN "), "the image has no shell");

    let of_program = read("Containerfile.binary");
    assert_silent(InstalledClients::locate().linter("hadolint").arg(deploy("Containerfile.binary")));
    let (_, end) = image.split_once("\nWORKDIR ").expect("the directory of the gateway");
    assert!(of_program.ends_with(end), "both images run alike");
}

/// Without a base image: the tests run where no registry can be reached.
#[test]
fn image_serves_the_demo_and_the_two_lines_of_the_readme() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let archive = dir.path().join("image.tar");
    for (script, program) in [("package-image", Some(env!("CARGO_BIN_EXE_tidegate"))), ("test-image", None)] {
        let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts").join(script));
        let output = command.args(program).arg(&archive).output().expect("the script starts");
        let text = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&text));
    }
}

#[test]
fn compose_file_runs_the_example_configuration_without_rights() {
    let compose = parse(&read("compose.yaml"));
    let service = &compose["services"]["tidegate"];
    for (key, expected) in
        [("read_only", "true"), ("cap_drop", "[\"ALL\"]"), ("security_opt", "[\"no-new-privileges:true\"]")]
    {
        assert_eq!(service[key].to_string(), expected, "{key}");
    }
    let environment = service["environment"].as_object().expect("variables");
    let variables: Vec<(&str, &str)> = environment
        .iter()
        .map(|(name, value)| match value.as_str().expect("variables are texts") {
            token if token.contains("TIDEGATE_ADMIN_TOKEN") => (name.as_str(), TOKEN),
            value => (name.as_str(), value),
        })
        .collect();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/tidegate.yaml").display().to_string();
    let outcome = run_with_env(&["check", &file], b"", &variables);
    assert_eq!((outcome.code, outcome.errors.as_str()), (0, ""));
    assert!(outcome.output.starts_with("listening on 0.0.0.0:8080, forwarding to origin"), "{}", outcome.output);
    let health = service["healthcheck"]["test"].as_array().expect("a command");
    let health: Vec<&str> = health.iter().skip(2).filter_map(Value::as_str).collect();
    let outcome = run_with_env(&[&health[..], &["--help"]].concat(), b"", &[]);
    assert_eq!((outcome.code, outcome.errors.as_str()), (0, ""), "{health:?}");
}

#[test]
fn kubernetes_manifests_are_valid() {
    let files = manifests();
    assert_eq!(files.len(), 2, "{files:?}");
    for file in files {
        let mut validate = InstalledClients::locate().linter("kubernetes-validate");
        assert_silent(validate.args(["--strict", "--quiet"]).arg(file));
    }
}

#[test]
fn kubernetes_configurations_are_accepted_and_probed() {
    let dir = tempfile::tempdir().expect("temporary directory");
    for file in manifests() {
        let name = file.display();
        let text = fs::read_to_string(&file).expect("manifest is readable");
        let resources: Vec<Value> = text.split("\n---\n").skip(1).map(parse).collect();
        let of_kind = |kind: &[&str]| {
            let found = resources.iter().find(|resource| kind.iter().any(|kind| resource["kind"] == *kind));
            found.unwrap_or_else(|| panic!("{name}: no {kind:?}"))
        };
        let workload = of_kind(&["Deployment", "StatefulSet"]);
        let pod = &workload["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{name}");
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true, "{name}");

        let config = of_kind(&["ConfigMap"])["data"]["tidegate.yaml"].as_str().expect("a configuration").to_owned();
        let yaml = dir.path().join("tidegate.yaml");
        fs::write(&yaml, &config).expect("directory is writable");
        let variables = container["env"].as_array().expect("variables");
        // No two secrets may be the same.
        let secrets: Vec<(&str, String)> = variables
            .iter()
            .filter_map(|variable| variable["name"].as_str())
            .map(|name| (name, format!("{name}-{TOKEN}")))
            .collect();
        let variables: Vec<(&str, &str)> = secrets.iter().map(|(name, secret)| (*name, secret.as_str())).collect();
        let outcome = run_with_env(&["check", &yaml.display().to_string()], b"", &variables);
        assert_eq!((outcome.code, outcome.errors.as_str()), (0, ""), "{name}");
        assert!(!outcome.output.contains("\nwarnings:"), "{name}\n{}", outcome.output);
        let shared = config.contains("redis:");
        assert_eq!(shared, workload["kind"] == "Deployment", "{name}: a ledger in files is of one replica");

        let config = parse(&config);
        let port = |address: &Value| address.as_str().and_then(|text| text.rsplit(':').next()?.parse::<u16>().ok());
        let ports = container["ports"].as_array().expect("ports");
        let named =
            |name: &Value| ports.iter().find(|port| port["name"] == *name).map(|port| port["containerPort"].clone());
        let admin = port(&config["admin"]["listen"]).map(Value::from);
        for (probe, path) in
            [("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")]
        {
            let request = &container[probe]["httpGet"];
            assert_eq!(
                (request["path"].as_str(), named(&request["port"])),
                (Some(path), admin.clone()),
                "{name}: {probe}"
            );
        }
        let target = &of_kind(&["Service"])["spec"]["ports"][0]["targetPort"];
        assert_eq!(named(target), port(&config["listen"]).map(Value::from), "{name}: Service");
        let labels = &workload["spec"]["template"]["metadata"]["labels"];
        assert_eq!(&of_kind(&["Service"])["spec"]["selector"], labels, "{name}: Service");
        assert_eq!(&workload["spec"]["selector"]["matchLabels"], labels, "{name}");
    }
}

#[test]
fn deployed_versions_are_the_current_one() {
    let image = format!("tidegate:{}", env!("CARGO_PKG_VERSION"));
    for file in manifests().into_iter().chain([deploy("compose.yaml"), deploy("Containerfile")]) {
        let text = fs::read_to_string(&file).expect("file is readable");
        assert!(text.contains(&image), "{}: no {image}", file.display());
    }
}

#[test]
fn scripts_of_the_debian_package_are_valid() {
    for script in ["postinst", "prerm", "postrm"].map(|name| format!("deploy/debian/{name}")) {
        let text = fs::read_to_string(&script).expect("script is readable");
        assert!(text.contains("\nset -e\n") && text.contains("\n#DEBHELPER#\n"), "{script}");
        assert_silent(Command::new("sh").args(["-n", &script]));
    }
    for script in
        ["scripts/package-deb", "scripts/test-deb", "scripts/package-image", "scripts/test-image", ".ci/release"]
    {
        assert_silent(Command::new("bash").args(["-n", script]));
    }
    // The unit of the package is made of this one.
    let unit = read("tidegate.service");
    for line in ["DynamicUser=yes\n", "ExecStart=/usr/local/bin/tidegate serve --config /etc/tidegate/tidegate.yaml\n"]
    {
        assert!(unit.contains(line), "no {line}");
    }
}

/// Runs a command that succeeds and prints nothing.
#[track_caller]
fn assert_silent(command: &mut Command) {
    let Output { status, stdout, stderr } =
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; run ./test, which installs it"));
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success() && stdout.is_empty() && stderr.is_empty(), "{command:?}: {status}\n{stdout}{stderr}");
}

fn manifests() -> Vec<PathBuf> {
    let entries = fs::read_dir(deploy("kubernetes")).expect("directory exists");
    entries.map(|entry| entry.expect("entry is readable").path()).collect()
}

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(deploy(name)).unwrap_or_else(|error| panic!("deploy/{name}: {error}"))
}

fn parse(yaml: &str) -> Value {
    Value::Object(serde_saphyr::from_str::<Map<String, Value>>(yaml).unwrap_or_else(|error| panic!("{error}\n{yaml}")))
}

/// Value of every secret.
const TOKEN: &str = "0123456789abcdef";
