//! Deliveries of the upstream and what they say about stored responses.

mod coverage;
mod deliveries;
