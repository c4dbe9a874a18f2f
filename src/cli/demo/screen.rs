//! The output: on a terminal each state replaces the last one, elsewhere only the last state of each step is printed.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use super::picture::Picture;
use crate::cli::show::{Look, Output, print};

/// How long the last state of a step stays on a terminal before the next step.
const TIME_TO_READ: Duration = Duration::from_secs(2);

/// Escape sequences: cut lines at the edge of the terminal, so that the number of lines is known; and wrap them again.
const CUT: &str = "\x1b[?7l";
const WRAP: &str = "\x1b[?7h";
const REST_OF_SCREEN: &str = "\x1b[J";

/// See the module.
#[derive(Default)]
pub(super) struct Screen {
    /// Lines of the state that is shown.
    lines: usize,
}

impl Screen {
    /// Draws a picture that may be followed by others.
    pub fn draw(&mut self, picture: &Picture) -> anyhow::Result<()> {
        if !std::io::stdout().is_terminal() {
            return Ok(());
        }
        let text = picture.text(&Look::of(Output::Table));
        let over = over(self.lines, &text);
        self.lines = text.lines().count();
        print(&over)
    }

    /// Draws the last picture of a step, and leaves time to read it.
    pub async fn show_last(&mut self, picture: &Picture) -> anyhow::Result<()> {
        if std::io::stdout().is_terminal() {
            self.draw(picture)?;
            tokio::time::sleep(TIME_TO_READ).await;
        } else {
            std::io::stdout().write_all(picture.text(&Look::of(Output::Table)).as_bytes())?;
        }
        Ok(())
    }
}

/// The output that replaces the `lines` lines above the cursor by a text.
fn over(lines: usize, text: &str) -> String {
    let up = if lines > 0 {
        format!("\x1b[{lines}A")
    } else {
        String::new()
    };
    format!("{up}{CUT}{REST_OF_SCREEN}{text}{WRAP}")
}

#[cfg(test)]
mod tests {
    use super::over;

    #[test]
    fn the_screen_is_redrawn_in_place() {
        assert_eq!(over(0, "a\n"), "\x1b[?7l\x1b[Ja\n\x1b[?7h");
        assert_eq!(over(3, "a\n"), "\x1b[3A\x1b[?7l\x1b[Ja\n\x1b[?7h");
    }
}
