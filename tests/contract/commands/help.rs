//! Completions, manual pages, and the variable that names the config.

use std::path::Path;
use std::process::Command;

use super::{err, out, weir};

#[test]
fn completions_are_scripts_of_their_shells() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = weir(folder.path(), &["completions", shell], &[]);
        assert!(output.status.success(), "{}", err(&output));
        let script = out(&output);
        assert!(script.contains("no-secrets") || script.contains("config"), "{shell}");
        std::fs::write(folder.path().join(shell), script).unwrap();
    }
    let source = "source ./bash && complete -p weir && COMP_WORDS=(weir che) COMP_CWORD=1 && _weir weir che weir && echo \"${COMPREPLY[@]}\"";
    let bash = Command::new("bash").args(["-c", source]).current_dir(folder.path()).output();
    let bash = bash.unwrap();
    assert!(bash.status.success() && out(&bash).ends_with("\ncheck\n"), "{}", out(&bash));
    assert_eq!(weir(folder.path(), &["completions", "tcsh"], &[]).status.code(), Some(2));
}

#[test]
fn manual_pages_name_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let printed = weir(folder.path(), &["man"], &[]);
    assert!(printed.status.success(), "{}", err(&printed));
    assert!(weir(folder.path(), &["man", "."], &[]).status.success());
    let page = std::fs::read_to_string(folder.path().join("weir.1")).unwrap();
    assert_eq!(out(&printed), page);
    for command in
        ["serve", "check", "key", "budgets", "cache", "replicas", "writes", "completions", "man"]
    {
        assert!(page.contains(&format!("weir\\-{command}(1)")), "{command}: {page}");
        assert!(folder.path().join(format!("weir-{command}.1")).exists(), "{command}");
    }
    let missing = weir(folder.path(), &["man", "no-such-folder"], &[]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(err(&missing).contains("weir man: no-such-folder: "), "{}", err(&missing));
}

#[test]
fn a_variable_names_the_config_of_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let named = [("WEIR_CONFIG", "named.toml")];
    for command in [
        &["serve"][..],
        &["check"],
        &["budgets"],
        &["cache"],
        &["replicas"],
        &["writes", "list"],
        &["simulate", "--hours", "0.01"],
    ] {
        let output = weir(folder.path(), command, &named);
        assert_eq!(output.status.code(), Some(2), "{command:?}: {}", err(&output));
        assert!(err(&output).contains("named.toml: cannot be read"), "{}", err(&output));
        let other = [command, &["--config", "other.toml"]].concat();
        let output = weir(folder.path(), &other, &named);
        assert!(err(&output).contains("other.toml: cannot be read"), "{}", err(&output));
    }
}

#[test]
fn the_help_shows_no_value_of_the_environment() {
    let output = weir(Path::new("."), &["check", "--help"], &[("WEIR_CONFIG", "private.toml")]);
    assert!(out(&output).contains("[env: WEIR_CONFIG]"), "{}", out(&output));
    assert!(!out(&output).contains("private.toml"), "{}", out(&output));
}
