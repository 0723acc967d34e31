//! `thalweg top`: what a broker does now, read from its HTTP endpoint.

mod frame;
mod layout;
mod screen;

use std::io::{self, IsTerminal};
use std::thread;
use std::time::{Duration, Instant};

use thalweg_control::{SlowAnswer, TopAnswer};

use crate::args::TopArgs;
use crate::broker_http::BrokerHttp;
use crate::exit::Failure;
use crate::output;

use frame::Frame;
use layout::{Sort, View};
use screen::{Key, Screen};

/// How long one answer of the endpoint may take.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// Width of what is not printed to a terminal.
const PLAIN_COLUMNS: usize = 160;

pub(crate) fn run(args: &TopArgs) -> Result<(), Failure> {
    let mut watch = Watch::begin(args)?;
    if args.json {
        loop {
            thread::sleep(watch.interval);
            output::json_line(&watch.next()?)?;
            if args.once {
                return Ok(());
            }
        }
    }
    let is_watched = io::stdout().is_terminal() && io::stdin().is_terminal();
    if is_watched && !args.once {
        return live(&mut watch, args);
    }
    thread::sleep(watch.interval);
    let view = View {
        sort: Sort::default(),
        columns: PLAIN_COLUMNS,
        lines: usize::MAX,
        seconds: args.interval,
    };
    Ok(output::lines(&layout::lines(&watch.next()?, &view))?)
}

/// Draws until the user has had enough. A broker that does not answer meanwhile is said, and asked again.
fn live(watch: &mut Watch, args: &TopArgs) -> Result<(), Failure> {
    let mut screen = Screen::open()?;
    let mut sort = Sort::default();
    let mut shown: Result<Frame, Failure> = Ok(Frame::default());
    let mut due = Instant::now() + watch.interval;
    loop {
        let (columns, lines) = screen.size();
        let view = View {
            sort,
            columns,
            lines,
            seconds: args.interval,
        };
        screen.draw(&match &shown {
            Ok(frame) => layout::lines(frame, &view),
            Err(failure) => layout::unreachable(failure, &view),
        })?;
        match screen.key(due.saturating_duration_since(Instant::now()))? {
            Some(Key::Quit) => return Ok(()),
            Some(Key::Sort) => sort = sort.next(),
            Some(Key::Other) => {}
            None => {
                due = Instant::now() + watch.interval;
                shown = watch.next();
            }
        }
    }
}

/// The endpoint, and what it said last.
struct Watch {
    http: BrokerHttp,
    rows: u16,
    interval: Duration,
    last: TopAnswer,
}

impl Watch {
    fn begin(args: &TopArgs) -> Result<Watch, Failure> {
        let http = BrokerHttp::at(&args.http, ANSWER_WAIT);
        Ok(Watch {
            last: http.get("/top?n=0")?,
            http,
            rows: args.rows,
            interval: Duration::from_secs(args.interval.into()),
        })
    }

    /// What happened since this was asked last.
    fn next(&mut self) -> Result<Frame, Failure> {
        let now: TopAnswer = self.http.get(&format!("/top?n={}", self.rows))?;
        let slow: SlowAnswer = self.http.get(&format!("/slow?n={}", self.rows))?;
        let frame = Frame::between(&self.last, &now, slow.requests);
        self.last = now;
        Ok(frame)
    }
}
