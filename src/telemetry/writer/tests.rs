//! Every line is written, in order, or counted.

use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;

/// A log destination that passes each write to the test, and blocks until the test releases it.
struct Gated {
    pieces: Sender<Vec<u8>>,
    gate: Receiver<()>,
}

impl Write for Gated {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        self.pieces.send(piece.to_vec()).map_err(|_| io::ErrorKind::BrokenPipe)?;
        self.gate.recv().map_err(|_| io::ErrorKind::BrokenPipe)?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn gated(
    report: impl Fn(u64) + Send + 'static,
) -> (LogWriter, WriterThread, Receiver<Vec<u8>>, Sender<()>) {
    let (pieces, written) = channel();
    let (open, gate) = channel();
    let (lines, writing) = LogWriter::start(move || Gated { pieces, gate }, report).unwrap();
    (lines, writing, written, open)
}

#[test]
fn an_orderly_end_writes_every_line_in_order() {
    let (lines, writing, written, open) = gated(|_| {});
    let wanted: Vec<u8> =
        (0..1_000).flat_map(|number| format!("{number}\n").into_bytes()).collect();
    for line in wanted.split_inclusive(|byte| *byte == b'\n') {
        lines.make_writer().write_all(line).unwrap();
    }
    (0..1_000).for_each(|_| open.send(()).unwrap());
    drop(writing);
    assert_eq!(written.try_iter().flatten().collect::<Vec<u8>>(), wanted);
}

#[test]
fn unread_lines_delay_nothing_and_are_counted() {
    let (reported, left_out) = channel();
    let (lines, writing, written, open) = gated(move |lines| reported.send(lines).unwrap());
    let line = [b'x'; 1024];
    lines.put(&line, true);
    assert_eq!(written.recv().unwrap().len(), line.len(), "the first is being written, and stuck");
    let fit = WAITING_BYTES_MAX / line.len();
    (0..fit + 7).for_each(|_| lines.put(&line, false));
    open.send(()).unwrap();
    assert_eq!(written.recv().unwrap().len(), WAITING_BYTES_MAX);
    open.send(()).unwrap();
    assert_eq!(left_out.recv().unwrap(), 7);
    drop(writing);
}

#[test]
fn a_warning_does_not_wait_for_others() {
    let (lines, writing, written, open) = gated(|_| {});
    lines.put(b"warning\n", true);
    assert_eq!(written.recv().unwrap(), b"warning\n");
    open.send(()).unwrap();
    drop(writing);
}

#[test]
fn warnings_are_urgent_and_lines_of_requests_never() {
    assert!(is_urgent(Level::WARN, "weir::gateway") && is_urgent(Level::ERROR, "h2"));
    assert!(!is_urgent(Level::INFO, "weir::gateway"));
    assert!(!is_urgent(Level::WARN, log::TARGET));
    assert_eq!(log::TARGET, "weir::telemetry::log");
}
