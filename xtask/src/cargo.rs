//! How cargo is called: the same toolchain, and an environment that does not depend on who called us.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// `cargo ARGUMENTS` in the workspace, without standard input: no test may depend on a terminal that happens to be there.
pub(crate) fn cargo<'a>(root: &Path, arguments: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    command.args(arguments).current_dir(root).stdin(Stdio::null());
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(is_ours_or_cargos) {
            command.env_remove(name);
        }
    }
    command
}

/// What a nested cargo must not see. Of cargo: what `cargo run` says about xtask itself, since build scripts that watch
/// these variables would run again on every change between `cargo build` and `cargo xtask`. Of fencelock: the user's own
/// settings, since tests would lock in the user's database.
fn is_ours_or_cargos(name: &str) -> bool {
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_") || name.starts_with("FENCELOCK_")
}

pub(crate) fn target_dir(root: &Path) -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |given| root.join(given))
}

/// The command as a user would type it: no paths of this machine, only the variables that were set on purpose.
pub(crate) fn spell(command: &Command) -> String {
    let mut words = Vec::new();
    for (name, value) in command.get_envs() {
        if let (Some(name), Some(value)) = (name.to_str(), value) {
            words.push(format!("{name}={}", quoted(&value.to_string_lossy())));
        }
    }
    let program = Path::new(command.get_program());
    words.push(program.file_name().unwrap_or(command.get_program()).to_string_lossy().into_owned());
    words.extend(command.get_args().map(|argument| quoted(&argument.to_string_lossy())));
    words.join(" ")
}

fn quoted(word: &str) -> String {
    if word.is_empty() || word.contains(|c: char| c.is_whitespace()) { format!("'{word}'") } else { word.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_spelled_without_paths() {
        let mut command = Command::new("/somewhere/bin/cargo");
        command.args(["doc", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings").env_remove("FENCELOCK_URL");
        assert_eq!(spell(&command), "RUSTDOCFLAGS='-D warnings' cargo doc --no-deps");
    }
}
