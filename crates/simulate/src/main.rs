//! `simulate [--seed SEED] [--first NUMBER] [--seeds COUNT] [--hours HOURS] [--length DAYS]`: runs seeds one after the other, until the
//! hours of real time are over or a seed fails. A seed that fails is shrunk, and its history is printed.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use simulate::{
    run::{run, shrink},
    seed::Seed,
};

/// How many days a run has by default.
const DAYS: f64 = 1.5;

/// The arguments.
struct Options {
    seed: Option<Seed>,
    first: u64,
    seeds: u64,
    hours: f64,
    days: f64,
    is_quick: bool,
}

fn options() -> Result<Options, String> {
    let mut options = Options { seed: None, first: 1, seeds: u64::MAX, hours: f64::MAX, days: DAYS, is_quick: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--no-shrink" {
            options.is_quick = true;
            continue;
        }
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        let number = |value: &str| value.parse::<f64>().map_err(|error| format!("{word} {value}: {error}"));
        let whole = |value: &str| value.parse::<u64>().map_err(|error| format!("{word} {value}: {error}"));
        match &*word {
            "--seed" => options.seed = Some(value.parse::<Seed>().map_err(|why| why.to_string())?),
            "--first" => options.first = whole(&value)?,
            "--seeds" => options.seeds = whole(&value)?,
            "--hours" => options.hours = number(&value)?,
            "--length" => options.days = number(&value)?,
            _ => {
                return Err(format!(
                    "`{word}` is unknown; there are --seed, --first, --seeds, --hours, --length and --no-shrink"
                ));
            }
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(why) => {
            eprintln!("simulate: {why}");
            return ExitCode::from(2);
        }
    };
    let (began, mut simulated) = (Instant::now(), Duration::ZERO);
    let lasts = Duration::from_secs_f64(options.days * 86_400.0);
    let first = options.seed.map_or(options.first, |seed| seed.0);
    let seeds = if options.seed.is_some() { 1 } else { options.seeds };
    for number in first..first.saturating_add(seeds) {
        if began.elapsed().as_secs_f64() > options.hours * 3600.0 {
            break;
        }
        let outcome = match run(Seed(number), lasts) {
            Ok(outcome) => outcome,
            Err(error) => {
                eprintln!("simulate: {error}");
                return ExitCode::from(1);
            }
        };
        simulated += outcome.lasted;
        let days = simulated.as_secs_f64() / 86_400.0;
        if let Some(violation) = outcome.violation() {
            println!("seed {} FAILS at {:.1} days in all: {}", Seed(number), days, violation.seen);
            let outcome = if options.is_quick { Ok(outcome) } else { shrink(outcome) };
            match outcome {
                Ok(outcome) => println!("{}", outcome.describe()),
                Err(error) => eprintln!("simulate: {error}"),
            }
            return ExitCode::from(1);
        }
        let speed = days / began.elapsed().as_secs_f64() * 60.0;
        println!(
            "seed {} {:016x}: {days:.1} days without a violation, {speed:.0} a minute",
            Seed(number),
            outcome.history.digest()
        );
        if options.seed.is_some() {
            println!("{:?}", outcome.history.counts());
        }
    }
    ExitCode::SUCCESS
}
