//! The evaluator process: it contains itself, then does one task after the other. It ends when the gateway does, even in the
//! middle of a task.

use std::{
    collections::{HashMap, hash_map::Entry},
    io::{self, stdin, stdout},
    os::fd::AsFd,
    panic::{AssertUnwindSafe, catch_unwind},
    process::{ExitCode, exit},
    thread,
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::wire::{self, EvaluatorAnswer, START_FAILED, Task};
use crate::{
    expression::{Expression, SyntaxError},
    template::{Refusal, Template, TemplateError, ValueContext, value_of},
};
use domain::document;

/// The largest result, in bytes of memory.
const MAX_RESULT_BYTES: usize = 48 * 1024 * 1024;
/// How many expressions and templates stay compiled.
const MAX_COMPILED: usize = 64;
/// How much lower its priority is than the gateway's (nice(1)).
const NICE: i32 = 10;

/// Runs as an evaluator. Tasks come from standard input, answers go to standard output.
#[must_use]
pub fn run() -> ExitCode {
    match live() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{START_FAILED}{error}");
            ExitCode::FAILURE
        }
    }
}

fn live() -> io::Result<()> {
    let memory = std::env::args().nth(2).and_then(|memory| memory.parse().ok());
    let memory = memory.ok_or_else(|| io::Error::other("its memory limit is missing"))?;
    launcher::contain_evaluator(memory).map_err(io::Error::other)?;
    let _ = rustix::process::nice(NICE);
    thread::Builder::new().stack_size(64 * 1024).spawn(end_with_gateway)?;
    let (mut tasks, mut answers) = (stdin().lock(), stdout().lock());
    let mut compiled = Compiled::default();
    while let Some(body) = wire::receive(&mut tasks)? {
        let task = wire::message(&body)?;
        let done = catch_unwind(AssertUnwindSafe(|| compiled.answer(&task)));
        let is_whole = done.is_ok();
        wire::send(&mut answers, &done.unwrap_or(EvaluatorAnswer::Panicked))?;
        if !is_whole {
            break;
        }
    }
    Ok(())
}

/// Ends this process when the gateway has closed the pipe.
fn end_with_gateway() {
    let stdin = stdin();
    loop {
        // Without requested events, poll returns only when the pipe is closed.
        let mut gateway = [PollFd::new(stdin.as_fd(), PollFlags::empty())];
        if poll(&mut gateway, PollTimeout::NONE).is_ok() {
            exit(0);
        }
    }
}

/// The compiled expressions and templates, by source.
#[derive(Default)]
struct Compiled {
    expressions: HashMap<String, Expression>,
    templates: HashMap<(String, ValueContext), Template>,
}

impl Compiled {
    fn answer(&mut self, task: &Task<'_>) -> EvaluatorAnswer {
        match task {
            Task::Expression { source, variables } => {
                let expression = self.expression(source).map_err(|error| error.to_string());
                let json = expression.and_then(|expression| expression.evaluate_json(variables, MAX_RESULT_BYTES));
                json.transpose().map_or(EvaluatorAnswer::TooLarge, EvaluatorAnswer::Value)
            }
            Task::Template { source, place, context } => EvaluatorAnswer::Text(self.render(source, *place, context)),
        }
    }

    fn render(&mut self, source: &str, place: ValueContext, context: &[u8]) -> Result<String, Refusal> {
        let refusal = |error: &dyn std::error::Error| Refusal { message: error.to_string(), misfit: None };
        let values = document::parse(context).map_err(|error| refusal(&error))?;
        self.template(source, place).map_err(|error| refusal(&error))?.render(&value_of(&values))
    }

    fn expression(&mut self, source: &str) -> Result<&Expression, SyntaxError> {
        // All at once: routes have few expressions, so this happens only after many reloads.
        if self.expressions.len() >= MAX_COMPILED && !self.expressions.contains_key(source) {
            self.expressions.clear();
        }
        Ok(match self.expressions.entry(source.to_owned()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => free.insert(Expression::compile(source)?),
        })
    }

    fn template(&mut self, source: &str, place: ValueContext) -> Result<&Template, TemplateError> {
        let key = (source.to_owned(), place);
        if self.templates.len() >= MAX_COMPILED && !self.templates.contains_key(&key) {
            self.templates.clear();
        }
        Ok(match self.templates.entry(key) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => free.insert(Template::parse_again(source, place)?),
        })
    }
}
