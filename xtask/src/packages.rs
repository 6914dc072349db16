//! The commands that the tests call, and how they get onto a fresh Debian machine.

use crate::steps::run;
use std::collections::BTreeSet;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

/// Command, or file (`*`: one folder of any name), and the Debian packages that bring it.
type Needed = (&'static str, &'static [&'static str]);

/// What the tests cannot do without.
const NEEDED: &[Needed] = &[
    ("/usr/lib/postgresql/*/bin/postgres", &["postgresql"]),
    ("/usr/lib/galera/libgalera_smm.so", &["galera-4"]),
    ("/usr/share/java/curator-recipes.jar", &["libcurator-recipes-java"]),
    ("/usr/share/java/slf4j-simple.jar", &["libslf4j-java"]),
    ("/usr/share/java/zookeeper.jar", &["libzookeeper-java"]),
    ("/usr/sbin/mariadbd", &["mariadb-server"]),
    ("/usr/sbin/pgbouncer", &["pgbouncer"]),
    ("bash", &["bash"]),
    ("bindfs", &["bindfs"]),
    ("cc", &["gcc", "libc6-dev"]),
    ("etcd", &["etcd-server"]),
    ("etcdctl", &["etcd-client"]),
    ("fish", &["fish"]),
    ("groff", &["groff-base"]),
    ("ip", &["iproute2"]),
    ("java", &["default-jre-headless"]),
    ("javac", &["default-jdk-headless"]),
    ("less", &["less"]),
    ("mariadb", &["mariadb-client"]),
    ("node", &["nodejs"]),
    ("npm", &["npm"]),
    ("nsenter", &["util-linux"]),
    ("pgrep", &["procps"]),
    ("pip3", &["python3-pip"]),
    ("ps", &["procps"]),
    ("psql", &["postgresql-client"]),
    ("redis-sentinel", &["redis-sentinel"]),
    ("redis-server", &["redis-server"]),
    ("rsync", &["rsync"]),
    ("setpriv", &["util-linux"]),
    ("setsid", &["util-linux"]),
    ("sqlite3", &["sqlite3"]),
    ("unshare", &["util-linux"]),
    ("zsh", &["zsh"]),
];

/// The same of what not every apt has: the test that calls it says what it could not show. A browser is 100 MB to fetch,
/// 300 MB on disk and some ten seconds: the smallest real one that Debian has.
const WANTED: &[Needed] = &[("chromium-headless-shell", &["chromium-headless-shell"])];

/// Installs what is missing. Where that cannot be done it says what to install, and fails.
pub(crate) fn ensure() -> Result<(), String> {
    let path = env::var_os("PATH").unwrap_or_default();
    let (needed, wanted) = (missing(NEEDED, &path), missing(WANTED, &path));
    if needed.is_empty() && wanted.is_empty() {
        println!("   every command that the tests call is here");
        return Ok(());
    }
    if !needed.is_empty() {
        install_all(&path, NEEDED)?;
    }
    if !wanted.is_empty()
        && let Err(why) = install_all(&path, WANTED)
    {
        println!("   {why}: the tests that call it say what they could not show");
    }
    Ok(())
}

fn install_all(path: &OsStr, all: &'static [Needed]) -> Result<(), String> {
    let missing = missing(all, path);
    let packages: BTreeSet<&str> = missing.iter().flat_map(|(_, packages)| packages.iter().copied()).collect();
    let packages: Vec<&str> = packages.into_iter().collect();
    let commands: Vec<&str> = missing.iter().map(|(command, _)| *command).collect();
    println!("   missing: {}", commands.join(", "));

    // Asked of /proc because std has no geteuid; without /proc we are not on Linux and apt-get is not there either.
    let root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    let sudo = !root && finds(path, "sudo");
    if !finds(path, "apt-get") || !(root || sudo) {
        let why = if finds(path, "apt-get") { "neither root nor sudo" } else { "no apt-get here" };
        return Err(format!(
            "{why}; install the commands {} (Debian: apt-get install {}), then start again",
            commands.join(", "),
            packages.join(" ")
        ));
    }
    run(apt(sudo).arg("update"))?;
    run(install(sudo).args(&packages))?;
    let still: Vec<&str> = self::missing(all, path).iter().map(|(command, _)| *command).collect();
    if still.is_empty() { Ok(()) } else { Err(format!("installed, but not found: {}", still.join(", "))) }
}

/// `env` behind sudo, since sudo drops variables; the lock timeout because a new machine often runs its own updates.
const ENVIRONMENT: &str = "DEBIAN_FRONTEND=noninteractive";
const LOCK_TIMEOUT: [&str; 2] = ["-o", "DPkg::Lock::Timeout=300"];
/// Servers come as services. The tests start their own: the machine's policy forbids any start while they are installed.
const QUIETLY: &str = "\
    policy=/usr/sbin/policy-rc.d; \
    if [ ! -e $policy ]; then \
      trap 'rm -f $policy' EXIT; printf '#!/bin/sh\\nexit 101\\n' > $policy; chmod 755 $policy; \
    fi; \
    apt-get -o DPkg::Lock::Timeout=300 install --yes --no-install-recommends \"$@\"";

fn privileged(sudo: bool) -> Command {
    let mut command = Command::new(if sudo { "sudo" } else { "env" });
    if sudo {
        command.arg("env");
    }
    command.arg(ENVIRONMENT);
    command
}
fn apt(sudo: bool) -> Command {
    let mut command = privileged(sudo);
    command.arg("apt-get").args(LOCK_TIMEOUT);
    command
}
/// The packages are its arguments.
fn install(sudo: bool) -> Command {
    let mut command = privileged(sudo);
    command.args(["sh", "-c", QUIETLY, "install"]);
    command
}

fn missing(all: &'static [Needed], path: &OsStr) -> Vec<&'static Needed> {
    all.iter().filter(|(command, _)| !finds(path, command)).collect()
}

pub(crate) fn finds(path: &OsStr, command: &str) -> bool {
    // Of whatever version.
    if let Some((folder, rest)) = command.split_once("/*/") {
        return fs::read_dir(folder)
            .is_ok_and(|mut all| all.any(|one| one.is_ok_and(|one| one.path().join(rest).is_file())));
    }
    if command.starts_with('/') {
        return Path::new(command).is_file();
    }
    env::split_paths(path).any(|directory| is_executable(&directory.join(command)))
}

fn is_executable(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_a_file_that_may_be_executed() {
        assert!(finds(OsStr::new("/nowhere:/bin:/usr/bin"), "sh"));
        assert!(!finds(OsStr::new("/bin:/usr/bin"), "no-such-command"));
        assert!(!finds(OsStr::new("/etc"), "passwd"), "a file, but not executable");
        assert!(!finds(OsStr::new("/"), "usr"), "executable, but a directory");
        assert!(!finds(OsStr::new(""), "sh"));
    }

    #[test]
    fn with_an_empty_path_every_command_is_missing() {
        let commands = NEEDED.iter().filter(|(command, _)| !command.starts_with('/')).count();
        assert!(missing(NEEDED, OsStr::new("/nowhere")).len() >= commands);
        assert!(finds(OsStr::new(""), "/etc/passwd") && !finds(OsStr::new(""), "/etc"));
        assert!(finds(OsStr::new(""), "/proc/*/status") && !finds(OsStr::new(""), "/proc/*/no-such-file"));
    }
}
