//! The requests of the control plane that wait for something to happen.

use http::{Method, Uri};

use crate::emulator::faults::FaultId;
use crate::emulator::faults::gates::GateId;
use crate::emulator::http::path::canonical;
use crate::emulator::http::{ApiArea, Query};

/// Parses `GET /_emulator/gates/{id}?held=N`, which waits for N held requests.
pub fn awaited_gate(method: &Method, uri: &Uri) -> Option<(GateId, usize)> {
    let canonical = canonical(uri.path());
    if method != Method::GET || canonical.area != ApiArea::Control {
        return None;
    }
    let id = canonical.path.strip_prefix("/gates/")?.parse().ok()?;
    let count = Query::parse(uri.query()).get("held")?.parse().ok()?;
    Some((GateId(id), count))
}

/// Parses `GET /_emulator/faults/{id}?struck=N`, which waits for N strikes.
pub fn awaited_fault(method: &Method, uri: &Uri) -> Option<(FaultId, u64)> {
    let canonical = canonical(uri.path());
    if method != Method::GET || canonical.area != ApiArea::Control {
        return None;
    }
    let id = canonical.path.strip_prefix("/faults/")?.parse().ok()?;
    let count = Query::parse(uri.query()).get("struck")?.parse().ok()?;
    Some((FaultId(id), count))
}
