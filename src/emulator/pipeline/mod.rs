//! The pipeline of a request, from arrival to answer.

pub mod arrival;
pub mod cpu;
pub mod demand;
pub mod emulator;
pub mod exchange;
pub mod faulty;
pub mod inspection;
pub mod response;
