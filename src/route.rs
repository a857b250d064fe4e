//! Which route a request takes: by host, then path, then method, then what its headers and its query
//! say; the most specific wins.

pub mod normalize;
pub mod table;
mod template;

pub use normalize::{PathError, normalize};
pub use table::{LookupKey, RouteLookup, RouteTable, bare_host};
pub use template::{Encoding, PathTemplate, TemplateInput, TemplatePart, TemplatePiece};
