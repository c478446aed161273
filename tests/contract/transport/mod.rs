//! Connections, HTTP framing, encodings and rewritten URLs.

mod compression;
mod connections;
mod drain;
mod drain_rounds;
mod encoded_answers;
mod fast_path_hits;
mod fast_path_misses;
mod floods;
mod informational;
mod listeners;
mod malformed_requests;
mod pipelining;
mod proxies;
mod request_bodies;
mod request_heads;
mod slow_readers;
mod streamed_answers;
mod tls;
mod tls_offers;
mod trailers;
mod upstream_addresses;
mod upstream_failures;
mod upstream_outages;
mod upstream_proxy;
mod upstream_tls;
mod url_rewriting;
