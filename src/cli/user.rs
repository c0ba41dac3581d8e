//! Name of the user that runs the command.

use std::os::unix::fs::MetadataExt;

/// Returns the user's name, before `sudo` if it was used. The name is unverified.
pub fn name(environment: &[(String, String)]) -> Option<String> {
    let variable = |name: &str| environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    let owner = || {
        let number = std::fs::metadata("/proc/self").ok()?.uid();
        name_by_uid(number, &std::fs::read_to_string("/etc/passwd").ok()?)
    };
    [variable("SUDO_USER"), owner(), variable("USER"), variable("LOGNAME")]
        .into_iter()
        .flatten()
        .find(|name| is_valid_name(name))
}

/// Returns the name of user id `number` from the text of `/etc/passwd`.
fn name_by_uid(number: u32, passwd: &str) -> Option<String> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, listed) = (fields.next()?, fields.nth(1)?);
        (listed.parse() == Ok(number)).then(|| name.to_owned())
    })
}

fn is_valid_name(text: &str) -> bool {
    (1..=64).contains(&text.chars().count()) && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_name_is_found_by_uid_despite_sudo() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nbroken\nann:x:1000:1000::/home/ann:/bin/sh\n";
        assert_eq!(name_by_uid(1000, passwd).as_deref(), Some("ann"));
        assert_eq!(name_by_uid(1, passwd), None);
        let environment = [("SUDO_USER".to_owned(), "ann".to_owned()), ("USER".to_owned(), "root".to_owned())];
        assert_eq!(name(&environment).as_deref(), Some("ann"));
    }
}
