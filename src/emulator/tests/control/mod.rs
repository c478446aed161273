//! Tests of the control plane and faults.

pub mod fault_sockets;
pub mod faults;
pub mod input;
pub mod plane;
pub mod strict;
