//! Answers that Weir makes itself, and the rate headers on those it passes on.

pub mod fault;
pub mod fields;
pub mod rate_headers;
pub mod refusal;
pub mod scratch;
pub mod structured;

pub use fault::Fault;
pub use fields::Fields;
pub use rate_headers::{Applied, RateHeaders};
pub use scratch::Scratch;

use http::Response;

use crate::body::Body;
use crate::config::settings::HeaderEdits;

/// What the gateway answers: a response, and the fields that Weir adds to it.
#[derive(Debug)]
pub struct Answer {
    pub response: Response<Body>,
    pub fields: Fields,
}

impl Answer {
    /// Sets and removes what the route says, whoever has written it.
    pub fn edit(&mut self, edits: &HeaderEdits) {
        let headers = self.response.headers_mut();
        for name in &edits.remove {
            headers.remove(name);
            self.fields.remove(name.as_str());
        }
        for (name, value) in &edits.set {
            headers.insert(name.clone(), value.clone());
            self.fields.remove(name.as_str());
        }
    }
}

impl From<Response<Body>> for Answer {
    fn from(response: Response<Body>) -> Self {
        Answer { response, fields: Fields::default() }
    }
}

impl From<Fault> for Answer {
    fn from(fault: Fault) -> Self {
        fault.into_response().into()
    }
}
