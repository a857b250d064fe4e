//! Who a request counts as, and whether it may pass at all.

mod access_lists;
pub(crate) mod api_keys;
mod authorization;
mod caller_sources;
mod client_address;
mod client_certificates;
mod form_fields;
mod forwarded_identity;
mod jwt;
mod jwt_keys;
mod limit_keys;
mod proxy_headers;
mod proxy_protocol;
