//! The packages of the workspace can be published: `cargo install tidegate` needs nothing from the repository.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn every_package_is_complete() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let dir = tempfile::tempdir().expect("temporary directory");
    // Fails for a dependency without a version.
    let mut package = Command::new(env!("CARGO"));
    package.args(["package", "--workspace", "--no-verify", "--offline", "--allow-dirty", "--quiet", "--target-dir"]);
    let output = package.arg(dir.path()).current_dir(root).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let mut packages = BTreeSet::new();
    for archive in
        files(&dir.path().join("package")).into_iter().filter(|file| file.extension() == Some("crate".as_ref()))
    {
        let mut extract = Command::new("tar");
        extract.args(["-xzf", &archive.display().to_string(), "-C", &dir.path().display().to_string()]);
        assert!(extract.status().is_ok_and(|status| status.success()), "{}", archive.display());
        let name = archive.file_stem().expect("a name").to_string_lossy().into_owned();
        let unpacked = dir.path().join(&name);
        let manifest = fs::read_to_string(unpacked.join("Cargo.toml")).expect("a manifest");
        for key in ["\ndescription = ", "\nlicense = \"MIT\"", "\nrust-version = "] {
            assert!(manifest.contains(key), "{name}: no {key}");
        }
        assert!(!manifest.contains("publish = false"), "{name}");
        for (file, included) in included_files(&unpacked) {
            assert!(included.is_file(), "{}: {} is not in the package", file.display(), included.display());
        }
        packages.insert(name);
    }
    let version = env!("CARGO_PKG_VERSION");
    let members = fs::read_dir(root.join("crates")).expect("directory is readable");
    let members = members.map(|entry| entry.expect("entry is readable").file_name().to_string_lossy().into_owned());
    let expected = members.map(|name| format!("tidegate-{name}-{version}")).chain([format!("tidegate-{version}")]);
    assert_eq!(packages, expected.collect::<BTreeSet<_>>());
}

/// Returns the files that the code of a package includes, each with the file that does. Tests may need the repository.
fn included_files(package: &Path) -> Vec<(PathBuf, PathBuf)> {
    let is_test = |file: &Path| file.iter().any(|part| part.to_string_lossy().starts_with("tests"));
    let source = |file: &PathBuf| {
        file.extension() == Some("rs".as_ref()) && !is_test(file.strip_prefix(package).expect("inside"))
    };
    let mut included = Vec::new();
    for file in files(package).into_iter().filter(source) {
        let text = fs::read_to_string(&file).expect("source is readable");
        let parts =
            ["include_str!(\"", "include_bytes!(\""].into_iter().flat_map(|macro_call| text.split(macro_call).skip(1));
        for path in parts.filter_map(|rest| Some(rest.split_once("\")")?.0)) {
            included.push((file.clone(), file.parent().expect("a directory").join(path)));
        }
    }
    included
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(dir).expect("directory is readable").map(|entry| entry.expect("entry is readable").path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}
