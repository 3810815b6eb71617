//! Developer commands of ort-mlx: `cargo xtask <command>`.
//!
//! This crate builds before `.deps` exists, so it depends on no other crate of the workspace.

mod bench;
mod check_macos;
mod deps;
mod doctor;
mod layout;
mod models;
mod object_record;
mod plugin;
mod step;
mod test;
mod tidy;

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
    /// Run real models through stock ONNX Runtime with the plugin: what ran where, the error, the time
    Demo(models::PassedOn),
    /// Run one model: where each node runs and why, clusters, error against ONNX Runtime, latency
    Run(models::PassedOn),
    /// Check folders of models against the right answers beside them
    Check(models::PassedOn),
    /// Print the README's table of real models
    Models(models::PassedOn),
    /// Run the benchmarks
    Bench(bench::Args),
    /// Compile and link the C++ part for macOS, from any system
    CheckMacos,
    /// Check the house rules
    Tidy,
    /// Run everything that must pass
    Test,
}

fn main() -> ExitCode {
    let layout = Layout::of_this_checkout();
    let result = match Cli::parse().command {
        Command::Deps(args) => {
            deps::run(&layout, &args).map(|()| println!("Everything is in place in .deps"))
        }
        Command::Doctor => doctor::run(&layout),
        Command::Demo(args) => models::demo(&layout, &args),
        Command::Run(args) => models::run(&layout, &args),
        Command::Check(args) => models::check(&layout, &args),
        Command::Models(args) => models::models(&layout, &args),
        Command::Bench(args) => bench::run(&layout, &args),
        Command::CheckMacos => check_macos::run(&layout),
        Command::Tidy => tidy::run(&layout),
        Command::Test => test::run(&layout),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
