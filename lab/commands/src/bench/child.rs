//! A process of a benchmark that is started to be killed: what it and its parent have between them.
//!
//! The parent holds the other end of the child's standard input, and reads a line of JSON each time that the child has
//! something to tell.

use std::io::{Read, Write};

/// Ends this process when its parent ends, however that happens.
pub(super) fn end_with_parent() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(1);
    });
}

/// Tells the parent a line.
pub(super) fn tell_parent(line: &str) {
    let mut stdout = std::io::stdout().lock();
    // Without a reader there is nothing to wait for: the parent is gone, and so are we, soon.
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}
