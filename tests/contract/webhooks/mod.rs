//! Webhooks: deliveries, and the coverage that they give stored responses.

mod coverage;
mod deliveries;
