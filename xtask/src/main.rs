//! Developer commands of ort-mlx: `cargo xtask <command>`.
//!
//! This crate builds before `.deps` exists, so it depends on no other crate of the workspace.

mod deps;
mod doctor;
mod layout;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use layout::Layout;

/// Developer commands of ort-mlx.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Fetch, verify and unpack everything the project builds and tests with into `.deps`
    Deps(deps::Args),
    /// Print the tools, dependencies and devices that are there
    Doctor,
}

fn main() -> ExitCode {
    let layout = Layout::of_this_checkout();
    let result = match Cli::parse().command {
        Command::Deps(args) => {
            deps::run(&layout, &args).map(|()| println!("Everything is in place in .deps"))
        }
        Command::Doctor => doctor::run(&layout),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
