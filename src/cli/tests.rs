use clap::CommandFactory;

use super::Cli;

#[test]
fn the_command_line_is_well_formed() {
    Cli::command().debug_assert();
}

#[test]
fn every_flag_has_help() {
    fn check(command: &clap::Command, missing: &mut Vec<String>) {
        for arg in command
            .get_arguments()
            .filter(|arg| arg.get_help().is_none() && !arg.is_hide_set())
        {
            missing.push(format!("{} {}", command.get_name(), arg.get_id()));
        }
        for sub in command.get_subcommands() {
            check(sub, missing);
        }
    }
    let mut missing = Vec::new();
    check(&Cli::command(), &mut missing);
    assert_eq!(missing, Vec::<String>::new());
}
