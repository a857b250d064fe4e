//! Which route a request takes: by host, then path, then method; the most specific wins.

pub mod normalize;
pub mod table;

pub use normalize::{PathError, normalize};
pub use table::{RouteLookup, RouteTable, bare_host};
