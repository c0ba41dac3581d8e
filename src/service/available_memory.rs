//! Memory that the machine, or the control group of the process, has.

use std::fs::read_to_string;
use std::path::Path;

/// Returns the bytes of memory that the process may use, with `root` as the root directory; `None` if the system does
/// not tell.
pub(super) fn available_memory(root: &Path) -> Option<u64> {
    let total = read_to_string(root.join("proc/meminfo")).ok().and_then(|text| total_of_machine(&text));
    let groups = read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    groups.lines().filter_map(|line| limit_of_group(root, line)).chain(total).min()
}

fn total_of_machine(meminfo: &str) -> Option<u64> {
    let kibibytes = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    kibibytes.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the lowest limit of a control group, as in `/proc/self/cgroup`, and the groups that contain it.
fn limit_of_group(root: &Path, line: &str) -> Option<u64> {
    let (hierarchy, file) = match line.split(':').nth(1)? {
        "" => ("sys/fs/cgroup", "memory.max"),
        controllers if controllers.split(',').any(|name| name == "memory") => {
            ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
        }
        _ => return None,
    };
    let group = Path::new(line.splitn(3, ':').nth(2)?.trim_start_matches('/'));
    let limit = |group: &Path| {
        let limit = read_to_string(root.join(hierarchy).join(group).join(file)).ok()?;
        // `max` is no limit.
        limit.trim().parse::<u64>().ok()
    };
    group.ancestors().filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Returns the memory of a system with these files.
    fn available(files: &[(&str, &str)]) -> Option<u64> {
        let root = tempfile::tempdir().expect("temporary directory");
        for (path, content) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a directory")).expect("directory");
            fs::write(path, content).expect("file");
        }
        available_memory(root.path())
    }

    const MACHINE: (&str, &str) = ("proc/meminfo", "MemTotal:       24619780 kB\nMemFree:         1000 kB\n");
    const MACHINE_BYTES: u64 = 24_619_780 * 1024;

    #[test]
    fn lowest_limit_of_machine_and_groups_applies() {
        assert_eq!(available(&[]), None);
        assert_eq!(available(&[("proc/meminfo", "MemTotal: many\n")]), None);
        assert_eq!(available(&[MACHINE]), Some(MACHINE_BYTES));

        let group = ("proc/self/cgroup", "0::/system.slice/tidegate.service\n");
        let own = "sys/fs/cgroup/system.slice/tidegate.service/memory.max";
        let parent = "sys/fs/cgroup/system.slice/memory.max";
        assert_eq!(available(&[MACHINE, group, (own, "max\n")]), Some(MACHINE_BYTES));
        assert_eq!(available(&[MACHINE, group, (own, "536870912\n")]), Some(1 << 29));
        assert_eq!(available(&[MACHINE, group, (own, "536870912\n"), (parent, "1000\n")]), Some(1000));

        let first_version = ("proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/docker/1\n0::/unused\n");
        let limit = ("sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "4096\n");
        assert_eq!(available(&[MACHINE, first_version, limit]), Some(4096));
        let outside = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(available(&[MACHINE, first_version, outside]), Some(MACHINE_BYTES));
    }
}
