//! The command line. Standard output has JSON: a summary of a capture; of a replay a line each second, then the result.

use crate::capture::{Request, capture};
use crate::load::read;
use crate::replay::{Speed, Wanted, replay};
use crate::sql::Replacement;
use clap::{Parser, Subcommand};
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

/// Statements of PostgreSQL's logs as a load, and their replay.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Write the statements of logs (for people, csvlog, jsonlog) as a load
    Capture {
        #[arg(required = true)]
        logs: Vec<PathBuf>,
        #[arg(long)]
        out: PathBuf,
        /// log_line_prefix of logs for people; without it, that of well-known systems
        #[arg(long)]
        prefix: Option<String>,
        /// Leave statements of other databases out
        #[arg(long)]
        database: Option<String>,
        /// Literals that are replaced by others of the same form
        #[arg(long, value_enum, default_value = "keep")]
        literals: Replacement,
    },
    /// Run the statements of a load against a server; PGPASSWORD or PGPASSFILE holds the password
    Replay {
        load: PathBuf,
        /// Folder of the socket, or an address
        #[arg(long)]
        host: String,
        #[arg(long, default_value_t = 5432)]
        port: u16,
        #[arg(long, default_value = "postgres")]
        username: String,
        #[arg(long, default_value = "postgres")]
        dbname: String,
        /// A factor, or max: each session as fast as it can
        #[arg(long, default_value = "1")]
        speed: Speed,
        /// End after these seconds
        #[arg(long)]
        seconds: Option<f64>,
        /// Threads; without it, one for each 10,000 statements a second at most times, at most one a processor
        #[arg(long)]
        threads: Option<usize>,
        /// Seconds without any answer after which the rest is given up
        #[arg(long, default_value_t = 60.0)]
        patience: f64,
    },
}

pub fn main() -> ExitCode {
    match run(Arguments::parse().verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(verb: Verb) -> Result<(), Box<dyn Error>> {
    match verb {
        Verb::Capture { logs, out, prefix, database, literals } => {
            let summary = capture(&Request { logs, out, prefix, database, literals })?;
            println!("{}", serde_json::to_string(&summary)?);
        }
        Verb::Replay { load, host, port, username, dbname, speed, seconds, threads, patience } => {
            let load = read(&load)?;
            let wanted =
                Wanted { host, port, user: username, database: dbname, speed, seconds, threads, patience };
            let result = replay(load, wanted, |second| {
                if let Ok(line) = serde_json::to_string(&second) {
                    println!("{line}");
                }
            })?;
            println!("{}", serde_json::to_string(&result)?);
        }
    }
    Ok(())
}
