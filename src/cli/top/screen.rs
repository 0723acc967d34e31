//! The terminal: its other screen, without echo, one key at a time. What it was is restored at the end.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::read;
use thalweg_reactor::process;

/// To the other screen, cursor hidden.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
/// Back.
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// Ctrl-C, which is a key like others here.
const CTRL_C: u8 = 3;
/// What a terminal is taken for that does not say its size.
const SIZE: (usize, usize) = (80, 24);

/// What the user wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    Sort,
    Other,
}

/// The terminal, while frames are drawn on it.
pub(super) struct Screen {
    before: Termios,
    /// Nothing more is to be read: no key comes any more.
    at_end: bool,
}

impl Screen {
    /// Takes the terminal of stdin and stdout over.
    ///
    /// # Errors
    /// Stdin is no terminal.
    pub(super) fn open() -> io::Result<Screen> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.local_flags
            .remove(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG);
        tcsetattr(io::stdin(), SetArg::TCSANOW, &raw)?;
        let screen = Screen {
            before,
            at_end: false,
        };
        print(ENTER)?;
        Ok(screen)
    }

    /// Columns and lines.
    pub(super) fn size(&self) -> (usize, usize) {
        process::terminal_size().unwrap_or(SIZE)
    }

    /// Shows `lines` and nothing else. None of them is longer than the terminal is wide.
    pub(super) fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        let mut text = String::from("\x1b[H");
        for (n, line) in lines.iter().enumerate() {
            let end = if n == 0 { "" } else { "\r\n" };
            text.push_str(&format!("{end}{line}\x1b[K"));
        }
        text.push_str("\x1b[J");
        print(&text)
    }

    /// The next key, at most `wait` from now.
    pub(super) fn key(&mut self, wait: Duration) -> io::Result<Option<Key>> {
        if self.at_end {
            return Ok(Some(Key::Quit));
        }
        let stdin = io::stdin();
        let mut watched = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX);
        match poll(&mut watched, timeout) {
            Ok(0) => return Ok(None),
            // The terminal has another size, or the process goes on after a pause.
            Err(nix::errno::Errno::EINTR) => return Ok(Some(Key::Other)),
            Ok(_) => {}
            Err(errno) => return Err(errno.into()),
        }
        let mut byte = [0];
        self.at_end = read(&stdin, &mut byte)? == 0;
        Ok(Some(match byte[0] {
            b'q' | b'Q' | CTRL_C => Key::Quit,
            b's' | b'S' => Key::Sort,
            _ => Key::Other,
        }))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nothing can be done about a terminal that is gone.
        let _ = print(LEAVE);
        let _ = tcsetattr(io::stdin(), SetArg::TCSANOW, &self.before);
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
